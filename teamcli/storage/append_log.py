"""An append-only file of JSON lines: what transcripts and the timeline are written to."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from teamcli.errors import StateError
from teamcli.storage.files import (
    PRIVATE_DIR,
    Json,
    as_state_error,
    cannot,
    cut_torn_tail,
    encode_line,
    open_private,
    put_back,
    sync_tail,
    write_whole,
)

T = TypeVar("T")


class AppendLog:
    """An append-only file of JSON lines that keeps one descriptor open. Safe for threads and for several processes."""

    def __init__(self, path: Path, durable: bool = True, is_shared: bool = True) -> None:
        """Open or create `path`. An unfinished last line, left by a crash, is cut off and kept in `torn`.

        If no other process writes to the file (`is_shared=False`), appends take no file lock.

        Raises: StateError
        """
        self.path = path
        self.torn = b""
        self.end = 0
        """The offset at which the last line that this log knows of ends."""
        self._durable = durable
        self._is_shared = True  # the tail is always cut under the lock
        self._lock = threading.Lock()  # flock does not separate threads that share a descriptor
        self._unsynced = b""
        """What `write` has appended since the last `sync`."""
        self._fd, is_new = _open_or_create(path)
        self._is_new = is_new
        """A power cut may lose the file itself. That matters once it has a line."""
        if not is_new:
            try:
                self.torn = self._locked(cut_torn_tail)
            except OSError as e:
                self.close()
                raise StateError(cannot("lock", path, e)) from e
            self.end = os.fstat(self._fd).st_size
        self._is_shared = is_shared

    def append(self, *values: Json) -> None:
        """Write all `values` in one step. Afterwards the file holds either every line or none.

        Raises: StateError
        """
        self._append(b"".join(map(encode_line, values)), self._durable)

    def write(self, value: Json) -> None:
        """Append without waiting for the disk. Until `sync`, a power cut can lose the line; a crash cannot.

        Raises: StateError
        """
        self.sync()
        data = encode_line(value)
        self._append(data, durable=False)
        self._unsynced = data

    def sync(self) -> None:
        """Wait until what was written is on the disk. If that fails, it is cut off again.

        Raises: StateError
        """
        data, self._unsynced = self._unsynced, b""
        if not data or not self._durable:
            return
        with as_state_error("write", self.path), self._lock:
            self._locked(lambda fd: self._sync(fd, data))

    def put_back(self) -> None:
        """Write the file again if it was deleted.

        Raises: StateError
        """
        with as_state_error("write", self.path), self._lock:
            if not os.path.lexists(self.path):
                self._write_again()

    def close(self) -> None:
        """Close the file; a file that was deleted is written again if possible. A second call does nothing."""
        with self._lock:
            if self._fd >= 0:
                with contextlib.suppress(StateError, OSError):
                    self._put_back()
                os.close(self._fd)
                self._fd = -1

    def _put_back(self) -> None:
        """The open descriptor still reads all of a deleted file. If another file took its place, continue there."""
        if self._fd >= 0 and not os.fstat(self._fd).st_nlink:  # a file that was only renamed still has a link
            self._write_again()

    def _write_again(self) -> None:
        if self._fd < 0:
            return
        put_back(self._fd, self.path)
        new = open_private(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        os.close(self._fd)
        self._fd = new

    def _append(self, data: bytes, durable: bool) -> None:
        def act(fd: int) -> None:
            write_whole(fd, data, durable=False)
            # Others append to a shared file as well. Otherwise this saves a system call, at which 100 agents switch.
            self.end = os.lseek(fd, 0, os.SEEK_CUR) if self._is_shared else self.end + len(data)
            if durable:
                self._sync(fd, data)

        with as_state_error("write", self.path), self._lock:
            self._put_back()  # not before a sync: an append follows, or the end of this log
            self._locked(act)

    def _sync(self, fd: int, data: bytes) -> None:
        """Wait for the disk. If that fails, cut `data` off again."""
        try:
            # A new file is synced before its directory: most disks then have both in one step.
            sync_tail(fd, data, self.path.parent if self._is_new else None)
        except (OSError, StateError):
            self.end -= len(data)
            raise
        self._is_new = False

    def _locked(self, act: Callable[[int], T]) -> T:
        if self._fd < 0:
            raise StateError(f"{self.path} is closed: teamcli is exiting")
        if not self._is_shared:
            return act(self._fd)
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        try:
            return act(self._fd)
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)


def _open_or_create(path: Path) -> tuple[int, bool]:
    """Open a log; true if it is new. One system call in either case, unless its directory is missing.

    Raises: StateError
    """
    flags = os.O_RDWR | os.O_APPEND
    try:
        return open_private(path, flags | os.O_CREAT | os.O_EXCL), True
    except StateError as e:
        if isinstance(e.__cause__, FileExistsError):
            return open_private(path, flags | os.O_CREAT), False
        if not isinstance(e.__cause__, FileNotFoundError):
            raise
    with as_state_error("open", path):
        path.parent.mkdir(parents=True, exist_ok=True, mode=PRIVATE_DIR)
    return open_private(path, flags | os.O_CREAT), True
