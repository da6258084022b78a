"""Settings of Claude Code that teamcli does not use yet."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from teamcli.storage.files import LARGEST_DOCUMENT, read_regular

_EFFECTIVE = {"hooks": "hooks", "permissions": "permission rules"}
"""Settings that a user may rely on."""


def unused_settings(directory: Path, users_home: Path) -> str:
    """One sentence about the settings in such files that are not used; empty if there are none."""
    project = directory / ".claude"
    files = {
        "~/.claude/settings.json": users_home / ".claude" / "settings.json",
        ".claude/settings.json": project / "settings.json",
        ".claude/settings.local.json": project / "settings.local.json",
    }
    by_path = {os.path.realpath(path): shown for shown, path in files.items()}  # the project may be the user's home
    found = [f"{what} in {shown}" for path, shown in by_path.items() if (what := _effect_of(path))]
    if not found:
        return ""
    return f"Not used: {', '.join(found)}. teamcli reads .team/settings.json and ~/.teamcli/settings.json instead."


def _effect_of(path: str) -> str:
    try:
        settings: Any = json.loads(read_regular(path, LARGEST_DOCUMENT))
    except (OSError, ValueError, RecursionError):  # nothing in these files ever stops the start
        return ""
    if not isinstance(settings, dict):
        return ""
    return " and ".join(what for key, what in _EFFECTIVE.items() if settings.get(key))
