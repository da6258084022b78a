"""One HTTP/1.1 connection on a plain socket, for endpoints that are reached without a proxy.

`httpx2` takes four times as long for a call, and `http.client` spends most of its time on parsing heads as mail. Both
also take longer to load than everything else in a short run. Any thread can interrupt it.
"""

from __future__ import annotations

import re
import select
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

from teamcli.errors import ConfigError
from teamcli.llm.connection import LARGEST_HEAD, NotConnected, Timeouts, shut_down, ssl_context
from teamcli.llm.faults import CannotConnect

SocketT = TypeVar("SocketT", bound=socket.socket)

_CHUNK = 65_536
_LONGEST_LINE = 10_000
"""Of a chunked answer: the size of a chunk, or what follows the last one."""
_ANY_ZLIB_FORMAT = zlib.MAX_WBITS | 32
_COMPRESSED = ("gzip", "x-gzip", "deflate")
_SKIPPED = (100, *range(102, 200))
"""Informational answers before the real one. 101 changes the protocol."""
_WITHOUT_BODY = (204, 304)
_MOST_HEADS = 50
"""After this many informational answers, no real one is expected."""
_END_OF_HEAD = re.compile(rb"\r?\n\r?\n")
_SIZE = re.compile(rb"[0-9a-fA-F]{1,16}")
_NO_SIZE = "a chunk of its answer has no size"
_STATUS_LINE = re.compile(r"HTTP/1\.(\d) +(\d{3})\b")


class PlainConnection:
    """Connects with the first request, and again whenever the endpoint has hung up since the last one."""

    def __init__(self, url: str, headers: Mapping[str, str], timeouts: Timeouts) -> None:
        """Raises: ConfigError"""
        target = urlsplit(url)
        host = target.hostname or ""
        # Bytes need no codec for international names, which takes a while to load.
        self._host = host.encode() if host.isascii() else host
        self._port = target.port or (443 if target.scheme == "https" else 80)
        self._head = _head_of_request(target.path, {"host": target.netloc, **headers})
        self._timeouts = timeouts
        self._context = ssl_context() if target.scheme == "https" else None
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._is_open = False
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
            opened = self._usable()
            if opened is None:
                if not may_connect:
                    raise NotConnected
                opened = self._connect()
            # In one piece, which wakes the endpoint once, and does not wait for an acknowledgment of the head.
            opened.sendall(b"%b%d\r\n\r\n%b" % (self._head, len(body), body))
            on_sent()
            return PlainAnswer(opened, self._finish)
        except BaseException:
            self._hang_up()
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
        self._hang_up()

    def _usable(self) -> socket.socket | None:
        """The socket of an earlier request, if it can serve another one."""
        opened = self._socket
        if not self._is_open or opened is None or time.monotonic() > self._kept_until:
            return None
        readable = select.poll()
        readable.register(opened, select.POLLIN)
        # Without a request, bytes or an end mean that the endpoint has given it up.
        return None if readable.poll(0) else opened

    def _finish(self, is_reusable: bool) -> None:
        if is_reusable:
            self._kept_until = time.monotonic() + self._timeouts.keep_alive_seconds
        else:
            self._hang_up()

    def _hang_up(self) -> None:
        self._is_open = False
        if self._socket is not None:
            self._socket.close()

    def _connect(self) -> socket.socket:
        self._hang_up()
        opened = None
        try:
            address: Any = (self._host, self._port)  # the type of `create_connection` knows only text
            opened = self._watch(socket.create_connection(address, self._timeouts.connect_seconds))
            # Otherwise the end of a body could wait until what went before it is acknowledged.
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._context is not None:
                # The handshake is separate, so that `shut_down` can already interrupt it.
                opened = self._watch(
                    self._context.wrap_socket(opened, server_hostname=self._host, do_handshake_on_connect=False)
                )
                opened.do_handshake()
            opened.settimeout(self._timeouts.read_seconds)
        except OSError as e:
            if opened is not None:
                opened.close()
            raise CannotConnect(str(e)) from e
        self._is_open = True
        return opened

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

    def __init__(self, opened: socket.socket, finish: Callable[[bool], None]) -> None:
        """`finish` is called once, with whether the connection can serve another request.

        Raises: OSError
        """
        self._socket = opened
        self._finish = finish
        self._rest = b""
        """Received after the head, or after the end of a piece."""
        status_line, headers = self._read_head()
        self.status_code, self.headers = int(status_line[2]), headers
        self._is_chunked = headers.get("transfer-encoding", "").strip().lower() == "chunked"
        length = "0" if self.status_code in _WITHOUT_BODY else headers.get("content-length", "").strip()
        self._left = int(length) if length.isascii() and length.isdigit() else None
        """How many bytes of the body are still to come; None if only its end will show that."""
        wish = headers.get("connection", "").lower()
        # HTTP/1.0 hangs up unless it says otherwise; later versions keep the connection.
        is_kept = "keep-alive" in wish if status_line[1] == "0" else "close" not in wish
        self._is_reusable = is_kept and (self._is_chunked or self._left is not None)
        self._is_read = False

    def iter_bytes(self) -> Iterator[bytes]:
        pieces = self._chunks() if self._is_chunked else self._pieces()
        if self.headers.get("content-encoding", "").strip().lower() not in _COMPRESSED:
            return pieces
        return map(zlib.decompressobj(_ANY_ZLIB_FORMAT).decompress, pieces)

    def close(self) -> None:
        is_read = self._is_read or (self._left == 0 and not self._is_chunked)
        self._finish(is_read and self._is_reusable)

    def _read_head(self) -> tuple[re.Match[str], dict[str, str]]:
        """Skips informational answers.

        Raises: OSError
        """
        for _ in range(_MOST_HEADS):
            head = self._next_head()
            first, *lines = head.decode("latin-1").split("\n")
            status_line = _STATUS_LINE.match(first)
            if status_line is None:
                raise ConnectionError(f"it does not speak HTTP: {first}")
            if int(status_line[2]) not in _SKIPPED:
                return status_line, _parsed_headers(lines)
        raise ConnectionError("its informational answers do not end")

    def _next_head(self) -> bytes:
        data, searched = self._rest, 0
        while not (end := _END_OF_HEAD.search(data, searched)):
            if len(data) > LARGEST_HEAD:
                raise ConnectionError("the head of its answer does not end")
            # The blank line may have begun in the bytes that were searched already.
            searched = max(0, len(data) - 3)
            more = self._socket.recv(_CHUNK)
            if not more:
                raise ConnectionResetError("it hung up without an answer")
            data += more
        self._rest = data[end.end() :]
        return data[: end.start()]

    def _pieces(self) -> Iterator[bytes]:
        """A body of a known length, or up to the end of the connection."""
        piece, self._rest = self._rest, b""
        while self._left != 0:
            piece = piece or self._socket.recv(_CHUNK)
            if not piece and self._left is None:
                break
            if not piece:
                raise ConnectionError("the answer is shorter than announced")
            if self._left is not None:
                piece = piece[: self._left]
                self._left -= len(piece)
            yield piece
            piece = b""
        self._is_read = True

    def _chunks(self) -> Iterator[bytes]:
        """A body in chunks. All that have arrived are one piece, since each piece costs more than its bytes."""
        chunks = _Chunks()
        data, self._rest = self._rest, b""
        while True:
            if piece := chunks.feed(data):
                yield piece
            if chunks.are_over:
                break
            data = self._socket.recv(_CHUNK)
            if not data:
                raise ConnectionError("it ended in the middle of an answer")
        self._is_read = True


