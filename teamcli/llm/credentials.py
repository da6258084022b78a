"""Which endpoint, credential and client the environment asks for. Loads no client to find out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from teamcli.config.environment import (
    CUSTOM_HEADERS,
    ENDPOINT,
    KEY_VARIABLES,
    OFFICIAL_URL,
    PLATFORM_SWITCHES,
    Platform,
    is_switched_on,
)
from teamcli.errors import ConfigError

API_KEY, AUTH_TOKEN = KEY_VARIABLES
BASE_URL = ENDPOINT
PROFILE = "ANTHROPIC_PROFILE"

ClientChoice = Literal["auto", "direct", "sdk"]
AuthHeader = Literal["auto", "bearer", "x-api-key", "both"]

_PLATFORM_SETTINGS: Mapping[str, Platform] = {
    "AWS_BEARER_TOKEN_BEDROCK": "bedrock",
    "ANTHROPIC_BEDROCK_BASE_URL": "bedrock",
    "ANTHROPIC_VERTEX_PROJECT_ID": "vertex",
    "ANTHROPIC_FOUNDRY_RESOURCE": "foundry",
    "ANTHROPIC_FOUNDRY_BASE_URL": "foundry",
}
_FEDERATION = ("ANTHROPIC_FEDERATION_RULE_ID", "ANTHROPIC_ORGANIZATION_ID")
_IDENTITY_TOKENS = ("ANTHROPIC_IDENTITY_TOKEN", "ANTHROPIC_IDENTITY_TOKEN_FILE")


@dataclass(frozen=True)
class Endpoint:
    """Where requests go, with which credential, and through which client."""

    client: Literal["direct", "sdk"]
    source: str
    """Where the credential comes from, in words that a person can act on: `ANTHROPIC_API_KEY`, `the profile work`."""
    base_url: str = ""
    """Without a trailing slash or `/v1`. Empty if the SDK knows it (profiles and platforms)."""
    secret: str = field(default="", repr=False)
    """The key or token; empty if the SDK finds one."""
    auth_header: Literal["bearer", "x-api-key", "both"] = "bearer"
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """More headers to send, from ANTHROPIC_CUSTOM_HEADERS."""
    platform: Platform | None = None
    profile: str = ""

    @property
    def host(self) -> str:
        return urlsplit(self.base_url).netloc if self.base_url else self.platform or "the Claude API"

    @property
    def is_official(self) -> bool:
        return self.base_url in ("", OFFICIAL_URL)

    @property
    def sends_pings(self) -> bool:
        """Whether its answers are never silent for long. A model on the user's machine may be."""
        return self.is_official and self.platform is None

    @property
    def own_headers(self) -> dict[str, str]:
        """The headers that carry `secret`, and the custom ones, which win. Names are in lower case.

        The API, and SDK 2.x, use `Authorization: Bearer` for keys and tokens alike. Some gateways read only that, and
        some only `x-api-key`. So a *key* goes to a custom address in both; a token goes only as bearer.
        """
        headers: dict[str, str] = {}
        if self.secret and self.auth_header != "x-api-key":
            headers["authorization"] = f"Bearer {self.secret}"
        if self.secret and self.auth_header != "bearer":
            headers["x-api-key"] = self.secret
        return headers | {name.lower(): value for name, value in self.headers}


def find_endpoint(
    env: Mapping[str, str],
    client: ClientChoice = "auto",
    platform: Platform | None = None,
    auth_header: AuthHeader = "auto",
    no_credential: str = f"{BASE_URL} is set but there is no credential for it: set {API_KEY} or {AUTH_TOKEN}",
) -> Endpoint | None:
    """What `env` configures; None if nothing does, and the embedded model answers.

    `env` must have gone through `environment.choose`: everything in it may be sent to its endpoint.

    The order is the SDK's: key, token, named profile, identity federation, platform, the profile on disk. Only a
    platform that was requested by name comes before the key.

    Raises: ConfigError, naming the variable and never its value.
    """
    base_url = _base_url(env)
    chosen = platform or _first(env, PLATFORM_SWITCHES)
    if chosen:
        found: Endpoint | None = _platform_endpoint(chosen)
    else:
        found = _keyed_endpoint(env, base_url, auth_header) or _sdk_endpoint(env, base_url)
    if found is None and base_url:
        raise ConfigError(no_credential)
    if found is None:
        return None
    if client == "direct" and not found.secret:
        raise ConfigError(
            f"The client `direct` needs {API_KEY} or {AUTH_TOKEN}, and the credential here is {found.source}:"
            " use --client sdk"
        )
    return replace(found, headers=_custom_headers(env), client="sdk" if client == "sdk" else found.client)


