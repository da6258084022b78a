"""Slash commands about the team: who is in it, its mail and timeline, starting and stopping. None asks a model."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from contextlib import closing

from teamcli.cancel import CancelScope
from teamcli.commands.base import Group, Job, Kind, Shown, Table, command
from teamcli.commands.reports.inbox import count_unread, inbox_of, mail_table, whole_text
from teamcli.commands.reports.log import TimelineReader, last_lead_turn, timeline_table
from teamcli.commands.reports.subagents import NO_SUBAGENTS, steps_of, subagent_table
from teamcli.commands.reports.team import LeadState, Overview
from teamcli.errors import UsageError
from teamcli.session.session import LEAD, Session
from teamcli.team.message import USER
from teamcli.team.requests import Kind as RequestKind
from teamcli.team.requests import Request
from teamcli.team.roster import Member

LOG_LINES = 20
INBOX_LINES = 50


@command("team", group=Group.TEAM)
def team(session: Session, arguments: str) -> Table:
    """Show the lead, its teammates, and who waits for what.

    SINCE is how long the status has been so; UNREAD counts messages not taken up yet; CALLS are model calls.
    The last column says what holds somebody back: a permission question with its command, a plan that waits for a
    review, a message that it waits for, a pause, an interruption, an error.
    The same from another shell: teamcli team
    """
    roster = session.team.roster
    unread = {name: count_unread(inbox_of(session, name)) for name in (LEAD, *roster.names())}
    waiting = session.subagents.waiting() if session.subagents else ()
    overview = Overview(_lead_state(session), roster.members(), roster.requests.standing(), unread, waiting)
    return overview.to_table(time.time())


@command("inbox", usage="[NAME] [N]", arguments=(Kind.AGENT,), group=Group.TEAM)
def inbox(session: Session, arguments: str) -> Shown:
    """Show messages to the lead or NAME, or message N whole.

    Looking takes nothing out: what is unread stays unread until the agent takes it up. The newest is at the end.
    /inbox            what has come to the lead
    /inbox alice      what has come to alice
    /inbox alice 3    her third message, all of it
    Each inbox is a file, .team/inbox/NAME.jsonl, one message a line; any program may append to it.
    """
    words = arguments.split()
    number = words.pop() if words and words[-1].isdecimal() else ""
    name = _addressee(session, words[0] if words else LEAD)
    if len(words) > 1:
        raise UsageError(f"'{words[1]}' is no number: /inbox [NAME] [N]")
    mails = inbox_of(session, name)
    if not number:
        return mail_table(name, mails, time.time(), last=INBOX_LINES)
    if (found := next((mail for mail in mails if str(mail.number) == number), None)) is None:
        raise UsageError(f"there is no message {number} for {name}: it has {len(mails)}")
    return whole_text(found)


@command("send", usage="NAME TEXT", arguments=(Kind.ANYBODY, Kind.TEXT), group=Group.TALK)
def send(session: Session, arguments: str) -> str:
    """Send a message to a teammate; it wakes and acts on it.

    The same as @NAME TEXT. A teammate that works reads it between two steps, a resting or paused one wakes. What it
    answers is shown to you, and the lead reads it with its next turn.
    """
    name, text = _split(session, arguments)
    if not text:
        raise UsageError(f"there is no text for {name}: /send NAME TEXT")
    if session.subagents and session.subagents.owns(name):
        return session.subagents.send(name, text)
    return session.say(name, text)


@command("stop", usage="NAME", arguments=(Kind.ANYBODY,), group=Group.TEAM)
def stop(session: Session, arguments: str) -> str:
    """End what a teammate (or the lead) is doing.

    It keeps its memory: /resume NAME or a message lets it go on where it was. A sub-agent, named by its id, is gone.
    """
    name, _ = _split(session, arguments)
    if session.subagents and session.subagents.owns(name):
        return f"Stopped {name}" if session.subagents.cancel_one(name) else f"{name} has ended already"
    if name.casefold() == LEAD:
        return "Stopped the lead" if session.interrupt() else "The lead is not working"
    return session.team.stop(name)


@command("shutdown", usage="NAME [WHY]", arguments=(Kind.TEAMMATE, Kind.TEXT), group=Group.TEAM)
def shutdown(session: Session, arguments: str) -> str:
    """Ask a teammate to shut down; an idle one does at once.

    A working one answers when it can, and may refuse. Say it again to stop it at once; without an answer it is stopped
    after 60 s. Mail that it has not read goes back to the senders.
    Its name can be used again, for a new teammate with an empty memory. /forget NAME removes it.
    """
    name, reason = _split(session, arguments)
    return session.team.request_shutdown(USER, name, reason)


@command("forget", usage="NAME", arguments=(Kind.TEAMMATE,), group=Group.TEAM)
def forget(session: Session, arguments: str) -> str:
    """Take a teammate that is shut down out of the team."""
    name, _ = _split(session, arguments)
    name = session.team.roster.get(name).name
    forgotten = session.team.forget(name)
    session.budgets.close(name)
    return forgotten


@command("pause", usage="[NAME]", arguments=(Kind.TEAMMATE,), group=Group.TEAM)
def pause(session: Session, arguments: str) -> str:
    """Pause a teammate, or all.

    What it does ends, and mail does not wake it before /resume or a message of yours.
    """
    return _for_each(session, arguments, session.team.pause, lambda member: not member.paused)


@command("resume", usage="[NAME]", arguments=(Kind.TEAMMATE,), group=Group.TEAM)
def resume(session: Session, arguments: str) -> str:
    """Let NAME, or all who are paused or interrupted, go on."""
    return _for_each(session, arguments, session.team.resume, lambda member: member.paused or member.interrupted)


@command("wait", group=Group.TEAM)
def wait(session: Session, arguments: str) -> Job:
    """Wait until nobody works; Ctrl-C ends only the waiting."""

    def until_quiet(cancel: CancelScope) -> str:
        session.team.wait_for_the_busy(cancel)
        cancel.check()
        waiters = [f"{name} waits for a message" for name in session.team.waiters()]
        return "\n".join(["Nobody works any more.", *waiters, *session.team.waiting()])

    busy = ", ".join(session.team.busy())
    return Job(until_quiet, f"Waiting for {busy}; Ctrl-C ends the waiting." if busy else "")


@command("log", usage="[N]", group=Group.LOOK)
def log(session: Session, arguments: str) -> Table:
    """Show the last N events of the timeline (20).

    Everything that happened here, in this run and before: spawns, messages, tool calls with their outcome, model calls
    with their cost, refusals, errors. The same from another shell, as it happens: teamcli log -f
    """
    last = _number(arguments, "/log [N]") if arguments else LOG_LINES
    with closing(TimelineReader(session.state.events)) as events:
        return timeline_table(events.read(), last, time.time())


@command("agents", usage="[ID]", arguments=(Kind.SUBAGENT,), group=Group.LOOK)
def agents(session: Session, arguments: str) -> Shown:
    """Show the sub-agents, or ID with its last steps.

    A sub-agent does one job for the agent that started it, and is gone. /stop ID ends one, /send ID TEXT tells one that
    runs something. All that it did stands in .team/transcripts/subagents/ID.jsonl.
    """
    manager = session.subagents
    if manager is None:
        return NO_SUBAGENTS
    if arguments:
        return steps_of(manager.snapshot(arguments.strip().removeprefix("@")), time.time())
    return subagent_table(manager.snapshots(), time.time())


@command("approve", usage="[ID] [WORDS]", arguments=(Kind.PLAN, Kind.TEXT), group=Group.TEAM)
def approve(session: Session, arguments: str) -> str:
    """Approve a plan; alone, show those that wait.

    The id, or the teammate's name. Until then it can neither run commands nor change files.
    """
    if not arguments:
        return _plans(session.team.roster.requests.standing(kind=RequestKind.PLAN))
    wanted, _, feedback = arguments.partition(" ")
    return session.team.review_plan(USER, _plan_id(session, wanted), True, feedback.strip())


@command("reject", usage="ID [FEEDBACK]", arguments=(Kind.PLAN, Kind.TEXT), group=Group.TEAM)
def reject(session: Session, arguments: str) -> str:
    """Reject a teammate's plan, and say what should differ."""
    wanted, _, feedback = arguments.partition(" ")
    return session.team.review_plan(USER, _plan_id(session, wanted), False, feedback.strip())


