"""Roles that the command line or another program gives as JSON (`--agents`), in the words of Claude Code."""

from __future__ import annotations

import json
from typing import Any

from teamcli.claude_code.names import INHERIT, our_tool
from teamcli.claude_code.unused import Unused
from teamcli.config.role_hooks import role_hooks
from teamcli.config.roles import WORKTREE, Role, read_mode, read_turns
from teamcli.errors import ConfigError
from teamcli.text.escaping import one_line


def read_given_roles(text: str) -> dict[str, Role]:
    """By name, in lower case.

    Raises: ConfigError
    """
    try:
        raw = json.loads(text)
        if not isinstance(raw, dict):
            raise ValueError("it is not an object")
        roles = [_role(name, each) for name, each in raw.items()]
    except (ValueError, RecursionError) as e:
        raise ConfigError(f"--agents: {one_line(str(e))}; expected {{NAME: {{description, prompt}}}}") from e
    return {role.name.casefold(): role for role in roles}


def _role(name: str, raw: Any) -> Role:
    """Raises: ValueError."""
    if not isinstance(raw, dict) or not isinstance(raw.get("prompt", ""), str):
        raise ValueError(f"'{name}' is not an object with a prompt")
    model = str(raw.get("model") or "")
    return Role(
        name,
        str(raw.get("description", "")),
        raw.get("prompt", ""),
        _names(raw.get("tools")),
        _names(raw.get("disallowedTools")) or (),
        "" if model == INHERIT else model,
        is_isolated=raw.get("isolation") == WORKTREE,
        max_turns=read_turns(str(raw.get("maxTurns", ""))),
        mode=read_mode(str(raw.get("permissionMode") or ""), Unused()),
        hooks=role_hooks(raw.get("hooks"), name, "--agents", Unused()),
    )


def _names(value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list):
        raise ValueError("tools must be a list")
    return tuple(dict.fromkeys(our_tool(str(name).partition("(")[0].strip()) for name in names))
