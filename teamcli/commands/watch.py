"""`/watch`: the screen shows one agent."""

from __future__ import annotations

from teamcli.commands.base import ArgumentKind, CommandResult, Group, Watch, command
from teamcli.errors import UsageError
from teamcli.session.session import Session
from teamcli.team.message import LEAD, find_name


@command("watch", usage="[NAME]", arguments=(ArgumentKind.ANY_AGENT,), group=Group.TEAM)
def watch(session: Session, arguments: str) -> CommandResult:
    """Show what NAME does, as it happens, or the lead again.

    The screen shows its last 200 steps, then its text as it streams, its calls, its mail and its tasks. Lines that you
    type go to NAME. Questions of all agents still appear. Esc returns to the lead, and shows what happened meanwhile.
    Shift-Down and Shift-Up turn to the next and the previous teammate.
    From another terminal: teamcli watch NAME
    """
    wanted = arguments.removeprefix("@") or LEAD
    subagents = [each.id for each in session.subagents.snapshots()] if session.subagents else []
    names = [LEAD, *session.team.roster.names(), *subagents]
    if (name := find_name(wanted, names)) is not None:
        return Watch(name)
    raise UsageError(f"there is nobody called '{wanted}' to watch (there are: {', '.join(names)})")
