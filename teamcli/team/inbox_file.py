"""One inbox file: whole lines are appended at its end, and nothing in it is ever changed.

Other programs append to it too, at any time and without a lock. So a torn line is closed with a newline and never cut
off, only our own last bytes are ever taken back, and each use checks that the open file is still the one at its path.
Others may also edit, replace or delete it: a position is valid only if the content before it is what was read.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from teamcli.errors import StateError
from teamcli.storage.files import PRIVATE_DIR, as_state_error, open_private, put_back, sync_directory
from teamcli.team.inbox_state import InboxState, Position

_COARSEST_CLOCK_NS = 2_000_000_000
"""No file system has coarser times."""
_CHECKED_BYTES = 4096
"""How much of the beginning of a file, and of the content before a position, is compared."""
PIECE_BYTES = 4 * 1024 * 1024
"""How much is read at once: many messages, since the longest has 256 KB."""
SHOWN_BYTES = 4096
"""How much is kept of a line that is longer than a piece."""


class Size(NamedTuple):
    """The identity and size of a file."""

    inode: int
    bytes: int
    changed: int = 0
    """When it last changed; 0 if that is not known."""


class Start(NamedTuple):
    """Where a reader continues in the file."""

    offset: int
    new_from: int
    """Lines before this offset may have been read already, if the file was changed or replaced since."""


class Chunk(NamedTuple):
    """A piece of an inbox, from `start` on. With `skipped`, only the beginning of one line that is longer than any
    message; `skipped` is its length."""

    file_bytes: int
    start: int
    data: bytes
    seen_at: float
    """The time for lines without a timestamp: now, or, if the inbox is only shown, when it was last written."""
    skipped: int = 0

    @property
    def end(self) -> int:
        """Where the next piece begins: after the last finished line."""
        return self.start + (self.skipped or self.data.rfind(b"\n") + 1)

    @property
    def is_last(self) -> bool:
        return self.end == self.start or self.end >= self.file_bytes

    def lines(self) -> list[bytes]:
        return [self.data] if self.skipped else self.data.split(b"\n")[:-1]


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
                    self._open(os.O_RDWR | os.O_APPEND | os.O_CREAT)
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
            return None if size is None else _start(self._fd, position, state)

    def is_put_back(self, position: Position, state: InboxState) -> bool:
        """Whether this is the file that was read up to that position and was missing for a while.

        Raises: StateError
        """
        with as_state_error("read", self.path), self._lock:
            size = self._current_file()
            if size is None or not position.offset or not state.is_older(os.fstat(self._fd).st_mtime):
                return False
            return _is_valid(self._fd, size.bytes, position)

    def read(self, offset: int) -> Chunk | None:
        """The piece at `offset`; None without a file.

        Raises: StateError
        """
        with as_state_error("read", self.path), self._lock:
            size = self._current_file()
            return None if size is None else _piece(self._fd, size.bytes, min(offset, size.bytes), time.time())

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
            if size is None or size.bytes != position.offset or not _is_valid(self._fd, size.bytes, position):
                return False
            archive.parent.mkdir(exist_ok=True, mode=PRIVATE_DIR)
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
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        try:
            written = os.write(self._fd, lines)
            if written < len(lines):
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
        if self._fd < 0 or size.inode != self._inode:
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
        if is_new and self._durable:
            sync_directory(self.path.parent)

    def _close_file(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd, self._can_write = -1, False
            self._inode = self._directory_changed = 0


def is_valid_in(path: Path, position: Position) -> bool:
    """Whether a file has the content that was read up to that position.

    Raises: StateError
    """
    if size_of(str(path)) is None:
        return False
    with _opened(path) as fd:
        return _is_valid(fd, os.fstat(fd).st_size, position)


def look_into(path: Path, position: Position, state: InboxState) -> tuple[Start, Iterator[Chunk]] | None:
    """An inbox as it is, only to show it: nothing is created or kept open.

    Raises: StateError
    """
    if size_of(str(path)) is None:
        return None
    with _opened(path) as fd:
        return _start(fd, position, state), read_pieces(path)


def read_pieces(path: Path, start: int = 0) -> Iterator[Chunk]:
    """The pieces of a file from `start` on.

    Raises: StateError
    """
    if size_of(str(path)) is None:
        return
    with _opened(path) as fd:
        found = os.fstat(fd)
        piece = _piece(fd, found.st_size, start, found.st_mtime)
        yield piece
        while not piece.is_last:
            piece = _piece(fd, found.st_size, piece.end, found.st_mtime)
            yield piece


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    fd = open_private(path, os.O_RDONLY)
    try:
        with as_state_error("read", path):
            yield fd
    finally:
        os.close(fd)


def _start(fd: int, position: Position, state: InboxState) -> Start:
    size = os.fstat(fd).st_size
    if position.generation < state.generation:
        return Start(0, 0)
    if _is_valid(fd, size, position):
        return Start(position.offset, max(position.offset, position.repeats_until))
    moved = state.continued(position)
    if moved is not None and _is_valid(fd, size, moved):
        return Start(moved.offset, max(moved.offset, moved.repeats_until))
    return Start(0, size)


def _is_valid(fd: int, size: int, position: Position) -> bool:
    if position.offset == 0 or position.offset > size:
        return position.offset == 0
    if not position.check:  # written by an earlier version
        return os.pread(fd, 1, position.offset - 1) == b"\n"
    return check_before(fd, position.offset) == position.check


def check_before(fd: int, offset: int) -> str:
    length = min(_CHECKED_BYTES, offset)
    digest = hashlib.blake2b(os.pread(fd, length, 0), digest_size=8)
    digest.update(os.pread(fd, length, offset - length))
    return digest.hexdigest()


def _piece(fd: int, size: int, start: int, seen_at: float) -> Chunk:
    """Bounded, since anyone may append anything."""
    data = os.pread(fd, min(PIECE_BYTES, size - start), start)
    if b"\n" in data or start + len(data) >= size:
        return Chunk(size, start, data, seen_at)
    end = _end_of_line(fd, start + len(data), size)
    return Chunk(size, start, data if end is None else data[:SHOWN_BYTES], seen_at, end - start if end else 0)


def _end_of_line(fd: int, offset: int, size: int) -> int | None:
    """The offset after the next newline from `offset` on; None if there is none before `size`."""
    while (offset := _next_data(fd, offset, size)) < size:
        data = os.pread(fd, min(PIECE_BYTES, size - offset), offset)
        newline = data.find(b"\n")
        if newline >= 0:
            return offset + newline + 1
        offset += len(data) or size
    return None


def _next_data(fd: int, offset: int, size: int) -> int:
    """Skip a hole in the file, which may be of any length."""
    try:
        return os.lseek(fd, offset, os.SEEK_DATA)
    except OSError as e:
        return (
            size if e.errno == errno.ENXIO else offset
        )  # only a hole is left, or the file system does not report holes


def size_of(path: str) -> Size | None:
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return Size(found.st_ino, found.st_size, found.st_ctime_ns)
