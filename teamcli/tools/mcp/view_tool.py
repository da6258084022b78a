"""What the tools that reach MCP servers have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from teamcli.agent.tool import AnyTool, PreparedCall
from teamcli.llm.types import ToolSpec
from teamcli.tools.base.context import AgentContext
from teamcli.tools.mcp.view import View


@dataclass(frozen=True)
class ViewTool(ABC):
    """A tool of one agent, which can do what the agent sees of the servers."""

    view: View
    spec: ToolSpec

    @property
    def name(self) -> str:
        return self.spec.name

    def bind(self, context: AgentContext) -> AnyTool:
        return self

    @abstractmethod
    def prepare(self, raw: object) -> PreparedCall: ...
