"""A strict fake of the Messages API on a loopback socket: it answers from a script and fails the test on a breach.

    with FakeAPI([tool("bash", command="ls"), text("done")]) as api:
        run_something(base_url=api.url)
    assert "done" in ...

`python -m tests.support.fake_api --text hi` serves the same from a process of its own (see `FakeAPIProcess`).
"""

from __future__ import annotations

import json
import select
import socket
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.answers import (
    AT_THE_END,
    BEFORE_HEADERS,
    Answer,
    AnswerLike,
    Fault,
    Json,
    Script,
    Status,
    answer,
    as_answer,
    blocks_of,
    comment,
    cut_after,
    cut_before_headers,
    delay,
    drip,
    error_event,
    malformed_event,
    not_json,
    other_block,
    ping,
    redacted_thinking,
    result_text,
    rules,
    said_by_user,
    sign,
    slowly,
    stall_after,
    stall_before_headers,
    status,
    text,
    thinking,
    to_events,
    to_message,
    tool,
    tool_json,
    tool_results,
    turns,
    unknown_event,
    user_texts,
)
from tests.support.strict import (
    SentBlocks,
    body_breaches,
    header_breaches,
    prefix_breaches,
    raw_breaches,
    template_breaches,
)

__all__ = [
    "AT_THE_END",
    "Answer",
    "Exchange",
    "FakeAPI",
    "Status",
    "answer",
    "blocks_of",
    "comment",
    "cut_after",
    "cut_before_headers",
    "delay",
    "drip",
    "error_event",
    "malformed_event",
    "not_json",
    "other_block",
    "ping",
    "redacted_thinking",
    "result_text",
    "rules",
    "said_by_user",
    "sign",
    "slowly",
    "stall_after",
    "stall_before_headers",
    "status",
    "text",
    "thinking",
    "tool",
    "tool_json",
    "tool_results",
    "turns",
    "unknown_event",
    "user_texts",
]

PATIENCE_SECONDS = 30.0


@dataclass
class Exchange:
    """One POST /v1/messages and what became of it. Times are `time.monotonic()`."""

    n: int
    path: str
    headers: dict[str, str]
    """Names in lower case."""
    connection: int
    """Which connection, counted from 1, the request came on."""
    arrived: float
    """When the last byte of the request had been read."""
    size: int
    body: Json = field(default_factory=dict)
    answered: float | None = None
    """When the last byte of the answer was written; None while under way, and when the client left before."""
    breaches: list[str] = field(default_factory=list)
    left: bool = False
    """The client closed the connection before its answer was complete."""


class ClientLeft(Exception):
    """The client closed the connection in the middle of an answer."""


