"""What has arrived of an answer, as events of the API: `stream_event` of stream-json."""

from __future__ import annotations

import json

from teamcli.agent import events
from teamcli.claude_code import stream_messages as shapes
from teamcli.llm.types import Message
from teamcli.storage.files import Json


class PartialAnswers:
    """What has arrived of each agent's answer, as events of the API."""

    def __init__(self) -> None:
        self._open: dict[str, _PartialAnswer] = {}

    def __call__(self, event: events.Event) -> list[Json]:
        """What an event means, for output in our own words."""
        match event:
            case events.TextArrived() | events.ThinkingArrived() | events.RetryScheduled():
                return self.arrived(event)
            case events.Recorded(message=Message(role="assistant")):
                calls = [dict(block) for block in event.message.content if block.get("type") == "tool_use"]
                return [part for call in calls for part in self.call(event.agent, call)]
            case events.Answered():
                return self.ended(event.agent, event.stop_reason, event.usage.to_dict())
            case _:
                return []

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

    def _begin(self, agent: str) -> tuple[list[Json], _PartialAnswer]:
        if agent in self._open:
            return [], self._open[agent]
        answer = self._open[agent] = _PartialAnswer()
        return [shapes.message_start(answer.id, "")], answer


class _PartialAnswer:
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
