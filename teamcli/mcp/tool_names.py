"""Names of servers' tools: `mcp__SERVER__TOOL`, in rules, roles, hooks, events and on the screen."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from teamcli.claude_code.names import MCP
from teamcli.mcp.server import ToolInfo

LONGEST = 64
"""Every model provider accepts this."""
_DIGITS = 8


def tool_names(server: str, tools: Iterable[ToolInfo]) -> dict[str, ToolInfo]:
    """The tools by the names under which models call them, sorted. No two are the same."""
    named: dict[str, ToolInfo] = {}
    for tool in sorted(tools, key=lambda each: each.name):
        name = f"{MCP}{server}__{re.sub(r'[^A-Za-z0-9_-]', '_', tool.name)}"
        if len(name) > LONGEST or name in named:
            # From the name alone, so that it is the same in every run: rules and transcripts contain it.
            digest = hashlib.sha256(tool.name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
            name = f"{name[: LONGEST - _DIGITS - 1]}_{digest}"
        named[name] = tool
    return named


def server_of(name: str) -> str:
    """The server in the name of a tool; empty if it is not such a name."""
    server, separator, tool = name.removeprefix(MCP).partition("__")
    return server if name.startswith(MCP) and separator and tool else ""


def is_named(name: str, patterns: Iterable[str]) -> bool:
    """Whether a list of tools contains this one: by its name, by its server (`mcp__s`), or by a pattern with `*`."""
    return any(
        re.fullmatch(re.escape(each).replace(r"\*", ".*"), name) or name.startswith(f"{each}__")
        for each in patterns
        if each.startswith(MCP)
    )
