"""Finds the programs that teamcli itself runs, in directories where agents cannot write.

The PATH often names a directory in the workspace, such as `.venv/bin`. A command could put an `rg` there, and the next
search would run it outside the sandbox.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

_MOST_LINKS = 40
SYSTEM_DIRECTORIES = tuple(map(Path, ("/bin", "/sbin", "/lib", "/lib64", "/usr")))
"""No agent writes there, even if the workspace is `/`: the sandbox guards them."""


class Programs:
    """Looks up each name once: what appears in a directory later does not matter."""

    def __init__(self, search_path: str | None = None, writable: Iterable[Path] = ()) -> None:
        """`writable` are the real paths of directories that agents can write to."""
        path = os.environ.get("PATH", os.defpath) if search_path is None else search_path
        self._directories = [Path(text) for text in path.split(os.pathsep) if text.startswith("/")]
        self._writable = tuple(writable)
        self.find = cache(self._find)

    @property
    def search_path(self) -> str:
        """A PATH without the directories in which agents could put a program."""
        return os.pathsep.join(str(path) for path in self._directories if self.is_out_of_reach(path))

    def is_out_of_reach(self, path: Path) -> bool:
        """Whether agents can change neither the file at `path` nor a link or directory on the way to it."""
        try:
            return not any(map(self._is_in_reach, _steps(path)))
        except OSError:
            return False

    def _is_in_reach(self, step: Path) -> bool:
        is_system = any(step.is_relative_to(place) and not place.is_symlink() for place in SYSTEM_DIRECTORIES)
        return any(step.is_relative_to(place) for place in self._writable if not is_system or place != Path("/"))

    def _find(self, name: str) -> str | None:
        """The path of a program, or None."""
        for directory in self._directories:
            path = directory / name
            if os.access(path, os.X_OK) and path.is_file() and self.is_out_of_reach(path):
                return str(path)
        return None


def _steps(path: Path) -> Iterator[Path]:
    """Every file, link and directory that the system looks at to open `path`.

    Raises: OSError
    """
    at, pending, links = Path("/"), list(path.parts[1:]), 0
    while pending:
        name = pending.pop(0)
        at = at.parent if name == ".." else at / name
        yield at
        if at.is_symlink():
            links += 1
            if links > _MOST_LINKS:
                raise OSError(f"{path} has too many links")
            target = at.readlink()
            pending = [*target.parts[target.is_absolute() :], *pending]
            at = Path("/") if target.is_absolute() else at.parent
