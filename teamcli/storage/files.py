"""How teamcli writes files: whole lines appended under a lock, whole documents replaced atomically.

A crash leaves either the old or the new state. Half a line that a killed process left at the end of a log is cut off
(and returned to the caller) before anything is appended, so that no reader takes it for a message.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import random
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from teamcli.errors import StateError

Json = dict[str, Any]
T = TypeVar("T")

VERSION = 1
"""Written as `v` into every document and log."""
PRIVATE_FILE = 0o600
PRIVATE_DIR = 0o700
LARGEST_DOCUMENT = 5_000_000
LARGEST_LINE = 64_000_000
_TAIL_CHUNK = 64 * 1024
_FURTHER_CHUNK = 4 * 1024 * 1024
_as_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_names = random.Random()
"""For temporary files. Not the shared generator, which a program may seed."""


def encode_line(value: Json) -> bytes:
    """One JSON object as one UTF-8 line. Lone surrogates (broken input) become '?': a log must always be writable."""
    return _as_json(value).encode("utf-8", "replace") + b"\n"


def write_atomic(path: Path, data: bytes, mode: int = PRIVATE_FILE, durable: bool = True) -> None:
    """Replace `path` by `data` in one step, and wait until that would survive a power cut, unless it is a mere copy.

    Raises: StateError
    """
    with as_state_error("write", path):
        fd, temporary = _make_temporary(path)
        try:
            try:
                if mode != PRIVATE_FILE:  # which it already has
                    os.fchmod(fd, mode)
                write_whole(fd, data, durable)
            finally:
                os.close(fd)
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
    if durable:
        sync_directory(path.parent)


def _make_temporary(path: Path) -> tuple[int, Path]:
    try:
        return make_temporary(path)
    except FileNotFoundError:  # only then: the directory is there, and each look at it is a system call
        path.parent.mkdir(parents=True, exist_ok=True, mode=PRIVATE_DIR)
        return make_temporary(path)


def make_temporary(path: Path) -> tuple[int, Path]:
    """Create a file next to `path` that only the user can read. Returns its descriptor and its path.

    As `tempfile.mkstemp` does, but that module takes longer to load than most others together.

    Raises: OSError
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        temporary = path.with_name(f".{path.name}.{_names.getrandbits(32):08x}")
        with contextlib.suppress(FileExistsError):  # a fork of this program makes the same names
            return os.open(temporary, flags, PRIVATE_FILE), temporary


def open_private(path: Path, flags: int) -> int:
    """Open or create one of our files. Never follows a link: a cloned repository could point it anywhere.

    Raises: StateError
    """
    try:
        fd = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, PRIVATE_FILE)
    except OSError as e:
        is_link = e.errno == errno.ELOOP
        raise StateError(f"{path} is a symbolic link; remove it" if is_link else cannot("open", path, e)) from e
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise StateError(f"{path} is not a regular file; remove it")
    return fd


def make_private_dir(directory: Path) -> None:
    """Create a directory that only the user can read, or take others' access away from an existing one.

    Raises: StateError
    """
    with as_state_error("create", directory):
        directory.mkdir(parents=True, exist_ok=True, mode=PRIVATE_DIR)
        found = directory.stat()
        if found.st_uid == os.geteuid() and found.st_mode & 0o077:
            directory.chmod(PRIVATE_DIR)


def encode_json(value: Json) -> bytes:
    """A document as `write_json` writes it."""
    try:
        data = json.dumps(value, ensure_ascii=False, indent=2).encode()
    except UnicodeEncodeError:  # a file name that is not valid UTF-8 can only be kept as escapes
        data = json.dumps(value, indent=2).encode()
    return data + b"\n"


def write_json(path: Path, value: Json) -> None:
    """Raises: StateError."""
    write_atomic(path, encode_json(value))


def sync_directory(directory: Path) -> None:
    """Wait until files that were created or replaced in a directory would survive a power cut.

    Raises: StateError
    """
    with as_state_error("sync", directory):
        fd = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def put_back(fd: int, path: Path) -> None:
    """Write the content of a deleted file, which is still open, to its path again, unless another file is there now.

    Raises: StateError, OSError
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=PRIVATE_DIR)
    new, temporary = make_temporary(path)
    try:
        try:
            offset = 0
            while data := os.pread(fd, _TAIL_CHUNK, offset):
                write_whole(new, data, durable=False)
                offset += len(data)
            os.fsync(new)
        finally:
            os.close(new)
        if not os.path.lexists(path):
            temporary.rename(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(path.parent)


def write_whole(fd: int, data: bytes, durable: bool) -> None:
    """Append all of `data`, or raise OSError (disk full) and leave the file as it was. The caller holds the lock."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(fd, view) :]
    except OSError:
        os.ftruncate(fd, os.fstat(fd).st_size - (len(data) - len(view)))
        raise
    if durable:
        sync_tail(fd, data)


