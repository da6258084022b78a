"""`tool_search` and `call_tool`: for tools of MCP servers that requests do not offer directly."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from teamcli.agent.outside_tools import CALL_TOOL, TOOL_SEARCH
from teamcli.agent.tool import Display, Harmless, PreparedCall, ToolOutput
from teamcli.agent.tool import Progress as OnOutput
from teamcli.cancel import CancelScope
from teamcli.errors import ToolError
from teamcli.llm.types import ToolSpec
from teamcli.mcp.results import FRAME
from teamcli.mcp.search import search_tools
from teamcli.text.escaping import one_line
from teamcli.text.tags import without_end
from teamcli.tools.mcp.view_tool import ViewTool

_LONGEST_NAMES = 400


def search_spec(servers: Iterable[str]) -> ToolSpec:
    names = one_line(", ".join(servers), _LONGEST_NAMES)
    text = f"Find tools of MCP servers ({names}) by words. Returns names and input schemas."
    return ToolSpec(TOOL_SEARCH, text, _schema(query="string"))


def call_spec() -> ToolSpec:
    return ToolSpec(CALL_TOOL, "Call a tool that tool_search found.", _schema(name="string", input="object"))


def _schema(**fields: str) -> dict[str, object]:
    return {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in fields.items()},
        "required": list(fields),
    }


class SearchTool(ViewTool):
    def prepare(self, raw: object) -> PreparedCall:
        query = raw.get("query") if isinstance(raw, Mapping) else None
        if not isinstance(query, str):
            raise ToolError(f"Invalid input for {TOOL_SEARCH}: query: should be a text")

        def run(cancel: CancelScope, progress: OnOutput, call_id: str = "", key: str = "") -> ToolOutput:
            self.view.get_lists(cancel)
            found = search_tools(self.view.tools(), query)
            words = "\n".join((found, *(f"(not listed: {line})" for line in self.view.not_listed())))
            return ToolOutput(f'<{FRAME} from="MCP servers">\n{without_end(FRAME, words)}\n</{FRAME}>')

        return PreparedCall(Display(one_line(f"{TOOL_SEARCH}: {query}", 100)), Harmless(), run, {"query": query})


class CallTool(ViewTool):
    """The pipeline treats its calls as calls of the tool that they name. What arrives here names none."""

    def prepare(self, raw: object) -> PreparedCall:
        name = raw.get("name") if isinstance(raw, Mapping) else None
        raise ToolError(
            f"Invalid input for {CALL_TOOL}: give the name of a tool as {TOOL_SEARCH} shows it (mcp__SERVER__TOOL), "
            f"not {name!r:.80}, and its input as an object"
        )
