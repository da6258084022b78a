"""What an agent knows about the files it works on, so that agents do not overwrite each other.

For every path an agent remembers the digest of the content that it last read or wrote. All agents of the program share
one `PathLocks`: an agent that checks a file and then replaces it holds its lock, so check and write are one step.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

UNKNOWN = ""
"""Marks a file in `seen_files` whose present content the agent no longer knows."""


def new_digest() -> hashlib.blake2b:
    """A fresh hash for content that arrives in pieces."""
    return hashlib.blake2b(digest_size=16)


def digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


class _PathLock:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0


class PathLocks:
    """One lock for each path, kept only while someone holds it or waits for it."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: dict[str, _PathLock] = {}

    @property
    def in_use(self) -> int:
        return len(self._locks)

    @contextmanager
    def hold(self, path: Path) -> Iterator[None]:
        """Keep every other holder of `path` (resolved) out of the block."""
        key = str(path).casefold()  # two spellings are one file if the file system ignores case
        # Count the waiting threads too, or the lock would be dropped while someone still waits for it.
        with self._guard:
            entry = self._locks.setdefault(key, _PathLock())
            entry.users += 1
        try:
            with entry.lock:
                yield
        finally:
            with self._guard:
                entry.users -= 1
                if not entry.users:
                    del self._locks[key]


class KnownFiles:
    """What one agent knows; `seen` is what its transcript kept, in the form that `remember` and `forget` return."""

    def __init__(self, locks: PathLocks, seen: Mapping[str, str] | None = None) -> None:
        self._locks = locks
        self._digests = dict(seen or {})

    def hold(self, path: Path) -> AbstractContextManager[None]:
        """Check and write inside this block: no other agent changes `path` during it."""
        return self._locks.hold(path)

    def digest_of(self, path: Path) -> str | None:
        """The digest of what this agent last read or wrote, or None if it does not know the content."""
        return self._digests.get(_key(path)) or None

    def remember(self, path: Path, content_digest: str) -> dict[str, str]:
        self._digests[_key(path)] = content_digest
        return {_key(path): content_digest}

    def restore(self, seen: Mapping[str, str]) -> None:
        """Know this and nothing else, for an agent that resumes another conversation."""
        self._digests = dict(seen)

    def forget(self, path: Path) -> dict[str, str]:
        return self.remember(path, UNKNOWN)


def _key(path: Path) -> str:
    # A file name need not be valid Unicode, but what goes into a transcript must be.
    return os.fsencode(path).decode("utf-8", "backslashreplace")
