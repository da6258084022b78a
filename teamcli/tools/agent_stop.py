"""`agent_stop`: end sub-agents."""

from __future__ import annotations

from typing import NamedTuple

from teamcli.agent.tool import Display, Harmless, ToolOutput
from teamcli.tools.base import Tool
from teamcli.tools.toolbox import Running, Toolbox, subagents_of


class AgentStopInput(NamedTuple):
    """End sub-agents of yours, running or waiting."""

    ids: tuple[str, ...]


def run(args: AgentStopInput, toolbox: Toolbox, running: Running) -> ToolOutput:
    return ToolOutput(subagents_of(toolbox).stop(toolbox.agent, args.ids))


AGENT_STOP = Tool(
    "agent_stop",
    AgentStopInput,
    access=lambda args, toolbox: Harmless(),
    run=run,
    show=lambda args, toolbox: Display(f"stop {', '.join(args.ids)}"),
)
