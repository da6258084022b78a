"""Finding tools by words: in their names first, then in what their servers say about them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from teamcli.mcp.results import cut
from teamcli.mcp.server import ToolInfo
from teamcli.text.tags import one_fact

MOST_FOUND = 8
LONGEST_DESCRIPTION, LONGEST_SCHEMA = 600, 3_000
_LISTED = 8_000
"""Characters of the names if nothing is found."""


def search_tools(tools: Mapping[str, ToolInfo], query: str) -> str:
    """The best matches with their schemas, or else the names of all."""
    words = re.findall(r"[a-z0-9]+", query.lower())
    found = [name for name in query.replace(",", " ").split() if name in tools] or _best(tools, words)
    if found:
        more = f"\n({len(found) - MOST_FOUND} more match; be more specific)" if len(found) > MOST_FOUND else ""
        return "\n\n".join(describe(name, tools[name]) for name in found[:MOST_FOUND]) + more
    return cut("Nothing matches. There are:\n" + "\n".join(tools), _LISTED)


def describe(name: str, tool: ToolInfo) -> str:
    schema = json.dumps(tool.input_schema, ensure_ascii=False, separators=(",", ":"))
    return (
        f"{name}: {one_fact(tool.description or tool.title, LONGEST_DESCRIPTION)}\ninput: {cut(schema, LONGEST_SCHEMA)}"
    )


def _best(tools: Mapping[str, ToolInfo], words: list[str]) -> list[str]:
    scores = {name: _score(name, tool, words) for name, tool in tools.items()}
    found = [name for name in tools if scores[name]]
    return sorted(found, key=lambda name: -scores[name])


def _score(name: str, tool: ToolInfo, words: list[str]) -> int:
    in_name = set(re.findall(r"[a-z0-9]+", name.lower().removeprefix("mcp__")))
    properties = tool.input_schema.get("properties")
    fields = " ".join(map(str, properties)) if isinstance(properties, dict) else ""
    title, rest = name.lower(), f"{tool.title} {tool.description} {fields}".lower()
    return sum(8 * (word in in_name) + 4 * (word in title) + (word in rest) for word in words)
