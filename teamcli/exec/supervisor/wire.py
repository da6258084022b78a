"""What teamcli, the host and its supervisors say to each other: frames of fields, some with file descriptors."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable

RUN, SERVE, LINGER, STOP, EXITED, ENDED, FAILED, FORK, FORKED, BURY, BURIED, LISTENS, LOOK, SEEN = (
    b"run",  # cwd, program and arguments; descriptors: output, and maybe input and errors → ENDED or FAILED
    b"serve",  # number of variables, the variables, then as RUN; ended with more patience
    b"linger",  # as RUN, but what it leaves running is not ended: first EXITED, and ENDED when nothing is left
    b"stop",  # end the running command
    b"exited",  # exit code: the shell has ended, and something that it started has not
    b"ended",  # exit code, whether something was left running, ids that could not be ended, whether there were too many
    b"failed",  # error number: it was not started; for a command also its cwd
    b"fork",  # with a socket: start a supervisor at its other end → FORKED or FAILED
    b"forked",  # its process id
    b"bury",  # process id of a lost supervisor: end what it left behind → BURIED
    b"buried",
    b"listens",  # with a socket that was opened inside the sandbox: connections to it come from there
    b"look",  # paths → SEEN
    b"seen",  # which file each path leads to here, and all mounts
)
HOST_SOCKET = 3
CONFINED = "confined"
"""The first argument of a host that runs in a sandbox; a second one is a port to listen on."""
_MAX_DESCRIPTORS = 3

Frame = tuple[list[bytes], list[int]]
"""Fields, and descriptors that came with them."""


def send_frame(sock: socket.socket, *fields: bytes, descriptors: Iterable[int] = ()) -> None:
    """Fields must not contain NUL.

    Raises: OSError
    """
    payload = b"\0".join(fields)
    data = len(payload).to_bytes(4, "big") + payload
    passed = list(descriptors)
    sent = socket.send_fds(sock, [data], passed) if passed else 0
    if sent < len(data):
        sock.sendall(data[sent:])


def receive_frame(sock: socket.socket) -> Frame | None:
    """None if the other side is gone."""
    try:
        header, descriptors, _, _ = socket.recv_fds(sock, 4, _MAX_DESCRIPTORS)
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        header += _receive_exactly(sock, 4 - len(header))
        payload = _receive_exactly(sock, int.from_bytes(header, "big"))
    except (EOFError, ConnectionError):
        return None
    return payload.split(b"\0"), descriptors


def _receive_exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = sock.recv(size - len(data))
        if not chunk:
            raise EOFError
        data += chunk
    return data
