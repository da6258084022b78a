"""One live conversation with a server: requests that wait for answers, and what the server sends by itself.

The thread that reads from the server never waits for anything: answers go into the queue of the request that waits for
them, and requests of the server are handled in threads of their own.
"""

from __future__ import annotations

import itertools
import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol

from teamcli.cancel import CancelScope
from teamcli.errors import Cancelled, McpError
from teamcli.mcp.messages import INTERNAL_ERROR, RpcError, kind_of, result_of
from teamcli.mcp.server import CallProgress, Json, OnProgress

logger = logging.getLogger(__name__)

_MOST_OPEN_REQUESTS = 16
"""Requests of a server that are handled at the same time. Further ones are refused."""
_MOST_WAITING_PROGRESS = 100
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


LISTEN = "subscriptions/listen"
ABANDONED = "abandoned"
"""Why a question is void: nobody waits for the call anymore that it was about."""


class AnswerBroken(McpError):
    """Raised when the connection broke before the answer had arrived. What was asked may have been done."""


class ConversationLost(McpError):
    """Raised when the server has forgotten the conversation. What was asked has not been done: ask again."""


class McpTransport(Protocol):
    def send(self, message: Json, headers: Mapping[str, str]) -> None:
        """Send a message, without waiting for the server. `headers` matter to HTTP only.

        Raises: McpError
        """
        ...

    def abandon(self, id: int, notice: Json | None) -> None:
        """The answer to this request is not wanted anymore. `notice` says so to the server, if it should be sent."""
        ...

    def close(self) -> None:
        """End the conversation, and wait until what runs for it is dead."""
        ...


class Receiver(Protocol):
    """Where a transport delivers what happens. Returns at once."""

    def receive(self, message: Json) -> None: ...

    def fail(self, id: int, error: McpError) -> None:
        """This request will not be answered."""
        ...

    def fail_all(self, error: McpError) -> None:
        """No request that is open now will be answered."""
        ...

    def lose(self, error: McpError) -> None:
        """Nothing will be answered anymore."""
        ...


OpenTransport = Callable[[Receiver], McpTransport]
"""Raises: McpError"""


class Handler(Protocol):
    """What happens with messages that are not answers."""

    def on_request(self, method: str, params: Json, cancel: CancelScope) -> Json:
        """Answer a request of the server. May take as long as a person needs.

        Raises: RpcError, Cancelled
        """
        ...

    def on_notification(self, method: str, params: Json) -> None:
        """Called in the thread that reads: return at once."""
        ...

    def on_lost(self, error: McpError) -> None: ...


class Clock(NamedTuple):
    """How long a request may take. A question to the user stops both clocks."""

    silence_seconds: float
    """Progress restarts it."""
    longest_seconds: float = math.inf


class McpRequest(NamedTuple):
    """One request to a server."""

    method: str
    params: Json
    clock: Clock
    progress: OnProgress | None = None
    """Whom to report progress to."""
    headers: Mapping[str, str] = _NO_HEADERS


_Event = tuple[Literal["answer", "failed", "progress", "cancelled", "asking", "asked"], Any]