class FakeAPI:
    """The server. Leaving the `with` block fails when a request broke a rule, listing every breach."""

    def __init__(
        self,
        script: Script | AnswerLike = (),
        *,
        default: AnswerLike | None = None,
        key: str | None = None,
        keep_bodies: int | None = None,
        on_record: Callable[[Json], None] | None = None,
        port: int = 0,
        is_official: bool = False,
    ) -> None:
        """
        Args:
            script: Answers in order, or `(request, n) -> answer`, where `n` counts valid requests from 0.
            default: Given when the answers have run out; without it, that is a breach.
            key: Any other key is refused with 401, which is not a breach.
            keep_bodies: How many request bodies to remember (None: all), for very long runs.
            on_record: Called with every request, breach and finished answer as it happens.
            is_official: It takes all that the Messages API takes. By default it also refuses what a server with a
                strict chat template refuses, because nothing but the official API may get that.
        """
        self.exchanges: list[Exchange] = []
        self.breaches: list[str] = []
        self.other_requests: list[str] = []
        """`METHOD path` of every request that was not POST /v1/messages; such a request is not a breach."""
        self._answer_for = _as_callable(script)
        self._default = default
        self._key = key
        self._keep_bodies = sys.maxsize if keep_bodies is None else keep_bodies
        self._on_record = on_record
        self._is_official = is_official
        self._sent = SentBlocks()
        self._answers_given = 0
        self._changed = threading.Condition()
        self._stalls: list[socket.socket] = []
        self._stall_count = 0
        self._live: dict[int, socket.socket] = {}
        self._connection_count = 0
        self._closing = False
        self._server = _Server(self, port)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def requests(self) -> list[Json]:
        """The parsed bodies of all POST /v1/messages, in order of arrival."""
        return [exchange.body for exchange in self.exchanges]

    @property
    def headers(self) -> list[dict[str, str]]:
        return [exchange.headers for exchange in self.exchanges]

    @property
    def connections(self) -> int:
        """How many connections clients have opened so far."""
        return self._connection_count

    @property
    def disconnects(self) -> int:
        """How many answers a client did not wait for."""
        return sum(exchange.left for exchange in self.exchanges)

    def start(self) -> FakeAPI:
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop serving and drop every connection. A repeat does nothing."""
        if self._closing:
            return
        self._closing = True
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self.release()
        with self._changed:
            for connection in self._live.values():
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            self._changed.wait_for(lambda: not self._live, 5)

    def __enter__(self) -> FakeAPI:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()
        if error is None:
            self.assert_clean()
        elif self.breaches:
            error.add_note(self._breach_list())  # the breach is most likely the cause

    def assert_clean(self) -> None:
        assert not self.breaches, self._breach_list()

    def assert_prefix_stable(self, agent_filter: Callable[[Json], bool] | None = None) -> None:
        """Each request begins with all that the one before it in the same conversation had sent."""
        chosen = [body for body in self.requests if body and (agent_filter is None or agent_filter(body))]
        breaches = list(prefix_breaches(chosen))
        assert not breaches, "the prefix changed:\n" + "\n".join(breaches)

    def wait_for_requests(self, n: int, timeout: float = PATIENCE_SECONDS) -> list[Json]:
        self._wait(lambda: len(self.exchanges) >= n, timeout, lambda: f"{n} requests (have {len(self.exchanges)})")
        return self.requests

    def wait_for_answers(self, n: int, timeout: float = PATIENCE_SECONDS) -> None:
        """Until `n` answers have been sent to their last byte."""
        self._wait(lambda: sum(e.answered is not None for e in self.exchanges) >= n, timeout, lambda: f"{n} answers")

    def wait_for_stall(self, n: int = 1, timeout: float = PATIENCE_SECONDS) -> None:
        """Until the `n`th stall since the start has been reached: all before it is sent, nothing more will come."""
        self._wait(lambda: self._stall_count >= n, timeout, lambda: f"{n} stalls (have {self._stall_count})")

    def wait_for_disconnect(self, n: int = 1, timeout: float = PATIENCE_SECONDS) -> None:
        """Until clients have left `n` answers before their end."""
        self._wait(lambda: self.disconnects >= n, timeout, lambda: f"{n} disconnects (have {self.disconnects})")

    def release(self) -> None:
        """Let every stalled answer continue."""
        with self._changed:
            stalls, self._stalls = self._stalls, []
        for stall in stalls:
            stall.close()

    def _wait(self, condition: Callable[[], bool], timeout: float, what: Callable[[], str]) -> None:
        with self._changed:
            done = self._changed.wait_for(condition, timeout)
        assert done, f"waited {timeout:g} s for {what()}; {self._breach_list()}"

    def _breach_list(self) -> str:
        return f"{len(self.breaches)} breaches of the Messages API:" + "".join(f"\n- {b}" for b in self.breaches)

    # What follows is called by the threads that serve connections.

    def _connected(self, connection: socket.socket) -> int:
        with self._changed:
            self._connection_count += 1
            self._live[self._connection_count] = connection
            if self._closing:
                connection.shutdown(socket.SHUT_RDWR)
            return self._connection_count

    def _disconnected(self, number: int) -> None:
        with self._changed:
            self._live.pop(number, None)
            self._changed.notify_all()

    def _receive(self, exchange: Exchange, raw: bytes) -> Answer | Status:
        """Judge and record a request; what to answer."""
        exchange.breaches += [*header_breaches(exchange.headers), *raw_breaches(raw)]
        body = json.loads(raw) if not any(b.startswith("body:") for b in exchange.breaches) else {}
        with self._changed:
            if body:
                exchange.breaches += body_breaches(body, self._sent)
            if body and not exchange.breaches and not self._is_official:
                exchange.breaches += template_breaches(body)
            exchange.n = len(self.exchanges)
            exchange.body = body if exchange.n < self._keep_bodies else {}
            self.exchanges.append(exchange)
            self._changed.notify_all()
        chosen = None if exchange.breaches else self._choose(exchange, body)
        with self._changed:
            self.breaches += [f"request {exchange.n}: {breach}" for breach in exchange.breaches]
        self._record_request(exchange)
        return chosen or _refusal(exchange)

    def _choose(self, exchange: Exchange, body: Json) -> Answer | Status | None:
        """Not under the lock: a scripted function may wait for something that another request brings about."""
        if self._key is not None and not _has_key(exchange.headers, self._key):
            return status(401, message="invalid x-api-key")
        with self._changed:
            n, self._answers_given = self._answers_given, self._answers_given + 1
        given = self._answer_for(body, n)
        if given is None:
            given = self._default
        if given is None:
            exchange.breaches.append(f"the script has only {n} answers; this request was not expected")
            return None
        chosen = as_answer(given)
        if isinstance(chosen, Answer):
            chosen = chosen.filled_in()
            with self._changed:
                self._sent.add(chosen.content)
        return chosen

    def _record_request(self, exchange: Exchange) -> None:
        facts = {"n": exchange.n, "t": exchange.arrived, "size": exchange.size, "connection": exchange.connection}
        self._record({"event": "request", **facts, "path": exchange.path, "body": exchange.body})
        for breach in exchange.breaches:
            self._record({"event": "breach", "n": exchange.n, "breach": breach})

    def _finished(self, exchange: Exchange, answered: float | None) -> None:
        with self._changed:
            exchange.answered = answered
            exchange.left = answered is None
            self._changed.notify_all()
        self._record({"event": "left" if exchange.left else "answered", "n": exchange.n, "t": answered})

    def _record(self, entry: Json) -> None:
        if self._on_record is not None:
            self._on_record(entry)

    def _broken(self, what: str) -> None:
        with self._changed:
            self.breaches.append(what)
        self._record({"event": "breach", "n": None, "breach": what})

    def _stall(self) -> socket.socket:
        """A socket that becomes readable when the stall is released."""
        ours, theirs = socket.socketpair()
        with self._changed:
            if self._closing:
                theirs.close()
            else:
                self._stalls.append(theirs)
            self._stall_count += 1
            self._changed.notify_all()
        return ours


def _as_callable(script: Script | AnswerLike) -> Callable[[Json, int], AnswerLike | None]:
    if callable(script):
        return script
    answers = (
        [script] if isinstance(script, (Answer, Status, Fault, str)) or not hasattr(script, "__iter__") else script
    )
    rest: Iterator[Any] = iter(answers)
    return lambda _request, _n: next(rest, None)


def _has_key(headers: dict[str, str], key: str) -> bool:
    return key in (headers.get("x-api-key"), headers.get("authorization", "").removeprefix("Bearer "))


def _refusal(exchange: Exchange) -> Status:
    code = 401 if any("Authorization" in breach for breach in exchange.breaches) else 400
    return status(code, message="; ".join(exchange.breaches))


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, api: FakeAPI, port: int) -> None:
        self.api = api
        super().__init__(("127.0.0.1", port), _Handler)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        number = self.api._connected(request)
        _local.connection = number
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.api._disconnected(number)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client may leave at any time; anything else is a bug in the fake or in the script, and fails the test."""
        if not isinstance(sys.exc_info()[1], (ConnectionError, ClientLeft)):
            self.api._broken("the fake API itself failed:\n" + traceback.format_exc())


