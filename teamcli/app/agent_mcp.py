"""The tools of MCP servers in the requests of one agent: decided before its first request, and then fixed."""

from __future__ import annotations

from dataclasses import replace

from teamcli.agent.loop import Agent
from teamcli.agent.outside_tools import is_outside, without_outside
from teamcli.agent.tool import AnyTool
from teamcli.cancel import CancelScope
from teamcli.errors import McpError, ToolError
from teamcli.llm.types import ToolSpec
from teamcli.mcp.results import error_text, resource_text
from teamcli.tools.mcp.direct import find_tool
from teamcli.tools.mcp.offer import OutsideTool, choose_offer, offered_tools
from teamcli.tools.mcp.view import View


class AgentMcp:
    def __init__(self, view: View, offered: tuple[ToolSpec, ...] | None) -> None:
        """`offered` is what the requests of its conversation offer already."""
        self.view = view
        self._offered = offered

    def use_view(self, view: View) -> None:
        """Its role or its task has changed."""
        self.view = view

    def decide(self, cancel: CancelScope) -> None:
        """Decide now. For an agent whose conversation ends with the program.

        Raises: Cancelled
        """
        self.view.get_lists(cancel)
        self._offered = () if self.view.is_empty else choose_offer(self.view)

    @property
    def tools(self) -> tuple[OutsideTool, ...]:
        return offered_tools(self.view, self._offered or ())

    def find(self, name: str) -> AnyTool | None:
        return find_tool(self.view, name)

    def owns(self, word: str) -> bool:
        server, separator, uri = word.partition(":")
        return bool(separator and uri) and server in self.view.servers

    def read(self, word: str, cancel: CancelScope) -> str:
        server, _, uri = word.partition(":")
        try:
            return resource_text(server, self.view.pool.servers[server].connection.read_resource(uri, cancel))
        except McpError as e:
            raise ToolError(error_text(server, e)) from e

    def settle_tools(self, agent: Agent, cancel: CancelScope) -> None:
        """Before the first request of a conversation: decide. If the conversation has changed, follow it.

        Raises: Cancelled, StateError
        """
        conversation = agent.conversation
        if conversation.history.offered is None and not self.view.is_empty:
            self.view.get_lists(cancel)
            conversation.offer(choose_offer(self.view))
        offered = conversation.history.offered
        if (offered or ()) != (self._offered or ()):
            self._offered = offered
            inside = {name: tool for name, tool in agent.toolset.tools.items() if not is_outside(name)}
            agent.use(
                replace(agent.preamble, tools=(*without_outside(agent.preamble.tools), *(offered or ()))),
                agent.toolset._replace(tools={**inside, **{tool.name: tool for tool in self.tools}}),
            )
