"""A LangChain answer as it arrives: what to report on the way, and the `Reply` that it becomes.

Calls are read from their raw arguments: LangChain completes JSON that was cut off, and such a call must not run.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from typing import Any

from teamcli.errors import ServerFault
from teamcli.llm.types import (
    Block,
    CallOpened,
    Heartbeat,
    OnEvent,
    Reply,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    Usage,
)

Chunk = Any
"""An `AIMessageChunk`; from a model that does not stream, one `AIMessage`."""

SIGN_SECONDS = 1.0
REASONS = ("finish_reason", "stop_reason", "stopReason", "done_reason")
"""The keys under which providers say why an answer ended."""
CUT = {"length", "max_tokens", "max_output_tokens"}
REFUSED = {
    *("content_filter", "refusal", "safety", "recitation", "prohibited_content", "blocklist", "spii"),
    *("image_safety", "guardrail_intervened"),
}
FINISHED = {"", "stop", "end_turn", "complete", "eos", "stop_sequence", "tool_use", "tool_calls", "tool_call"}
KEPT_BLOCKS = ("thinking", "redacted_thinking")
"""Besides text and calls, these must go back unchanged: they are signed."""


class Arriving:
    def __init__(self, on_event: OnEvent) -> None:
        self._on_event = on_event
        self._chunks: list[Chunk] = []
        self._last_sign = 0.0

    def take(self, chunk: Chunk) -> None:
        self._chunks.append(chunk)
        seen = list(_seen_in(chunk))
        for event in seen:
            self._on_event(event)
        if seen:
            self._last_sign = time.monotonic()
        elif time.monotonic() - self._last_sign >= SIGN_SECONDS:
            self._last_sign = time.monotonic()
            self._on_event(Heartbeat())

    def reply(self) -> Reply:
        """Raises: ServerFault, if nothing arrived at all"""
        if not self._chunks:
            raise ServerFault("the model sent no answer")
        message = _joined(self._chunks)
        calls, cut = _calls_of(message)
        content = (*_blocks_of(message), *calls)
        reason = _stop_reason(self._last(*REASONS), bool(calls))
        if refusal := message.additional_kwargs.get("refusal"):
            content, reason = ({"type": "text", "text": str(refusal)},), "refusal"
        return Reply(content, reason, _usage_of(message), self._last("model_name", "model"), cut)

    def partial(self) -> Reply | None:
        """What can be kept of an interrupted answer: its text, and what it used."""
        if not (chunks := tuple(self._chunks)):  # a copy: the reading thread may still add some
            return None
        message = _joined(chunks)
        text = tuple(block for block in _blocks_of(message) if block["type"] == "text")
        return Reply(text, "interrupted", _usage_of(message), self._last("model_name", "model")) if text else None

    def _last(self, *keys: str) -> str:
        """From the newest chunk that says so: joining chunks would concatenate repeated values."""
        for chunk in reversed(self._chunks):
            for key in keys:
                if isinstance(value := chunk.response_metadata.get(key), str) and value:
                    return value
            details = chunk.response_metadata.get("incomplete_details")  # of OpenAI's Responses API
            if "finish_reason" in keys and isinstance(details, dict):
                return str(details.get("reason", ""))
        return ""


def _joined(chunks: list[Chunk] | tuple[Chunk, ...]) -> Chunk:
    first, *rest = chunks
    return first + rest if rest else first


def _seen_in(chunk: Chunk) -> Iterator[StreamEvent]:
    for kind, text in _pieces_of(chunk):
        if text:
            yield ThinkingDelta(text) if kind == "thinking" else TextDelta(text)
    for call in getattr(chunk, "tool_call_chunks", None) or chunk.tool_calls:
        if call.get("name"):
            yield CallOpened(call["name"])


def _pieces_of(message: Chunk) -> Iterator[tuple[str, str]]:
    """Text and thinking, in all the places where providers put them."""
    if isinstance(thought := message.additional_kwargs.get("reasoning_content"), str):
        yield "thinking", thought
    content = message.content
    for block in [content] if isinstance(content, str) else content:
        if isinstance(block, str):
            yield "text", block
        elif block.get("type") == "text":
            yield "text", str(block.get("text", ""))
        elif block.get("type") in ("thinking", "reasoning"):
            yield "thinking", str(block.get(block["type"]) or "")


def _blocks_of(message: Chunk) -> Iterator[Block]:
    for block in message.content if isinstance(message.content, list) else ():
        if isinstance(block, dict) and block.get("type") in KEPT_BLOCKS:
            yield {key: value for key, value in block.items() if key != "index"}
    text = "".join(text for kind, text in _pieces_of(message) if kind == "text")
    if text.strip():
        yield {"type": "text", "text": text}


def _calls_of(message: Chunk) -> tuple[list[Block], frozenset[str]]:
    """The calls with distinct ids, and the ids of those whose input is not a JSON object."""
    calls: list[Block] = []
    cut: set[str] = set()
    for name, arguments, given_id in _raw_calls(message):
        # Some providers send no ids, or the same id twice. Each result needs its own.
        id = given_id if given_id and given_id not in {call["id"] for call in calls} else f"call_{secrets.token_hex(8)}"
        try:
            value = json.loads(arguments or "{}")
        except ValueError:
            value = None
        if not isinstance(value, dict):
            cut.add(id)
            value = {}
        calls.append({"type": "tool_use", "id": id, "name": name, "input": value})
    return calls, frozenset(cut)


def _raw_calls(message: Chunk) -> list[tuple[str, str, str]]:
    """Tuples of name, arguments as text, and id."""
    chunks = getattr(message, "tool_call_chunks", None)
    if chunks is None:  # not a stream
        whole = [{**call, "args": json.dumps(call["args"])} for call in message.tool_calls]
        chunks = [*whole, *message.invalid_tool_calls]
    calls: list[tuple[str, str, str]] = []
    for chunk in chunks:
        name, arguments, id = (chunk.get(key) or "" for key in ("name", "args", "id"))
        if name:
            calls.append((name, arguments, id))
        elif calls:  # LangChain does not join parts that have no index
            calls[-1] = (calls[-1][0], calls[-1][1] + arguments, calls[-1][2] or id)
    return calls


def _stop_reason(said: str, has_calls: bool) -> str:
    """The stop reason as the Messages API names it; an unknown one stays as it is."""
    reason = said.lower()
    if reason in CUT:
        return "max_tokens"
    if reason in REFUSED:
        return "refusal"
    if has_calls:
        return "tool_use"
    return "end_turn" if reason in FINISHED else reason


def _usage_of(message: Chunk) -> Usage:
    """LangChain's input count includes what was read from and written to the cache."""
    used = message.usage_metadata or {}
    details = used.get("input_token_details") or {}
    read, created = (details.get(key) or 0 for key in ("cache_read", "cache_creation"))
    return Usage(max(0, used.get("input_tokens", 0) - read - created), used.get("output_tokens", 0), created, read)
