"""One inbox file: whole lines go in at its end, and nothing that stands in it is ever changed.

Others append to it too, at any time and without a lock. So a torn line is closed by a newline and never cut off, only
our own last bytes are ever taken back, and each use makes sure that the open file is still the one at its path.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from teamcli.errors import StateError
from teamcli.files import PRIVATE_DIR, cannot, open_private, sync_directory

ARCHIVE = "archive"
_COARSEST_CLOCK_NS = 2_000_000_000
"""No file system's times are coarser."""
_FIRST_LINE_BYTES = 4096
PIECE_BYTES = 4 * 1024 * 1024
"""Read at once: many messages, of which the longest has 256 KB."""
_SHOWN_BYTES = 4096
"""Of a line that is longer than that."""
_FS_IOC_GETVERSION = 0x80087601


class Size(NamedTuple):
    """A file as a directory shows it."""

    inode: int
    bytes: int


class Extent(NamedTuple):
    """A file that we know again, and how long it is."""

    file: int
    """0 while its first line is not finished."""
    bytes: int


class Chunk(NamedTuple):
    """A piece of an inbox, from `start` on; with `skipped`, only the beginning of one line that is longer than any
    message, and how long it is."""

    extent: Extent
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
        return self.end == self.start or self.end >= self.extent.bytes


