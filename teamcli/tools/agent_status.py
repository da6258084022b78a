"""`agent_status`: the progress of sub-agents."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from teamcli.agent.tool import Display, ToolOutput
from teamcli.tools.base.context import AgentContext, CallContext, subagents_of
from teamcli.tools.base.tool import Tool
from teamcli.tools.base.tool_input import Between

MAX_WAIT_SECONDS = 600


class AgentStatusInput(NamedTuple):
    """Status of your sub-agents, or of one with all it has said."""

    id: str = ""
    wait_seconds: Annotated[float, Between(0, MAX_WAIT_SECONDS), "Wait at most this long for one to end"] = 0


def run(args: AgentStatusInput, context: AgentContext, call: CallContext) -> ToolOutput:
    return ToolOutput(subagents_of(context).status(context.agent, args.id, args.wait_seconds, call.cancel))


def show(args: AgentStatusInput, context: AgentContext) -> Display:
    waiting = f" (up to {args.wait_seconds:g} s)" if args.wait_seconds else ""
    return Display(f"status of {args.id or 'all sub-agents'}{waiting}")


AGENT_STATUS = Tool("agent_status", AgentStatusInput, run, show)
