"""What a scripted model says: blocks, whole answers and faults, and how they look as server-sent events.

`answer(text("Let me look."), tool("bash", command="ls"))` is an answer; where an answer is expected, a single block, a
string or a lone fault will do too.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

Json = dict[str, Any]
DEFAULT_USAGE = {
    "input_tokens": 10,
    "output_tokens": 5,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
}
USER_TURN = re.compile(r"\n\n<user_turn>\n(.*)\n</user_turn>", re.DOTALL)
BEFORE_HEADERS = -1
AT_THE_END = 1_000_000

ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


@dataclass(frozen=True)
class Part:
    """One content block: how it starts, the deltas that fill it, and what it is when complete."""

    start: Json
    deltas: tuple[Json, ...]
    complete: Json


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong (or merely differs) once `after` events have been sent."""

    kind: str
    after: int = 0
    delay: float = 0.0
    size: int = 0
    payload: bytes = b""


@dataclass(frozen=True)
class Answer:
    parts: tuple[Part, ...] = ()
    stop_reason: str | None = None
    usage: Json = field(default_factory=dict)
    model: str | None = None
    faults: tuple[Fault, ...] = ()

    def filled_in(self) -> Answer:
        """A copy with ids for its tool calls: the same answer may be given many times, an id only once."""
        return replace(self, parts=tuple(_with_id(part) for part in self.parts))

    @property
    def content(self) -> list[Json]:
        return [part.complete for part in self.parts]

    def why_stopped(self) -> str:
        if self.stop_reason is not None:
            return self.stop_reason
        return "tool_use" if any(block["type"] == "tool_use" for block in self.content) else "end_turn"


@dataclass(frozen=True)
class Status:
    """An answer that does not come from a model: an HTTP status with a body."""

    code: int
    body: bytes
    headers: Json
    content_type: str = "application/json"


AnswerLike = Answer | Part | Fault | Status | str
Script = Iterable[AnswerLike] | Callable[[Json, int], AnswerLike]


def as_answer(value: AnswerLike) -> Answer | Status:
    match value:
        case Answer() | Status():
            return value
        case str():
            return answer(text(value))
        case Part():
            return answer(value)
        case Fault():
            return answer(text("This answer does not arrive as it should."), value)
    raise TypeError(f"a script holds answers, blocks, faults and strings, not {value!r}")


def answer(
    *parts: Part | Fault | str, stop_reason: str | None = None, usage: Json | None = None, model: str | None = None
) -> Answer:
    """A whole answer. Faults may stand anywhere among its blocks: their place is their `after`, a count of events."""
    blocks = tuple(text(part) if isinstance(part, str) else part for part in parts if not isinstance(part, Fault))
    faults = tuple(part for part in parts if isinstance(part, Fault))
    return Answer(blocks, stop_reason, usage or {}, model, faults)


def text(words: str, pieces: int = 4) -> Part:
    deltas = tuple({"type": "text_delta", "text": piece} for piece in _split(words, pieces))
    return Part({"type": "text", "text": ""}, deltas, {"type": "text", "text": words})


def tool(name: str, /, tool_use_id: str | None = None, **tool_input: Any) -> Part:
    """A tool call, `tool("bash", command="ls")`; its id is made up when it is sent."""
    whole = json.dumps(tool_input, ensure_ascii=False) if tool_input else ""
    return _tool_part(name, tool_use_id, whole, tool_input)


def tool_json(name: str, partial_json: str, tool_use_id: str | None = None) -> Part:
    """A tool call whose input is sent as this very text, valid JSON or not."""
    return _tool_part(name, tool_use_id, partial_json, {})


def thinking(thought: str, signature: str | None = "") -> Part:
    """A thinking block. By default its signature is the one that belongs to `thought`; None sends it unsigned."""
    signed = sign(thought) if signature == "" else signature or ""
    deltas: list[Json] = [{"type": "thinking_delta", "thinking": piece} for piece in _split(thought, 4)]
    if signed:
        deltas.append({"type": "signature_delta", "signature": signed})
    start = {"type": "thinking", "thinking": "", "signature": ""}
    return Part(start, tuple(deltas), {"type": "thinking", "thinking": thought, "signature": signed})


def redacted_thinking(data: str) -> Part:
    return other_block({"type": "redacted_thinking", "data": data})


