"""Opening by a resolved path without following any link: each directory on the way is opened from the one above it.

A path is resolved and checked first and used later. If a directory on it is replaced by a link in between, opening
fails here instead of leading elsewhere.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_DIRECTORY = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_PATH needs no permission to list a directory, only to pass through it. Without it (macOS) the walk begins at `top`.
_PASSING = _DIRECTORY | getattr(os, "O_PATH", os.O_RDONLY)
_CAN_PASS = hasattr(os, "O_PATH")

LINKED = "a directory was replaced by a symbolic link just now"


@contextmanager
def open_parent(path: Path, top: Path, make: bool = False) -> Iterator[int]:
    """A descriptor of the directory that contains `path` (resolved, in or at `top`), for as long as the block runs.

    Raises: OSError
    """
    fd = _walk_to(path.parent, top, make)
    try:
        yield fd
    finally:
        os.close(fd)


def open_directory(path: str | Path, top: Path) -> int:
    """A descriptor for listing the directory.

    Raises: OSError
    """
    fd = _walk_to(Path(path), top, make=False)
    try:
        return os.open(".", os.O_RDONLY | _DIRECTORY, dir_fd=fd)
    finally:
        os.close(fd)


def open_beneath(path: Path, top: Path, flags: int) -> int:
    """A descriptor of the file, which must not be a link either.

    Raises: OSError
    """
    if path == path.parent:
        return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open_parent(path, top) as parent:
        return os.open(path.name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)


def _walk_to(directory: Path, top: Path, make: bool) -> int:
    begin = Path("/") if _CAN_PASS or not directory.is_relative_to(top) else top
    fd = os.open(begin, _PASSING)
    for name in directory.relative_to(begin).parts:
        try:
            below = _step(fd, name, make)
        finally:
            os.close(fd)
        fd = below
    return fd


def _step(fd: int, name: str, make: bool) -> int:
    try:
        return os.open(name, _PASSING, dir_fd=fd)
    except FileNotFoundError:
        if not make:
            raise
    except OSError as e:
        if stat.S_ISLNK(os.lstat(name, dir_fd=fd).st_mode):
            raise OSError(errno.ELOOP, LINKED) from e
        raise
    with contextlib.suppress(FileExistsError):  # someone else was quicker
        os.mkdir(name, dir_fd=fd)
    return os.open(name, _PASSING, dir_fd=fd)
