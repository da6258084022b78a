"""Keys around a server: it gets only those that are given to it, and those are redacted wherever they appear."""

from __future__ import annotations

import re
from collections.abc import Mapping

from teamcli.mcp.server import ServerConfig
from teamcli.text.redaction import is_secret

_KEYS = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTHORIZATION|COOKIE", re.IGNORECASE)
_PASSWORD_IN_URL = re.compile(r"://[^/@\s]*:[^/@\s]+@")


def server_variables(seen_by_commands: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str | None]:
    """What differs from the variables of commands: no key and no password, except those given to this server."""
    kept_back = {
        name: None
        for name, value in seen_by_commands.items()
        if _KEYS.search(name) or (_PASSWORD_IN_URL.search(value) and not name.lower().endswith("_proxy"))
    }
    return {**kept_back, **given}


def secrets_of(config: ServerConfig) -> frozenset[str]:
    """The keys in a configuration whose variables are expanded."""
    named = {**config.env, **config.headers}.items()
    # Of `Bearer x`, only `x` is secret.
    values = (value.strip().rpartition(" ")[2] for name, value in named if _KEYS.search(name))
    return frozenset(filter(is_secret, (*values, config.oauth.client_secret)))
