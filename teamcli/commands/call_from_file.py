"""Calling a command or a skill from a file: the commands in its text run first, then its text goes to the lead."""

from __future__ import annotations

from teamcli.cancel import CancelScope
from teamcli.claude_code.read_only import rules_for_reading
from teamcli.claude_code.tool_responses import CallResult, exit_code_of, is_failure, tool_response
from teamcli.commands.base import CommandOutput, CommandResult, Job, Prompt
from teamcli.config.invocations import Invocation, command_of, shell_lines
from teamcli.errors import UsageError
from teamcli.llm.types import Block
from teamcli.session.session import Session
from teamcli.text.escaping import one_line


def call(session: Session, name: str, invocation: Invocation) -> CommandResult:
    """What the user's call of `/name` comes to."""
    if invocation.is_claudes:
        invocation = invocation._replace(text=invocation.text.replace("${CLAUDE_SESSION_ID}", session.id))
    if not invocation.agent and not any(shell_lines(invocation.text)):
        session.use_for_turn(invocation.grants, invocation.model)
        return Prompt(invocation.text)

    def run(cancel: CancelScope) -> CommandOutput:
        try:
            text = _with_output(session, name, invocation, cancel)
            session.use_for_turn(invocation.grants, "")
            if invocation.agent:
                return _in_sub_agent(session, name, invocation._replace(text=text), cancel)
        finally:
            session.use_for_turn((), "")
        session.use_for_turn(invocation.grants, invocation.model)
        return Prompt(text)

    return Job(run, "")


def _with_output(session: Session, name: str, invocation: Invocation, cancel: CancelScope) -> str:
    """The text with the output of its commands. They run as the lead's would: shown, and under the same rules.

    Raises: UsageError, if one may not run or fails; Cancelled
    """
    parts, end, text = [], 0, invocation.text
    for number, found in enumerate(shell_lines(text)):
        command = command_of(found)
        session.use_for_turn((*invocation.grants, *(rules_for_reading(command) if invocation.is_claudes else ())), "")
        output = _run(session, "bash", {"command": command}, f"{name}-{number}", cancel)
        if is_failure(command, exit_code_of(output)):
            raise UsageError(f"/{name} was not sent: `{one_line(command)}` failed: {one_line(output)}")
        response = tool_response(CallResult("bash", {}, output, session.workspace.root))
        parts += [text[end : found.start()], response["stdout"] if isinstance(response, dict) else response]
        end = found.end()
    return "".join([*parts, text[end:]])


def _in_sub_agent(session: Session, name: str, invocation: Invocation, cancel: CancelScope) -> str:
    """Have a sub-agent do it, and let the lead know what it answered."""
    given = {"prompt": invocation.text, "description": f"/{name}", "subagent_type": invocation.agent}
    answer = _run(session, "agent", {**given, "model": invocation.model}, name, cancel)
    session.conversation.add_note(f"The user called /{name}. A sub-agent has answered:\n{answer}")
    return answer


def _run(session: Session, tool: str, given: dict[str, str], id: str, cancel: CancelScope) -> str:
    """Raises: UsageError, Cancelled."""
    block: Block = {"type": "tool_use", "id": f"command-{id}", "name": tool, "input": given}
    [result] = session.lead.agent.toolset.run([block], frozenset(), cancel).blocks
    cancel.check()
    if result.get("is_error") and not exit_code_of(result["content"]):
        reason = one_line(str(result["content"]).removeprefix("Error: "))
        raise UsageError(f"`{one_line(next(iter(given.values())), 80)}` was not run: {reason}")
    return str(result["content"])
