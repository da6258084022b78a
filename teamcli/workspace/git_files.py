"""Reads files of git without running git: where a `.git` file leads, and what an index lists."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

_GITLINK = (0o160000).to_bytes(4, "big")
_BEFORE_MODE, _BEFORE_NAME = 24, 40
"""Bytes of an entry: the fields of `stat`, including the mode, then the name of the object, flags and the path."""
_IS_EXTENDED = 0x4000
_LARGEST_INDEX = 256 * 1024 * 1024
_LARGEST_TEXT = 1024 * 1024
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def gitlinks(directory: Path, hash_size: int = 20) -> Iterator[str]:
    """The paths of submodules in the index of a git directory, and in the index that it shares."""
    for path in (directory / "index", *directory.glob("sharedindex.*")):
        data = _read(path)
        if _GITLINK in data:  # most have none, and an index can list a hundred thousand files
            yield from (os.fsdecode(name) for mode, _, name in _entries(data, hash_size) if mode == _GITLINK)


def listed_below(directory: Path, folder: str, hash_size: int = 20) -> Iterator[tuple[str, bytes]]:
    """Path (relative to the folder, in lower case) and object of what the index of a git directory has at or in it."""
    wanted = os.fsencode(folder).lower()
    for path in (directory / "index", *directory.glob("sharedindex.*")):
        data = _read(path)
        if data[7:8] == b"\4" or wanted in data.lower():  # version 4 does not write paths in full
            for _, object_name, name in _entries(data, hash_size):
                before, found, inside = name.lower().partition(wanted)
                if found and not before and (not inside or inside.startswith(b"/")):
                    yield os.fsdecode(inside[1:]), object_name


def _entries(data: bytes, hash_size: int) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Mode, object and path of each. Stops at data that cannot be understood."""
    version, count = int.from_bytes(data[4:8], "big"), int.from_bytes(data[8:12], "big")
    at, name = 12, b""
    for _ in range(count):
        flags_at = at + _BEFORE_NAME + hash_size
        name_at = flags_at + 2
        if version >= 3 and int.from_bytes(data[flags_at:name_at], "big") & _IS_EXTENDED:
            name_at += 2
        if version == 4:  # it stores only how the path differs from the previous one
            kept, name_at = _variable_number(data, name_at)
            name = name[: len(name) - kept]
        else:
            name = b""
        end = data.find(b"\0", name_at)
        if end < 0:
            return
        name += data[name_at:end]
        yield data[at + _BEFORE_MODE : at + _BEFORE_MODE + 4], data[at + _BEFORE_NAME : flags_at], name
        at = end + 1 if version == 4 else at + (end - at + 8) // 8 * 8


def _variable_number(data: bytes, at: int) -> tuple[int, int]:
    """A number as git packs it, and where it ends."""
    byte = data[at] if at < len(data) else 0
    value, at = byte & 0x7F, at + 1
    while byte & 0x80 and at < len(data):
        byte = data[at]
        value, at = ((value + 1) << 7) | (byte & 0x7F), at + 1
    return value, at


def _read(path: Path) -> bytes:
    try:
        return _read_at_most(path, _LARGEST_INDEX)
    except OSError:
        return b""


def _read_at_most(path: Path, size: int) -> bytes:
    """Does not wait for the writer of a FIFO.

    Raises: OSError
    """
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        return file.read(size) or b""


def named_directory(file: Path) -> Path | None:
    """The git directory that a `.git` file names."""
    return path_in(file, "gitdir:")


def path_in(file: Path, label: str = "") -> Path | None:
    """The path that is the content of one of git's files, resolved; None if it is not a path."""
    text = text_of(file)
    path = text.removeprefix(label).strip()
    if not text.startswith(label) or not path or "\0" in path:
        return None
    return Path(os.path.realpath(file.parent / path))


def text_of(path: Path) -> str:
    """The beginning of a file, empty if it cannot be read.

    Raises: OSError, if the system is out of descriptors
    """
    try:
        return _read_at_most(path, _LARGEST_TEXT).decode("utf-8", "surrogateescape")
    except OSError as e:
        raise_if_exhausted(e)
        return ""


def raise_if_exhausted(error: OSError) -> None:
    if error.errno in _EXHAUSTED:
        raise error
