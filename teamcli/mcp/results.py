"""What a server returned, in words for a model: capped, and framed as text from outside."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from teamcli.errors import McpError
from teamcli.mcp.server import Json, PromptResult, ResourceContent, ToolResult
from teamcli.text.tags import one_fact, without_end

LONGEST_RESULT = 40_000
"""Characters of one result."""
FRAME = "outside-text"


def tool_text(server: str, result: ToolResult) -> str:
    parts = list(map(_block_text, result.content))
    if result.structured is not None and not _repeats(result, result.structured):
        parts.append(json.dumps(result.structured, ensure_ascii=False))
    return framed(server, "\n".join(filter(None, parts)) or "(no content)")


def resource_text(server: str, contents: Sequence[ResourceContent]) -> str:
    return framed(server, "\n".join(map(_content_text, contents)) or "(no content)")


def prompt_text(result: PromptResult) -> str:
    """The words of a prompt that the user has asked for. They are a task, so they are not framed."""
    texts = [_block_text(message.content) for message in result.messages]
    if len(texts) > 1:
        texts = [
            text if message.role == "user" else f"(assistant) {text}"
            for message, text in zip(result.messages, texts, strict=True)
        ]
    return cut("\n\n".join(filter(None, texts)))


def error_text(server: str, error: McpError) -> str:
    detail = f"\n{framed(server, error.detail)}" if error.detail else ""
    return f"{error}{detail}"


def framed(server: str, text: str) -> str:
    """In a frame that the text cannot close."""
    return f'<{FRAME} from="MCP server {server}">\n{without_end(FRAME, cut(text))}\n</{FRAME}>'


def cut(text: str, limit: int = LONGEST_RESULT) -> str:
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half:,} characters left out ...]\n{text[-half:]}"


def _block_text(block: Json) -> str:
    match block.get("type"):
        case "text":
            return str(block.get("text", ""))
        case "image" | "audio" as kind:
            return _not_shown(kind, block.get("mimeType"), block.get("data"))
        case "resource_link":
            words = filter(None, (_word(block, key) for key in ("title", "name", "mimeType", "description")))
            return f"[resource {_word(block, 'uri')}: {', '.join(words)}]"
        case "resource":
            return _resource_block(block.get("resource"))
        case kind:
            return f"[a block of the kind {one_fact(str(kind), 40)} is not shown]"


def _resource_block(resource: Any) -> str:
    if not isinstance(resource, dict):
        return "[an empty resource]"
    text, blob = resource.get("text"), resource.get("blob")
    return _content_text(
        ResourceContent(
            str(resource.get("uri", "")),
            str(resource.get("mimeType", "")),
            text if isinstance(text, str) else None,
            blob if isinstance(blob, str) else None,
        )
    )


def _content_text(content: ResourceContent) -> str:
    if content.text is not None:
        return f"[resource {one_fact(content.uri)}]\n{content.text}"
    return _not_shown(f"resource {one_fact(content.uri)}", content.mime_type, content.blob)


def _not_shown(kind: str, mime_type: object, data: object) -> str:
    size = len(data) * 3 // 4 if isinstance(data, str) else 0
    return f"[{kind}, {one_fact(str(mime_type or 'unknown type'), 60)}, {size:,} bytes: not shown]"


def _word(block: Json, key: str) -> str:
    return one_fact(str(block.get(key) or ""), 300)


def _repeats(result: ToolResult, value: Any) -> bool:
    """Whether the content already says what the structured result says."""
    return any(_as_json(block.get("text")) == value for block in result.content if block.get("type") == "text")


def _as_json(text: object) -> Any:
    try:
        return json.loads(str(text))
    except (ValueError, RecursionError):
        return None
