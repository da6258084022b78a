"""One HTTP/1.1 connection on the standard library, for endpoints that are reached without a proxy.

A call costs a quarter of one with `httpx2`, and loading takes a fifth of the time. Any thread can interrupt it.
"""

from __future__ import annotations

import select
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from teamcli.llm.connection import NotConnected, Timeouts, shut_down, ssl_context
from teamcli.llm.faults import CannotConnect

if TYPE_CHECKING:
    import http.client

SocketT = TypeVar("SocketT", bound=socket.socket)

_CHUNK = 65_536
_ANY_ZLIB_FORMAT = zlib.MAX_WBITS | 32
_COMPRESSED = ("gzip", "x-gzip", "deflate")
_SKIPPED = range(102, 200)
"""Informational answers before the real one. `http.client` skips only 100, and 101 changes the protocol."""
_MOST_HEADS = 50
"""After this many informational answers, no real one is expected."""


class PlainConnection:
    """Connects with the first request, and again whenever the endpoint has hung up since the last one."""

    def __init__(self, url: str, headers: Mapping[str, str], timeouts: Timeouts) -> None:
        """Raises: ConfigError"""
        import http.client

        target = urlsplit(url)
        self._address = target.hostname or "", target.port or (443 if target.scheme == "https" else 80)
        self._path = target.path
        self._headers = {**headers, "host": target.netloc}
        self._timeouts = timeouts
        self._context = ssl_context() if target.scheme == "https" else None
        self._http = http.client.HTTPConnection(*self._address)
        self._http.response_class = _counting_response()
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._kept_until = 0.0
        self.is_down = False

    @property
    def errors(self) -> tuple[type[BaseException], ...]:
        """What posting and reading an answer may raise."""
        return (CannotConnect, OSError, zlib.error)

    def post(self, body: bytes, on_sent: Callable[[], None], may_connect: bool) -> PlainAnswer:
        """Send a request, call `on_sent`, and read the head of the answer.

        Raises: NotConnected, `errors`, and what `on_sent` raises
        """
        try:
            if not self._is_usable():
                if not may_connect:
                    raise NotConnected
                self._connect()
            with _connection_errors():
                self._http.request("POST", self._path, body, self._headers)
                on_sent()
                return PlainAnswer(_answer_to(self._http), self._finish)
        except BaseException:
            self._http.close()
            raise

    def shut_down(self) -> None:
        """Interrupt everything in progress, for good. Safe to call from any thread."""
        with self._lock:
            self.is_down = True
            opened = self._socket
        if opened is not None:
            shut_down(opened)

    def close(self) -> None:
        self.shut_down()
        self._http.close()

    def _is_usable(self) -> bool:
        """Whether the socket of an earlier request can serve another one."""
        opened = self._http.sock
        if opened is None or time.monotonic() > self._kept_until:
            return False
        readable = select.poll()
        readable.register(opened, select.POLLIN)
        return not readable.poll(0)  # without a request, bytes or an end mean that the endpoint has given it up

    def _finish(self, is_reusable: bool) -> None:
        if is_reusable:
            self._kept_until = time.monotonic() + self._timeouts.keep_alive_seconds
        else:
            self._http.close()

    def _connect(self) -> None:
        self._http.close()
        opened = None
        try:
            opened = self._watch(socket.create_connection(self._address, self._timeouts.connect_seconds))
            # Otherwise the body could wait for the acknowledgment of the head.
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._context is not None:
                # The handshake is separate, so that `shut_down` can already interrupt it.
                opened = self._watch(
                    self._context.wrap_socket(opened, server_hostname=self._address[0], do_handshake_on_connect=False)
                )
                opened.do_handshake()
            opened.settimeout(self._timeouts.read_seconds)
        except OSError as e:
            if opened is not None:
                opened.close()
            raise CannotConnect(str(e)) from e
        self._http.sock = opened

    def _watch(self, opened: SocketT) -> SocketT:
        """Let `shut_down` find the socket, even if it was called a moment ago."""
        with self._lock:
            self._socket = opened
            is_late = self.is_down
        if is_late:
            shut_down(opened)
        return opened


class PlainAnswer:
    """An answer of which the head has arrived."""

    def __init__(self, response: http.client.HTTPResponse, finish: Callable[[bool], None]) -> None:
        """`finish` is called once, with whether the connection can serve another request."""
        self._response = response
        self._finish = finish
        self.status_code = response.status
        self.headers: Mapping[str, str] = response.headers  # type: ignore[assignment]  # finds names in any case

    def iter_bytes(self) -> Iterator[bytes]:
        if self.headers.get("content-encoding", "").strip().lower() not in _COMPRESSED:
            return self._pieces()
        decompress = zlib.decompressobj(_ANY_ZLIB_FORMAT).decompress
        return map(decompress, self._pieces())

    def close(self) -> None:
        is_read = self._response.isclosed() or self._response.length == 0
        self._response.close()
        self._finish(is_read and not self._response.will_close)

    def _pieces(self) -> Iterator[bytes]:
        with _connection_errors():
            while piece := self._response.read1(_CHUNK):
                yield piece
        if self._response.length:
            raise ConnectionError("the answer is shorter than announced")


@cache
def _counting_response() -> type[http.client.HTTPResponse]:
    """A response class that counts informational answers, including those that `http.client` skips itself."""
    import http.client

    class CountingResponse(http.client.HTTPResponse):
        heads = 0

        def _read_status(self) -> tuple[str, int, str]:
            self.heads += 1
            if self.heads > _MOST_HEADS:
                raise http.client.HTTPException("its informational answers do not end")
            found: tuple[str, int, str] = super()._read_status()  # type: ignore[misc]
            return found

    return CountingResponse


def _answer_to(connection: http.client.HTTPConnection) -> http.client.HTTPResponse:
    response = connection.getresponse()
    while response.status in _SKIPPED:
        response.headers = None  # type: ignore[assignment]  # so that `begin` reads another head
        response.begin()
    return response


@contextmanager
def _connection_errors() -> Iterator[None]:
    """Raises: ConnectionError, for an answer that ends too soon or is not HTTP"""
    import http.client

    try:
        yield
    except http.client.RemoteDisconnected:
        raise
    except http.client.IncompleteRead as e:
        raise ConnectionError("it ended in the middle of an answer") from e
    except http.client.HTTPException as e:
        raise ConnectionError(str(e) or type(e).__name__) from e
