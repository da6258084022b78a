"""`bash_output`: look at a command in the background."""

from __future__ import annotations

from typing import NamedTuple

from teamcli.agent.tool import Display, Harmless, ToolOutput
from teamcli.exec.commands import Look
from teamcli.exec.running_command import describe_exit
from teamcli.tools.base.context import AgentContext, CallContext
from teamcli.tools.base.tool import Tool
from teamcli.tools.bash import notes


class BashOutputInput(NamedTuple):
    """New output and state of a background command."""

    id: str


def run(args: BashOutputInput, context: AgentContext, _: CallContext) -> ToolOutput:
    return ToolOutput(describe(context.commands.look(args.id)))


def describe(look: Look) -> str:
    lines = [f"{look.id}: {_describe_state(look)}", look.new_output or "(no new output)"]
    return "\n".join(lines + (notes(look.ended) if look.ended else []))


def _describe_state(look: Look) -> str:
    if look.lost:
        return f"lost after {look.seconds:.0f}s: {look.lost}"
    if look.ended is None:
        return f"running for {look.seconds:.0f}s"
    exit_code = look.ended.exit_code
    end = f"exited with code {exit_code}" if exit_code >= 0 else describe_exit(exit_code)
    return f"{end} after {look.seconds:.0f}s"


BASH_OUTPUT = Tool(
    "bash_output",
    BashOutputInput,
    access=lambda args, context: Harmless(),
    run=run,
    show=lambda args, context: Display(f"output of {args.id}"),
)
