"""The HTTP connections of one agent, for both clients: how they are made, and how any thread can break them off.

Closing a response does not wake whoever waits for its bytes; shutting down its socket does, within a millisecond. So
the sockets are noted as they are opened, by the HTTP layer's own `trace` extension.
"""

from __future__ import annotations

import os
import socket
import ssl
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from teamcli.cancel import CancelScope
from teamcli.errors import ConfigError

if TYPE_CHECKING:
    import httpx2

_CA_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


class Timeouts(NamedTuple):
    connect_seconds: float = 10.0
    read_seconds: float = 120.0
    """The longest silence in an answer. The API sends pings while it works, so more than this is a dead connection."""
    keep_alive_seconds: float = 45.0
    """How long an idle connection is kept for the next turn; tools run meanwhile, so much longer than for a browser."""


class NotConnected(Exception):
    """Raised instead of connecting, where that is not allowed."""


class Connection:
    """An HTTP client that can be shut down, for good, from any thread."""

    may_connect = True
    """Set by whoever has taken it: false, and a request fails with NotConnected rather than open a socket."""

    def __init__(self, base_url: str, timeouts: Timeouts) -> None:
        self._lock = threading.Lock()
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self.is_down = False
        self.http = self._make_client(base_url, timeouts)

    def shut_down(self) -> None:
        """Break off everything under way, also what is being opened just now."""
        with self._lock:
            self.is_down = True
            sockets = list(self._sockets)
        for opened in sockets:
            _shut_down(opened)

    def close(self) -> None:
        self.shut_down()
        self.http.close()

    def _make_client(self, base_url: str, timeouts: Timeouts) -> httpx2.Client:
        import httpx2

        patience = httpx2.Timeout(timeouts.read_seconds, connect=timeouts.connect_seconds)
        try:
            return httpx2.Client(
                verify=_ssl_context(base_url.startswith("http://"), *(os.environ.get(name) for name in _CA_VARIABLES)),
                timeout=patience,
                limits=httpx2.Limits(keepalive_expiry=timeouts.keep_alive_seconds),
                # A redirect could carry the key to another host.
                follow_redirects=False,
                event_hooks={"request": [self._watch]},
            )
        except (httpx2.InvalidURL, ValueError, ImportError) as e:
            raise ConfigError(f"A proxy variable (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY) cannot be used: {e}") from e

    def _watch(self, request: httpx2.Request) -> None:
        import httpx2

        if self.is_down:
            raise httpx2.ConnectError("the connection was shut down", request=request)
        request.extensions["trace"] = self._note_socket

    def _note_socket(self, event: str, info: dict[str, Any]) -> None:
        if not self.may_connect and event.endswith(".connect_tcp.started"):
            raise NotConnected
        if not event.endswith((".connect_tcp.complete", ".start_tls.complete")):
            return
        opened = info["return_value"].get_extra_info("socket")
        with self._lock:
            self._sockets.add(opened)
            is_late = self.is_down
        if is_late:
            _shut_down(opened)


class Connections:
    """The connections of one agent. A call has one to itself, so that breaking it off harms no other call."""

    def __init__(self, base_url: str, timeouts: Timeouts) -> None:
        self._base_url = base_url
        self._timeouts = timeouts
        self._lock = threading.Lock()
        self._idle: Connection | None = None
        self._taken: set[Connection] = set()
        self._is_closed = False

    @property
    def has_idle(self) -> bool:
        """Whether there is one that was used before."""
        return self._idle is not None

    @contextmanager
    def take(self, cancel: CancelScope, may_connect: bool = True) -> Iterator[Connection]:
        """A connection to open an answer on. It stays taken until `put_back`, unless the opening fails.

        Raises: ConfigError
        """
        connection = self._idle_or_new()
        connection.may_connect = may_connect
        try:
            with cancel.on_cancel(connection.shut_down):
                yield connection
        except BaseException:
            self.put_back(connection)
            raise

    def put_back(self, connection: Connection) -> None:
        with self._lock:
            self._taken.discard(connection)
            is_wanted = self._idle is None and not connection.is_down and not self._is_closed
            if is_wanted:
                self._idle = connection
        if not is_wanted:
            connection.close()

    def warm_up(self) -> None:
        """Load what the first connection needs.

        Raises: ConfigError
        """
        self.put_back(self._idle_or_new())

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            idle, self._idle, taken = self._idle, None, list(self._taken)
        for connection in taken:
            connection.shut_down()
        if idle is not None:
            idle.close()

    def _idle_or_new(self) -> Connection:
        with self._lock:
            connection, self._idle = self._idle, None
            connection = connection or Connection(self._base_url, self._timeouts)
            self._taken.add(connection)
            return connection


def _shut_down(opened: socket.socket) -> None:
    # Unlike SSLSocket.shutdown this leaves the TLS state alone, which belongs to the thread that reads.
    with suppress(OSError):
        socket.socket.shutdown(opened, socket.SHUT_RDWR)


@lru_cache(maxsize=4)
def _ssl_context(is_plain: bool, cert_file: str | None, cert_dir: str | None, *bundles: str | None) -> ssl.SSLContext:
    """Loading the certificates takes 40 ms, so all connections share one context.

    Raises: ConfigError
    """
    if is_plain:
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # never used, and trusts nobody
    try:
        bundle = next((Path(name) for name in bundles if name), None)
        if bundle is None or cert_file or cert_dir:
            import httpcore2

            return httpcore2.default_ssl_context()
        if bundle.is_dir():
            return ssl.create_default_context(capath=bundle)
        return ssl.create_default_context(cafile=bundle)
    except OSError as e:
        named = next(name for name in _CA_VARIABLES if os.environ.get(name))
        raise ConfigError(f"The certificates that {named} names cannot be loaded ({e}): correct or unset it") from e
