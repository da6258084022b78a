"""`bash_stop`: end a command in the background."""

from __future__ import annotations

from typing import NamedTuple

from teamcli.agent.tool import Display, Harmless, ToolOutput
from teamcli.tools.base import Tool
from teamcli.tools.bash_output import describe
from teamcli.tools.toolbox import Running, Toolbox


class BashStopInput(NamedTuple):
    """End a background command."""

    id: str


def run(args: BashStopInput, toolbox: Toolbox, _: Running) -> ToolOutput:
    return ToolOutput(describe(toolbox.commands.stop(args.id)))


BASH_STOP = Tool(
    "bash_stop",
    BashStopInput,
    access=lambda args, toolbox: Harmless(),
    run=run,
    show=lambda args, toolbox: Display(f"stop {args.id}"),
)
