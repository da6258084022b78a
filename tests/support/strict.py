"""What the Messages API would refuse, and a little more: each function yields one sentence per breach."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

from tests.support.answers import blocks_of, sign

Json = dict[str, Any]

REQUIRED_FIELDS = ("model", "max_tokens", "messages")
KNOWN_FIELDS = {
    *REQUIRED_FIELDS,
    *("system", "tools", "stream", "cache_control", "thinking", "output_config", "metadata", "stop_sequences"),
    *("tool_choice", "service_tier", "container", "context_management", "diagnostics", "inference_geo", "speed"),
    *("mcp_servers", "compaction"),
}
REMOVED_FIELDS = ("temperature", "top_p", "top_k")
MAX_CACHE_MARKS = 4

BLOCK_FIELDS = {
    "text": {"type", "text", "cache_control", "citations"},
    "image": {"type", "source", "cache_control"},
    "document": {"type", "source", "title", "context", "citations", "cache_control"},
    "tool_use": {"type", "id", "name", "input", "cache_control", "caller"},
    "tool_result": {"type", "tool_use_id", "content", "is_error", "cache_control"},
    "thinking": {"type", "thinking", "signature"},
    "redacted_thinking": {"type", "data"},
}
USER_BLOCKS = {"text", "image", "document", "tool_result"}
ASSISTANT_BLOCKS = {"text", "tool_use", "thinking", "redacted_thinking"}
NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")


class SentBlocks:
    """What the server itself has said in blocks that must come back unchanged."""

    def __init__(self) -> None:
        self._sent: set[str] = set()

    def add(self, blocks: Iterable[Json]) -> None:
        self._sent.update(_canonical(block) for block in blocks if block["type"] not in ("text", "tool_use"))

    def __contains__(self, block: Json) -> bool:
        return _canonical(block) in self._sent


def header_breaches(headers: dict[str, str]) -> Iterator[str]:
    """`headers` has lower-case names."""
    bearer = headers.get("authorization", "")
    if not headers.get("x-api-key") and not re.fullmatch(r"Bearer \S+", bearer):
        yield "headers: neither `Authorization: Bearer KEY` nor x-api-key is sent"
    if not headers.get("anthropic-version"):
        yield "headers: anthropic-version is missing"
    if not headers.get("content-type", "").startswith("application/json"):
        yield f"headers: content-type must be application/json, not {headers.get('content-type')!r}"


def raw_breaches(raw: bytes) -> Iterator[str]:
    """A body that is not a JSON object, or contains half a character."""
    try:
        body = json.loads(raw)
    except ValueError as e:
        yield f"body: not valid JSON: {e}"
        return
    if not isinstance(body, dict):
        yield f"body: must be an object, not {type(body).__name__}"
    elif b"\\ud" in raw.lower() and LONE_SURROGATE.search(json.dumps(body, ensure_ascii=False)):
        yield "body: contains a lone surrogate, which is not valid Unicode"


def body_breaches(body: Json, sent: SentBlocks) -> Iterator[str]:
    yield from _field_breaches(body)
    yield from _system_breaches(body.get("system", ""))
    yield from _tools_breaches(body.get("tools", []))
    yield from _cache_breaches(body)
    messages = body.get("messages")
    if messages is None:
        return
    broken = list(_shape_breaches(messages))
    if broken:
        yield from broken
        return
    yield from _role_breaches(messages)
    for index, message in enumerate(messages):
        for at, block in enumerate(blocks_of(message)):
            yield from _block_breaches(f"messages.{index}.content.{at}", message["role"], block, sent)
    yield from _pairing_breaches(messages)


def _field_breaches(body: Json) -> Iterator[str]:
    for name in REQUIRED_FIELDS:
        if name not in body:
            yield f"{name}: field required"
    for name in body:
        if name in REMOVED_FIELDS:
            yield f"{name}: is not supported by this version of the API"
        elif name not in KNOWN_FIELDS:
            yield f"{name}: extra inputs are not permitted"
    if "model" in body and not (isinstance(body["model"], str) and body["model"]):
        yield "model: must be a non-empty string"
    limit = body.get("max_tokens", 1)
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        yield f"max_tokens: must be a positive integer, not {limit!r}"


def _system_breaches(system: object) -> Iterator[str]:
    if isinstance(system, str):
        return
    if not isinstance(system, list):
        yield "system: must be a string or a list of text blocks"
        return
    for index, block in enumerate(system):
        if not isinstance(block, dict) or block.get("type") != "text":
            yield f"system.{index}: must be a text block"
        elif not _has_text(block.get("text")):
            yield f"system.{index}: text must be non-empty"


def _tools_breaches(tools: object) -> Iterator[str]:
    if not isinstance(tools, list):
        yield "tools: must be a list"
        return
    for index, tool in enumerate(tools):
        if not isinstance(tool, dict):
            yield f"tools.{index}: must be an object"
            continue
        if not NAME.fullmatch(str(tool.get("name", ""))):
            yield f"tools.{index}.name: {tool.get('name')!r} is not a valid tool name"
        if not _has_text(tool.get("description")):
            yield f"tools.{index}.description: is missing"
        schema = tool.get("input_schema")
        if not isinstance(schema, dict) or schema.get("type") != "object":
            yield f"tools.{index}.input_schema: must be a schema of type object"
    names = Counter(tool.get("name") for tool in tools if isinstance(tool, dict))
    yield from (f"tools: names must be unique, {name!r} is not" for name, n in names.items() if n > 1)


def _cache_breaches(body: Json) -> Iterator[str]:
    marks = list(_cache_marks(body))
    if len(marks) > MAX_CACHE_MARKS:
        yield f"cache_control: at most {MAX_CACHE_MARKS} marks are allowed, found {len(marks)}"
    for mark in marks:
        if not isinstance(mark, dict) or mark.get("type") != "ephemeral" or mark.get("ttl", "5m") not in ("5m", "1h"):
            yield f"cache_control: {mark!r} is not a valid mark"


def _cache_marks(body: Json) -> Iterator[object]:
    """Only where the API looks for them: a tool's schema or input may well have a field of that name."""
    system, tools, messages = (body.get(name) for name in ("system", "tools", "messages"))
    holders: list[object] = [body]
    for group in (system, tools):
        holders += group if isinstance(group, list) else []
    for message in messages if isinstance(messages, list) else []:
        content = message.get("content") if isinstance(message, dict) else None
        holders += content if isinstance(content, list) else []
    for holder in holders:
        if isinstance(holder, dict) and holder.get("cache_control") is not None:
            yield holder["cache_control"]


