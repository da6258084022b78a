"""Reading a log of lines from its end, without reading all of it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

MOST_BYTES = 8_000_000
"""Read from the end of a log by default. Nobody looks at more of a conversation."""
_BEGINNING_BYTES = 64
_FIRST_CHUNK = 64 * 1024


def file_identity(log: Path) -> tuple[int, str]:
    """The size of a file, and how it begins: the first line holds the time at which it was written."""
    fd = open_log(log)
    if fd is None:
        return 0, ""
    try:
        return os.fstat(fd).st_size, beginning(fd)
    finally:
        os.close(fd)


def ends_line(log: Path, offset: int) -> bool:
    """Whether a line ends at this offset. In another file, hardly any line does."""
    fd = open_log(log)
    if fd is None:
        return False
    try:
        return offset == 0 or os.pread(fd, 1, offset - 1) == b"\n"
    finally:
        os.close(fd)


def lines_before(fd: int, end: int, start: int = 0, most: int = MOST_BYTES) -> Iterator[bytes]:
    """The whole lines between two offsets, the last one first. Half a line at `end`, left by a crash, is left out."""
    floor = max(start, end - most)
    position, step, rest, has_end = end, _FIRST_CHUNK, b"", False
    while position > floor:
        step = min(step, position - floor)
        position -= step
        first, *lines = (os.pread(fd, step, position) + rest).split(b"\n")
        rest = first
        step *= 2  # a long line is put together from few pieces
        if lines and not has_end:
            lines.pop()
            has_end = True
        yield from reversed(lines)
    if floor == start and has_end:
        yield rest


def open_log(path: Path) -> int | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:  # a member that has not worked yet has none
        return None
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    return None


def beginning(fd: int) -> str:
    return os.pread(fd, _BEGINNING_BYTES, 0).decode("utf-8", "replace")
