"""Reads an inbox file: in pieces, from the position of a reader, whatever others have done to the file.

Nothing here writes, or keeps a file open.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from teamcli.storage.files import as_state_error, open_private
from teamcli.team.inbox_state import InboxState, Position

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


def is_valid_in(path: Path, position: Position) -> bool:
    """Whether a file has the content that was read up to that position.

    Raises: StateError
    """
    if size_of(str(path)) is None:
        return False
    with _opened(path) as fd:
        return is_valid(fd, os.fstat(fd).st_size, position)


def look_into(path: Path, position: Position, state: InboxState) -> tuple[Start, Iterator[Chunk]] | None:
    """An inbox as it is, only to show it: nothing is created or kept open.

    Raises: StateError
    """
    if size_of(str(path)) is None:
        return None
    with _opened(path) as fd:
        return start_at(fd, position, state), read_pieces(path)


def read_pieces(path: Path, start: int = 0) -> Iterator[Chunk]:
    """The pieces of a file from `start` on.

    Raises: StateError
    """
    if size_of(str(path)) is None:
        return
    with _opened(path) as fd:
        found = os.fstat(fd)
        piece = piece_at(fd, found.st_size, start, found.st_mtime)
        yield piece
        while not piece.is_last:
            piece = piece_at(fd, found.st_size, piece.end, found.st_mtime)
            yield piece


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    fd = open_private(path, os.O_RDONLY)
    try:
        with as_state_error("read", path):
            yield fd
    finally:
        os.close(fd)


def start_at(fd: int, position: Position, state: InboxState) -> Start:
    size = os.fstat(fd).st_size
    if position.generation < state.generation:  # the file that was read is gone: everything in this one is new
        return Start(0, 0)
    if is_valid(fd, size, position):
        return Start(position.offset, max(position.offset, position.repeats_until))
    moved = state.continued(position)
    if moved is not None and is_valid(fd, size, moved):
        return Start(moved.offset, max(moved.offset, moved.repeats_until))
    return Start(0, size)  # edited or replaced: from the beginning, and ids show what is new


def is_valid(fd: int, size: int, position: Position) -> bool:
    if position.offset == 0 or position.offset > size:  # the latter if it was emptied or cut
        return position.offset == 0
    if not position.check:  # written by an earlier version
        return os.pread(fd, 1, position.offset - 1) == b"\n"
    return check_before(fd, position.offset) == position.check


def check_before(fd: int, offset: int) -> str:
    length = min(_CHECKED_BYTES, offset)
    digest = hashlib.blake2b(os.pread(fd, length, 0), digest_size=8)
    digest.update(os.pread(fd, length, offset - length))
    return digest.hexdigest()


def piece_at(fd: int, size: int, start: int, seen_at: float) -> Chunk:
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
        offset += len(data) or size  # nothing is left to read if the file was cut in the meantime
    return None


def _next_data(fd: int, offset: int, size: int) -> int:
    """Skip a hole in the file, which may be of any length."""
    try:
        return os.lseek(fd, offset, os.SEEK_DATA)
    except OSError as e:
        # Only a hole is left; or the file system does not report holes.
        return size if e.errno == errno.ENXIO else offset


def size_of(path: str) -> Size | None:
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return Size(found.st_ino, found.st_size, found.st_ctime_ns)