def sync_tail(fd: int, data: bytes, new_in: Path | None = None) -> None:
    """Sync a file that ends in `data`, and the directory that it is new in. If that fails, cut `data` off. The caller
    holds the lock.

    Raises: OSError, StateError
    """
    try:
        os.fsync(fd)
        if new_in is not None:
            sync_directory(new_in)
    except (OSError, StateError):
        start = os.fstat(fd).st_size - len(data)
        if os.pread(fd, len(data), start) == data:  # else another process has appended, and its line must not be lost
            os.ftruncate(fd, start)
        raise


def cut_torn_tail(fd: int) -> bytes:
    """Cut off what follows the last newline and return it, at most 64 MB of it. The caller holds the lock."""
    size = position = os.fstat(fd).st_size
    newline = -1
    while position > 0 and newline < 0:
        step = min(_TAIL_CHUNK if position == size else _FURTHER_CHUNK, position)
        position -= step
        newline = os.pread(fd, step, position).rfind(b"\n")
    start = position + newline + 1
    tail = os.pread(fd, min(size - start, LARGEST_LINE), start)
    if start < size:
        os.ftruncate(fd, start)
    return tail


def read_lines(path: Path, containing: tuple[bytes, ...] = ()) -> Iterator[tuple[int, Json | None]]:
    """Every finished line of a log as `(offset, object)`, with `None` for a line that is not a JSON object.

    With `containing`, only lines that contain one of these: faster if few lines of a log matter.

    Raises: StateError
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    except OSError as e:
        raise StateError(cannot("read", path, e)) from e
    try:
        with os.fdopen(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):  # a FIFO would never end
                raise StateError(f"{path} is not a regular file; remove it")
            offset = 0
            while line := file.readline(LARGEST_LINE):
                start, is_whole = offset, len(line) < LARGEST_LINE
                offset += len(line)
                while len(line) == LARGEST_LINE and not line.endswith(b"\n"):
                    line = file.readline(LARGEST_LINE)
                    offset += len(line)
                if not line.endswith(b"\n"):
                    return
                if not containing or any(each in line for each in containing):
                    yield start, decode_line(line) if is_whole else None
    except OSError as e:
        raise StateError(cannot("read", path, e)) from e


def decode_line(line: bytes) -> Json | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def as_number(value: object) -> float:
    """A number from a file that anyone may have written; 0 if it is not a number, or too large."""
    try:
        number = float(value) if isinstance(value, int | float) else 0.0
    except OverflowError:
        return 0.0
    return number if math.isfinite(number) else 0.0


def read_json(path: Path, may_be_link: bool = False) -> Json | None:
    """A JSON document, or None if the file does not exist.

    `may_be_link` is for files in the user's home. A link in a project could point anywhere.

    Raises: StateError
    """
    try:
        data = read_regular(path, LARGEST_DOCUMENT, 0 if may_be_link else os.O_NOFOLLOW)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as e:
        is_link = e.errno == errno.ELOOP
        problem = f"{path} is a symbolic link; replace it with a file" if is_link else cannot("read", path, e)
        raise StateError(problem) from e
    except ValueError as e:
        raise StateError(f"{path} is {e}; fix or delete it") from e
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as e:
        raise StateError(f"{path} is not valid JSON ({e}); fix or delete it") from e
    if not isinstance(value, dict):
        raise StateError(f"{path} must hold a JSON object, not a {type(value).__name__}; fix or delete it")
    refuse_newer(path, value)
    return value


_CHUNK = 1024 * 1024


class TooLarge(ValueError):
    """The file is larger than allowed."""


def read_regular(path: Path | str, most_bytes: int, flags: int = 0) -> bytes:
    """The content of a file that other programs may have put there. The checks apply to the opened file, not the path.

    Raises: OSError; ValueError, with a message that continues `it is ...`
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
    try:
        state = os.fstat(fd)
        if not stat.S_ISREG(state.st_mode):  # a FIFO would never end
            raise ValueError("not a regular file")
        # Without a file object: some starts read hundreds of small files.
        data = os.read(fd, min(state.st_size, most_bytes) + 1)
        # More than its size says: the file grows, or is one of those that the kernel makes up.
        while state.st_size < len(data) <= most_bytes and (more := os.read(fd, min(most_bytes, _CHUNK) + 1)):
            data += more
    finally:
        os.close(fd)
    if len(data) > most_bytes:
        raise TooLarge(f"larger than {most_bytes:,} bytes")
    return data


def leads_out(path: Path | str, root: Path) -> bool:
    """Whether the path, or a directory above it, is a link that leads out of `root`."""
    return not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root))


def refuse_newer(path: Path, value: Json) -> None:
    """Raises: StateError, for a file of a later version, which this one might damage."""
    version = value.get("v", VERSION)
    if isinstance(version, int) and version > VERSION:
        raise StateError(f"{path} was written by a newer teamcli (version {version}); update teamcli to use it")


class as_state_error:
    """`with as_state_error("write", path):` turns an OSError inside the block into a StateError that names the path.

    A class, since a generator would cost more than the small writes that it surrounds.
    """

    __slots__ = ("_path", "_verb")

    def __init__(self, verb: str, path: Path) -> None:
        self._verb = verb
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise StateError(cannot(self._verb, self._path, error)) from error


def cannot(verb: str, path: Path, error: OSError) -> str:
    return f"cannot {verb} {path}: {error.strerror or error}"
