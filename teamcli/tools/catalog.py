"""Which tools there are, and who has them. The order is part of the request's stable prefix.

What the model reads of them stands in `specs.json`, and a tool's module is loaded at its first call: so the first
request of a program waits for none of them.
"""

from __future__ import annotations

import json
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from teamcli.agent.tool import AnyTool, PreparedCall
from teamcli.llm.types import ToolSpec
from teamcli.tools.context import AgentContext

if TYPE_CHECKING:
    from teamcli.tools.base import Tool

SPECS = Path(__file__).with_name("specs.json")
"""Generated from the tools: `UPDATE_SPECS=1 pytest tests/tools/test_specs.py`."""


class ToolDefinition(Protocol):
    """A tool that can be put into an agent's hands: ours, or one of the program that has teamcli built in."""

    @property
    def name(self) -> str: ...

    @property
    def spec(self) -> ToolSpec: ...

    def bind(self, context: AgentContext) -> AnyTool: ...


class LazyTool(NamedTuple):
    """A tool by its name, which is also that of its module and, in capitals, of the value in it."""

    name: str

    @property
    def spec(self) -> ToolSpec:
        """What the model reads of it."""
        return _specs()[self.name]

    def load(self) -> Tool[Any]:
        tool: Tool[Any] = getattr(import_module(f"teamcli.tools.{self.name}"), self.name.upper())
        return tool

    def bind(self, context: AgentContext) -> AnyTool:
        return BoundLazyTool(self, context)


class BoundLazyTool:
    """A tool in the hands of one agent, loaded when it is called."""

    def __init__(self, entry: LazyTool, context: AgentContext) -> None:
        self._entry = entry
        self._context = context

    @property
    def spec(self) -> ToolSpec:
        return self._entry.spec

    def prepare(self, raw: object) -> PreparedCall:
        return self._loaded.prepare(raw)

    @cached_property
    def _loaded(self) -> AnyTool:
        return self._entry.load().bind(self._context)


def _entries(names: str) -> tuple[LazyTool, ...]:
    return tuple(map(LazyTool, names.split()))


BASE_TOOLS = _entries("bash read_file write_file edit_file glob grep bash_output bash_stop")
"""Of a sub-agent."""

SOLO_TOOLS = (*BASE_TOOLS, *_entries("agent agent_status agent_stop"))
"""Of an agent without a team."""

LEAD_TOOLS = _entries(
    "bash read_file write_file edit_file spawn_teammate list_teammates send_message read_inbox broadcast"
    " glob grep wait_for_message shutdown_request plan_review agent agent_status agent_stop bash_output bash_stop"
)

TEAMMATE_TOOLS = _entries(
    "bash read_file write_file edit_file send_message read_inbox"
    " glob grep wait_for_message submit_plan shutdown_response agent agent_status agent_stop bash_output bash_stop"
)

ALL_TOOLS = tuple(dict.fromkeys((*LEAD_TOOLS, *TEAMMATE_TOOLS)))
"""Whoever has them: what a permission rule may name."""


def bind_tools(tools: tuple[ToolDefinition, ...], context: AgentContext) -> dict[str, AnyTool]:
    return {tool.name: tool.bind(context) for tool in tools}


def preload(name: str) -> None:
    """Load a tool that is about to be called; nothing happens where the model has made up its name."""
    if LazyTool(name) in ALL_TOOLS:
        LazyTool(name).load()


@cache
def _specs() -> dict[str, ToolSpec]:
    return {raw["name"]: ToolSpec(**raw) for raw in json.loads(SPECS.read_bytes())}
