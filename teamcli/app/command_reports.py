"""Tells an agent that one of its background commands has ended: once, as mail from the command."""

from __future__ import annotations

import time
from functools import partial

from teamcli.errors import TeamcliError
from teamcli.exec.commands import BackgroundStatus, Report
from teamcli.team.agent_thread import AgentThread
from teamcli.team.manager import TeammateManager
from teamcli.team.message import COMMAND, Message, MessageType, new_id
from teamcli.team.outbox import Outbox
from teamcli.team.running_agents import RunningAgents
from teamcli.text.escaping import one_line

COMMAND_LENGTH = 200
LINES, CHARACTERS = 20, 2_000
"""Of the end of its output."""


def report_end(team: TeammateManager, name: str, report: Report) -> None:
    """Called in the thread that follows the command."""
    if thread := team.agents.get(name):
        thread.mailbox.late.add(partial(_send, team.outbox, thread, report))


def _send(outbox: Outbox, thread: AgentThread, report: Report) -> None:
    # A program that leaves ends all commands: nobody needs a report.
    if thread.scope.cancelled or (status := report()) is None:
        return
    message = Message(MessageType.RESULT, COMMAND + status.id, thread.name, _text(status), time.time(), new_id())
    try:
        outbox.post(message)
    except TeamcliError as e:
        outbox.warn(thread.name, f"The end of {status.id} could not be reported: {e}")


def report_hook(agents: RunningAgents, outbox: Outbox, name: str, text: str) -> bool:
    """What a hook says that nobody waited for, as mail from a command. False if the agent has no mail."""
    if agents.get(name) is None:
        return False
    try:
        outbox.post(Message(MessageType.RESULT, f"{COMMAND}hook", name, text, time.time(), new_id()))
    except TeamcliError as e:
        outbox.warn(name, f"What a hook says could not be reported: {e}")
    return True


def _text(status: BackgroundStatus) -> str:
    from teamcli.tools.bash_output import describe_state  # late: most runs have no background commands

    state = (
        f"Your background command {status.id} (`{one_line(status.command, COMMAND_LENGTH)}`) {describe_state(status)}"
    )
    lines = status.new_output.splitlines()[-LINES:]
    end = "\n".join(lines)[-CHARACTERS:]
    if not end:
        return f"{state}, without new output."
    cut = "The end of its new output" if len(end) < len(status.new_output) else "Its new output"
    return f"{state}. {cut}:\n{end}"
