"""`bash`: run a shell command, to its end or in the background."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from teamcli.agent.tool import Display, Executes, ToolOutput
from teamcli.exec.command_host import check_command
from teamcli.exec.commands import Finished
from teamcli.exec.running_command import Ended, describe_exit
from teamcli.exec.supervisor.processes import MOST_PROCESSES
from teamcli.tools.base.context import AgentContext, CallContext
from teamcli.tools.base.tool import Tool
from teamcli.tools.base.tool_input import Between

DEFAULT_TIMEOUT_SECONDS = 120
MAX_TIMEOUT_SECONDS = 600
_TITLE_LENGTH = 100


class BashInput(NamedTuple):
    """Run a shell command in the workspace root, with stdin closed.
    Returns stdout and stderr together, cut in the middle when long. All it started ends with it."""

    command: str
    timeout_seconds: Annotated[int, Between(1, MAX_TIMEOUT_SECONDS)] = DEFAULT_TIMEOUT_SECONDS
    background: Annotated[bool, "For servers and long jobs: returns an id at once."] = False


def access(args: BashInput, context: AgentContext) -> Executes:
    check_command(args.command)  # before the user is asked about a command that cannot run
    return Executes(args.command, context.workspace.cwd)


def run(args: BashInput, context: AgentContext, call: CallContext) -> ToolOutput:
    cwd = context.workspace.cwd
    if args.background:
        # It outlives this call, so neither its timeout nor a canceled turn ends it.
        id = context.commands.start_background(args.command, cwd)
        report = "a message reports its end, " if context.commands.reports_ends else ""
        return ToolOutput(
            f"Started in the background as {id}; {report}bash_output shows what it prints, bash_stop ends it."
        )
    finished = context.commands.run(args.command, cwd, args.timeout_seconds, call.cancel, call.progress)
    if finished.ended.timed_out:
        return ToolOutput(_explain_timeout(finished, args.timeout_seconds), is_error=True)
    exit_code = finished.ended.exit_code
    lines = [finished.output or "(no output)", *notes(finished.ended)]
    if exit_code:
        lines.append(f"[{describe_exit(exit_code)}]")
        if note := context.commands.explain(finished.output):
            lines.append(f"[{note}]")
    return ToolOutput("\n".join(lines))


def _explain_timeout(finished: Finished, timeout_seconds: int) -> str:
    headline = (
        f"Error: Timeout ({timeout_seconds}s): the command was ended with all it had started. "
        f"For more time set timeout_seconds (up to {MAX_TIMEOUT_SECONDS}) or background."
    )
    output = f"Output so far:\n{finished.output}" if finished.output else "(no output)"
    return "\n".join([headline, output, *notes(finished.ended)])


def notes(ended: Ended) -> list[str]:
    """What the model must know about the end besides the exit code, a line each."""
    lines = []
    if ended.were_too_many:
        lines.append(f"[ended, because it had more than {MOST_PROCESSES:,} processes at once]")
    if ended.left_running:
        lines.append("[what it left running was ended; to keep a process running, set background and do not use &]")
    if ended.survivors:
        pids = ", ".join(map(str, ended.survivors))
        lines.append(f"[could not be ended and may still run (another user's?): process {pids}]")
    return lines


def show(args: BashInput, _: AgentContext) -> Display:
    first, *rest = args.command.strip().split("\n")
    shortened = first[:_TITLE_LENGTH]
    return Display(f"$ {shortened}" + ("…" if rest or shortened != first else ""), text=f"$ {args.command}")


BASH = Tool("bash", BashInput, run, show, access)