class _Chunks:
    """Takes the wire form of a body in chunks, cut anywhere; returns what the chunks hold."""

    def __init__(self) -> None:
        self._line = b""
        """The beginning of a line that has not arrived completely."""
        self._left = 0
        """How much of the chunk is still to come."""
        self._is_line_due = False
        """Whether the empty line after a chunk is next."""
        self._is_last = False
        """Only lines follow, up to an empty one."""
        self.are_over = False

    def feed(self, data: bytes) -> bytes:
        """Raises: ConnectionError"""
        if len(self._line) > _LONGEST_LINE:
            raise ConnectionError(_NO_SIZE)
        data, self._line = self._line + data, b""
        found, at = [], 0
        while at < len(data) and not self.are_over:
            if self._left:
                piece = data[at : at + self._left]
                found.append(piece)
                at += len(piece)
                self._left -= len(piece)
                continue
            end = data.find(b"\n", at, at + _LONGEST_LINE)
            if end < 0:
                self._line = data[at:]
                break
            self._take_line(data[at:end].strip())
            at = end + 1
        return b"".join(found)

    def _take_line(self, line: bytes) -> None:
        if self._is_last:
            self.are_over = not line
        elif self._is_line_due and not line:
            self._is_line_due = False
        else:
            # After a semicolon, a chunk may carry extensions, which mean nothing to us.
            size = line.partition(b";")[0].strip()
            if not _SIZE.fullmatch(size):
                raise ConnectionError(_NO_SIZE)
            self._left = int(size, 16)
            self._is_last, self._is_line_due = not self._left, True


def _head_of_request(path: str, headers: Mapping[str, str]) -> bytes:
    """Everything up to the length of the body, which comes last: only that differs from request to request.

    Raises: ConfigError, for a value that would end its line
    """
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "content-length: "]
    if any(character in line for line in lines for character in "\r\n"):
        raise ConfigError("A line break in the endpoint's address, key or headers cannot be sent: remove it")
    return "\r\n".join(lines).encode("latin-1", "replace")


def _parsed_headers(lines: list[str]) -> dict[str, str]:
    """With names in lower case. The first of several with one name counts."""
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers.setdefault(name.strip().lower(), value.strip())
    return headers
