"""Follows the events of one sub-agent: what it is doing and what it has done. Bounded, however long it works."""

from __future__ import annotations

import threading
from collections import Counter, deque

from teamcli.agent import events
from teamcli.agent.events import Event
from teamcli.llm.types import Block, encode
from teamcli.subagents.snapshot import Activity, AgentEvent, EventKind
from teamcli.text.escaping import one_line

EVENT_LIMIT = 200
TEXT_LIMIT = 1_000
"""Characters of one event."""
PROGRESS_LIMIT = 160


class ActivityLog:
    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._events: deque[AgentEvent] = deque(maxlen=EVENT_LIMIT)
        self._dropped = 0
        self._phase = ""
        self._open: dict[str, str] = {}
        """The tools of the running calls, by call id."""
        self._args: dict[str, str] = {}
        """By call id, from the answer that makes the call until its result."""
        self._counts: Counter[str] = Counter()
        self._streaming = ""
        self._said = ""

    @property
    def text(self) -> str:
        """The latest answer, as far as it has arrived."""
        with self._lock:
            return self._streaming or self._said

    def look(self) -> Activity:
        with self._lock:
            call = next(reversed(self._open), "")
            return Activity(
                self._phase,
                self._open.get(call, ""),
                self._args.get(call, ""),
                self._counts.total(),
                tuple(self._counts.items()),
                one_line(self._streaming or self._said, PROGRESS_LIMIT),
                tuple(self._events),
                self._dropped,
            )

    def show_phase(self, phase: str) -> None:
        with self._lock:
            self._phase = phase

    def add(self, event: AgentEvent) -> None:
        with self._lock:
            self._dropped += len(self._events) == EVENT_LIMIT
            self._events.append(event)

    def take(self, event: Event) -> None:
        with self._lock:
            match event:
                case events.TurnStarted() | events.ThinkingArrived() | events.CallStarted():
                    self._phase = "thinking"
                case events.TextArrived():
                    self._phase = "writing"
                    self._streaming += event.text
                case events.RetryScheduled():
                    # The new attempt streams the answer from its beginning.
                    self._phase, self._streaming = f"retrying: {one_line(event.reason, PROGRESS_LIMIT)}", ""
                case events.Recorded() if event.message.role == "assistant":
                    self._take_answer(event.message.content)
                case events.ToolStarted() | events.ToolFinished():
                    self._take_tool(event)

    def _take_answer(self, content: tuple[Block, ...]) -> None:
        self._said = "\n".join(block["text"] for block in content if block["type"] == "text") or self._said
        self._streaming = ""
        for block in content:
            match block["type"]:
                case "text":
                    self.add(AgentEvent(EventKind.TEXT, _cut(block["text"])))
                case "thinking":
                    self.add(AgentEvent(EventKind.REASONING, _cut(str(block.get("thinking", "")))))
                case "tool_use":
                    self._args[block["id"]] = _cut(encode(block["input"]).decode())

    def _take_tool(self, event: events.ToolStarted | events.ToolFinished) -> None:
        args = self._args.get(event.call_id, "")
        if isinstance(event, events.ToolStarted):
            self._open[event.call_id] = event.tool
            self._counts[event.tool] += 1
            self._phase = "running tools"
            self.add(AgentEvent(EventKind.TOOL_CALL, "", event.tool, event.call_id, args))
            return
        self._open.pop(event.call_id, None)
        self._args.pop(event.call_id, None)
        result = _cut(event.content)
        self.add(AgentEvent(EventKind.TOOL_RESULT, "", event.tool, event.call_id, args, result, event.is_error))
        if not self._open:
            self._phase = "thinking"


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_LIMIT else text[:TEXT_LIMIT] + "…"
