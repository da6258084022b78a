"""The direct way to the Messages API: one POST on `httpx2`, where a key and an address are all that is needed.

It sends the request's own bytes and needs a tenth of a second to load, where the SDK needs seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

from teamcli import __version__
from teamcli.cancel import CancelScope
from teamcli.errors import ModelError
from teamcli.llm.connection import Connection, Connections, NotConnected, Timeouts
from teamcli.llm.credentials import Endpoint
from teamcli.llm.faults import Faults, refuse_unless_stream
from teamcli.llm.sse import END_OF_EVENT, EventParser
from teamcli.llm.transport import EventStream
from teamcli.llm.types import Request

if TYPE_CHECKING:
    import httpx2

LARGEST_STREAM = 256_000_000
"""Bytes of one answer, with all that is around its text."""
API_VERSION = "2026-10-21"


class DirectTransport:
    def __init__(self, endpoint: Endpoint, timeouts: Timeouts) -> None:
        self._url = f"{endpoint.base_url}/v1/messages"
        self._faults = Faults(endpoint)
        self._connections = Connections(endpoint.base_url, timeouts)
        self._headers = {
            "content-type": "application/json",
            "accept": "text/event-stream",
            "accept-encoding": "identity",  # compression would hold events back
            "anthropic-version": API_VERSION,
            "user-agent": f"teamcli/{__version__}",
            **endpoint.own_headers,
        }

    def open(self, request: Request, cancel: CancelScope) -> EventStream:
        return self._open(request, cancel, may_connect=True)

    def reopen(self, request: Request, cancel: CancelScope) -> EventStream | None:
        if not self._connections.has_idle:
            return None
        try:
            return self._open(request, cancel, may_connect=False)
        except NotConnected:
            return None

    def _open(self, request: Request, cancel: CancelScope, may_connect: bool) -> EventStream:
        with self._connections.take(cancel, may_connect) as connection:
            response = self._post(connection, request)

        def close() -> None:
            response.close()
            self._connections.put_back(connection)

        return EventStream(self._events(response, request.preamble.model), connection.shut_down, close)

    def warm_up(self) -> None:
        self._connections.warm_up()

    def close(self) -> None:
        self._connections.close()

    @cached_property
    def _address(self) -> tuple[httpx2.URL, httpx2.Headers]:
        """Parsed once, not for every request."""
        import httpx2

        return httpx2.URL(self._url), httpx2.Headers(self._headers)

    def _post(self, connection: Connection, request: Request) -> httpx2.Response:
        import httpx2

        try:
            url, headers = self._address
            post = httpx2.Request("POST", url, content=request.encoded, headers=headers)
            response = connection.http.send(post, stream=True)
            refuse_unless_stream(response, self._faults, request.preamble.model)
        except (httpx2.HTTPError, httpx2.InvalidURL) as e:
            raise self._faults.from_http_error(e) from e
        return response

    def _events(self, response: httpx2.Response, model: str) -> Iterator[dict[str, Any]]:
        import httpx2

        parser = EventParser()
        try:
            is_plain = "content-encoding" not in response.headers
            chunks = response.iter_raw() if is_plain else response.iter_bytes()
            size = 0
            for chunk in chain(chunks, (END_OF_EVENT,)):
                size += len(chunk)
                if size > LARGEST_STREAM:
                    raise ModelError(f"The endpoint's answer does not end: it has more than {LARGEST_STREAM:,} bytes.")
                for event in parser.feed(chunk):
                    if event["type"] == "error":
                        raise self._faults.from_event(event, model)
                    yield event
        except httpx2.HTTPError as e:
            raise self._faults.from_http_error(e) from e
