"""Finds files of the workspace by a few letters of their path, while the user types.

A background thread walks the directory. A search waits for it only a moment and uses what it has found so far.
"""

from __future__ import annotations

import heapq
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from pathlib import Path

from teamcli.workspace.bounds import TEAM_DIR
from teamcli.workspace.file_walk import DirEntry, list_directory, look_around, walk

MAX_ENTRIES = 20_000
WAIT_SECONDS = 0.15
FRESH_SECONDS = 5.0
MAX_WALK_SECONDS = 10.0

_HIDDEN = (".git", TEAM_DIR)


class FileIndex:
    """Paths are relative to `root`; directories end in a slash. Ignored files are found only if the fragment names
    their directory."""

    def __init__(self, root: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._root = _real(root)
        self._clock = clock
        self._walks: dict[bool, _Walk] = {}
        self._lock = threading.Lock()

    def find(self, fragment: str, limit: int) -> list[str]:
        """The best matches for `fragment`, the best first."""
        if fragment.startswith(("/", "~", "..")) or not fragment.isprintable():
            return []
        found = best_matches(fragment, self._paths(with_hidden="/." in f"/{fragment}"), limit)
        return found or best_matches(fragment, self._siblings(fragment), limit)

    @property
    def is_complete(self) -> bool:
        """Whether every walk that searches have used was finished at some time."""
        with self._lock:
            return all(walk.is_complete for walk in self._walks.values())

    def _paths(self, with_hidden: bool) -> list[str]:
        with self._lock:
            walk = self._walks.get(with_hidden)
            # A finished walk is repeated after a while, so that new files are found.
            if walk is None or (walk.done.is_set() and walk.started + FRESH_SECONDS < self._clock()):
                walk = self._walks[with_hidden] = _Walk(self._root, with_hidden, self._clock(), walk)
        walk.done.wait(WAIT_SECONDS)
        return walk.paths

    def _siblings(self, fragment: str) -> Iterator[str]:
        """The entries of the directory that the fragment names, ignored or not."""
        parent = fragment.rpartition("/")[0]
        directory = _real(self._root / parent)
        if not parent or not directory.is_relative_to(self._root):
            return
        if any(part.casefold() in _HIDDEN for part in directory.relative_to(self._root).parts):
            return
        try:
            entries = list_directory(str(directory))
        except OSError:  # no such directory
            return
        for entry in entries[:MAX_ENTRIES]:
            if _is_offered(entry, self._root):
                yield f"{parent}/{entry.name}" + "/" * entry.is_directory()


class _Walk:
    """One walk through the workspace. Until it is done, `paths` are those of the walk before it, if there was one."""

    def __init__(self, root: Path, with_hidden: bool, started: float, before: _Walk | None) -> None:
        self.started = started
        self.done = threading.Event()
        self._root = root
        self._with_hidden = with_hidden
        self._before = before.paths if before else None
        self._found: list[str] = []
        threading.Thread(target=self._run, name="files", daemon=True).start()

    @property
    def is_complete(self) -> bool:
        return self._before is not None or self.done.is_set()

    @property
    def paths(self) -> list[str]:
        return self._found.copy() if self._before is None else self._before

    def _run(self) -> None:
        end = time.monotonic() + MAX_WALK_SECONDS
        prefix = len(str(self._root).rstrip("/")) + 1
        ignores = look_around(self._root, self._root).ignores
        # One directory with very many files must not hide those that people name most.
        top = walk(self._root, ignores, self._with_hidden, depth=1)
        below = (entry for entry in walk(self._root, ignores, self._with_hidden) if "/" in entry.path[prefix:])
        for entry in islice(chain(top, below), MAX_ENTRIES):
            if _is_offered(entry, self._root):
                self._found.append(entry.path[prefix:] + "/" * entry.is_directory())
            if time.monotonic() > end:
                break
        self._before = None
        self.done.set()


def best_matches(fragment: str, paths: Iterable[str], limit: int) -> list[str]:
    """The paths that contain the letters of `fragment` in this order. Matches in the file name rank above those in its
    directory, the whole fragment above single letters, the start above the middle, short paths above long ones."""
    wanted = fragment.casefold()
    letters = re.compile("".join(f"[^{re.escape(letter)}]*{re.escape(letter)}" for letter in wanted))
    ranked = ((rank, path) for path in paths if (rank := _rank(path, wanted, letters)) is not None)
    return [path for _, path in heapq.nsmallest(limit, ranked)]


def _rank(path: str, wanted: str, letters: re.Pattern[str]) -> tuple[int, int, int] | None:
    folded = path.casefold()
    if not letters.match(folded):
        return None
    name = folded.rstrip("/").rpartition("/")[2]
    ranks = (
        name.startswith(wanted),
        folded.startswith(wanted),
        wanted in name,
        wanted in folded,
        letters.match(name) is not None,
        True,
    )
    depth = 0 if wanted else path.rstrip("/").count("/")
    return ranks.index(True), depth, len(path)


def can_be_typed(name: str) -> bool:
    """Control characters and invalid UTF-8 would garble the screen, and a quote would end a quoted name."""
    return name.isprintable() and '"' not in name


def _is_offered(entry: DirEntry, root: Path) -> bool:
    leads_out = entry.is_link() and not _real(Path(entry.path)).is_relative_to(root)
    return can_be_typed(entry.name) and not leads_out


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))  # unlike Path.resolve, it never raises
