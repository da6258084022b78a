"""A tool of a server, under its name `mcp__SERVER__TOOL`. Calling it asks, as a command does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from teamcli.agent.tool import AnyTool, Calls, Display, PreparedCall, ToolOutput
from teamcli.agent.tool import Progress as OnOutput
from teamcli.cancel import CancelScope
from teamcli.errors import McpError, ToolError
from teamcli.llm.types import ToolSpec
from teamcli.mcp.results import error_text, tool_text
from teamcli.mcp.server import CallProgress
from teamcli.mcp.tool_names import server_of
from teamcli.text.escaping import one_line
from teamcli.tools.mcp.view import View
from teamcli.tools.mcp.view_tool import ViewTool

_TITLE_LENGTH = 100
_ANYTHING: dict[str, Any] = {"type": "object"}


class McpTool(ViewTool):
    """Which server and tool are meant is found out when it runs: the server may not have been asked yet."""

    def prepare(self, raw: object) -> PreparedCall:
        if not self.view.may_use(self.name):
            raise ToolError(f"Unknown tool: {self.name}; find the tools of MCP servers with tool_search")
        if not isinstance(raw, Mapping):
            raise ToolError(f"Invalid input for {self.name}: it should be an object")

        def run(cancel: CancelScope, progress: OnOutput, call_id: str = "", key: str = "") -> ToolOutput:
            return self._run(raw, cancel, progress)

        return PreparedCall(show_call(self.name, raw), Calls(self.name), run, raw)

    def _run(self, given: Mapping[str, Any], cancel: CancelScope, progress: OnOutput) -> ToolOutput:
        try:
            server = self.view.pool.server_of(self.name)
            tool = server.find(self.name, cancel)
            result = server.connection.call(tool.name, given, cancel, lambda each: progress(_progress_line(each)))
            server.check_lists()
        except McpError as e:
            raise ToolError(error_text(server_of(self.name), e)) from e
        return ToolOutput(tool_text(server.name, result), result.is_error)


def find_tool(view: View, name: str) -> AnyTool | None:
    """The tool of that name, whether or not it is among those that requests offer."""
    return McpTool(view, ToolSpec(name, "", _ANYTHING)) if view.may_use(name) else None


def show_call(name: str, given: Mapping[str, Any]) -> Display:
    """Server, tool and the whole input."""
    words = json.dumps(given, ensure_ascii=False)
    title = one_line(f"{name} {words}" if given else name, _TITLE_LENGTH)
    server, tool = server_of(name), name.split("__", 2)[-1]
    return Display(title, text=f"MCP server {server}, tool {tool}\n{json.dumps(given, ensure_ascii=False, indent=2)}")


def _progress_line(progress: CallProgress) -> str:
    of = f"/{progress.total:g}" if progress.total else ""
    return one_line(f"{progress.progress:g}{of} {progress.message}", 200) + "\n"
