"""One inbox file: whole lines are appended at its end, and nothing in it is ever changed.

Other programs append to it too, at any time and without a lock. So a torn line is closed with a newline and never cut
off, only our own last bytes are ever taken back, and each use checks that the open file is still the one at its path.
Others may also edit, replace or delete it: a position is valid only if the content before it is what was read.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from teamcli.errors import StateError
from teamcli.storage.files import PRIVATE_DIR, as_state_error, open_private, put_back, sync_directory
from teamcli.team.inbox_reading import Chunk, Size, Start, check_before, is_valid, piece_at, size_of, start_at
from teamcli.team.inbox_state import InboxState, Position

_COARSEST_CLOCK_NS = 2_000_000_000
"""No file system has coarser times."""


class Inbox:
    """Keeps one descriptor open, which is fast. While it is open, no new file can get the same inode."""

    def __init__(self, path: Path, durable: bool) -> None:
        self.path = path
        self._path, self._directory = str(path), str(path.parent)
        self._durable = durable
        self._lock = threading.Lock()  # flock does not separate threads that share a descriptor
        self._fd, self._can_write = -1, False
        self._inode = 0
        self._directory_changed = 0
        """The directory's mtime at the last check that found our file at its path; 0 if unknown."""
        self._is_closed = False

    def append(self, lines: bytes) -> Size:
        """Write whole lines in one step. Returns the file's size right after them.

        Raises: StateError
        """
        with as_state_error("write", self.path), self._lock:
            while True:
                if not self._can_write:
                    self._open(os.O_RDWR | os.O_APPEND | os.O_CREAT)  # reading too: a torn line shows at its last byte
                self._close_torn_line()
                end = self._write(lines)
                if self._is_at_path():
                    return Size(self._inode, end)
                self._put_back(only_with_directory=True)
                self._close_file()  # deleted or moved while we wrote: append to the file that is at the path now

    def size(self) -> Size | None:
        """The size of the file at the path; None without a file, or after `close`, when no reader needs it.

        Raises: StateError
        """
        with as_state_error("read", self.path):
            return None if self._is_closed else size_of(self._path)

    def locate(self, position: Position, state: InboxState) -> Start | None:
        """Where a reader at that position continues; None without a file.

        Raises: StateError
        """
        with as_state_error("read", self.path), self._lock:
            size = self._current_file()
            return None if size is None else start_at(self._fd, position, state)

    def is_put_back(self, position: Position, state: InboxState) -> bool:
        """Whether this is the file that was read up to that position and was missing for a while.

        Raises: StateError
        """
        with as_state_error("read", self.path), self._lock:
            size = self._current_file()
            if size is None or not position.offset or not state.is_older(os.fstat(self._fd).st_mtime):
                return False
            return is_valid(self._fd, size.bytes, position)

    def read(self, offset: int) -> Chunk | None:
        """The piece at `offset`; None without a file.

        Raises: StateError
        """
        with as_state_error("read", self.path), self._lock:
            size = self._current_file()
            return None if size is None else piece_at(self._fd, size.bytes, min(offset, size.bytes), time.time())

    def check_at(self, offset: int) -> str:
        """The digest that identifies a position at `offset`.

        Raises: StateError
        """
        with as_state_error("read", self.path), self._lock:
            return check_before(self._fd, offset) if self._current_file() else ""

    def lines(self, start: int, end: int) -> Iterator[bytes]:
        """Every line between two offsets that is not blank.

        Raises: StateError
        """
        while start < end and (chunk := self.read(start)) is not None and chunk.end > start:
            for line in chunk.lines():
                if start < end and (text := line.strip()):
                    yield text
                start += len(line) + 1
            start = chunk.end

    def end(self) -> int:
        """The offset after the last finished line.

        Raises: StateError
        """
        offset = 0
        while (chunk := self.read(offset)) is not None and chunk.end > offset:
            offset = chunk.end
        return offset

    def move_to(self, archive: Path, position: Position, limit_bytes: int) -> bool:
        """Move the file to the archive if that position is its end and the file is larger than the limit.

        Raises: StateError
        """
        with as_state_error("rotate", self.path), self._lock:
            size = self._current_file() if position.offset > limit_bytes else None
            # Someone may have appended since: an inbox with unread mail stays.
            if size is None or size.bytes != position.offset or not is_valid(self._fd, size.bytes, position):
                return False
            archive.parent.mkdir(exist_ok=True, mode=PRIVATE_DIR)
            # Writers that keep the file open append to the archive from now on; `Archives` brings what they add.
            self.path.rename(archive)
            if self._durable:
                sync_directory(archive.parent)
                sync_directory(self.path.parent)
            self._close_file()
            return True

    def release(self) -> None:
        """Close the file until the next use."""
        with self._lock:
            self._close_file()

    def put_back(self) -> None:
        """Write the file again after it was deleted together with its directory.

        Raises: StateError
        """
        with as_state_error("write", self.path), self._lock:
            self._put_back(only_with_directory=False)

    def _put_back(self, only_with_directory: bool) -> None:
        """A user may delete an inbox on purpose. If the whole directory is gone, the mail was not meant to be lost."""
        is_gone = self._fd >= 0 and not os.path.lexists(self._path)
        if is_gone and not (only_with_directory and self.path.parent.is_dir()):
            put_back(self._fd, self.path)
            self._close_file()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._close_file()

    def _close_torn_line(self) -> None:
        """End a line that a killed writer left unfinished.

        A line that looks torn may be a long one that another program is writing in pieces under the lock, so it is torn
        only if it still looks so while we hold the lock. A write without the lock may come in between; then our newline
        makes an empty line, which is harmless.
        """
        if not self._is_torn():
            return
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        try:
            if self._is_torn():
                os.write(self._fd, b"\n")
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def _is_torn(self) -> bool:
        size = os.lseek(self._fd, 0, os.SEEK_END)
        return size > 0 and os.pread(self._fd, 1, size - 1) != b"\n"

    def _write(self, lines: bytes) -> int:
        fcntl.flock(self._fd, fcntl.LOCK_EX)  # so that no other writer takes the part of a long line for a torn one
        try:
            written = os.write(self._fd, lines)
            if written < len(lines):  # the disk is full
                self._take_back(written)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)
        if self._durable:  # without the lock, so that one sync of the disk can serve several processes
            self._sync(written)
        return os.lseek(self._fd, 0, os.SEEK_CUR)

    def _sync(self, written: int) -> None:
        try:
            os.fsync(self._fd)
        except OSError:
            # The sender gets an error and may try again: what may be on the disk must not arrive as well.
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            self._take_back(written)
            fcntl.flock(self._fd, fcntl.LOCK_UN)
            raise

    def _take_back(self, written: int) -> None:
        """Remove our last bytes, unless another program has appended after them: better a torn line than a lost one."""
        end = os.lseek(self._fd, 0, os.SEEK_CUR)
        if os.fstat(self._fd).st_size == end:
            os.ftruncate(self._fd, end - written)

    def _is_at_path(self) -> bool:
        """Whether our file is still at its path. An unchanged directory is proof enough. A stat of the file itself
        would slow down the next write to it, because the kernel then keeps exact times."""
        try:
            changed = os.stat(self._directory).st_mtime_ns  # noqa: PTH116 - a Path would double the cost
        except FileNotFoundError:
            return False
        if changed == self._directory_changed:
            return True
        size = size_of(self._path)
        is_there = size is not None and size.inode == self._inode
        if is_there and time.time_ns() - changed > _COARSEST_CLOCK_NS:  # else another change may get the same time
            self._directory_changed = changed
        return is_there

    def _current_file(self) -> Size | None:
        """The file at the path, opened."""
        size = size_of(self._path)
        if size is None or self._is_closed:
            return None
        if self._fd < 0 or size.inode != self._inode:  # others have deleted or replaced it since
            self._open(os.O_RDONLY)
        found = os.fstat(self._fd)
        return Size(self._inode, found.st_size, found.st_ctime_ns)

    def _open(self, flags: int) -> None:
        if self._is_closed:
            raise StateError(f"{self.path} is closed: teamcli is exiting")
        is_new = False
        if flags & os.O_CREAT:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=PRIVATE_DIR)
            is_new = not self.path.exists()
        fd = open_private(self.path, flags)
        self._close_file()
        self._fd, self._can_write = fd, flags != os.O_RDONLY
        self._inode = os.fstat(fd).st_ino
        if is_new and self._durable:  # the lines are synced, but without its name nobody would find the file
            sync_directory(self.path.parent)

    def _close_file(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd, self._can_write = -1, False
            self._inode = self._directory_changed = 0  # a file that appears now may get the same inode
