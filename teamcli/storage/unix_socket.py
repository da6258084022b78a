"""Sockets in the file system, for programs of the same user."""

from __future__ import annotations

import os
import select
import socket
import struct
from collections.abc import Callable
from pathlib import Path

from teamcli.storage.files import PRIVATE_FILE

LONGEST_ADDRESS = 100
"""Bytes. The kernel takes up to 107 on Linux and 103 on macOS."""
_WAITING_CLIENTS = 16


def listen(path: Path) -> socket.socket:
    """A socket at `path` that only this user can use. What is there already, left by a dead process, is replaced.

    Raises: OSError
    """
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _at_address(path, listener.bind)
        path.chmod(PRIVATE_FILE)
        listener.listen(_WAITING_CLIENTS)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def connect(path: Path) -> socket.socket:
    """Raises: OSError."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _at_address(path, connection.connect)
    except OSError:
        connection.close()
        raise
    return connection


def peer(connection: socket.socket) -> tuple[int | None, int | None]:
    """The process and the user at the other end; None for what the system does not say."""
    if not hasattr(socket, "SO_PEERCRED"):  # macOS, where the mode of the socket's directory has to do
        return None, None
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, _ = struct.unpack("3i", credentials)
    return pid, uid


def is_closed(connection: socket.socket) -> bool:
    """Whether this end or the other is closed."""
    if connection.fileno() < 0:
        return True
    poll = select.poll()
    poll.register(connection, 0)  # no events: poll always reports that the other end has gone
    return bool(poll.poll(0))


def _at_address(path: Path, use: Callable[[str], object]) -> None:
    if len(os.fsencode(path)) <= LONGEST_ADDRESS:
        use(str(path))
        return
    # Linux reaches any directory by the number of an open descriptor. Elsewhere, the system's error says it all.
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        use(f"/proc/self/fd/{directory}/{path.name}" if Path("/proc/self/fd").is_dir() else str(path))
    finally:
        os.close(directory)
