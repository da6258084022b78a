"""Prompts that are commands: `teamcli -p "/command words"`. Loaded only for those."""

from __future__ import annotations

from concurrent.futures import Future

from teamcli.agent.events import Outcome, TurnEnded
from teamcli.commands.base import CommandOutput, Job, Leave, Prompt, plain
from teamcli.commands.catalog import run_command
from teamcli.session.session import Session
from teamcli.team.message import LEAD
from teamcli.ui.signals import in_thread


def run_as_command(session: Session, line: str) -> str | Future[TurnEnded]:
    """The task that a command means, or the end of a command that is built in, with its output as the answer.

    Raises: UsageError, for a command that does not exist; TeamcliError
    """
    try:
        result = run_command(session, line, is_headless=True)
    except Leave:
        result = ""
    if isinstance(result, Prompt):
        return result.text
    if isinstance(result, Job):
        run = result.run
        return in_thread(lambda: _finished(session, run(session.cancel.child())), "command")
    ended: Future[TurnEnded] = Future()
    ended.set_result(_ended(result))
    return ended


def _finished(session: Session, output: CommandOutput) -> TurnEnded:
    """A command that ran something first, for its text, means a task in the end."""
    return session.submit(output.text).result() if isinstance(output, Prompt) else _ended(output)


def _ended(output: CommandOutput) -> TurnEnded:
    return TurnEnded(LEAD, Outcome.DONE, plain(output), 0.0)
