"""Requests to send, and calls that run in a thread so that a test can cancel them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from teamcli.cancel import CancelScope
from teamcli.errors import TeamcliError
from teamcli.llm.types import LLM, Message, OnEvent, Preamble, Reply, Request, RequestSent, StreamEvent, ToolSpec

PATIENCE_SECONDS = 30.0
BASH = ToolSpec("bash", "Run a command.", {"type": "object", "properties": {"command": {"type": "string"}}})
PREAMBLE = Preamble("claude-opus-5-5", "You are an engineer.", (BASH,), 1000)


def user(words: str) -> Message:
    return Message("user", ({"type": "text", "text": words},))


def asking(*messages: Message, preamble: Preamble = PREAMBLE) -> Request:
    return Request(preamble, messages or (user("Hello"),))


def ask(client: LLM, request: Request | None = None, events: list[StreamEvent] | None = None) -> Reply:
    return client.stream(request or asking(), answer_events(events if events is not None else []), CancelScope())


def answer_events(seen: list[StreamEvent]) -> OnEvent:
    """Collects what is seen of an answer."""
    return lambda event: None if isinstance(event, RequestSent) else seen.append(event)


def results_for(reply: Reply, words: str = "done") -> Message:
    return Message(
        "user",
        tuple({"type": "tool_result", "tool_use_id": call["id"], "content": words} for call in reply.tool_calls),
    )


def wait_until(condition: Callable[[], Any], what: str) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < end, f"waited in vain until {what}"
        pause.wait(0.005)


class RunningCall:
    """A call in its own thread."""

    def __init__(self, client: LLM, request: Request | None = None) -> None:
        self.scope = CancelScope()
        self.events: list[StreamEvent] = []
        self.reply: Reply | None = None
        self.error: TeamcliError | None = None
        self._client = client
        self._request = request or asking()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def cancel(self) -> float:
        """Cancel and wait for the end; how long that took."""
        began = time.monotonic()
        self.scope.cancel("the user pressed Esc")
        self.join()
        return time.monotonic() - began

    def join(self) -> None:
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive(), "the call does not end"

    def _run(self) -> None:
        try:
            self.reply = self._client.stream(self._request, answer_events(self.events), self.scope)
        except TeamcliError as e:
            self.error = e
