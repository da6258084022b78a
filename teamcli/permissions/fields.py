"""The input of a call, as far as permission rules are about it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from teamcli.claude_code.tool_inputs import to_theirs
from teamcli.permissions.command_rules import is_match


def has_value(pattern: str, tool: str, given: Mapping[str, Any]) -> bool:
    """Whether a call has the value that `field:value` names, in our words or in Claude Code's."""
    name, _, wanted = pattern.partition(":")
    texts = {_text(fields.get(name)) for fields in (given, to_theirs(tool, given, Path("/")).input)}
    return any(is_match(wanted.strip().casefold(), text) for text in texts)


def _text(value: object) -> str:
    text = value if isinstance(value, str) else "" if value is None else json.dumps(value, default=str)
    return text.strip().casefold()


def path_as_given(given: Mapping[str, Any], root: Path, resolved: Path) -> Path:
    """The path in a call before links are resolved."""
    path = given.get("path")
    if not isinstance(path, str) or "\0" in path:
        return resolved
    return Path(os.path.normpath(os.path.join(root, os.path.expanduser(path))))  # noqa: PTH111, PTH118
