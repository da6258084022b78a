"""Which tools of MCP servers the requests of a conversation offer directly. The others are found by searching."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

from teamcli.agent import outside_tools
from teamcli.llm.types import ToolSpec
from teamcli.mcp.server import ToolInfo
from teamcli.mcp.tool_names import server_of
from teamcli.text.escaping import escape_controls
from teamcli.tools.mcp.direct import McpTool
from teamcli.tools.mcp.search import CallTool, SearchTool, call_spec, search_spec
from teamcli.tools.mcp.view import View

OutsideTool = McpTool | SearchTool | CallTool
MOST_CHARACTERS = 8_000
"""If all tools together are not larger than this, all are offered."""
MOST_OF_MANY = 700
"""Otherwise as many servers, the smallest first, as fit into this."""
LONGEST_DESCRIPTION = 1_000
_PROPERTY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_NOT_ACCEPTED = ("anyOf", "oneOf", "allOf", "$ref", "$dynamicRef", "not", "if", "patternProperties")
_LEFT_OUT = ("$schema", "title")
_DEEPEST = 8


def choose_offer(view: View) -> tuple[ToolSpec, ...]:
    """The tools to offer, in a fixed order, from what is known of the servers now."""
    specs = [spec for name, tool in view.tools().items() if (spec := _spec(name, tool))]
    direct = specs if _size(specs) <= MOST_CHARACTERS else _smallest_servers(specs)
    return (search_spec(sorted(view.servers)), call_spec(), *direct)


def offered_tools(view: View, specs: Iterable[ToolSpec]) -> tuple[OutsideTool, ...]:
    """The tools behind what was offered, also in an earlier run."""
    return tuple(_tool(view, spec) for spec in specs)


def _tool(view: View, spec: ToolSpec) -> OutsideTool:
    match spec.name:
        case outside_tools.TOOL_SEARCH:
            return SearchTool(view, spec)
        case outside_tools.CALL_TOOL:
            return CallTool(view, spec)
        case _:
            return McpTool(view, spec)


def _smallest_servers(specs: list[ToolSpec]) -> list[ToolSpec]:
    by_server = [list(group) for _, group in groupby(specs, lambda spec: server_of(spec.name))]
    chosen: list[ToolSpec] = []
    for group in sorted(by_server, key=_size):
        if _size([*chosen, *group]) > MOST_OF_MANY:
            break
        chosen += group
    return sorted(chosen, key=lambda spec: spec.name)


def _size(specs: Iterable[ToolSpec]) -> int:
    return sum(len(json.dumps(spec.to_dict(), ensure_ascii=False)) for spec in specs)


def _spec(name: str, tool: ToolInfo) -> ToolSpec | None:
    """None if a model provider may refuse it: one bad schema would make every request fail."""
    schema = {key: value for key, value in tool.input_schema.items() if key not in _LEFT_OUT}
    schema = {"type": "object", "properties": {}, **schema}
    if not _is_accepted(schema):
        return None
    description = escape_controls(tool.description or tool.title)[:LONGEST_DESCRIPTION]
    return ToolSpec(name, description or name, schema)


def _is_accepted(schema: Mapping[str, Any]) -> bool:
    properties, required = schema["properties"], schema.get("required", [])
    return (
        schema["type"] == "object"
        and "enum" not in schema
        and isinstance(properties, dict)
        and isinstance(required, list)
        and all(isinstance(each, str) for each in required)
        and not any(key in schema for key in _NOT_ACCEPTED)
        and all(_PROPERTY.fullmatch(key) for key in properties)
        and all(_is_plain(value, 1) for value in properties.values())
    )


_TYPES: tuple[object, ...] = ("string", "number", "integer", "boolean", "array", "object", "null")


def _is_plain(schema: Any, depth: int) -> bool:
    """Whether every provider and every local server takes this: common keywords with values of the right kind, no
    choices and no references."""
    if not isinstance(schema, dict) or depth > _DEEPEST or any(key in schema for key in _NOT_ACCEPTED):
        return False
    inside, nested = schema.get("properties", {}), [schema["items"]] if "items" in schema else []
    return (
        schema.get("type", "string") in _TYPES
        and isinstance(inside, dict)
        and isinstance(schema.get("required", []), list)
        and isinstance(schema.get("enum", []), list)
        and isinstance(schema.get("description", ""), str)
        and all(_is_plain(each, depth + 1) for each in (*inside.values(), *nested))
    )