class Inbox:
    """Keeps one descriptor open: that is fast, and while it is open no new file can get the same inode."""

    def __init__(self, path: Path, durable: bool) -> None:
        self.path = path
        self._path, self._directory = str(path), str(path.parent)
        self._durable = durable
        self._lock = threading.Lock()  # flock does not keep threads apart that share one descriptor
        self._fd, self._can_write = -1, False
        self._inode = self._file = 0
        self._directory_changed = 0
        """When it last had, if our file was still at its path after that."""
        self._is_closed = False
        self._archived: _ArchivedFile | None = None

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
                    self._close_file()  # it was deleted or moved away meanwhile: write to the one that is there now
        except OSError as e:
            raise StateError(cannot("write", self.path, e)) from e

    def extent(self) -> Extent | None:
        """Of the file that stands there now; None where there is none.

        Raises: StateError
        """
        try:
            size = size_of(self._path)
            if size is None or (size.inode == self._inode and self._file):
                return size and Extent(self._file, size.bytes)
            with self._lock:
                return self._current_file()
        except OSError as e:
            raise StateError(cannot("read", self.path, e)) from e

    def read(self, file: int, offset: int) -> Chunk | None:
        """What follows `offset`, or its beginning where that is long; from the start of the file, where that position
        belongs to another one; None without a file.

        Raises: StateError
        """
        try:
            with self._lock:
                extent = self._current_file()
                if extent is None:
                    return None
                start = offset if file == extent.file and self._is_line_start(offset, extent.bytes) else 0
                return _piece(self._fd, extent, start, time.time())
        except OSError as e:
            raise StateError(cannot("read", self.path, e)) from e

    def rotate(self, file: int, offset: int, limit_bytes: int) -> bool:
        """Move the file to the archive, if that position is its end and the end is beyond the limit.

        Raises: StateError
        """
        try:
            with self._lock:
                if offset <= limit_bytes or self._current_file() != (file, offset):
                    return False
                self._move_to_archive(offset)
                return True
        except OSError as e:
            raise StateError(cannot("rotate", self.path, e)) from e

    def carry_over(self) -> None:
        """Bring here what was written into the archived file by somebody who had opened it before it was moved.

        Raises: StateError
        """
        archived = self._archived
        if archived is not None:
            archived.hand_over(self)

    def archives(self) -> list[Path]:
        """The newest first."""
        found = (self.path.parent / ARCHIVE).glob(f"{self.path.stem}.*.jsonl")
        return sorted((path for path in found if _number(path)), key=_number, reverse=True)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._close_file()
            archived, self._archived = self._archived, None
        if archived is not None:
            archived.close()

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

    def _current_file(self) -> Extent | None:
        """The file at the path, opened. None after `close`: who reads then comes too late for it to matter."""
        size = size_of(self._path)
        if size is None or self._is_closed:
            return None
        if self._fd < 0 or size.inode != self._inode:
            self._open(os.O_RDONLY)
        self._file = _identity(self._fd, self._inode)  # each time: it may have been emptied and filled again
        return Extent(self._file, os.fstat(self._fd).st_size)

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

    def _is_line_start(self, offset: int, size: int) -> bool:
        return offset == 0 or (0 < offset <= size and os.pread(self._fd, 1, offset - 1) == b"\n")

    def _move_to_archive(self, size: int) -> None:
        directory = self.path.parent / ARCHIVE
        directory.mkdir(exist_ok=True, mode=PRIVATE_DIR)
        number = max(map(_number, self.archives()), default=0) + 1
        self.path.rename(directory / f"{self.path.stem}.{number}.jsonl")
        if self._durable:
            sync_directory(directory)
            sync_directory(self.path.parent)
        self._archived = _ArchivedFile(os.dup(self._fd), size)
        self._close_file()

    def _close_file(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd, self._can_write = -1, False
            self._inode = self._file = self._directory_changed = 0


class _ArchivedFile:
    """Watched for what still comes in: no lock keeps a shell from writing to a file that it has open."""

    def __init__(self, fd: int, size: int) -> None:
        self._fd = fd
        self._size = size
        self._lock = threading.Lock()

    def hand_over(self, inbox: Inbox) -> None:
        with self._lock:
            late = min(os.fstat(self._fd).st_size - self._size, PIECE_BYTES) if self._fd >= 0 else 0
            end = os.pread(self._fd, late, self._size).rfind(b"\n") + 1 if late > 0 else 0
            if end:
                inbox.append(os.pread(self._fd, end, self._size))
                self._size += end

    def close(self) -> None:
        with self._lock:
            os.close(self._fd)
            self._fd = -1


def read_pieces(path: Path) -> Iterator[Chunk]:
    """An inbox as it stands, for somebody who only looks: nothing is created or kept open.

    Raises: StateError
    """
    if size_of(str(path)) is None:
        return
    fd = open_private(path, os.O_RDONLY)
    try:
        found = os.fstat(fd)
        extent = Extent(_identity(fd, found.st_ino), found.st_size)
        piece = _piece(fd, extent, 0, found.st_mtime)
        yield piece
        while not piece.is_last:
            piece = _piece(fd, extent, piece.end, found.st_mtime)
            yield piece
    except OSError as e:
        raise StateError(cannot("read", path, e)) from e
    finally:
        os.close(fd)


def _piece(fd: int, extent: Extent, start: int, seen_at: float) -> Chunk:
    """Never more than so much at once: anybody may append anything."""
    data = os.pread(fd, min(PIECE_BYTES, extent.bytes - start), start)
    if b"\n" in data or start + len(data) >= extent.bytes:
        return Chunk(extent, start, data, seen_at)
    end = _end_of_line(fd, start + len(data), extent.bytes)
    return Chunk(extent, start, data if end is None else data[:_SHOWN_BYTES], seen_at, end - start if end else 0)


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
    return Size(found.st_ino, found.st_size)


def _identity(fd: int, inode: int) -> int:
    """An inode is used again once its file is deleted: what the file system counts, or the first line, tells the two
    apart."""
    beginning = os.pread(fd, _FIRST_LINE_BYTES, 0)
    line, newline, _ = beginning.partition(b"\n")
    if not newline and len(beginning) < _FIRST_LINE_BYTES:
        return 0
    return int.from_bytes(hashlib.blake2b(b"%d:%b:%b" % (inode, _generation(fd), line), digest_size=6).digest()) or 1


def _generation(fd: int) -> bytes:
    """How often the inode has been used, as far as the file system says so."""
    try:
        return fcntl.ioctl(fd, _FS_IOC_GETVERSION, bytes(8)) if sys.platform == "linux" else b""
    except OSError:
        return b""


def _number(archive: Path) -> int:
    number = archive.name.split(".")[1]
    return int(number) if number.isascii() and number.isdigit() else 0
