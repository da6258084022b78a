"""`bash_output`: show a command that runs in the background."""

from __future__ import annotations

from typing import NamedTuple

from teamcli.agent.tool import Display, ToolOutput
from teamcli.exec.commands import BackgroundStatus
from teamcli.exec.running_command import describe_exit
from teamcli.tools.base.context import AgentContext, CallContext
from teamcli.tools.base.tool import Tool
from teamcli.tools.bash import notes


class BashOutputInput(NamedTuple):
    """New output and state of a background command."""

    id: str


def run(args: BashOutputInput, context: AgentContext, _: CallContext) -> ToolOutput:
    return ToolOutput(describe(context.commands.status(args.id)))


def describe(status: BackgroundStatus) -> str:
    lines = [f"{status.id}: {describe_state(status)}", status.new_output or "(no new output)"]
    return "\n".join(lines + (notes(status.ended) if status.ended else []))


def describe_state(status: BackgroundStatus) -> str:
    if status.stopped_by_user and not status.is_running:
        return f"was stopped by the user after {status.seconds:.0f}s"
    if status.lost:
        return f"lost after {status.seconds:.0f}s: {status.lost}"
    if status.ended is None:
        return f"running for {status.seconds:.0f}s"
    exit_code = status.ended.exit_code
    end = f"exited with code {exit_code}" if exit_code >= 0 else describe_exit(exit_code)
    return f"{end} after {status.seconds:.0f}s"


BASH_OUTPUT = Tool("bash_output", BashOutputInput, run, show=lambda args, context: Display(f"output of {args.id}"))