_local = threading.local()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """Silent: the exchanges are the log."""

    def do_GET(self) -> None:
        self.server.api.other_requests.append(f"GET {self.path}")
        path = self.path.partition("?")[0]
        if "/v1/models" not in path:
            self._send_status(status(404, message=f"no such path: {self.path}"))
            return
        model = path.partition("/v1/models")[2].strip("/") or "fake-model"
        facts: Json = {"type": "model", "id": model, "display_name": model, "created_at": "2026-01-01T00:00:00Z"}
        self._send_status(status(200, body=facts if path.endswith(model) else {"data": [facts], "has_more": False}))

    do_HEAD = do_GET

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length", 0))
        raw = self.rfile.read(length)
        if len(raw) < length:
            raise ClientLeft
        arrived = time.monotonic()
        if not self.path.partition("?")[0].endswith("/v1/messages"):
            self.server.api.other_requests.append(f"POST {self.path}")
            self._send_status(status(404, message=f"no such path: {self.path}"))
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        exchange = Exchange(-1, self.path, headers, _local.connection, arrived, len(raw))
        chosen = self.server.api._receive(exchange, raw)
        answered: float | None = None
        try:
            answered = self._deliver(chosen, json.loads(raw) if isinstance(chosen, Answer) else {})
        except (ConnectionError, ClientLeft):
            self.close_connection = True
        finally:
            self.server.api._finished(exchange, answered)

    def _deliver(self, chosen: Answer | Status, request: Json) -> float:
        """Send the answer; the moment it was complete."""
        if isinstance(chosen, Status):
            return self._send_status(chosen)
        for fault in chosen.faults:
            if fault.after == BEFORE_HEADERS and not self._suffer(fault):
                return time.monotonic()
        if request.get("stream"):
            return self._send_stream(chosen, request)
        return self._send_message(chosen, request)

    def _send_status(self, given: Status) -> float:
        self._send_headers(given.code, given.content_type, {**given.headers, "content-length": len(given.body)})
        if self.command != "HEAD":
            self.wfile.write(given.body)
        return self._flush()

    def _send_message(self, chosen: Answer, request: Json) -> float:
        data = json.dumps(to_message(chosen, request)).encode()
        self._send_headers(200, "application/json", {"content-length": len(data)})
        half = len(data) // 2
        self.wfile.write(data[:half])
        for fault in chosen.faults:
            if fault.kind in ("stall", "cut") and fault.after >= 0 and not self._suffer(fault):
                return time.monotonic()
        self.wfile.write(data[half:])
        return self._flush()

    def _send_stream(self, chosen: Answer, request: Json) -> float:
        self._send_headers(200, "text/event-stream; charset=utf-8", {"transfer-encoding": "chunked"})
        drip = next((fault for fault in chosen.faults if fault.kind == "drip"), None)
        waiting = sorted((f for f in chosen.faults if f.kind != "drip" and f.after >= 0), key=lambda f: f.after)
        for sent, event in enumerate(to_events(chosen, request)):
            while waiting and waiting[0].after <= sent:
                if not self._suffer(waiting.pop(0)):
                    return time.monotonic()
            self._send_event(event, drip)
        for fault in waiting:
            if not self._suffer(fault):
                return time.monotonic()
        self.wfile.write(b"0\r\n\r\n")
        return self._flush()

    def _send_event(self, event: bytes, drip: Fault | None) -> None:
        if drip is None:
            self._send_chunk(event)
            return
        size = drip.size or len(event)
        for at in range(0, len(event), size):
            self._send_chunk(event[at : at + size])
            self.wfile.flush()
            self._watch(drip.delay)

    def _send_chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def _suffer(self, fault: Fault) -> bool:
        """Do what the fault says; false when that was the end of the answer."""
        if fault.kind == "stall":
            self.wfile.flush()
            with self.server.api._stall() as released:
                self._watch(None, released)
        elif fault.kind == "delay":
            self._watch(fault.delay)
        elif fault.kind == "cut":
            self.wfile.flush()
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)  # close() would leave the read side's descriptor open
            return False
        else:
            self._send_chunk(fault.payload)
        if fault.kind == "last":
            self.wfile.write(b"0\r\n\r\n")
            self.wfile.flush()
            return False
        return True

    def _watch(self, seconds: float | None, released: socket.socket | None = None) -> None:
        """Wait, but notice at once when the client leaves."""
        watched = [self.connection] if released is None else [self.connection, released]
        readable, _, _ = select.select(watched, [], [], seconds)
        if self.connection in readable and not self.connection.recv(1, socket.MSG_PEEK):
            raise ClientLeft

    def _send_headers(self, code: int, content_type: str, headers: Json) -> None:
        self.send_response(code)
        self.send_header("content-type", content_type)
        self.send_header("request-id", f"req_{uuid.uuid4().hex[:16]}")
        for name, value in headers.items():
            self.send_header(name, str(value))
        self.end_headers()

    def _flush(self) -> float:
        """Write out; the time is taken before, so that a fast client's next request cannot seem to precede it."""
        now = time.monotonic()
        self.wfile.flush()
        return now


def main() -> int:
    from tests.support.fake_api_process import serve

    return serve(sys.argv[1:])


if __name__ == "__main__":
    # run as a script this module would exist twice, and its classes with it
    sys.path.insert(0, str(Path.cwd()))
    sys.exit(main())
