"""Opening and replacing the files of the workspace: regular files only, never a hang, never half a file.

Errors of the operating system become a ToolError of one sentence that names the file as the model knows it.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple

from teamcli.errors import ToolError
from teamcli.workspace.bounds import Workspace
from teamcli.workspace.known_files import new_digest
from teamcli.workspace.open_file import open_beneath, open_directory, open_parent

_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
    stat.S_IFLNK: "a symbolic link that changed just now",
}
_MAX_NAMES_COMPARED = 2000
_CHUNK_BYTES = 1024 * 1024
MAX_HELD_BYTES = 50 * _CHUNK_BYTES
LARGEST_FILE_BYTES = 1024 * _CHUNK_BYTES
"""Reading a larger one would take longer than anyone waits."""
MAX_SHOWN_BYTES = _CHUNK_BYTES
"""Changes to larger files are shown without the lines around them."""


@contextmanager
def open_file(path: Path, workspace: Workspace) -> Iterator[BinaryIO]:
    """A regular file, for reading.

    Raises: ToolError, also for what goes wrong while reading inside the block.
    """
    with io.FileIO(_open_regular(path, workspace)) as file:
        try:
            yield file
        except OSError as e:
            raise ToolError(f"Cannot read {workspace.relative(path)}: {e.strerror or e}") from e


def _open_regular(path: Path, workspace: Workspace) -> int:
    shown = workspace.relative(path)
    try:
        # Without O_NONBLOCK a FIFO would wait for a writer here. The checks look at what was opened, not at the path.
        fd = open_beneath(path, workspace.top_of(path), os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError as e:
        raise ToolError(_no_such_file(path, workspace)) from e
    except OSError as e:
        raise ToolError(_cannot_open(path, shown, e)) from e
    try:
        opened = os.fstat(fd)
        if stat.S_ISDIR(opened.st_mode):
            raise ToolError(f"{shown} is a directory, not a file; list what is in it with glob")
        if not stat.S_ISREG(opened.st_mode):
            raise ToolError(_special(opened.st_mode, shown))
        if (size := opened.st_size) > LARGEST_FILE_BYTES:
            raise ToolError(
                f"{shown} has {size:,} bytes, more than file tools take; look at a part of it with a command"
            )
    except ToolError:
        os.close(fd)
        raise
    return fd


def _special(mode: int, shown: str) -> str:
    kind = _KINDS.get(stat.S_IFMT(mode), "not a regular file")
    return f"{shown} is {kind}; only regular files are read and written"


def _cannot_open(path: Path, shown: str, error: OSError) -> str:
    reason = f"Cannot read {shown}: {error.strerror or error}"
    try:
        mode = path.lstat().st_mode
    except OSError:
        return reason
    return reason if stat.S_ISREG(mode) or stat.S_ISDIR(mode) else _special(mode, shown)


def _no_such_file(path: Path, workspace: Workspace) -> str:
    shown, parent = workspace.relative(path), path.parent
    if not parent.is_dir():
        return f"No such file: {shown} (there is no directory {workspace.relative(parent)} either)"
    names = {name.casefold(): name for name in _names_in(parent, workspace)}
    near = difflib.get_close_matches(path.name.casefold(), names, n=3, cutoff=0.7)
    if near:
        offered = " or ".join(workspace.relative(parent / names[name]) for name in near)
        return f"No such file: {shown}; did you mean {offered}?"
    return f"No such file: {shown}"


def _names_in(directory: Path, workspace: Workspace) -> list[str]:
    try:
        fd = open_directory(directory, workspace.top_of(directory))
    except OSError:  # not readable for this user, or gone: there is nothing to compare with
        return []
    try:
        with os.scandir(fd) as entries:
            return [entry.name for entry in islice(entries, _MAX_NAMES_COMPARED)]
    finally:
        os.close(fd)


class Content(NamedTuple):
    digest: str
    data: bytes | None
    """None for a file that is too large to hold."""


def read_content(path: Path, workspace: Workspace, max_bytes: int = MAX_HELD_BYTES) -> Content:
    """All of a regular file.

    Raises: ToolError
    """
    # A file that is too large to hold still gets a digest, so that changes to it are noticed.
    content_digest, held = new_digest(), bytearray()
    with open_file(path, workspace) as file:
        is_held = os.fstat(file.fileno()).st_size <= max_bytes
        for chunk in iter(lambda: file.read(_CHUNK_BYTES), b""):
            content_digest.update(chunk)
            if is_held:
                held += chunk
    return Content(content_digest.hexdigest(), bytes(held) if is_held else None)


def read_content_if_there(path: Path, workspace: Workspace, max_bytes: int = MAX_HELD_BYTES) -> Content | None:
    """Like `read_content`, but None if there is no file.

    Raises: ToolError
    """
    return read_content(path, workspace, max_bytes) if os.path.lexists(path) else None


def replace_file(path: Path, data: bytes, workspace: Workspace) -> None:
    """Make `data` the content of `path` in one step, parents included; the mode of an existing file stays.

    Raises: ToolError, with the old content untouched and nothing left behind.
    """
    try:
        with open_parent(path, workspace.top_of(path), make=True) as parent:
            _replace(parent, path.name, data)
    except OSError as e:
        raise ToolError(f"Cannot write {workspace.relative(path)}: {e.strerror or e}") from e


def _replace(parent: int, name: str, data: bytes) -> None:
    old = _stat_writable(parent, name)
    temporary = f".teamcli-{os.urandom(6).hex()}.tmp"
    # The umask decides the mode of a new file, so mkstemp (always 0600) will not do.
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=parent)
    try:
        with os.fdopen(fd, "wb") as file:
            if old is not None:
                _keep_owner_and_mode(fd, old)
            file.write(data)
            file.flush()
            os.fsync(fd)
        # Renaming is atomic: a reader sees the old file or the new one, and a crash leaves one of them.
        os.replace(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=parent)
        raise


def _stat_writable(parent: int, name: str) -> os.stat_result | None:
    """What is at `name`. The system would replace a read-only file too, so check its permissions here."""
    try:
        found = os.lstat(name, dir_fd=parent)
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(found.st_mode):
        raise OSError(errno.ELOOP, "it was replaced by a symbolic link just now")
    if not os.access(name, os.W_OK, dir_fd=parent, effective_ids=os.access in os.supports_effective_ids):
        raise PermissionError("Permission denied (the file is read-only)")
    return found


def _keep_owner_and_mode(fd: int, old: os.stat_result) -> None:
    mine = os.fstat(fd)
    if (mine.st_uid, mine.st_gid) != (old.st_uid, old.st_gid):
        with contextlib.suppress(PermissionError):  # only root can change the owner; the content matters more
            os.fchown(fd, old.st_uid, old.st_gid)
    os.fchmod(fd, stat.S_IMODE(old.st_mode))
