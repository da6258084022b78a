"""Turns events into messages of Claude Code's stream-json, as they happen."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from teamcli.agent import events
from teamcli.agent.events import Event
from teamcli.claude_code import stream_messages as shapes
from teamcli.claude_code.stream_messages import Call, Sender
from teamcli.llm.types import Block, Message
from teamcli.storage.files import Json
from teamcli.team.message import LEAD


class MessageWriter:
    """Called by any thread, one event at a time."""

    def __init__(
        self,
        send: Callable[[Json], None],
        session_id: Callable[[], str],
        root_of: Callable[[str], Path],
        parent_of: Callable[[str], str],
        shows_parts: bool,
    ) -> None:
        """
        Args:
            root_of: Where an agent works.
            parent_of: Who started a sub-agent; the name itself for any other agent.
            shows_parts: Also send parts of answers while they arrive.
        """
        self._send = send
        self._session_id = session_id
        self._root_of = root_of
        self._parent_of = parent_of
        self._partial = PartialAnswers() if shows_parts else None
        self._lock = threading.RLock()
        self._recorded: dict[str, Message] = {}
        """Answers whose usage is not known yet, by agent."""
        self._calls: dict[str, Call] = {}
        self._started_by: dict[str, str] = {}
        """The call that started an agent, by agent."""
        self._starting: dict[str, list[str]] = {}
        """Calls of `agent` whose agent is not known yet, by the agent that made them."""
        self.denied: list[Json] = []
        """The calls that were refused, as the result lists them."""

    def __call__(self, event: Event) -> None:
        with self._lock:
            match event:
                case events.Recorded(message=Message(role="assistant")):
                    self._recorded[event.agent] = event.message
                case events.Answered() if event.agent in self._recorded:
                    self._answered(event, self._recorded.pop(event.agent))
                case events.Recorded():
                    self._results(event.agent, event.message)
                case events.ToolFinished() if event.refusal is not None and event.call_id in self._calls:
                    name, given = self._calls[event.call_id].in_theirs()
                    self.denied.append({"tool_name": name, "tool_use_id": event.call_id, "tool_input": given})
                case events.TextArrived() | events.ThinkingArrived() | events.RetryScheduled() if self._partial:
                    self._send_parts(event.agent, self._partial.arrived(event))

    def sender(self, agent: str = LEAD) -> Sender:
        return Sender(self._session_id(), self._started_by_call(agent))

    def _answered(self, event: events.Answered, message: Message) -> None:
        sender, usage = self.sender(event.agent), event.usage.to_dict()
        id = self._partial.id_of(event.agent) if self._partial else ""
        id = id or f"msg_{shapes.new_id()}"
        about = {"id": id, "model": event.model, "stop_reason": event.stop_reason, "usage": usage}
        for block in message.content:
            self._remember(event.agent, block)
            theirs = shapes.block_in_theirs(block, self._root_of(event.agent))
            if self._partial and block.get("type") == "tool_use":
                self._send_parts(event.agent, self._partial.call(event.agent, theirs))
            self._send(shapes.assistant_message(sender, theirs, about))
        if self._partial:
            self._send_parts(event.agent, self._partial.ended(event.agent, event.stop_reason, usage))

    def _remember(self, agent: str, block: Block) -> None:
        if block.get("type") != "tool_use":
            return
        given: Any = block.get("input")
        id, tool = str(block["id"]), str(block["name"])
        self._calls[id] = Call(tool, given if isinstance(given, Mapping) else {}, self._root_of(agent))
        if tool == "spawn_teammate":
            self._started_by[str(self._calls[id].given.get("name", ""))] = id
        elif tool == "agent":
            self._starting.setdefault(agent, []).append(id)

    def _started_by_call(self, agent: str) -> str | None:
        if agent == LEAD:
            return None
        parent = self._parent_of(agent)
        if agent not in self._started_by and parent != agent and (waiting := self._starting.get(parent)):
            self._started_by[agent] = waiting.pop(0)
        return self._started_by.get(agent, agent)

    def _results(self, agent: str, message: Message) -> None:
        for block in message.content:
            if block.get("type") == "tool_result":
                call = self._calls.get(str(block.get("tool_use_id")))
                self._send(shapes.result_message(self.sender(agent), block, call))

    def _send_parts(self, agent: str, parts: list[Json]) -> None:
        sender = self.sender(agent)
        for part in parts:
            self._send(sender.stamp({"type": "stream_event", "event": part}))


class PartialAnswers:
    """What has arrived of each agent's answer, as events of the API."""

    def __init__(self) -> None:
        self._open: dict[str, _Answer] = {}

    def id_of(self, agent: str) -> str:
        return self._open[agent].id if agent in self._open else ""

    def arrived(self, event: events.TextArrived | events.ThinkingArrived | events.RetryScheduled) -> list[Json]:
        if isinstance(event, events.RetryScheduled):  # what has arrived is void
            self._open.pop(event.agent, None)
            return []
        kind = "text" if isinstance(event, events.TextArrived) else "thinking"
        begin, answer = self._begin(event.agent)
        return [*begin, *answer.block(kind), shapes.text_event(answer.index, kind, event.text)]

    def call(self, agent: str, block: Json) -> list[Json]:
        """A whole tool call: its parts are not known."""
        begin, answer = self._begin(agent)
        opened = answer.block("tool_use", str(block["name"]), str(block["id"]))
        delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        return [*begin, *opened, {"type": "content_block_delta", "index": answer.index, "delta": delta}]

    def ended(self, agent: str, stop_reason: str, usage: Json) -> list[Json]:
        answer = self._open.pop(agent, None)
        return [*answer.close(), *shapes.message_end(stop_reason, usage)] if answer else []

    def _begin(self, agent: str) -> tuple[list[Json], _Answer]:
        if agent in self._open:
            return [], self._open[agent]
        answer = self._open[agent] = _Answer()
        return [shapes.message_start(answer.id, "")], answer


class _Answer:
    def __init__(self) -> None:
        self.id = f"msg_{shapes.new_id()}"
        self.index = -1
        self._kind = ""

    def block(self, kind: str, tool: str = "", id: str = "") -> list[Json]:
        """What begins a block of this kind, unless one is open."""
        if kind == self._kind and kind != "tool_use":
            return []
        closed = self.close()
        self._kind = kind
        self.index += 1
        return [*closed, shapes.block_start(self.index, kind, tool, id)]

    def close(self) -> list[Json]:
        is_open, self._kind = bool(self._kind), ""
        return [{"type": "content_block_stop", "index": self.index}] if is_open else []
