"""Messages of Claude Code's stream-json, as its SDK reads them: what an agent does, in Claude Code's words."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from teamcli.claude_code.names import their_tool
from teamcli.claude_code.tool_inputs import to_theirs
from teamcli.claude_code.tool_responses import CallResult, tool_response

Json = dict[str, Any]
VERSION = "2.1.0"
"""The version of Claude Code whose messages these are."""
NO_USAGE = {
    "input_tokens": 0,
    "output_tokens": 0,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
}


class Sender(NamedTuple):
    """Whose message it is."""

    session_id: str
    parent: str | None = None
    """The call that started the agent; None for the lead."""

    def stamp(self, message: Json) -> Json:
        return {**message, "parent_tool_use_id": self.parent, "session_id": self.session_id, "uuid": new_id()}


class Call(NamedTuple):
    """A call of ours that a model has made."""

    tool: str
    given: Mapping[str, Any]
    root: Path

    def in_theirs(self) -> tuple[str, Json]:
        call = to_theirs(self.tool, self.given, self.root)
        return call.tool, dict(call.input)


def new_id() -> str:
    return str(uuid.uuid4())


def tool_names(ours: Iterable[str]) -> list[str]:
    """For `init`, which calls Agent by its old name."""
    theirs = (their_tool(name) for name in ours)
    return list(dict.fromkeys("Task" if name == "Agent" else name for name in theirs))


def assistant_message(sender: Sender, block: Json, about: Json) -> Json:
    """One content block of an answer; `about` has the fields that all blocks of the answer share."""
    message = {"type": "message", "role": "assistant", "content": [block], "stop_sequence": None, **about}
    return sender.stamp({"type": "assistant", "message": message})


def block_in_theirs(block: Mapping[str, Any], root: Path) -> Json:
    match block.get("type"):
        case "tool_use":
            given = block.get("input")
            name, theirs = Call(str(block["name"]), given if isinstance(given, Mapping) else {}, root).in_theirs()
            return {"type": "tool_use", "id": block["id"], "name": name, "input": theirs}
        case "thinking":
            return {"signature": "", **block}
        case _:
            return dict(block)


def result_message(sender: Sender, block: Mapping[str, Any], call: Call | None) -> Json:
    """The result of a tool call, as a user's message."""
    message: Json = {"type": "user", "message": {"role": "user", "content": [dict(block)]}}
    if call is not None:
        content = str(block.get("content", ""))
        is_error = bool(block.get("is_error"))
        response = tool_response(CallResult(call.tool, call.given, content, call.root))
        message["tool_use_result"] = content if is_error else response
    return sender.stamp(message)


def text_event(index: int, kind: str, text: str) -> Json:
    delta = {"type": f"{kind}_delta", kind: text}
    return {"type": "content_block_delta", "index": index, "delta": delta}


def block_start(index: int, kind: str, tool: str = "", id: str = "") -> Json:
    begins: Mapping[str, Json] = {
        "text": {"type": "text", "text": ""},
        "thinking": {"type": "thinking", "thinking": "", "signature": ""},
        "tool_use": {"type": "tool_use", "id": id, "name": tool, "input": {}},
    }
    return {"type": "content_block_start", "index": index, "content_block": begins[kind]}


def message_start(id: str, model: str) -> Json:
    message = {"id": id, "type": "message", "role": "assistant", "model": model, "content": []}
    more = {"stop_reason": None, "stop_sequence": None, "usage": NO_USAGE}
    return {"type": "message_start", "message": {**message, **more}}


def message_end(stop_reason: str, usage: Json) -> Iterator[Json]:
    yield {"type": "message_delta", "delta": {"stop_reason": stop_reason, "stop_sequence": None}, "usage": usage}
    yield {"type": "message_stop"}


def model_usage(usage: Json, cost: float | None, window: int, max_tokens: int) -> Json:
    return {
        "inputTokens": usage["input_tokens"],
        "outputTokens": usage["output_tokens"],
        "cacheReadInputTokens": usage["cache_read_input_tokens"],
        "cacheCreationInputTokens": usage["cache_creation_input_tokens"],
        "webSearchRequests": 0,
        "costUSD": cost or 0.0,
        "contextWindow": window,
        "maxOutputTokens": max_tokens,
    }
