"""Roles that the command line or another program gives as JSON (`--agents`), in the words of Claude Code."""

from __future__ import annotations

import json
from typing import Any

from teamcli.claude_code.names import INHERIT
from teamcli.claude_code.unused import Unused
from teamcli.config.front_matter import words_of
from teamcli.config.role_hooks import role_hooks
from teamcli.config.roles import UNUSED_FIELDS, WORKTREE, Role, named_tools, read_mode, read_turns
from teamcli.errors import ConfigError
from teamcli.text.escaping import one_line


def read_given_roles(text: str, unused: Unused) -> dict[str, Role]:
    """By name, in lower case. `unused` gathers what means nothing here.

    Raises: ConfigError
    """
    try:
        raw = json.loads(text)
        if not isinstance(raw, dict):
            raise ValueError("it is not an object")
        roles = [_role(name, each, unused) for name, each in raw.items()]
    except (ValueError, RecursionError) as e:
        raise ConfigError(f"--agents: {one_line(str(e))}; expected {{NAME: {{description, prompt}}}}") from e
    return {role.name.casefold(): role for role in roles}


def _role(name: str, raw: Any, unused: Unused) -> Role:
    """Raises: ValueError."""
    if not isinstance(raw, dict) or not isinstance(raw.get("prompt", ""), str):
        raise ValueError(f"'{name}' is not an object with a prompt")
    for field in UNUSED_FIELDS:
        if field in raw:
            unused.add("role field", field, f"in --agents, {name}")
    model = str(raw.get("model") or "")
    return Role(
        name,
        str(raw.get("description", "")),
        raw.get("prompt", ""),
        _names(raw.get("tools"), unused),
        _names(raw.get("disallowedTools"), unused) or (),
        "" if model == INHERIT else model,
        is_isolated=raw.get("isolation") == WORKTREE,
        skills=tuple(map(str, raw["skills"])) if isinstance(raw.get("skills"), list) else (),
        max_turns=read_turns(str(raw.get("maxTurns", ""))),
        mode=read_mode(str(raw.get("permissionMode") or ""), unused),
        hooks=role_hooks(raw.get("hooks"), name, "--agents", unused),
    )


def _names(value: Any, unused: Unused) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, str | list):
        raise ValueError("tools must be a list")
    return named_tools(words_of(value if isinstance(value, str) else tuple(map(str, value))), unused)