def _keyed_endpoint(env: Mapping[str, str], base_url: str, auth_header: AuthHeader) -> Endpoint | None:
    source = API_KEY if env.get(API_KEY) else AUTH_TOKEN
    secret = env.get(source, "")
    if not secret:
        return None
    if not re.fullmatch(r"[\x21-\x7e]+", secret):
        raise ConfigError(f"{source} contains a space, a line break or a non-ASCII character: copy it again")
    if auth_header == "auto":
        auth_header = "both" if source == API_KEY and base_url not in ("", OFFICIAL_URL) else "bearer"
    return Endpoint("direct", source, base_url or OFFICIAL_URL, secret, auth_header)


def _sdk_endpoint(env: Mapping[str, str], base_url: str) -> Endpoint | None:
    if name := env.get(PROFILE):
        return Endpoint("sdk", f"the profile {name} ({PROFILE})", base_url, profile=name)
    if all(env.get(name) for name in _FEDERATION) and any(env.get(name) for name in _IDENTITY_TOKENS):
        return Endpoint("sdk", "the identity token (ANTHROPIC_IDENTITY_TOKEN or its _FILE)", base_url)
    if platform := _first(env, _PLATFORM_SETTINGS):
        return _platform_endpoint(platform)
    if path := _profile_on_disk(env):
        return Endpoint("sdk", f"the profile {path}", base_url)
    return None


def _platform_endpoint(platform: Platform) -> Endpoint:
    return Endpoint("sdk", f"the credentials of {platform}", platform=platform)


def _first(env: Mapping[str, str], table: Mapping[str, Platform]) -> Platform | None:
    return next((platform for name, platform in table.items() if is_switched_on(env, name)), None)


def _profile_on_disk(env: Mapping[str, str]) -> Path | None:
    """The active profile, at the place where the SDK looks for it."""
    home = env.get("HOME")
    directory = Path(env["ANTHROPIC_CONFIG_DIR"]) if env.get("ANTHROPIC_CONFIG_DIR") else None
    if directory is None and home:
        directory = Path(home) / ".config" / "anthropic"
    if directory is None:
        return None
    try:
        name = (directory / "active_config").read_text(encoding="utf-8").strip() or "default"
    except (OSError, UnicodeDecodeError):
        name = "default"
    path = directory / "configs" / f"{name}.json"
    return path if path.is_file() else None


def _base_url(env: Mapping[str, str]) -> str:
    raw = env.get(BASE_URL, "").strip()
    if not raw:
        return ""
    try:
        parts = urlsplit(raw)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not re.fullmatch(r"[\x21-\x7e]+", raw):
        raise ConfigError(f"{BASE_URL} is not an address: it must look like https://host or http://host:port/path")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ConfigError(f"{BASE_URL} must be a plain address, without user name, ? or #: give the key in {API_KEY}")
    return re.sub(r"(/v1(/messages)?)?/*$", "", raw.rstrip("/"))


def header_names(env: Mapping[str, str]) -> list[str]:
    """The names of the custom headers, in lower case."""
    return [name.lower() for name, _ in _header_lines(env)]


def _header_lines(env: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """`Name: value` lines, as the SDK reads them; a line without a colon is skipped."""
    lines = (line.partition(":") for line in env.get(CUSTOM_HEADERS, "").split("\n") if ":" in line)
    return tuple((name.strip(), value.strip()) for name, _, value in lines)


def _custom_headers(env: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Raises: ConfigError"""
    headers = _header_lines(env)
    for name, value in headers:
        if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name) or not re.fullmatch(r"[\x20-\x7e]*", value):
            raise ConfigError(f"{CUSTOM_HEADERS} has a line that is not an HTTP header: write `Name: value`")
    return headers
