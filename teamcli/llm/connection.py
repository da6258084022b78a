"""The HTTP connections of one agent: how they are kept, and how any thread can interrupt them.

Closing a response does not wake the thread that waits for its bytes. Shutting down its socket does, within a
millisecond, so every socket is recorded as it is opened.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from teamcli.cancel import CancelScope
from teamcli.errors import ConfigError

if TYPE_CHECKING:
    import ssl

    import httpx2

_CA_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy")

LARGEST_HEAD, HEAD_PATIENCE = 1_000_000, 2
"""How many bytes may come before the body of an answer, and how long they may take, as a multiple of `read_seconds`."""


class Timeouts(NamedTuple):
    connect_seconds: float = 10.0
    read_seconds: float = 120.0
    """The longest silence in an answer. The API sends pings while it works, so more than this is a dead connection."""
    keep_alive_seconds: float = 45.0
    """How long an idle connection is kept for the next call. Tools run in between, so longer than in a browser."""


class NotConnected(Exception):
    """Raised instead of connecting, if that is not allowed."""


class AnyConnection(Protocol):
    """What the connections of an agent have in common."""

    @property
    def is_down(self) -> bool: ...

    def shut_down(self) -> None: ...

    def close(self) -> None: ...


ConnectionT = TypeVar("ConnectionT", bound=AnyConnection)


class Connection:
    """An `httpx2` client that any thread can shut down for good. The `trace` extension reports its sockets."""

    def __init__(self, base_url: str, timeouts: Timeouts) -> None:
        self._may_connect = True
        """If false, a request fails with NotConnected instead of opening a socket."""
        self._lock = threading.Lock()
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self.is_down = False
        self._read_seconds = timeouts.read_seconds
        self._head_size: int | None = None
        """Bytes of the head that is being read; None while no head is being read."""
        self._head_until = 0.0
        self.http = self._make_client(base_url, timeouts)

    def shut_down(self) -> None:
        """Interrupt everything in progress, including a socket that is just being opened."""
        with self._lock:
            self.is_down = True
            sockets = list(self._sockets)
        for opened in sockets:
            shut_down(opened)

    def close(self) -> None:
        self.shut_down()
        self.http.close()

    def _make_client(self, base_url: str, timeouts: Timeouts) -> httpx2.Client:
        import httpx2

        patience = httpx2.Timeout(timeouts.read_seconds, connect=timeouts.connect_seconds)
        try:
            return httpx2.Client(
                verify=_trusts_nobody() if base_url.startswith("http://") else ssl_context(),
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
        request.extensions["trace"] = self._trace

    def _trace(self, event: str, info: dict[str, Any]) -> None:
        if not self._may_connect and event.endswith(".connect_tcp.started"):
            raise NotConnected
        if event.endswith("receive_response_headers.started"):
            self._head_size, self._head_until = 0, time.monotonic() + HEAD_PATIENCE * self._read_seconds
        elif event.endswith("receive_response_headers.complete"):
            self._head_size = None
        if not event.endswith((".connect_tcp.complete", ".start_tls.complete")):
            return
        self._bound_heads(info["return_value"])
        opened = info["return_value"].get_extra_info("socket")
        with self._lock:
            self._sockets.add(opened)
            is_late = self.is_down
        if is_late:
            shut_down(opened)

    def _bound_heads(self, stream: Any) -> None:
        """Without this, the HTTP layer skips informational answers (1xx) forever, each with a new timeout."""
        import httpcore2

        read = stream.read

        def read_bounded(max_bytes: int, timeout: float | None = None) -> bytes:
            data: bytes = read(max_bytes, timeout)
            if self._head_size is not None:
                self._head_size += len(data)
                if self._head_size > LARGEST_HEAD or time.monotonic() > self._head_until:
                    raise httpcore2.RemoteProtocolError("its informational answers do not end")
            return data

        stream.read = read_bounded


class Connections(Generic[ConnectionT]):
    """The connections of one agent. Each call has its own, so that interrupting it affects no other call."""

    def __init__(self, make: Callable[[], ConnectionT]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._idle: ConnectionT | None = None
        self._taken: set[ConnectionT] = set()
        self._is_closed = False

    @property
    def has_idle(self) -> bool:
        """Whether there is one that was used before."""
        return self._idle is not None

    @contextmanager
    def take(self, cancel: CancelScope) -> Iterator[ConnectionT]:
        """A connection for one request. It stays taken until `put_back`, unless the block fails.

        Raises: ConfigError
        """
        connection = self._idle_or_new()
        try:
            with cancel.on_cancel(connection.shut_down):
                yield connection
        except BaseException:
            self.put_back(connection)
            raise

    def put_back(self, connection: ConnectionT) -> None:
        with self._lock:
            self._taken.discard(connection)
            # One idle connection is enough: an agent makes one call at a time.
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

    def _idle_or_new(self) -> ConnectionT:
        with self._lock:
            connection, self._idle = self._idle, None
            connection = connection or self._make()
            self._taken.add(connection)
            return connection


def shut_down(opened: socket.socket) -> None:
    # Unlike SSLSocket.shutdown, this does not touch the TLS state, which belongs to the reading thread.
    with suppress(OSError):
        socket.socket.shutdown(opened, socket.SHUT_RDWR)


def uses_proxy() -> bool:
    """Whether requests may have to go through a proxy. `httpx2` knows which ones, and how."""
    if sys.platform in ("darwin", "win32"):  # the system has proxy settings too
        from urllib.request import getproxies

        return bool(getproxies())
    return any(value and name.lower() in _PROXY_VARIABLES for name, value in os.environ.items())


@lru_cache(maxsize=1)
def _trusts_nobody() -> ssl.SSLContext:
    """For addresses without TLS: loading certificates takes time."""
    import ssl

    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def ssl_context() -> ssl.SSLContext:
    """Trusts the certificates that the environment names, or those of the system.

    Raises: ConfigError
    """
    return _ssl_context(*(os.environ.get(name) for name in _CA_VARIABLES))


@lru_cache(maxsize=4)
def _ssl_context(cert_file: str | None, cert_dir: str | None, *bundles: str | None) -> ssl.SSLContext:
    """Loading certificates can take 40 ms, so all connections share one context.

    Raises: ConfigError
    """
    import ssl  # late, here and below: endpoints without TLS do not wait for it

    bundle = next((name for name in bundles if name), None)
    if not cert_file and not cert_dir and bundle:
        cert_file, cert_dir = (None, bundle) if Path(bundle).is_dir() else (bundle, None)
    try:
        if cert_file or cert_dir:
            return ssl.create_default_context(cafile=cert_file or None, capath=None if cert_file else cert_dir)
        return _system_context()
    except OSError as e:
        named = next(name for name in _CA_VARIABLES if os.environ.get(name))
        raise ConfigError(f"The certificates in {named} cannot be loaded ({e}): fix or unset it") from e


def _system_context() -> ssl.SSLContext:
    """The same context as `httpcore2` makes, without importing it if OpenSSL knows where the certificates are."""
    import ssl

    paths = ssl.get_default_verify_paths()
    file = paths.openssl_cafile if Path(paths.openssl_cafile).is_file() else None
    try:  # OpenSSL looks certificates up by file names that are digests
        names = [path.name for path in Path(paths.openssl_capath).iterdir()]
    except OSError:
        names = []
    directory = paths.openssl_capath if any(re.fullmatch(r"[0-9a-f]{8}\.\d", name) for name in names) else None
    if sys.platform == "linux" and (file or directory):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(file, directory)
        return context
    import httpcore2

    return httpcore2.default_ssl_context()
