"""`bash_stop`: end a command in the background."""

from __future__ import annotations

from typing import NamedTuple

from teamcli.agent.tool import Display, ToolOutput
from teamcli.tools.base.context import AgentContext, CallContext
from teamcli.tools.base.tool import Tool
from teamcli.tools.bash_output import describe


class BashStopInput(NamedTuple):
    """End a background command."""

    id: str


def run(args: BashStopInput, context: AgentContext, _: CallContext) -> ToolOutput:
    return ToolOutput(describe(context.commands.stop(args.id)))


BASH_STOP = Tool("bash_stop", BashStopInput, run, show=lambda args, context: Display(f"stop {args.id}"))
