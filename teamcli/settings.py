"""Settings: JSON files of the user, the project and the person in the project, put together.

Later files win, key by key; lists of permission rules add up. A project that is not trusted can only tighten: of its
files only the `ask` and `deny` rules count.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from teamcli.errors import ConfigError
from teamcli.files import Json, read_json, write_json

Mode = Literal["default", "acceptEdits", "plan", "bypassPermissions"]


class _Model(BaseModel):
    # Unknown keys are kept out quietly: a file may be written for a newer teamcli.
    # Built at the first use: with no settings at all, and that is most directories, there is none.
    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)


class Price(_Model):
    """Dollars per million tokens."""

    input: float = Field(ge=0)
    output: float = Field(ge=0)


class PermissionSettings(_Model):
    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    mode: Mode | None = None


class LimitSettings(_Model):
    teammate_turns: int = Field(default=200, ge=1)
    """Model calls of a teammate for one piece of work."""


class Settings(_Model):
    model: str | None = None
    """The model, unless `--model` or MODEL_ID names one."""
    client: Literal["auto", "direct", "sdk"] = "auto"
    platform: Literal["bedrock", "vertex", "foundry"] | None = None
    """Reach the model through a cloud platform, with its usual credentials."""
    auth_header: Literal["auto", "bearer", "x-api-key", "both"] = "auto"
    """How the key is sent; some gateways read only `x-api-key`."""
    permissions: PermissionSettings = PermissionSettings.model_construct()
    sandbox: Literal["auto", "off", "required"] = "auto"
    max_tokens: int = Field(default=32_000, ge=1)
    """The longest answer to ask for."""
    thinking: dict[str, Any] | None = None
    """The `thinking` field of requests, for models that have it: `{"type": "adaptive"}`."""
    prompt_caching: bool = True
    retries: int = Field(default=5, ge=0, le=20)
    """How often a failed model call is tried again."""
    limits: LimitSettings = LimitSettings.model_construct()
    max_concurrent_calls: int | None = Field(default=None, ge=1)
    """How many model calls of the team may run at the same time."""
    prices: dict[str, Price] = {}
    """Prices that the built-in list lacks, by model."""
    durable: bool = True
    """Wait for the disk at each step, so that even a power cut loses nothing."""


LOOSENING = "all but its ask and deny rules"


def load_settings(user: Path, project: Path, local: Path, trusted: bool) -> Settings:
    """Raises: ConfigError, naming the file and the field."""
    merged: Json = {}
    for path, may_loosen in ((user, True), (project, trusted), (local, trusted)):
        raw = read_settings_file(path, may_be_link=path is user)
        merged = _merge(merged, raw if may_loosen else _tightening(raw))
    return Settings.model_validate(merged) if merged else Settings.model_construct()


def read_settings_file(path: Path, may_be_link: bool = False) -> Json:
    """One file, checked by itself so that a mistake is blamed on the right one.

    Raises: ConfigError
    """
    raw = read_json(path, may_be_link)
    if not raw:
        return {}
    try:
        Settings.model_validate(raw)
    except ValidationError as e:
        problem = e.errors(include_url=False, include_context=False)[0]
        field = ".".join(str(part) for part in problem["loc"])
        raise ConfigError(f"{path}: {field}: {problem['msg']}; mend it there") from e
    return raw


def loosens(path: Path) -> bool:
    """Whether a settings file asks for anything that needs trust.

    Raises: ConfigError
    """
    raw = read_settings_file(path)
    return bool(raw) and raw != _tightening(raw)


def add_allow_rule(path: Path, rule: str) -> None:
    """Write an `allow` rule into a settings file, keeping all that stands there.

    Raises: ConfigError
    """
    raw = read_settings_file(path)
    permissions = raw.setdefault("permissions", {})
    rules = permissions.setdefault("allow", [])
    if rule not in rules:
        rules.append(rule)
        write_json(path, raw)


def _tightening(raw: Json) -> Json:
    permissions = raw.get("permissions") or {}
    kept = {key: permissions[key] for key in ("ask", "deny") if key in permissions}
    return {"permissions": kept} if kept else {}


def _merge(base: Json, over: Json) -> Json:
    merged = {**base, **over}
    for key in base.keys() & over.keys():
        if isinstance(base[key], dict) and isinstance(over[key], dict):
            merged[key] = _merge(base[key], over[key])
        elif key in ("allow", "ask", "deny"):
            merged[key] = [*base[key], *over[key]]
    return merged
