"""Keys around a server: it gets only those that are given to it, and those are redacted wherever they appear."""

from __future__ import annotations

import re
from collections.abc import Mapping

from teamcli.mcp.server import ServerConfig
from teamcli.text.redaction import is_secret

_KEYS = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTHORIZATION|COOKIE", re.IGNORECASE)
_PASSWORD_IN_URL = re.compile(r"://[^/@\s]*:[^/@\s]+@")


def without_keys(variables: Mapping[str, str]) -> dict[str, str]:
    """No key and no password, except in the addresses of proxies."""
    return {
        name: value
        for name, value in variables.items()
        if not _KEYS.search(name) and (name.lower().endswith("_proxy") or not _PASSWORD_IN_URL.search(value))
    }


def secrets_of(config: ServerConfig) -> frozenset[str]:
    """The keys in a configuration whose variables are expanded."""
    named = {**config.env, **config.headers}.items()
    # Of `Bearer x`, only `x` is secret.
    values = (value.strip().rpartition(" ")[2] for name, value in named if _KEYS.search(name))
    return frozenset(filter(is_secret, (*values, config.oauth.client_secret)))
