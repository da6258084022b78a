"""The direct way to the Messages API: one POST, if a key and an address are enough.

It sends the bytes of the request as they are, and loads in a few hundredths of a second; the SDK takes seconds. Only a
proxy needs `httpx2`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

from teamcli import __version__
from teamcli.cancel import CancelScope
from teamcli.errors import ModelError
from teamcli.llm.connection import Connection, Connections, NotConnected, Timeouts, uses_proxy
from teamcli.llm.credentials import Endpoint
from teamcli.llm.faults import Faults, HttpAnswer, refuse_unless_stream
from teamcli.llm.plain_connection import PlainConnection
from teamcli.llm.sse import END_OF_EVENT, EventParser
from teamcli.llm.transport import EventStream
from teamcli.llm.types import Request

if TYPE_CHECKING:
    import httpx2

LARGEST_STREAM = 256_000_000
"""Bytes of one answer on the wire."""
API_VERSION = "2026-10-21"


class DirectTransport:
    def __init__(self, endpoint: Endpoint, timeouts: Timeouts) -> None:
        self._faults = Faults(endpoint)
        url = f"{endpoint.base_url}/v1/messages"
        headers = {
            "content-type": "application/json",
            "accept": "text/event-stream",
            "accept-encoding": "identity",  # compression would hold events back
            "anthropic-version": API_VERSION,
            "user-agent": f"teamcli/{__version__}",
            **endpoint.own_headers,
        }
        self._connections: Connections[PlainConnection | ProxiedConnection] = Connections(
            lambda: (ProxiedConnection if uses_proxy() else PlainConnection)(url, headers, timeouts)
        )

    def open(self, request: Request, cancel: CancelScope) -> EventStream:
        return self._open(request, cancel, may_connect=True)

    def reopen(self, request: Request, cancel: CancelScope, on_sent: Callable[[], None]) -> EventStream | None:
        if not self._connections.has_idle:
            return None
        try:
            return self._open(request, cancel, may_connect=False, on_sent=on_sent)
        except NotConnected:
            return None

    def _open(
        self, request: Request, cancel: CancelScope, may_connect: bool, on_sent: Callable[[], None] = lambda: None
    ) -> EventStream:
        model = request.preamble.model
        with self._connections.take(cancel) as connection:
            try:
                answer = connection.post(request.encoded, on_sent, may_connect)
                refuse_unless_stream(answer, self._faults, model)
            except connection.errors as e:
                raise self._faults.from_http_error(e) from e

        def close() -> None:
            answer.close()
            self._connections.put_back(connection)

        return EventStream(self._events(answer, connection, model), connection.shut_down, close)

    def warm_up(self) -> None:
        self._connections.warm_up()

    def close(self) -> None:
        self._connections.close()

    def _events(
        self, answer: HttpAnswer, connection: PlainConnection | ProxiedConnection, model: str
    ) -> Iterator[dict[str, Any]]:
        parser = EventParser()
        size = 0
        try:
            for chunk in chain(answer.iter_bytes(), (END_OF_EVENT,)):
                size += len(chunk)
                if size > LARGEST_STREAM:
                    raise ModelError(f"The endpoint's answer does not end: it has more than {LARGEST_STREAM:,} bytes.")
                for event in parser.feed(chunk):
                    if event["type"] == "error":
                        raise self._faults.from_event(event, model)
                    yield event
        except connection.errors as e:
            raise self._faults.from_http_error(e) from e


class ProxiedConnection(Connection):
    """Posts with `httpx2`, which supports proxies."""

    def __init__(self, url: str, headers: Mapping[str, str], timeouts: Timeouts) -> None:
        """Raises: ConfigError"""
        import httpx2

        super().__init__(url, timeouts)
        self._url, self._headers = httpx2.URL(url), httpx2.Headers(headers)

    @property
    def errors(self) -> tuple[type[BaseException], ...]:
        """What posting and reading an answer may raise."""
        import httpx2

        return (httpx2.HTTPError, httpx2.InvalidURL)

    def post(self, body: bytes, on_sent: Callable[[], None], may_connect: bool) -> httpx2.Response:
        """Raises: NotConnected, `errors`, and what `on_sent` raises"""
        import httpx2

        self._may_connect = may_connect
        on_sent()  # before the request, because `send` sends and waits in one step
        return self.http.send(httpx2.Request("POST", self._url, content=body, headers=self._headers), stream=True)