class Peer:
    """Safe for any number of threads."""

    def __init__(self, name: str, handler: Handler, open_transport: OpenTransport) -> None:
        """Raises: McpError"""
        self._name = name
        self._handler = handler
        self._lock = threading.Lock()
        self._ids = itertools.count(1)
        self._waiting: dict[int, queue.SimpleQueue[_Event]] = {}
        self._open_requests: dict[object, CancelScope] = {}
        self._questions = 0
        self._listening = 0
        """The id of the request that is answered only at the end of its subscriptions."""
        self._lost: McpError | None = None
        self._transport = open_transport(self)

    @property
    def is_lost(self) -> bool:
        return self._lost is not None

    def request(self, request: McpRequest, cancel: CancelScope) -> Json:
        """Raises: RpcError, McpError, Cancelled"""
        events: queue.SimpleQueue[_Event] = queue.SimpleQueue()
        id, method, params = self._register(events), request.method, request.params
        if request.progress is not None:
            params = {**params, "_meta": {**params.get("_meta", {}), "progressToken": id}}
        is_answered = False
        try:
            with cancel.on_cancel(lambda: events.put(("cancelled", None))):
                cancel.check()
                if method == LISTEN:
                    self._listening = id
                self._transport.send({"jsonrpc": "2.0", "id": id, "method": method, "params": params}, request.headers)
                message = self._wait(events, request, cancel)
            is_answered = True
            return result_of(message)
        finally:
            with self._lock:
                self._waiting.pop(id, None)
            if not is_answered:
                self._abandon(id, method, cancel)

    def notify(self, method: str, params: Json | None = None) -> None:
        """Raises: McpError"""
        message = {"jsonrpc": "2.0", "method": method, **({} if params is None else {"params": params})}
        self._transport.send(message, _NO_HEADERS)

    def close(self) -> None:
        self.lose(McpError(f"MCP server {self._name}: the connection is closed"))
        self._transport.close()

    def receive(self, message: Json) -> None:
        match kind_of(message):
            case "response":
                self._deliver(message.get("id"), ("answer", message))
            case "request":
                self._take_request(message)
            case "notification":
                self._take_notification(message)

    def fail(self, id: int, error: McpError) -> None:
        self._deliver(id, ("failed", error))

    def lose(self, error: McpError) -> None:
        with self._lock:
            if self._lost is not None:
                return
            self._lost = error
            waiting, scopes = list(self._waiting.values()), list(self._open_requests.values())
        for events in waiting:
            events.put(("failed", error))
        for scope in scopes:
            scope.cancel("the server has ended")
        self._handler.on_lost(error)

    def fail_all(self, error: McpError) -> None:
        with self._lock:
            waiting = list(self._waiting.values())
        for events in waiting:
            events.put(("failed", error))

    def _register(self, events: queue.SimpleQueue[_Event]) -> int:
        with self._lock:
            if self._lost is not None:
                raise _copy(self._lost)
            id = next(self._ids)
            self._waiting[id] = events
            # A question that is open already stops the clock of this request, too.
            for _ in range(self._questions):
                events.put(("asking", None))
            return id

    def _wait(self, events: queue.SimpleQueue[_Event], request: McpRequest, cancel: CancelScope) -> Json:
        deadlines = _Deadlines(request.clock)
        while True:
            try:
                kind, value = events.get(timeout=deadlines.seconds_left())
            except queue.Empty:
                raise McpError(
                    f"MCP server {self._name} has not answered {request.method} within {deadlines.exceeded:.3g} "
                    "seconds; try again, or give it more time in its configuration"
                ) from None
            if kind == "answer":
                assert isinstance(value, dict)
                return value
            if kind == "failed":
                raise _copy(value)
            if kind == "cancelled":
                raise Cancelled(cancel.reason)
            deadlines.note(kind)
            if kind == "progress" and request.progress is not None:
                request.progress(value)

    def _abandon(self, id: int, method: str, cancel: CancelScope) -> None:
        if self._lost is not None:
            return
        reason = cancel.reason or "timeout"
        params = {"requestId": id, "reason": reason}
        # The specification forbids canceling the first request.
        is_first = method == "initialize"
        notice = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
        self._transport.abandon(id, None if is_first else notice)
        with self._lock:  # the questions of a legacy server do not say which call they are about
            void = [] if self._waiting else list(self._open_requests.values())
        for scope in void:
            scope.cancel(ABANDONED)

    def _deliver(self, id: Any, event: _Event) -> None:
        with self._lock:
            # Not `isinstance`: as a key, `true` would be 1.
            events = self._waiting.get(id) if type(id) is int else None
        if events is None:
            logger.debug("MCP server %s: %s for a request that does not wait: %r", self._name, event[0], id)
        elif event[0] != "progress" or events.qsize() < _MOST_WAITING_PROGRESS:
            events.put(event)

    def _take_notification(self, message: Json) -> None:
        params = message.get("params")
        params = params if isinstance(params, dict) else {}
        if message["method"] == "notifications/progress":
            self._deliver(params.get("progressToken"), ("progress", _progress(params)))
        elif message["method"] == "notifications/cancelled" and (scope := self._scope_of(params.get("requestId"))):
            # In a thread of its own: callbacks of the scope may take a while.
            threading.Thread(target=scope.cancel, args=("withdrawn",), name="mcp cancel", daemon=True).start()
        elif message["method"] == "notifications/cancelled" and params.get("requestId") == self._listening:
            self.fail(self._listening, AnswerBroken(f"MCP server {self._name} has ended the subscription"))
        else:
            self._handler.on_notification(message["method"], params)

    def _scope_of(self, id: Any) -> CancelScope | None:
        with self._lock:
            return self._open_requests.get(id) if isinstance(id, str | int) else None

    def _take_request(self, message: Json) -> None:
        id, scope = message["id"], CancelScope()
        with self._lock:
            is_valid = isinstance(id, str | int) and id not in self._open_requests
            if not is_valid or len(self._open_requests) >= _MOST_OPEN_REQUESTS or self._lost is not None:
                logger.debug("MCP server %s asks too much at once; a request was dropped", self._name)
                return
            self._open_requests[id] = scope
        threading.Thread(
            target=self._answer, args=(message, scope), name=f"mcp question {self._name}", daemon=True
        ).start()

    def _answer(self, message: Json, scope: CancelScope) -> None:
        id, params = message["id"], message.get("params")
        self._change_questions(1, "asking")  # a person may be asked, and requests must not time out meanwhile
        try:
            result = self._handler.on_request(message["method"], params if isinstance(params, dict) else {}, scope)
            answer: Json = {"result": result}
        except RpcError as e:
            answer = {"error": {"code": e.code, "message": str(e)}}
        except Cancelled:
            return
        except Exception:  # boundary: a bug must not leave the server without an answer
            logger.exception("a request of MCP server %s failed", self._name)
            answer = {"error": {"code": INTERNAL_ERROR, "message": "internal error"}}
        finally:
            self._change_questions(-1, "asked")
            with self._lock:
                self._open_requests.pop(id, None)
        try:
            self._transport.send({"jsonrpc": "2.0", "id": id, **answer}, _NO_HEADERS)
        except McpError as e:
            logger.debug("MCP server %s does not take an answer: %s", self._name, e)

    def _change_questions(self, change: int, kind: Literal["asking", "asked"]) -> None:
        with self._lock:
            self._questions += change
            for events in self._waiting.values():
                events.put((kind, None))