def _shape_breaches(messages: object) -> Iterator[str]:
    """What must be true before the messages can be checked any further."""
    if not isinstance(messages, list) or not messages:
        yield "messages: at least one message is required"
        return
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or set(message) != {"role", "content"}:
            yield f"messages.{index}: must have exactly role and content"
        elif message["role"] not in ("user", "assistant"):
            yield f"messages.{index}.role: {message['role']!r} is neither user nor assistant"
        else:
            yield from _content_breaches(f"messages.{index}.content", message["content"])


def _content_breaches(where: str, content: object) -> Iterator[str]:
    if isinstance(content, str):
        if not _has_text(content):
            yield f"{where}: text must be non-empty"
    elif not isinstance(content, list) or not content:
        yield f"{where}: must be a non-empty list of blocks"
    else:
        for at, block in enumerate(content):
            if not isinstance(block, dict) or not isinstance(block.get("type"), str):
                yield f"{where}.{at}: must be a block with a type"


def _role_breaches(messages: list[Json]) -> Iterator[str]:
    roles = [message["role"] for message in messages]
    if roles[0] != "user":
        yield "messages: the first message must be the user's"
    if roles[-1] != "user":
        yield "messages: the last message must be the user's"
    for index, (before, role) in enumerate(pairwise(roles), start=1):
        if before == role:
            yield f"messages.{index}: roles must alternate, found {role} after {role}"


def _block_breaches(where: str, role: str, block: Json, sent: SentBlocks) -> Iterator[str]:
    kind = block["type"]
    if kind not in BLOCK_FIELDS:
        if block not in sent:
            yield f"{where}: blocks of type {kind!r} are unknown, and the server never sent this one"
        return
    if kind not in (USER_BLOCKS if role == "user" else ASSISTANT_BLOCKS):
        yield f"{where}: a {kind} block may not appear in a message of the {role}"
    for name in block.keys() - BLOCK_FIELDS[kind]:
        yield f"{where}.{name}: extra inputs are not permitted"
    yield from _KIND_CHECKS.get(kind, _nothing)(where, block, sent)


def _text_breaches(where: str, block: Json, _: SentBlocks) -> Iterator[str]:
    if not _has_text(block.get("text")):
        yield f"{where}: text content blocks must contain more than whitespace, found {block.get('text')!r}"


def _tool_use_breaches(where: str, block: Json, _: SentBlocks) -> Iterator[str]:
    if not isinstance(block.get("input"), dict):
        yield f"{where}.input: must be an object, not {block.get('input')!r}"
    for name in ("id", "name"):
        if not NAME.fullmatch(str(block.get(name, ""))):
            yield f"{where}.{name}: {block.get(name)!r} is not valid"


def _tool_result_breaches(where: str, block: Json, _: SentBlocks) -> Iterator[str]:
    content = block.get("content", "")
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        yield f"{where}.content: must be a string or a list of blocks"
        return
    for at, item in enumerate(content):
        if not isinstance(item, dict) or item.get("type") not in ("text", "image", "document", "search_result"):
            yield f"{where}.content.{at}: is not a block that a tool result may contain"
        elif item["type"] == "text" and not _has_text(item.get("text")):
            yield f"{where}.content.{at}: text content blocks must contain more than whitespace"


def _thinking_breaches(where: str, block: Json, sent: SentBlocks) -> Iterator[str]:
    signature = block.get("signature")
    if not signature:
        yield f"{where}: a thinking block needs its signature"
    elif block not in sent and signature != sign(str(block.get("thinking"))):
        yield f"{where}: the thinking block is not as the server sent it (invalid signature)"


