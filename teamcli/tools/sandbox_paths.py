"""What stands at a path, asked without raising: for those who look at places that they may not be allowed to see."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from teamcli.workspace import TEAM_DIR

Identity = tuple[int, int] | None
"""Which file stands at a path; None for none."""
_NOT_SEARCHED = (".git", "node_modules", TEAM_DIR)


def real_path(path: Path) -> Path:
    return Path(os.path.realpath(path))


def is_directory(path: Path) -> bool:
    return stat.S_ISDIR(_mode(path))


def is_link(path: Path) -> bool:
    return stat.S_ISLNK(_mode(path, follow=False))


def exists(path: Path) -> bool:
    return _mode(path) != 0


def _mode(path: Path, follow: bool = True) -> int:
    try:
        return path.stat(follow_symlinks=follow).st_mode
    except OSError:
        return 0


def identity_of(path: Path) -> Identity:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def directories_in(path: Path) -> list[Path]:
    """But for links, and for those that nobody looks for anything in."""
    try:
        with os.scandir(path) as entries:
            names = [e.name for e in entries if e.name not in _NOT_SEARCHED and e.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    return [path / name for name in sorted(names)]


def is_in_any(path: Path, places: Iterable[Path]) -> bool:
    return any(path.is_relative_to(place) for place in places)


def is_below_any(path: Path, places: Iterable[Path]) -> bool:
    return any(path != place and path.is_relative_to(place) for place in places)


def is_above_any(path: Path, places: Iterable[Path]) -> bool:
    return any(place != path and place.is_relative_to(path) for place in places)
