"""MCP servers that run inside the program that drives teamcli: their tools, called through the control channel."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import count
from typing import Any

from teamcli.agent.tool import Calls, ToolOutput
from teamcli.cancel import CancelScope
from teamcli.claude_code.names import MCP
from teamcli.errors import ToolError
from teamcli.llm.types import ToolSpec
from teamcli.storage.files import Json
from teamcli.tools.base.schema_tool import SchemaTool
from teamcli.ui.control.channel import ControlChannel

PROTOCOL = "2025-06-18"
START_SECONDS = 30.0
_MOST_PAGES = 100
_NOT_IN_NAMES = r"[^A-Za-z0-9_-]"


def split_config(configs: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Of the values of `--mcp-config`, the names of servers in the other program, and the values without those."""
    names, others = [], []
    for text in configs:
        servers = _servers_in(text)
        mine = [name for name, each in servers.items() if isinstance(each, dict) and each.get("type") == "sdk"]
        names += mine
        rest = {name: each for name, each in servers.items() if name not in mine}
        others += [text] if not mine else [json.dumps({"mcpServers": rest})] if rest else []
    return tuple(names), tuple(others)


def _servers_in(text: str) -> Json:
    try:
        servers = json.loads(text).get("mcpServers") if text.lstrip().startswith("{") else {}
    except (ValueError, RecursionError):
        return {}
    return servers if isinstance(servers, dict) else {}


class ProgramServer:
    """One server. Loses nothing when the channel closes: its calls fail then."""

    def __init__(self, name: str, channel: ControlChannel) -> None:
        self.name = name
        self._channel = channel
        self._ids = count(1)

    def tools(self, cancel: CancelScope) -> list[SchemaTool]:
        """Raises: ToolError, Cancelled."""
        hello = {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": {"name": "teamcli", "version": "1"}}
        self._ask("initialize", hello, cancel, START_SECONDS)
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"}, cancel, START_SECONDS)
        found: list[SchemaTool] = []
        cursor: Any = None
        for _ in range(_MOST_PAGES):
            page = self._ask("tools/list", {"cursor": cursor} if cursor else {}, cancel, START_SECONDS)
            found += [self._tool(each) for each in page.get("tools", ()) if isinstance(each, dict)]
            if not (cursor := page.get("nextCursor")):
                break
        return found

    def _tool(self, info: Json) -> SchemaTool:
        theirs = str(info.get("name"))
        name = f"{MCP}{re.sub(_NOT_IN_NAMES, '_', self.name)}__{re.sub(_NOT_IN_NAMES, '_', theirs)}"
        schema = info.get("inputSchema")
        described = schema if isinstance(schema, dict) else {"type": "object"}
        spec = ToolSpec(name, str(info.get("description") or name), described)
        return SchemaTool(spec, Calls(name), partial(self._call, theirs))

    def _call(self, tool: str, given: Mapping[str, Any], cancel: CancelScope) -> ToolOutput:
        """Raises: ToolError, Cancelled."""
        result = self._ask("tools/call", {"name": tool, "arguments": dict(given)}, cancel)
        blocks = [block for block in result.get("content", ()) if isinstance(block, dict)]
        texts = [str(block["text"]) if "text" in block else f"[{block.get('type')}]" for block in blocks]
        return ToolOutput("\n".join(texts), is_error=bool(result.get("isError")))

    def _ask(self, method: str, params: Json, cancel: CancelScope, timeout: float | None = None) -> Json:
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        answer = self._send(message, cancel, timeout)
        if isinstance(error := answer.get("error"), dict):
            raise ToolError(f"{self.name}: {error.get('message', 'the request failed')}")
        result = answer.get("result")
        return result if isinstance(result, dict) else {}

    def _send(self, message: Json, cancel: CancelScope, timeout: float | None) -> Json:
        fields = {"server_name": self.name, "message": message}
        answer = self._channel.request("mcp_message", fields, cancel, timeout).get("mcp_response")
        return answer if isinstance(answer, dict) else {}