class _Deadlines:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._questions = 0
        self._last_at = time.monotonic()
        self._end_at = self._last_at + clock.longest_seconds

    @property
    def exceeded(self) -> float:
        """The bound that is over."""
        return self._clock.longest_seconds if time.monotonic() >= self._end_at else self._clock.silence_seconds

    def seconds_left(self) -> float | None:
        """None for ever: someone is being asked."""
        if self._questions:
            return None
        due = min(self._last_at + self._clock.silence_seconds, self._end_at)
        return None if due == math.inf else max(0.0, due - time.monotonic())

    def note(self, kind: str) -> None:
        now = time.monotonic()
        if kind == "asking":
            self._questions += 1
            if self._questions == 1:
                self._end_at -= now  # what is left of it, until the clock runs again
        elif kind == "asked":
            self._questions -= 1
            if self._questions == 0:
                self._end_at += now
        self._last_at = now


def _copy(error: McpError) -> McpError:
    """For each thread its own: raising an exception changes it."""
    return type(error)(str(error), error.detail)


def _progress(params: Json) -> CallProgress:
    progress, total, message = params.get("progress"), params.get("total"), params.get("message")
    return CallProgress(
        progress if isinstance(progress, int | float) else 0,
        total if isinstance(total, int | float) else None,
        message[:1000] if isinstance(message, str) else "",
    )