def _lead_state(session: Session) -> LeadState:
    lead, meter = session.lead, session.lead.agent.meter
    turn = last_lead_turn(session.state.events)
    status = "idle" if lead.is_at_rest else "working"
    since = turn.at if turn and meter.turns else None
    team = session.team
    return LeadState(status, since, meter.turns, meter.cost_usd, team.lead_waits_for, team.lead_waits_since, lead.limit)


def _addressee(session: Session, name: str) -> str:
    """The exact name of the lead or a teammate."""
    name = name.removeprefix("@")
    return LEAD if name.casefold() == LEAD else session.team.roster.get(name).name


def _number(text: str, usage: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,8}", text):
        raise UsageError(f"N must be a whole number from 1 up, not '{text}': {usage}")
    return int(text)


def _split(session: Session, arguments: str) -> tuple[str, str]:
    """A name, and what stands behind it."""
    name, _, rest = arguments.partition(" ")
    if not name:
        raise UsageError(f"say whom: {_names(session)}")
    return name.removeprefix("@"), rest.strip()


def _for_each(session: Session, arguments: str, act: Callable[[str], str], is_meant: Callable[[Member], bool]) -> str:
    """Do it to the one that is named, else to all to whom it makes a difference."""
    if arguments:
        return act(_split(session, arguments)[0])
    members = [member for member in session.team.roster.members() if member.is_active and is_meant(member)]
    return "\n".join(act(member.name) for member in members) or f"That would change nothing: {_names(session)}"


def _names(session: Session) -> str:
    names = session.team.names()
    return f"there are: {', '.join(names)}" if names else "there is nobody in the team"


def _plan_id(session: Session, wanted: str) -> str:
    """The id itself, or that of the plan of a teammate with this name."""
    if not wanted:
        raise UsageError("say which plan: /team lists them with their ids")
    plans = session.team.roster.requests.standing(kind=RequestKind.PLAN)
    return next((plan.id for plan in plans if plan.concerns(wanted)), wanted)


def _plans(plans: Iterable[Request]) -> str:
    shown = [f"{plan.id}: the plan of {plan.teammate}\n{plan.text}" for plan in plans]
    return "\n\n".join(shown) or "No plan waits for an answer."