def other_block(block: Json) -> Part:
    """A block of any kind, sent whole when it starts."""
    return Part(block, (), block)


def sign(thought: str) -> str:
    """The signature of a thought, which any fake server can verify, also one started later."""
    return "sig-" + hashlib.sha256(thought.encode()).hexdigest()[:32]


def status(
    code: int,
    retry_after: float | None = None,
    body: str | Json | None = None,
    message: str = "",
    headers: Json | None = None,
) -> Status:
    """An HTTP status; without `body`, an error as the API words it."""
    extra = dict(headers or {})
    if retry_after is not None:
        extra["retry-after"] = f"{retry_after:g}"
    if isinstance(body, str):
        return Status(code, body.encode(), extra, "text/html" if body.startswith("<") else "text/plain")
    return Status(code, json.dumps(body or error_body(code, message)).encode(), extra)


def error_body(code: int, message: str = "", kind: str = "") -> Json:
    kind = kind or ERROR_TYPES.get(code, "api_error")
    error = {"type": kind, "message": message or f"This is a scripted {kind}."}
    return {"type": "error", "error": error, "request_id": f"req_{uuid.uuid4().hex[:16]}"}


def not_json() -> Status:
    """200, but a web page: what a proxy's login page looks like to a client."""
    return Status(200, b"<html><body>Please sign in</body></html>", {}, "text/html")


def cut_after(n_events: int) -> Fault:
    """Drop the connection once `n_events` are sent."""
    return Fault("cut", n_events)


def cut_before_headers() -> Fault:
    return Fault("cut", BEFORE_HEADERS)


def stall_after(n_events: int) -> Fault:
    """Send nothing more after `n_events`, until `release()`, the client's leaving, or the server's end."""
    return Fault("stall", n_events)


def stall_before_headers() -> Fault:
    return Fault("stall", BEFORE_HEADERS)


def drip(delay: float = 0.0, size: int = 0) -> Fault:
    """Send event by event (or, with `size`, so many bytes at a time, through characters), `delay` seconds apart."""
    return Fault("drip", delay=delay, size=size)


def delay(seconds: float) -> Fault:
    """A model that takes its time before it says anything."""
    return Fault("delay", BEFORE_HEADERS, delay=seconds)


def malformed_event(after: int = 2) -> Fault:
    return Fault("raw", after, payload=b'event: content_block_delta\ndata: {"type": "content_block_del\n\n')


def error_event(kind: str = "overloaded_error", message: str = "Overloaded", after: int = 2) -> Fault:
    """The API's way to fail after a good start: an `error` event, then the end of the stream."""
    data = {"type": "error", "error": {"type": kind, "message": message}}
    return Fault("last", after, payload=encode_event("error", data))


def ping(after: int = 1) -> Fault:
    return Fault("raw", after, payload=encode_event("ping", {"type": "ping"}))


def unknown_event(after: int = 1) -> Fault:
    return Fault("raw", after, payload=encode_event("weather_report", {"type": "weather_report", "sky": "blue"}))


def comment(after: int = 1) -> Fault:
    """A server-sent-events comment line, which every reader must skip."""
    return Fault("raw", after, payload=b": keep-alive\n\n")


def turns(n: int, command: str = "true", last: str = "done") -> Callable[[Json, int], AnswerLike]:
    """`n` shell calls one after the other, then a text. It counts the calls in the request itself, so that a client
    which was killed and restored continues where it was. `{n}` in `command` is the number of the call."""

    def script(request: Json, _: int) -> AnswerLike:
        done = sum(block.get("type") == "tool_use" for message in request["messages"] for block in blocks_of(message))
        return tool("bash", command=command.replace("{n}", str(done))) if done < n else text(last)

    return script


def slowly(script: Callable[[Json, int], AnswerLike], seconds: float) -> Callable[[Json, int], AnswerLike]:
    """The same answers, each of them after so many seconds."""

    def slow_script(request: Json, n: int) -> AnswerLike:
        reply = as_answer(script(request, n))
        return replace(reply, faults=(*reply.faults, delay(seconds))) if isinstance(reply, Answer) else reply

    return slow_script


