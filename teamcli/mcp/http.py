"""The streamable HTTP transport, in both eras: each message is one POST, and the answer is JSON or a stream of events.

Every request has its own connection and thread while it runs, so that any of them can be interrupted. Credentials go
to the configured origin only: redirects elsewhere are refused.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urljoin

from teamcli import __version__
from teamcli.cancel import CancelScope
from teamcli.errors import ConfigError, McpError
from teamcli.llm.connection import Connection, Connections, Timeouts
from teamcli.mcp.authorizer import Authorizer
from teamcli.mcp.handshake import MODERN_VERSION, version_in
from teamcli.mcp.http_login import HttpLogin
from teamcli.mcp.http_response import (
    EVENT_STREAM,
    LONGEST_DETAIL,
    detail,
    drop,
    is_stream,
    messages,
    origin_of,
    read_body,
    text_of,
    wants_login,
)
from teamcli.mcp.http_session import HttpSession
from teamcli.mcp.messages import decode, encode, kind_of
from teamcli.mcp.param_headers import standard_headers
from teamcli.mcp.peer import AnswerBroken, ConversationLost, Receiver
from teamcli.mcp.server import Json, ServerConfig
from teamcli.mcp.sse import EventReader

if TYPE_CHECKING:
    import httpx2

logger = logging.getLogger(__name__)

_CONNECT_SECONDS = 10.0
_NOTICE_SECONDS = 10.0
"""How long a message without an answer may take."""
_GOODBYE_SECONDS = 2.0
_MOST_REDIRECTS = 3
_MOST_RESUMPTIONS = 5
"""In a row, without any event."""
_FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS = 1.0, 60.0


class HttpTransport:
    def __init__(self, config: ServerConfig, receiver: Receiver, authorizer: Authorizer) -> None:
        """Raises: McpError"""
        if not config.url.startswith(("http://", "https://")):
            raise McpError(f"MCP server {config.name}: {config.url} is not a web address")
        self.name = config.name
        self._url = config.url
        self._headers = dict(config.headers)
        self.receiver = receiver
        self.session = HttpSession(config.name)
        self._login = HttpLogin(config, authorizer)
        timeouts = Timeouts(_CONNECT_SECONDS, config.timeouts.longest_call_seconds)
        self._connections = Connections(lambda: Connection(config.url, timeouts))
        self._scope = CancelScope()
        self._lock = threading.Lock()
        self._open: dict[int, CancelScope] = {}

    def send(self, message: Json, headers: Mapping[str, str]) -> None:
        """A message without an answer is waited for, because the next one must not overtake it."""
        if kind_of(message) != "request":
            self._send_notice(message)
            return
        scope = self._scope.child()
        with self._lock:
            self._open[message["id"]] = scope
        self._start_thread(f"request {message['id']}", lambda: self._run_request(message, headers, scope))

    def abandon(self, id: int, notice: Json | None) -> None:
        with self._lock:
            scope = self._open.get(id)
        if scope is None:
            return
        scope.cancel("abandoned")  # which a modern server takes for the notice
        if notice is not None and self.session.has_begun:
            self._start_thread("notice", lambda: self._try_notice(notice))

    def close(self) -> None:
        self._scope.cancel("closed")
        # The specification asks for a goodbye, so that the server need not keep the session.
        if self.session.has_id:
            with contextlib.suppress(McpError):
                self._within(_GOODBYE_SECONDS, lambda scope: self._exchange("DELETE", None, {}, scope, drop))
        self._connections.close()

    def _start_thread(self, what: str, target: Callable[[], None]) -> None:
        threading.Thread(target=target, name=f"mcp {what} {self.name}", daemon=True).start()

    def _send_notice(self, message: Json) -> None:
        """Raises: McpError"""
        self._within(_NOTICE_SECONDS, lambda scope: self._exchange("POST", message, {}, scope, self._check_notice))
        # Not earlier: nothing may come between the answer to the start and this.
        if message.get("method") == "notifications/initialized":
            self._start_thread("events", self._listen)

    def _try_notice(self, message: Json) -> None:
        with contextlib.suppress(McpError):  # it does not matter anymore
            self._send_notice(message)

    def _within(self, seconds: float, exchange: Callable[[CancelScope], None]) -> None:
        # Not below the scope of the transport: the goodbye is sent after that was cancelled.
        scope = CancelScope()
        timer = threading.Timer(seconds, scope.cancel, ("timeout",))
        timer.daemon = True
        timer.start()
        try:
            exchange(scope)
        finally:
            timer.cancel()

    def _run_request(self, message: Json, headers: Mapping[str, str], scope: CancelScope) -> None:
        id = message["id"]
        try:
            request = _OpenRequest(message, self)
            self._exchange("POST", message, headers, scope, request.take)
            request.resume(scope)
        except ConversationLost as e:
            self.receiver.lose(e)
            self.close()  # another transport follows
        except McpError as e:
            self.receiver.fail(id, e)
        finally:
            with self._lock:
                self._open.pop(id, None)

    def _listen(self) -> None:
        """Read what a legacy server sends outside of answers, if it has such a stream."""
        reader, tries_left = EventReader(), _MOST_RESUMPTIONS
        while tries_left and not self._scope.cancelled:
            before, began = reader.last_id, time.monotonic()
            try:
                is_there = self._read_events(reader, self._scope, self.receiver.receive)
            except McpError as e:
                logger.debug("%s", e)
                is_there = True
            if not is_there:
                return
            # A server that ends every stream at once is not asked for ever.
            was_useful = reader.last_id != before or time.monotonic() - began > _LONGEST_RETRY_SECONDS
            tries_left = _MOST_RESUMPTIONS if was_useful else tries_left - 1
            self._scope.wait(self.pause_seconds(reader))

    @staticmethod
    def pause_seconds(reader: EventReader) -> float:
        wanted = _FIRST_RETRY_SECONDS if reader.retry_seconds is None else reader.retry_seconds
        return min(wanted, _LONGEST_RETRY_SECONDS)

    def resume(self, reader: EventReader, scope: CancelScope, take: Callable[[Json], None]) -> None:
        """Read on after the last event that has arrived.

        Raises: McpError
        """
        scope.wait(self.pause_seconds(reader))
        self._read_events(reader, scope, take)

    def _read_events(self, reader: EventReader, scope: CancelScope, take: Callable[[Json], None]) -> bool:
        """Whether the server has such a stream.

        Raises: McpError
        """
        is_there = False

        def read(response: httpx2.Response) -> None:
            nonlocal is_there
            # A server without such a stream should answer 405, but any other answer means the same.
            is_there = response.status_code == 200 and is_stream(response)
            if is_there:
                for message in messages(response, reader):
                    take(message)

        more = {"accept": EVENT_STREAM, **({"last-event-id": reader.last_id} if reader.last_id else {})}
        self._exchange("GET", None, more, scope, read)
        return is_there

    def _exchange(
        self,
        method: str,
        message: Json | None,
        headers: Mapping[str, str],
        scope: CancelScope,
        take: Callable[[httpx2.Response], None],
    ) -> None:
        """Send one request and let `take` read the answer.

        Raises: McpError
        """
        import httpx2

        body = None if message is None else encode(message)
        head = {**self._headers, **self._head(message), **headers}
        connection = None
        try:
            with self._connections.take(scope) as connection:
                self._exchange_on(connection, method, body, head, take)
            self._connections.put_back(connection)
        except (httpx2.NetworkError, httpx2.ReadTimeout, httpx2.RemoteProtocolError) as e:
            if isinstance(e, httpx2.ConnectError):
                raise self._unreachable(e) from e
            raise AnswerBroken(f"MCP server {self.name} broke off its answer: {e}") from e
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, ValueError, ConfigError) as e:
            raise self._unreachable(e) from e

    def _unreachable(self, error: Exception) -> McpError:
        return McpError(f"MCP server {self.name} cannot be reached at {origin_of(self._url)}: {error}")

    def _exchange_on(
        self,
        connection: Connection,
        method: str,
        body: bytes | None,
        headers: Mapping[str, str],
        take: Callable[[httpx2.Response], None],
    ) -> None:
        url, token, may_renew = self._url, self._login.token(), True
        # Two more than redirects: the first request, and one with a renewed token.
        for _ in range(_MOST_REDIRECTS + 2):
            authorized = {**headers, "Authorization": f"Bearer {token}"} if token else headers
            with connection.http.stream(method, url, content=body, headers=authorized) as response:
                if response.status_code in (301, 302, 303, 307, 308):
                    url = self._redirected(url, response)
                    continue
                if wants_login(response):
                    if not may_renew or not self._login.renew(token, response):
                        raise self._login.needed(response)
                    token, may_renew = self._login.token(), False
                    continue
                take(response)
                return
        raise McpError(f"MCP server {self.name} redirects too often; configure its final address")

    def _redirected(self, url: str, response: httpx2.Response) -> str:
        """Raises: McpError"""
        target = urljoin(url, response.headers.get("location", ""))
        # After other redirects a POST becomes a GET, and the message is lost.
        if origin_of(target) != origin_of(self._url) or response.status_code not in (307, 308):
            raise McpError(
                f"MCP server {self.name} redirects ({response.status_code}), which is not followed, because it could "
                "carry credentials elsewhere; configure its final address",
                target[:LONGEST_DETAIL],
            )
        return target

    def _head(self, message: Json | None) -> dict[str, str]:
        head = {
            "accept": f"application/json, {EVENT_STREAM}",  # servers refuse a POST that does not accept both
            "accept-encoding": "identity",  # compression would hold events back
            "content-type": "application/json",
            "user-agent": f"teamcli/{__version__}",
        }
        if message is not None and version_in(message) == MODERN_VERSION:
            return {**head, **standard_headers(message, MODERN_VERSION)}
        return {**head, **self.session.headers()}

    def _check_notice(self, response: httpx2.Response) -> None:
        """Raises: McpError"""
        if response.status_code >= 400:
            said = detail(response)
            self.session.check(response.status_code, said)
            raise McpError(f"MCP server {self.name} refused a message ({response.status_code})", said)


class _OpenRequest:
    """One request, until its answer has been delivered."""

    def __init__(self, message: Json, transport: HttpTransport) -> None:
        self._id = message["id"]
        self._method = message["method"]
        self._transport = transport
        self._is_answered = False
        self._reader = EventReader()
        self._is_modern = version_in(message) == MODERN_VERSION

    def take(self, response: httpx2.Response) -> None:
        """Raises: McpError"""
        if response.status_code >= 400:
            self._refuse(response)
        elif is_stream(response):
            for message in messages(response, self._reader):
                self._note_start(response, message)
                self._deliver(message)
        else:
            data = read_body(response)
            answer = decode(data)
            if answer is None and data.strip():
                raise McpError(
                    f"MCP server {self._transport.name} answered {self._method} with something that is not MCP; "
                    "check its address",
                    text_of(data),
                )
            if answer is not None and kind_of(answer) == "response":
                self._note_start(response, answer)
                # The body answers this request, whatever id the server has put into it.
                self._deliver({**answer, "id": self._id})

    def resume(self, scope: CancelScope) -> None:
        """If the stream ended early, wait and read on.

        Raises: McpError
        """
        tries_left = _MOST_RESUMPTIONS
        while not self._is_answered and not scope.cancelled:
            before = self._reader.last_id
            # The modern protocol has no resumption, and the older one needs the id of an event.
            if self._is_modern or not before or not tries_left:
                raise AnswerBroken(f"MCP server {self._transport.name} broke off its answer to {self._method}")
            self._transport.resume(self._reader, scope, self._deliver)
            tries_left = _MOST_RESUMPTIONS if self._reader.last_id != before else tries_left - 1

    def _deliver(self, message: Json) -> None:
        if kind_of(message) == "response" and message.get("id") == self._id:
            self._is_answered = True
        self._transport.receiver.receive(message)

    def _note_start(self, response: httpx2.Response, message: Json) -> None:
        if self._method == "initialize":
            self._transport.session.begin(response, message)

    def _refuse(self, response: httpx2.Response) -> None:
        """An error in the body, or the status itself, is the answer."""
        data = read_body(response)
        answer = decode(data) or {}
        error = answer.get("error")
        is_about_this = isinstance(error, dict) and answer.get("id") == self._id
        # An error about this one request does not mean that the session is over.
        if self._method != "initialize" and not is_about_this:
            self._transport.session.check(response.status_code, text_of(data))
        if response.status_code >= 500 and not isinstance(error, dict):
            raise McpError(
                f"MCP server {self._transport.name} answers with status {response.status_code}", text_of(data)
            )
        # As an error of the protocol, because a server of the other era may refuse the start like this.
        error = error if isinstance(error, dict) else {"code": response.status_code, "message": "refused over HTTP"}
        self._deliver({"jsonrpc": "2.0", "id": self._id, "error": error})
