"""Which tools there are, and which agents have them. The order is part of the request's stable prefix.

What the model reads about them is in `specs.json`, and a tool's module is loaded at its first call, so the first
request of a program does not wait for any of them.
"""

from __future__ import annotations

import json
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from teamcli.agent.tool import AnyTool, PreparedCall
from teamcli.llm.types import ToolSpec
from teamcli.tools.base.context import AgentContext

if TYPE_CHECKING:
    from teamcli.tools.base.tool import Tool

SPECS = Path(__file__).with_name("specs.json")
"""Generated from the tools: `UPDATE_SPECS=1 pytest tests/tools/test_specs.py`."""


class ToolDefinition(Protocol):
    """A tool that an agent can be given: ours, or one of the program that embeds teamcli."""

    @property
    def name(self) -> str: ...

    @property
    def spec(self) -> ToolSpec: ...

    def bind(self, context: AgentContext) -> AnyTool: ...


class LazyTool(NamedTuple):
    """A tool by name. Its module has the same name, and so has the value in it, in capitals."""

    name: str

    @property
    def spec(self) -> ToolSpec:
        """What the model reads about it."""
        return _specs()[self.name]

    def load(self) -> Tool[Any]:
        tool: Tool[Any] = getattr(import_module(f"teamcli.tools.{self.name}"), self.name.upper())
        return tool

    def bind(self, context: AgentContext) -> AnyTool:
        return BoundLazyTool(self, context)


class BoundLazyTool:
    """A tool that belongs to one agent, loaded when it is called."""

    def __init__(self, tool: LazyTool, context: AgentContext) -> None:
        self._tool = tool
        self._context = context

    @property
    def spec(self) -> ToolSpec:
        return self._tool.spec

    def prepare(self, raw: object) -> PreparedCall:
        return self._loaded.prepare(raw)

    @cached_property
    def _loaded(self) -> AnyTool:
        return self._tool.load().bind(self._context)


def _tools(names: str) -> tuple[LazyTool, ...]:
    return tuple(map(LazyTool, names.split()))


# The model's cache holds a request's prefix, so reordering these lists costs every user a cold start.
BASE_TOOLS = _tools("bash read_file write_file edit_file glob grep bash_output bash_stop")
"""For a sub-agent."""

SOLO_TOOLS = (*BASE_TOOLS, *_tools("agent agent_status agent_stop"))
"""For an agent without a team."""

LEAD_TOOLS = _tools(
    "bash read_file write_file edit_file spawn_teammate list_teammates send_message read_inbox broadcast"
    " glob grep wait_for_message shutdown_request plan_review agent agent_status agent_stop bash_output bash_stop"
    " task_create task_update task_list"
    " merge_teammate"
)

TEAMMATE_TOOLS = _tools(
    "bash read_file write_file edit_file send_message read_inbox"
    " glob grep wait_for_message submit_plan shutdown_response agent agent_status agent_stop bash_output bash_stop"
    " task_create task_update task_list"
)

ALL_TOOLS = tuple(dict.fromkeys((*LEAD_TOOLS, *TEAMMATE_TOOLS)))
"""All that a permission rule may name."""


def bind_tools(tools: tuple[ToolDefinition, ...], context: AgentContext) -> dict[str, AnyTool]:
    return {tool.name: tool.bind(context) for tool in tools}


def preload(name: str) -> None:
    """Load a tool that is about to be called. Ignores a name that the model has invented."""
    # Only once: even looking for a module that is loaded takes longer than everything else before a call.
    if name in _not_loaded:
        LazyTool(name).load()
        _not_loaded.discard(name)


_not_loaded = {tool.name for tool in ALL_TOOLS}


@cache
def _specs() -> dict[str, ToolSpec]:
    return {raw["name"]: ToolSpec(**raw) for raw in json.loads(SPECS.read_bytes())}
