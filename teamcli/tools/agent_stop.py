"""`agent_stop`: end sub-agents."""

from __future__ import annotations

from typing import NamedTuple

from teamcli.agent.tool import Display, ToolOutput
from teamcli.tools.base.context import AgentContext, CallContext, subagents_of
from teamcli.tools.base.tool import Tool


class AgentStopInput(NamedTuple):
    """End your sub-agents, running or waiting."""

    ids: tuple[str, ...]


def run(args: AgentStopInput, context: AgentContext, call: CallContext) -> ToolOutput:
    return ToolOutput(subagents_of(context).stop(context.agent, args.ids))


AGENT_STOP = Tool("agent_stop", AgentStopInput, run, show=lambda args, context: Display(f"stop {', '.join(args.ids)}"))
