"""The lock of the board, which excludes all other processes. Its file also holds what the board counts."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from teamcli.errors import StateError
from teamcli.storage.files import as_state_error, make_private_dir, open_private

_NAME = ".lock"
_BYTES = 64


class Counters(NamedTuple):
    """What the lock file holds."""

    last: int = 0
    """The highest number ever used: files can be deleted, numbers are not used again."""
    changes: int = 0
    """How many changes were made, except claims."""
    free_from: int = 0
    """No task below this number was free after the last claim. Any other change starts over at 0."""


class TaskLock:
    """Not safe for threads: the board keeps others out."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / _NAME
        self._fd = -1
        self.counters = Counters()
        """As they were when this process last had the lock."""

    @property
    def is_held(self) -> bool:
        return self._fd >= 0

    @contextmanager
    def held(self) -> Iterator[None]:
        """Raises: StateError"""
        self._fd, self.counters = self._take()
        try:
            yield
        finally:
            os.close(self._fd)
            self._fd = -1

    def count(self, counters: Counters) -> None:
        """Replace the counters, while the lock is held.

        Raises: StateError
        """
        with as_state_error("write", self._path):
            # Padded, because digits of a longer line would be left behind it.
            os.pwrite(self._fd, "{} {} {}".format(*counters).ljust(_BYTES - 1).encode() + b"\n", 0)
        self.counters = counters

    def _take(self) -> tuple[int, Counters]:
        make_private_dir(self._directory)
        fd = open_private(self._path, os.O_RDWR | os.O_CREAT)
        try:
            with as_state_error("lock", self._path):
                fcntl.flock(fd, fcntl.LOCK_EX)
                numbers = os.pread(fd, _BYTES, 0).split()
                is_deleted = not os.fstat(fd).st_nlink
        except StateError:
            os.close(fd)
            raise
        if is_deleted:  # while we waited for it: others would lock another file
            os.close(fd)
            return self._take()
        is_valid = len(numbers) == len(Counters._fields) and all(n.isdigit() and len(n) < 19 for n in numbers)
        return fd, Counters(*map(int, numbers)) if is_valid else Counters()
