"""Where Claude Code looks for agents, commands and skills: from the start directory up to the root of the repository,
and in the user's home."""

from __future__ import annotations

import os
from pathlib import Path

from teamcli.config.claude_settings import CONFIG_DIR, FOLDER
from teamcli.config.front_matter import Covers, Folder
from teamcli.config.project_files import parents_in_repository


def claude_home(home: Path) -> Path:
    """Where Claude Code keeps what belongs to the user. `home` is ours."""
    return Path(os.environ.get(CONFIG_DIR) or home.parent / FOLDER)


def claude_dirs(
    kind: str, directory: Path, home: Path, covers: Covers
) -> tuple[tuple[Folder, ...], tuple[Folder, ...]]:
    """The project's folders of a kind, such as `agents`, the nearest first; and the user's."""
    users = claude_home(home) / kind
    projects = (
        Folder(root / FOLDER / kind, root, covers, True) for root in (directory, *parents_in_repository(directory))
    )
    # In the user's home, and in a repository that holds it, the folder is the user's own.
    return tuple(each for each in projects if each.path != users), (Folder(users, is_claudes=True),)
