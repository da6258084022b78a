"""What teamcli knows of Claude Code: the names of its tools, and settings of its that teamcli does not use yet."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from teamcli.storage.files import LARGEST_DOCUMENT, read_regular

_DO_SOMETHING = {"hooks": "hooks", "permissions": "permission rules"}
"""What somebody may rely on."""

OUR_TOOLS = {
    "Bash": "bash",
    "BashOutput": "bash_output",
    "KillBash": "bash_stop",
    "KillShell": "bash_stop",
    "Read": "read_file",
    "Write": "write_file",
    "Edit": "edit_file",
    "MultiEdit": "edit_file",
    "Glob": "glob",
    "Grep": "grep",
    "Task": "agent",
    "Agent": "agent",
}
"""What Claude Code's users call our tools, in roles and in hooks."""


def unused_settings(directory: Path, users_home: Path) -> str:
    """What of such files is not used, as one sentence; empty if nothing is missed."""
    project = directory / ".claude"
    files = {
        "~/.claude/settings.json": users_home / ".claude" / "settings.json",
        ".claude/settings.json": project / "settings.json",
        ".claude/settings.local.json": project / "settings.local.json",
    }
    by_path = {os.path.realpath(path): shown for shown, path in files.items()}  # the project may be the user's home
    found = [f"{what} in {shown}" for path, shown in by_path.items() if (what := _what_it_does(path))]
    if not found:
        return ""
    return f"Not used: {', '.join(found)}. teamcli reads .team/settings.json and ~/.teamcli/settings.json instead."


def _what_it_does(path: str) -> str:
    try:
        settings: Any = json.loads(read_regular(path, LARGEST_DOCUMENT))
    except (OSError, ValueError, RecursionError):  # nothing in there ever stops the start
        return ""
    if not isinstance(settings, dict):
        return ""
    return " and ".join(what for key, what in _DO_SOMETHING.items() if settings.get(key))
