"""Looks at paths without raising, because they may be missing, closed to us, or made to mislead us.

A sandbox that sees only half would leave something unguarded. So these functions do raise if the system is out of
descriptors or memory, or if one of the user's directories cannot be searched.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from teamcli.errors import ToolError
from teamcli.workspace.bounds import TEAM_DIR
from teamcli.workspace.git_files import raise_if_exhausted

Identity = tuple[int, int] | None
"""Which file is at a path; None for none."""
_NOT_SEARCHED = (".git", "node_modules", TEAM_DIR)


class HiddenDirectory(ToolError):
    """Raised for one of the user's directories that cannot be searched."""


def real_path(path: Path) -> Path:
    return Path(os.path.realpath(path))


def listed_paths(texts: Iterable[str], root: Path, home: Path) -> list[Path]:
    """Paths as written in the settings: absolute, from `~`, or from the workspace."""
    return [real_path(root / re.sub(r"^~(?=/|$)", lambda _: str(home), text)) for text in texts]


def is_directory(path: Path) -> bool:
    return stat.S_ISDIR(_mode(path))


def is_file(path: Path) -> bool:
    """A regular file, and not a link to one."""
    return stat.S_ISREG(_mode(path, follow=False))


def is_link(path: Path) -> bool:
    return stat.S_ISLNK(_mode(path, follow=False))


def exists(path: Path) -> bool:
    return _mode(path) != 0


def _mode(path: Path, follow: bool = True) -> int:
    try:
        return path.stat(follow_symlinks=follow).st_mode
    except OSError as e:
        raise_if_exhausted(e)
        return 0


def identity_of(path: Path) -> Identity:
    try:
        found = path.stat()
    except OSError as e:
        raise_if_exhausted(e)
        return None
    return found.st_dev, found.st_ino


def link_target(path: Path) -> str | None:
    """The target as written; None for anything that is not a link."""
    try:
        return os.readlink(path)  # noqa: PTH115 - the text, as it is
    except OSError as e:
        raise_if_exhausted(e)
        return None


def directories_in(path: Path) -> list[Path]:
    """Without links, and without those that are never searched.

    Raises: OSError, if the system is out of descriptors
    """
    return [Path(text) for text in _look_into(str(path), ())[0]]


def has_socket(directory: Path) -> bool:
    """Whether services may listen in it. A directory that cannot be read counts as one."""
    try:
        with os.scandir(directory) as entries:
            return any(stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode) for entry in entries)
    except OSError as e:
        raise_if_exhausted(e)
        return True


def search(top: Path, names: Collection[str], most: int) -> Iterator[Path]:
    """Everything with one of these names in `top` and at most this many directories below, outer ones first.

    Raises: OSError, if the system is out of descriptors
    """
    level = [str(top)]
    while level and most > 0:
        looks = [_look_into(text, names) for text in level[:most]]
        most -= len(level)
        yield from (Path(text) for _, found in looks for text in found)
        level = [text for inside, _ in looks for text in inside]


def _look_into(directory: str, names: Collection[str]) -> tuple[list[str], list[str]]:
    """The directories to look into next, and what has one of these names. As text, because there may be thousands."""
    try:
        with os.scandir(directory) as listing:
            entries = list(listing)
    except PermissionError as e:
        # We can see everything in our own directories, unless a command has hidden something to take it out later.
        for place in (Path(directory), *Path(directory).parents):
            with contextlib.suppress(OSError):
                found = place.stat()
                if found.st_uid == os.geteuid() and found.st_mode & 0o500 != 0o500:
                    raise HiddenDirectory(f"{place} cannot be searched; allow it with chmod u+rx") from e
        return [], []
    except OSError as e:
        raise_if_exhausted(e)
        return [], []
    inside = [e.path for e in entries if e.is_dir(follow_symlinks=False) and e.name not in _NOT_SEARCHED]
    return sorted(inside), [e.path for e in entries if e.name in names]


def is_in_any(path: Path, places: Iterable[Path]) -> bool:
    return any(path.is_relative_to(place) for place in places)


def is_below_any(path: Path, places: Iterable[Path]) -> bool:
    return any(path != place and path.is_relative_to(place) for place in places)


def is_above_any(path: Path, places: Iterable[Path]) -> bool:
    return any(place != path and place.is_relative_to(path) for place in places)
