"""The connection to the program that drives teamcli: JSON objects, one per line, in both directions.

A thread reads. It never waits: it answers requests that can be answered at once, completes our own, and queues the rest
for the thread that works on them.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any, TextIO

from teamcli.cancel import CancelScope
from teamcli.errors import Cancelled, TeamcliError, ToolError
from teamcli.storage.files import Json
from teamcli.ui.signals import LOOK_SECONDS

Answer = Callable[[Json], Json]
"""Answers a control request. Raises: TeamcliError, KeyError, ValueError, TypeError, which become an error reply."""
CLOSED = "the program that drives teamcli has closed the connection"


class _Reply:
    def __init__(self) -> None:
        self.arrived = threading.Event()
        self.response: Json | None = None

    def set(self, response: Json | None) -> None:
        self.response = response
        self.arrived.set()


class ControlChannel:
    def __init__(self, lines: Iterable[bytes], out: TextIO) -> None:
        self._lines = lines
        self._out = out
        self._writing = threading.Lock()
        self._lock = threading.Lock()
        self._waiting: dict[str, _Reply] = {}
        self._is_closed = False
        self._numbers = count(1)
        self._answers: dict[str, Answer] = {}
        self._first: list[Json] = []
        self.received = 0
        """How many messages of the user have arrived."""
        self._queue: SimpleQueue[Json | None] = SimpleQueue()

    def start(self) -> None:
        threading.Thread(target=self._read, name="control", daemon=True).start()

    def answer(self, subtype: str, answer: Answer) -> None:
        """Answer requests of this kind from now on, in the thread that reads."""
        self._answers[subtype] = answer

    def put_first(self, message: Json) -> None:
        """Let `next` return a message before those that arrive."""
        self._first.append(message)

    def next(self) -> Json | None:
        """The next message of the user, or request to initialize; None at the end of the input."""
        if self._first:
            return self._first.pop()
        while True:
            try:
                return self._queue.get(timeout=LOOK_SECONDS)
            except Empty:
                pass

    def send(self, message: Json) -> None:
        """Raises: BrokenPipeError."""
        text = json.dumps(message)
        with self._writing:
            self._out.write(f"{text}\n")
            self._out.flush()

    def reply(self, request: Json, response: Json) -> None:
        self._respond({"subtype": "success", "request_id": request.get("request_id"), "response": response})

    def reply_error(self, request: Json, error: str) -> None:
        self._respond({"subtype": "error", "request_id": request.get("request_id"), "error": error})

    def request(self, subtype: str, fields: Json, cancel: CancelScope, timeout_seconds: float | None = None) -> Json:
        """Ask the other program something, and wait for its reply.

        Raises: ToolError, Cancelled, BrokenPipeError
        """
        id, reply = f"teamcli-{next(self._numbers)}", _Reply()
        with self._lock:
            if self._is_closed:
                raise ToolError(CLOSED)
            self._waiting[id] = reply
        try:
            self.send({"type": "control_request", "request_id": id, "request": {"subtype": subtype, **fields}})
            with cancel.on_cancel(reply.arrived.set):
                has_arrived = reply.arrived.wait(timeout_seconds)
        finally:
            with self._lock:
                self._waiting.pop(id, None)
        if reply.response is None and (cancel.cancelled or not has_arrived):
            self.send({"type": "control_cancel_request", "request_id": id})
            if cancel.cancelled:
                raise Cancelled(cancel.reason)
            raise ToolError("it took too long")
        return _response_of(reply.response)

    def _respond(self, response: Json) -> None:
        self.send({"type": "control_response", "response": response})

    def _read(self) -> None:
        for line in self._lines:
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                continue  # as the other side does with what is not JSON
            if isinstance(message, dict):
                self._take(message)
        with self._lock:
            self._is_closed = True
            waiting, self._waiting = list(self._waiting.values()), {}
        for reply in waiting:
            reply.set({"subtype": "error", "error": CLOSED})
        self._queue.put(None)

    def _take(self, message: Json) -> None:
        match message.get("type"):
            case "control_response":
                response = _object(message.get("response"))
                with self._lock:
                    reply = self._waiting.pop(str(response.get("request_id")), None)
                if reply is not None:
                    reply.set(response)
            case "control_request":
                self._take_request(message)
            case "user":
                self.received += 1
                self._queue.put(message)

    def _take_request(self, message: Json) -> None:
        request = _object(message.get("request"))
        subtype = str(request.get("subtype"))
        if subtype == "initialize":
            self._queue.put(message)
        elif (answer := self._answers.get(subtype)) is None:
            self.reply_error(message, f"Unsupported control request subtype: {subtype}")
        else:
            try:
                self.reply(message, answer(request))
            except (TeamcliError, KeyError, ValueError, TypeError) as e:
                self.reply_error(message, str(e))


def _object(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _response_of(response: Json | None) -> Json:
    """Raises: ToolError."""
    if response is None or response.get("subtype") != "success":
        raise ToolError(str((response or {}).get("error", "the request failed")))
    return _object(response.get("response"))
