"""What servers list, turned into values. Entries that make no sense are left out, and long texts are cut."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from teamcli.mcp.server import (
    Json,
    PromptArgument,
    PromptInfo,
    PromptMessage,
    PromptResult,
    ResourceContent,
    ResourceInfo,
    TemplateInfo,
    ToolInfo,
    ToolResult,
)

MOST_ENTRIES = 5_000
"""Of one list."""
MOST_PAGES = 200
_LONGEST_NAME = 200
_LONGEST_URI = 4_000
_LONGEST_TEXT = 20_000
T = TypeVar("T")


def parse_all(entries: Iterable[Any], parse: Callable[[Json], T | None]) -> Iterable[T]:
    for entry in entries:
        if isinstance(entry, dict) and (found := parse(entry)) is not None:
            yield found


def parse_tool(entry: Json) -> ToolInfo | None:
    name, schema = _name(entry), _mapping(entry.get("inputSchema"))
    if not name:
        return None
    output = entry.get("outputSchema")
    return ToolInfo(
        name,
        _text(entry, "description"),
        schema,
        _text(entry, "title"),
        output if isinstance(output, dict) else None,
        _mapping(entry.get("annotations")),
    )


def parse_prompt(entry: Json) -> PromptInfo | None:
    name, arguments = _name(entry), entry.get("arguments")
    if not name:
        return None
    found = parse_all(arguments[:100] if isinstance(arguments, list) else (), _parse_argument)
    return PromptInfo(name, _text(entry, "description"), _text(entry, "title"), tuple(found))


def parse_resource(entry: Json) -> ResourceInfo | None:
    uri, size = _text(entry, "uri", _LONGEST_URI + 1), entry.get("size")
    if not uri or len(uri) > _LONGEST_URI:
        return None
    return ResourceInfo(uri, *_labels(entry), size if isinstance(size, int) else None)


def parse_template(entry: Json) -> TemplateInfo | None:
    template = _text(entry, "uriTemplate", _LONGEST_URI + 1)
    if not template or len(template) > _LONGEST_URI:
        return None
    return TemplateInfo(template, *_labels(entry))


def parse_tool_result(result: Json) -> ToolResult:
    content = result.get("content")
    blocks = tuple(block for block in content if isinstance(block, dict)) if isinstance(content, list) else ()
    return ToolResult(blocks, result.get("isError") is True, result.get("structuredContent"))


def parse_prompt_result(result: Json) -> PromptResult:
    messages = result.get("messages")
    found = parse_all(messages if isinstance(messages, list) else (), _parse_message)
    return PromptResult(tuple(found), _text(result, "description"))


def parse_contents(result: Json) -> tuple[ResourceContent, ...]:
    contents = result.get("contents")
    return tuple(parse_all(contents if isinstance(contents, list) else (), _parse_content))


def _parse_argument(entry: Json) -> PromptArgument | None:
    name = _name(entry)
    return PromptArgument(name, _text(entry, "description"), entry.get("required") is True) if name else None


def _parse_message(entry: Json) -> PromptMessage | None:
    content, role = entry.get("content"), entry.get("role")
    if not isinstance(content, dict) or role not in ("user", "assistant"):
        return None
    return PromptMessage(role, content)


def _parse_content(entry: Json) -> ResourceContent | None:
    text, blob = entry.get("text"), entry.get("blob")
    if not isinstance(text, str) and not isinstance(blob, str):
        return None
    return ResourceContent(
        _text(entry, "uri", _LONGEST_URI),
        _text(entry, "mimeType", _LONGEST_NAME),
        text if isinstance(text, str) else None,
        blob if isinstance(blob, str) else None,
    )


def _labels(entry: Json) -> tuple[str, str, str, str]:
    names = (_text(entry, key, _LONGEST_NAME) for key in ("name", "title"))
    return (*names, _text(entry, "description"), _text(entry, "mimeType", _LONGEST_NAME))  # type: ignore[return-value]


def _name(entry: Json) -> str:
    """Empty if it is too long to be cut, because a name is sent back."""
    name = _text(entry, "name", _LONGEST_NAME + 1)
    return name if len(name) <= _LONGEST_NAME else ""


def _text(entry: Json, key: str, limit: int = _LONGEST_TEXT) -> str:
    value = entry.get(key)
    return value[:limit] if isinstance(value, str) else ""


def _mapping(value: Any) -> Json:
    return value if isinstance(value, dict) else {}
