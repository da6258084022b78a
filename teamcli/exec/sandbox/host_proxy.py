"""The proxy for a sandbox whose network is closed except for some hosts.

It accepts connections on a socket that was opened inside and connects from outside. HTTP clients find it through the
usual variables; everything else finds no network at all.
"""

from __future__ import annotations

import contextlib
import re
import select
import socket
import threading
from collections.abc import Mapping
from typing import NamedTuple

PORT = 3128
"""Inside, where all ports are free."""
_HEAD_LIMIT = 64 * 1024
_PATIENCE_SECONDS = 30.0
_LINGER_SECONDS, _CHUNKS_UNREAD = 2.0, 16
_MOST_CONNECTIONS = 256
_CHUNK = 64 * 1024
_END_OF_HEAD = b"\r\n\r\n"
_REQUEST_LINE = re.compile(r"([A-Z]+) ([!-~]+) (HTTP/1\.[01])")
_FIELD = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t -~\x80-\xff]*")
"""Strict: no space before the colon, no folded line, no lone CR or LF. A server might read one of those differently."""
_REPLACED_FIELDS = (b"host:", b"connection:", b"proxy-")
"""A listed server must not be asked for the pages of another host."""


def proxy_variables() -> Mapping[str, str]:
    names = ("http_proxy", "https_proxy", "all_proxy")
    proxies = {spelled: f"http://127.0.0.1:{PORT}" for name in names for spelled in (name, name.upper())}
    direct = {name: "localhost,127.0.0.1,::1" for name in ("no_proxy", "NO_PROXY")}
    return {**proxies, **direct, "NODE_USE_ENV_PROXY": "1"}


def is_listed(host: str, hosts: tuple[str, ...]) -> bool:
    """`*.example.org` means all names below example.org."""
    name = host.lower().rstrip(".")
    return any(name == each or (each.startswith("*.") and name.endswith(each[1:])) for each in hosts)


class Destination(NamedTuple):
    host: str
    port: int
    first_bytes: bytes
    """The part to send there of what the client has sent already."""
    is_tunnel: bool


def read_request(head: bytes) -> Destination | None:
    """Where a request is addressed to. None unless its head is complete and every line of it is well-formed."""
    lines, end, body = head.partition(_END_OF_HEAD)
    line, *fields = lines.split(b"\r\n")
    request = _REQUEST_LINE.fullmatch(line.decode("latin-1"))
    if not end or request is None or not all(map(_FIELD.fullmatch, fields)):
        return None
    method, target, version = request.groups()
    try:
        if method == "CONNECT":
            return Destination(*_split_port(target, 443), body, True)
        scheme, _, address = target.partition("://")
        authority, _, path = address.partition("/")
        host, port = _split_port(authority, 80)
    except ValueError:
        return None
    if scheme.lower() != "http" or not host:
        return None
    kept = [field for field in fields if not field.lower().startswith(_REPLACED_FIELDS)]
    ours = (f"{method} /{path} {version}", f"Host: {host}:{port}", "Connection: close")
    return Destination(host, port, b"\r\n".join([*(each.encode() for each in ours), *kept, b"", body]), False)


def _split_port(authority: str, default: int) -> tuple[str, int]:
    """Raises: ValueError"""
    authority = authority.rpartition("@")[2]
    host, colon, port = authority.rpartition(":") if not authority.endswith("]") else (authority, "", "")
    number = int(port) if colon else default
    if not 0 < number < 65536:
        raise ValueError(port)
    return (host if colon else authority).strip("[]"), number


class HostProxy:
    """Serves the connections that `listener` accepts, until it is closed."""

    def __init__(self, listener: socket.socket, hosts: tuple[str, ...]) -> None:
        self._listener = listener
        self._hosts = hosts
        self._free_connections = threading.Semaphore(_MOST_CONNECTIONS)
        threading.Thread(target=self._accept, name="sandbox proxy", daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):  # it ended with the sandbox
            self._listener.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with self._listener:
            while True:
                self._free_connections.acquire()
                try:
                    client, _ = self._listener.accept()
                except OSError:  # closed
                    return
                threading.Thread(target=self._serve, args=(client,), name="sandbox connection", daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            with client:
                client.settimeout(_PATIENCE_SECONDS)
                self._pass_on(client)
        except OSError:
            return  # either side has closed the connection
        finally:
            self._free_connections.release()

    def _pass_on(self, client: socket.socket) -> None:
        destination = read_request(_read_head(client))
        if destination is None:
            _refuse(client, "400 Bad Request", "this proxy accepts well-formed CONNECT and http:// requests only")
            return
        if not is_listed(destination.host, self._hosts):
            _refuse(client, "403 Forbidden", f"the setting sandbox_network does not list {destination.host}")
            return
        try:
            server = socket.create_connection((destination.host, destination.port), _PATIENCE_SECONDS)
        except OSError as e:
            _refuse(client, "502 Bad Gateway", f"{destination.host} cannot be reached: {e}")
            return
        with server:
            if destination.is_tunnel:
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            server.sendall(destination.first_bytes)
            _relay(client, server)


def _read_head(client: socket.socket) -> bytes:
    head = b""
    while _END_OF_HEAD not in head and len(head) < _HEAD_LIMIT:
        chunk = client.recv(_CHUNK)
        if not chunk:
            break
        head += chunk
    return head


def _refuse(client: socket.socket, status: str, why: str) -> None:
    body = f"teamcli: {why}\n".encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    client.sendall(head.encode() + body)
    client.shutdown(socket.SHUT_WR)
    client.settimeout(_LINGER_SECONDS)
    for _ in range(_CHUNKS_UNREAD):  # closing while the client still sends would discard the answer
        if not client.recv(_CHUNK):
            return


def _relay(one: socket.socket, other: socket.socket) -> None:
    """Both ways, until both are done. When one side has finished sending, so has the other's connection."""
    one.settimeout(None)
    other.settimeout(None)
    ways = {one: other, other: one}
    while ways:
        for source in select.select(list(ways), [], [])[0]:
            data = source.recv(_CHUNK)
            if data:
                ways[source].sendall(data)
            else:
                with contextlib.suppress(OSError):  # the other side has closed the connection too
                    ways[source].shutdown(socket.SHUT_WR)
                del ways[source]