def _redacted_breaches(where: str, block: Json, sent: SentBlocks) -> Iterator[str]:
    if block not in sent:
        yield f"{where}: the redacted thinking block is not as the server sent it"


def _nothing(_where: str, _block: Json, _sent: SentBlocks) -> Iterator[str]:
    return iter(())


_KIND_CHECKS = {
    "text": _text_breaches,
    "tool_use": _tool_use_breaches,
    "tool_result": _tool_result_breaches,
    "thinking": _thinking_breaches,
    "redacted_thinking": _redacted_breaches,
}


def _pairing_breaches(messages: list[Json]) -> Iterator[str]:
    """Every tool_use is answered once, at the beginning of the very next message, and nothing else is answered."""
    seen: set[str] = set()
    open_calls: list[str] = []
    for index, message in enumerate(messages):
        blocks = blocks_of(message)
        results = [str(block.get("tool_use_id")) for block in blocks if block["type"] == "tool_result"]
        if Counter(results) != Counter(open_calls):
            yield from _unpaired(index, open_calls, results)
        if any(block["type"] != "tool_result" for block in blocks[: len(results)]):
            yield f"messages.{index}: tool_result blocks must come first"
        open_calls = [str(block.get("id")) for block in blocks if block["type"] == "tool_use"]
        for call in open_calls:
            if call in seen:
                yield f"messages.{index}: tool_use ids must be unique, {call!r} is not"
            seen.add(call)
    if open_calls:
        yield f"messages.{len(messages) - 1}: tool_use without tool_result: {', '.join(open_calls)}"


def template_breaches(body: Json) -> Iterator[str]:
    """What many chat templates refuse, misplace or drop: text behind a tool result, a type that is a choice."""
    for index, message in enumerate(body["messages"]):
        kinds = {block["type"] for block in blocks_of(message)}
        if "tool_result" in kinds and kinds != {"tool_result"}:
            yield f"messages.{index}: this template has no place for text behind a tool_result"
    for tool in body.get("tools", []):
        for choice in _choices(tool["input_schema"]):
            yield f"tools.{tool['name']}: this template knows no {choice}"


def _choices(schema: object) -> Iterator[str]:
    if isinstance(schema, list):
        for item in schema:
            yield from _choices(item)
    elif isinstance(schema, dict):
        yield from (name for name in ("anyOf", "oneOf", "allOf", "$ref") if isinstance(schema.get(name), list | str))
        if isinstance(schema.get("type"), list):
            yield "list of types"
        for value in schema.values():
            yield from _choices(value)


def _unpaired(index: int, calls: list[str], results: list[str]) -> Iterator[str]:
    missing, surplus = Counter(calls) - Counter(results), Counter(results) - Counter(calls)
    if missing:
        yield f"messages.{index}: tool_use without tool_result in the next message: {', '.join(missing)}"
    for call in surplus:
        if call in calls:
            yield f"messages.{index}: more than one tool_result for {call!r}"
        else:
            yield f"messages.{index}: tool_result for {call!r}, which no tool_use of the previous message has"


def prefix_breaches(requests: list[Json]) -> Iterator[str]:
    """Where a later request of the same conversation does not begin with what an earlier one sent."""
    latest: dict[str, tuple[int, Json]] = {}
    for index, request in enumerate(requests):
        key = _canonical(blocks_of(request["messages"][0])[0])
        if key in latest:
            before, earlier = latest[key]
            for breach in _changed(earlier, request):
                yield f"request {index} against request {before}: {breach}"
        latest[key] = (index, request)


def _changed(earlier: Json, later: Json) -> Iterator[str]:
    for name in ("model", "system", "tools", "thinking"):
        if earlier.get(name) != later.get(name):
            yield f"{name} has changed"
    old, new = earlier["messages"], later["messages"]
    if len(new) < len(old):
        yield f"{len(old)} messages have become {len(new)}"
        return
    for index, (before, after) in enumerate(zip(old, new, strict=False)):
        had, has = _unmarked(before), _unmarked(after)
        may_grow = index == len(old) - 1
        if before["role"] != after["role"] or (has[: len(had)] if may_grow else has) != had:
            yield f"messages.{index} has changed"


def _unmarked(message: Json) -> list[Json]:
    """The blocks without their cache marks, which may move without changing what is cached.

    What a tool result holds follows it as blocks of their own: a server writes them one after the other.
    """
    return [{n: v for n, v in block.items() if n != "cache_control"} for block in _flat(blocks_of(message))]


def _flat(blocks: list[Json]) -> Iterator[Json]:
    for block in blocks:
        if block["type"] == "tool_result":
            yield {**block, "content": ...}
            yield from blocks_of({"content": block.get("content", "")})
        else:
            yield block


def _has_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _canonical(block: Json) -> str:
    return json.dumps(block, sort_keys=True, ensure_ascii=False)
