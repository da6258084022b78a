"""One inbox file: whole lines go in at its end, and nothing that stands in it is ever changed.

Others append to it too, at any time and without a lock. So a torn line is closed by a newline and never cut off, only
our own last bytes are ever taken back, and each use makes sure that the open file is still the one at its path. Others
may also edit, replace or delete it: a position counts only if what is before it is what was read.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from teamcli.errors import StateError
from teamcli.storage.files import PRIVATE_DIR, cannot, open_private, put_back, sync_directory
from teamcli.team.inbox_state import InboxState, Position

_COARSEST_CLOCK_NS = 2_000_000_000
"""No file system's times are coarser."""
_CHECKED_BYTES = 4096
"""So much of the beginning of a file, and of what is before a position, is compared."""
PIECE_BYTES = 4 * 1024 * 1024
"""Read at once: many messages, of which the longest has 256 KB."""
SHOWN_BYTES = 4096
"""Of a line that is longer than that."""


class Size(NamedTuple):
    """A file as a directory shows it."""

    inode: int
    bytes: int
    changed: int = 0
    """When it last was, for those who look; 0 if that is not known."""


class Start(NamedTuple):
    """Where a reader continues in the file at the path."""

    offset: int
    new_from: int
    """What comes before may have been read already, in a file that has been changed or replaced since."""


class Chunk(NamedTuple):
    """A piece of an inbox, from `start` on; with `skipped`, only the beginning of one line that is longer than any
    message, and how long it is."""

    file_bytes: int
    start: int
    data: bytes
    seen_at: float
    """For what says no time itself: now, or for somebody who only looks, when the file was last written."""
    skipped: int = 0

    @property
    def end(self) -> int:
        """Where the next piece begins: behind the last line that is whole."""
        return self.start + (self.skipped or self.data.rfind(b"\n") + 1)

    @property
    def is_last(self) -> bool:
        return self.end == self.start or self.end >= self.file_bytes

    def lines(self) -> list[bytes]:
        return [self.data] if self.skipped else self.data.split(b"\n")[:-1]


class Inbox:
    """Keeps one descriptor open: that is fast, and while it is open no new file can get the same inode."""

    def __init__(self, path: Path, durable: bool) -> None:
        self.path = path
        self._path, self._directory = str(path), str(path.parent)
        self._durable = durable
        self._lock = threading.Lock()  # flock does not keep threads apart that share one descriptor
        self._fd, self._can_write = -1, False
        self._inode = 0
        self._directory_changed = 0
        """When it last had, if our file was still at its path after that."""
        self._is_closed = False

    def append(self, lines: bytes) -> Size:
        """Write whole lines in one step; the file's size right behind them.

        Raises: StateError
        """
        try:
            with self._lock:
                while True:
                    if not self._can_write:
                        self._open(os.O_RDWR | os.O_APPEND | os.O_CREAT)
                    self._close_torn_line()
                    end = self._write(lines)
                    if self._is_at_path():
                        return Size(self._inode, end)
                    self._put_back(only_with_directory=True)
                    self._close_file()  # it was deleted or moved away meanwhile: write to the one that is there now
        except OSError as e:
            raise StateError(cannot("write", self.path, e)) from e

    def size(self) -> Size | None:
        """Of the file at the path; None without one, or after `close`: who reads then comes too late for it to matter.

        Raises: StateError
        """
        try:
            return None if self._is_closed else size_of(self._path)
        except OSError as e:
            raise StateError(cannot("read", self.path, e)) from e

    def locate(self, position: Position, state: InboxState) -> Start | None:
        """Where a reader at that position continues; None without a file.

        Raises: StateError
        """
        try:
            with self._lock:
                size = self._current_file()
                return None if size is None else _start(self._fd, position, state)
        except OSError as e:
            raise StateError(cannot("read", self.path, e)) from e

    def is_put_back(self, position: Position, state: InboxState) -> bool:
        """Whether this is the file that was read up to that position, and was gone for a while.

        Raises: StateError
        """
        try:
            with self._lock:
                size = self._current_file()
                if size is None or not position.offset or not state.is_older(os.fstat(self._fd).st_mtime):
                    return False
                return _is_valid(self._fd, size.bytes, position)
        except OSError as e:
            raise StateError(cannot("read", self.path, e)) from e

    def read(self, offset: int) -> Chunk | None:
        """What follows `offset`, or its beginning if that is long; None without a file.

        Raises: StateError
        """
        try:
            with self._lock:
                size = self._current_file()
                return None if size is None else _piece(self._fd, size.bytes, min(offset, size.bytes), time.time())
        except OSError as e:
            raise StateError(cannot("read", self.path, e)) from e

    def check_at(self, offset: int) -> str:
        """What a position at `offset` is known by.

        Raises: StateError
        """
        try:
            with self._lock:
                return check_before(self._fd, offset) if self._current_file() else ""
        except OSError as e:
            raise StateError(cannot("read", self.path, e)) from e

    def lines(self, start: int, end: int) -> Iterator[bytes]:
        """Every line between two places that is not blank.

        Raises: StateError
        """
        while start < end and (chunk := self.read(start)) is not None and chunk.end > start:
            for line in chunk.lines():
                if start < end and (text := line.strip()):
                    yield text
                start += len(line) + 1
            start = chunk.end

    def end(self) -> int:
        """Behind the last line that is whole.

        Raises: StateError
        """
        offset = 0
        while (chunk := self.read(offset)) is not None and chunk.end > offset:
            offset = chunk.end
        return offset

    def move_to(self, archive: Path, position: Position, limit_bytes: int) -> bool:
        """Move the file away, if that position is its end and the end is beyond the limit.

        Raises: StateError
        """
        try:
            with self._lock:
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
        except OSError as e:
            raise StateError(cannot("rotate", self.path, e)) from e

    def release(self) -> None:
        """Close the file until the next use."""
        with self._lock:
            self._close_file()

    def put_back(self) -> None:
        """Write the file again, which was deleted with everything around it.

        Raises: StateError
        """
        try:
            with self._lock:
                self._put_back(only_with_directory=False)
        except OSError as e:
            raise StateError(cannot("write", self.path, e)) from e

    def _put_back(self, only_with_directory: bool) -> None:
        """A user may delete an inbox; but with its directory goes mail that nobody wanted to lose."""
        is_gone = self._fd >= 0 and not os.path.lexists(self._path)
        if is_gone and not (only_with_directory and self.path.parent.is_dir()):
            put_back(self._fd, self.path)
            self._close_file()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._close_file()

    def _close_torn_line(self) -> None:
        """What looks torn may be a long line that somebody writes in pieces, under the lock: only with the lock in our
        hands is it torn. Else the lock is held for nothing but the write. A single write of somebody without the lock
        may come in between: then our newline makes an empty line, which harms nobody."""
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
        if self._durable:  # without the lock: what several processes wrote goes to the disk in one step
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
        """Unless somebody has appended behind it: a torn line of ours is better than theirs lost."""
        end = os.lseek(self._fd, 0, os.SEEK_CUR)
        if os.fstat(self._fd).st_size == end:
            os.ftruncate(self._fd, end - written)

    def _is_at_path(self) -> bool:
        """An unchanged directory says so at once. A look at the file itself would slow down the next write to it, which
        then has to keep exact times."""
        try:
            changed = os.stat(self._directory).st_mtime_ns  # noqa: PTH116 - a Path costs as much again
        except FileNotFoundError:
            return False
        if changed == self._directory_changed:
            return True
        size = size_of(self._path)
        is_there = size is not None and size.inode == self._inode
        if is_there and time.time_ns() - changed > _COARSEST_CLOCK_NS:  # else it may change again at the same time
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
            raise StateError(f"{self.path} is closed: teamcli is leaving")
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
    """Whether a file holds what was read up to that position.

    Raises: StateError
    """
    if size_of(str(path)) is None:
        return False
    fd = open_private(path, os.O_RDONLY)
    try:
        return _is_valid(fd, os.fstat(fd).st_size, position)
    except OSError as e:
        raise StateError(cannot("read", path, e)) from e
    finally:
        os.close(fd)