def rules(*pairs: tuple[str, AnswerLike]) -> Callable[[Json, int], AnswerLike]:
    """The first pair whose pattern is found in the newest user message (its text and its tool results) answers."""

    def script(request: Json, _: int) -> AnswerLike:
        words = said_by_user(request)
        for pattern, reply in pairs:
            if re.search(pattern, words, re.DOTALL):
                return reply
        return status(400, message=f"no rule of the script matches {words[:200]!r}")

    return script


def blocks_of(message: Json) -> list[Json]:
    """A message's content as a list of blocks, also where it is a plain string."""
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def recorded_blocks(message: Json) -> list[Json]:
    """The blocks as the client has them: text that was moved into the last tool result follows it again."""
    blocks: list[Json] = []
    for block in blocks_of(message):
        if block["type"] == "tool_result" and isinstance(items := block.get("content"), list):
            turns = [USER_TURN.fullmatch(str(item.get("text", ""))) for item in items]
            own = [item for item, turn in zip(items, turns, strict=True) if not turn]
            is_plain = [item["type"] for item in own] == ["text"]
            blocks.append({**block, "content": own[0]["text"] if is_plain else own})
            blocks += [{"type": "text", "text": turn[1]} for turn in turns if turn]
        else:
            blocks.append(block)
    return blocks


def said_by_user(request: Json) -> str:
    """All text of the newest user message, tool results included, a block per line."""
    return "\n".join(_words(block) for block in recorded_blocks(request["messages"][-1]))


def user_texts(message: Json) -> list[str]:
    """What a user message says besides its tool results."""
    return [block["text"] for block in recorded_blocks(message) if block["type"] == "text"]


def tool_results(request: Json) -> list[Json]:
    """The tool results in the newest user message, without what followed them."""
    return [block for block in recorded_blocks(request["messages"][-1]) if block["type"] == "tool_result"]


def result_text(block: Json) -> str:
    content = block.get("content", "")
    return content if isinstance(content, str) else "\n".join(_words(item) for item in content)


def to_message(reply: Answer, request: Json) -> Json:
    """The complete message, as it is sent when nothing streams."""
    return {
        "id": f"msg_{uuid.uuid4().hex[:20]}",
        "type": "message",
        "role": "assistant",
        "model": reply.model or request.get("model", ""),
        "content": reply.content,
        "stop_reason": reply.why_stopped(),
        "stop_sequence": None,
        "usage": {**DEFAULT_USAGE, **reply.usage},
    }


def to_events(reply: Answer, request: Json) -> Iterator[bytes]:
    """The answer as the API streams it, one event each."""
    message = to_message(reply, request)
    usage = message["usage"]
    opening = {**message, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    yield encode_event("message_start", {"type": "message_start", "message": opening})
    for index, part in enumerate(reply.parts):
        yield from _block_events(index, part)
    delta = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield encode_event("message_delta", {"type": "message_delta", "delta": delta, "usage": usage})
    yield encode_event("message_stop", {"type": "message_stop"})


def encode_event(name: str, data: Json) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


def _block_events(index: int, part: Part) -> Iterator[bytes]:
    start = {"type": "content_block_start", "index": index, "content_block": part.start}
    yield encode_event("content_block_start", start)
    for delta in part.deltas:
        yield encode_event("content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta})
    yield encode_event("content_block_stop", {"type": "content_block_stop", "index": index})


def _tool_part(name: str, tool_use_id: str | None, whole: str, tool_input: Json) -> Part:
    head = {"type": "tool_use", "id": tool_use_id, "name": name}
    pieces = ["", *_split(whole, 4)]  # the API begins every input with an empty piece; an empty input is only that
    deltas = tuple({"type": "input_json_delta", "partial_json": piece} for piece in pieces)
    return Part({**head, "input": {}}, deltas, {**head, "input": tool_input})


def _with_id(part: Part) -> Part:
    if part.complete["type"] != "tool_use" or part.complete["id"] is not None:
        return part
    made_up = {"id": f"toolu_{uuid.uuid4().hex[:20]}"}
    return replace(part, start={**part.start, **made_up}, complete={**part.complete, **made_up})


def _split(words: str, pieces: int) -> list[str]:
    size = max(1, math.ceil(len(words) / pieces))
    return [words[at : at + size] for at in range(0, len(words), size)]


def _words(block: Json) -> str:
    return result_text(block) if block.get("type") == "tool_result" else str(block.get("text", ""))
