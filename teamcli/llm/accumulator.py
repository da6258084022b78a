"""The events of one stream → one `Reply`, and what to report on the way.

Pieces are kept in lists and joined once, and a tool's input is parsed once: a large file written through a tool costs
no more per byte than a small one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from teamcli.errors import ModelError, ServerFault
from teamcli.llm.types import Block, CallOpened, Reply, StreamEvent, TextDelta, ThinkingDelta, Usage

_THINKING = ("thinking", "redacted_thinking")
_SERVER_CALLS = ("server_tool_use", "mcp_tool_use")
_CALLS = ("tool_use", *_SERVER_CALLS)
_INPUT, _SIGNATURE = "input", "signature"
LARGEST_ANSWER, BLOCK_SIZE = 64_000_000, 1000
DEEPEST = 100

_STRING_DELTAS = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("signature", _SIGNATURE),
    "input_json_delta": ("partial_json", _INPUT),
}
"""Kind of delta → its field, and the field of the block that it extends."""


@dataclass(eq=False)
class _OpenBlock:
    """A block of the answer that is still arriving."""

    start: Block
    pieces: dict[str, list[str]] = field(default_factory=dict)
    is_complete: bool = False
    has_bad_input: bool = False

    def finished(self) -> Block:
        """The block as it would have arrived without streaming."""
        block = dict(self.start)
        for name, pieces in self.pieces.items():
            text = "".join(pieces)
            if name == _INPUT:
                block[name] = _parsed_input(text)
            else:
                known = block.get(name)
                block[name] = known + text if isinstance(known, str) else text
        if block["type"] in _CALLS and not isinstance(block.get(_INPUT), dict):
            block[_INPUT], self.has_bad_input = {}, True
        return block


def _parsed_input(text: str) -> object:
    try:
        value = _decode_input(text) if text.strip() else {}
    except (ValueError, RecursionError):
        return None
    return None if is_deep(value) else value


def is_deep(value: object) -> bool:
    """Whether lists and objects are nested so deeply that a recursive function could fail on them."""
    level = [value]
    for _ in range(DEEPEST):
        containers = [each for each in level if isinstance(each, dict | list)]
        level = [item for each in containers for item in (each.values() if isinstance(each, dict) else each)]
        if not level:
            return False
    return True


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON and could not be sent back")


_decode_input = json.JSONDecoder(parse_constant=_refuse_constant).decode
"""Made once: `json.loads` with this option would make a decoder for every call."""


class Accumulator:
    """Takes the raw events of one answer. Unknown events are ignored, unknown blocks are kept as they are."""

    def __init__(self) -> None:
        self._blocks: list[_OpenBlock] = []
        self._at: dict[int, _OpenBlock] = {}
        """The newest block of each index. Some gateways give all calls of an answer the same index."""
        self._usage = Usage()
        self._model = ""
        self._stop_reason = ""
        self.has_begun = False
        """Whether the model has started to answer. Only read from outside."""
        self._has_ended = False
        self._size = 0

    @property
    def is_complete(self) -> bool:
        """Whether the whole answer has arrived. Some gateways omit `message_stop`: a stop reason is enough."""
        return self._has_ended or bool(self._stop_reason)

    def feed(self, event: dict[str, Any]) -> StreamEvent | None:
        """Take one event; return what to report of it, if anything.

        Raises: ServerFault, if the event is malformed
        """
        try:
            return self._take(event)
        except (KeyError, TypeError, AttributeError) as e:
            raise ServerFault(f"The endpoint sent a malformed event ({event.get('type')}).") from e

    def received(self) -> int:
        """How much the model has written so far, in characters."""
        pieces = [each for block in self._blocks for name, each in block.pieces.items() if name != _SIGNATURE]
        return sum(len(piece) for each in pieces for piece in each)

    def reply(self) -> Reply:
        """The whole answer."""
        finished = [(block, block.finished()) for block in self._blocks]
        cut = {content["id"] for block, content in finished if block.has_bad_input and content["type"] == "tool_use"}
        content = _sendable([content for _, content in finished])
        implied = "tool_use" if any(block["type"] == "tool_use" for block in content) else "end_turn"
        stop_reason = self._stop_reason or implied
        if stop_reason == "max_tokens" and finished and (last := finished[-1][1])["type"] == "tool_use":
            # Even if its JSON is valid: gateways close what was cut, and the call may write half a file.
            cut.add(last["id"])
        return Reply(content, stop_reason, self._usage, self._model, frozenset(cut))

    def partial(self) -> Reply:
        """What can be kept of an interrupted answer: whole blocks, and text as far as it arrived."""
        kept = [whole for block in self._blocks if (whole := _kept_when_cut(block)) is not None]
        # A call that the endpoint runs itself must come with its result, or the next request is refused.
        answered = {block.get("tool_use_id") for block in kept}
        content = _sendable([b for b in kept if b["type"] not in _SERVER_CALLS or b.get("id") in answered])
        return Reply(content, "interrupted", self._usage, self._model)

    def _take(self, event: dict[str, Any]) -> StreamEvent | None:
        match event.get("type"):
            case "content_block_delta":  # first, because nearly all events are deltas
                return self._delta(event)
            case "content_block_start":
                return self._block_start(event)
            case "content_block_stop":
                self._at[event["index"]].is_complete = True
            case "message_start":
                self.has_begun = True
                self._model = event["message"].get("model") or ""
                self._add_usage(event["message"].get("usage"))
            case "message_delta":
                self._stop_reason = event["delta"].get("stop_reason") or self._stop_reason
                self._add_usage(event.get("usage"))
            case "message_stop":
                self._has_ended = True
            case list() | dict():  # malformed, unlike the name of an event that is only unknown
                raise TypeError("type")
        return None

    def _add_usage(self, raw: dict[str, Any] | None) -> None:
        # The counts in a stream are running totals, and some endpoints repeat only a few of them at the end.
        self._usage = self._usage.at_least(raw or {})

    def _block_start(self, event: dict[str, Any]) -> StreamEvent | None:
        start = event["content_block"]
        kind = start["type"]
        self._count(BLOCK_SIZE)
        if is_deep(start):
            raise TypeError("content_block")
        self._at[event["index"]] = block = _OpenBlock(start)
        self._blocks.append(block)
        if kind == "tool_use":
            _string(start, "id")
            return CallOpened(_string(start, "name"))
        if kind == "text" and _string(start, "text"):
            return TextDelta(start["text"])
        return None

    def _delta(self, event: dict[str, Any]) -> StreamEvent | None:
        block, delta = self._at[event["index"]], event["delta"]
        kind = delta["type"]
        if kind not in _STRING_DELTAS:
            _merge_unknown(block.start, delta)
            return None
        source, target = _STRING_DELTAS[kind]
        piece = _string(delta, source)
        self._count(len(piece))
        block.pieces.setdefault(target, []).append(piece)
        if kind == "text_delta":
            return TextDelta(piece)
        return ThinkingDelta(piece) if kind == "thinking_delta" else None

    def _count(self, size: int) -> None:
        """Raises: ModelError, for an answer that never ends"""
        self._size += size
        if self._size > LARGEST_ANSWER:
            raise ModelError(f"The endpoint's answer does not end: it has more than {LARGEST_ANSWER:,} characters.")


def _string(raw: dict[str, Any], name: str) -> str:
    value = raw[name]
    if not isinstance(value, str):
        raise TypeError(name)
    return value


def _merge_unknown(block: Block, delta: dict[str, Any]) -> None:
    """Citations, and deltas that this version does not know: lists and strings grow, anything else is set."""
    if delta["type"] == "citations_delta":
        block["citations"] = [*(block.get("citations") or []), delta["citation"]]
        return
    for name, value in delta.items():
        known = block.get(name)
        if name != "type":
            block[name] = known + value if isinstance(known, str) and isinstance(value, str) else value


def _kept_when_cut(block: _OpenBlock) -> Block | None:
    content = block.finished()
    kind = content["type"]
    if kind == "text":
        return content
    # The API takes thinking back only with its signature, which comes last.
    if not block.is_complete or block.has_bad_input or (kind == "thinking" and not content.get("signature")):
        return None
    return content


def _sendable(content: list[Block]) -> tuple[Block, ...]:
    """What the API accepts back: no blank text, and no thinking at the very end, which means that it was cut."""
    kept = [block for block in content if block["type"] != "text" or block.get("text", "").strip()]
    while kept and kept[-1]["type"] in _THINKING:
        kept.pop()
    return tuple(kept)