def look_into(path: Path, position: Position, state: InboxState) -> tuple[Start, Iterator[Chunk]] | None:
    """An inbox as it is, for somebody who only looks: nothing is created or kept open.

    Raises: StateError
    """
    if size_of(str(path)) is None:
        return None
    fd = open_private(path, os.O_RDONLY)
    try:
        start = _start(fd, position, state)
    except OSError as e:
        raise StateError(cannot("read", path, e)) from e
    finally:
        os.close(fd)
    return start, read_pieces(path)


def read_pieces(path: Path, start: int = 0) -> Iterator[Chunk]:
    """The pieces of a file from `start` on.

    Raises: StateError
    """
    if size_of(str(path)) is None:
        return
    fd = open_private(path, os.O_RDONLY)
    try:
        found = os.fstat(fd)
        piece = _piece(fd, found.st_size, start, found.st_mtime)
        yield piece
        while not piece.is_last:
            piece = _piece(fd, found.st_size, piece.end, found.st_mtime)
            yield piece
    except OSError as e:
        raise StateError(cannot("read", path, e)) from e
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
    if not position.check:  # noted by an earlier version
        return os.pread(fd, 1, position.offset - 1) == b"\n"
    return check_before(fd, position.offset) == position.check


def check_before(fd: int, offset: int) -> str:
    length = min(_CHECKED_BYTES, offset)
    digest = hashlib.blake2b(os.pread(fd, length, 0), digest_size=8)
    digest.update(os.pread(fd, length, offset - length))
    return digest.hexdigest()


def _piece(fd: int, size: int, start: int, seen_at: float) -> Chunk:
    """Never more than so much at once: anybody may append anything."""
    data = os.pread(fd, min(PIECE_BYTES, size - start), start)
    if b"\n" in data or start + len(data) >= size:
        return Chunk(size, start, data, seen_at)
    end = _end_of_line(fd, start + len(data), size)
    return Chunk(size, start, data if end is None else data[:SHOWN_BYTES], seen_at, end - start if end else 0)


def _end_of_line(fd: int, offset: int, size: int) -> int | None:
    """Behind the next newline from `offset` on, if there is one before `size`."""
    while (offset := _next_data(fd, offset, size)) < size:
        data = os.pread(fd, min(PIECE_BYTES, size - offset), offset)
        newline = data.find(b"\n")
        if newline >= 0:
            return offset + newline + 1
        offset += len(data) or size
    return None


def _next_data(fd: int, offset: int, size: int) -> int:
    """Past a hole in the file, which may be as long as anybody likes."""
    try:
        return os.lseek(fd, offset, os.SEEK_DATA)
    except OSError as e:
        return size if e.errno == errno.ENXIO else offset  # nothing but a hole is left; or holes are not known here


def size_of(path: str) -> Size | None:
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return Size(found.st_ino, found.st_size, found.st_ctime_ns)
