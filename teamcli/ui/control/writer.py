"""Turns events into messages of Claude Code's stream-json, as they happen."""

from __future__ import annotations

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
from teamcli.ui.control.partial_answers import PartialAnswers


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
