"""Slash commands about the team: who is in it, its mail and timeline, starting and stopping. None asks a model."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import closing

from teamcli.agent.transcript import read_marks
from teamcli.cancel import CancelScope
from teamcli.commands.base import Job, command
from teamcli.errors import UsageError
from teamcli.mail import Mail, count_unread, look_into, mail_text
from teamcli.overview import LeadState, Overview
from teamcli.session import LEAD, Session
from teamcli.team.mailbox import Mailbox
from teamcli.team.message import USER
from teamcli.team.requests import Kind, Request
from teamcli.team.roster import Member, Status
from teamcli.timeline import EventLog, describe, last_lead_turn

LOG_LINES = 20


@command("team")
def team(session: Session, arguments: str) -> str:
    """Show the lead, its teammates, and what waits for an answer."""
    roster, lead = session.team.roster, session.lead
    turn = last_lead_turn(session.state.events)
    meter = lead.agent.meter
    state = LeadState(
        "idle" if lead.is_at_rest else "working", turn.at if turn and meter.turns else None, meter.turns, meter.cost_usd
    )
    unread = {name: count_unread(_mail(session, name)) for name in (LEAD, *roster.names())}
    return Overview(state, roster.members(), roster.requests.standing(), unread).to_text(time.time())


@command("inbox", usage="[NAME]")
def inbox(session: Session, arguments: str) -> str:
    """Show all messages to the lead or a teammate, read and unread; they stay as they are."""
    name = LEAD if arguments.casefold() in ("", LEAD) else session.team.roster.get(arguments).name
    return mail_text(name, _mail(session, name))


@command("send", usage="NAME TEXT")
def send(session: Session, arguments: str) -> str:
    """Send a message to a teammate; it wakes and acts on it."""
    name, text = _split(session, arguments)
    if not text:
        raise UsageError(f"there is no text for {name}: /send NAME TEXT")
    return session.team.say(name, text)


@command("stop", usage="NAME")
def stop(session: Session, arguments: str) -> str:
    """End what a teammate (or the lead) is doing; it keeps its memory."""
    name, _ = _split(session, arguments)
    if name.casefold() == LEAD:
        return "Stopped the lead" if session.interrupt() else "The lead is not working"
    return session.team.stop(name)


@command("shutdown", usage="NAME")
def shutdown(session: Session, arguments: str) -> str:
    """Ask a teammate to shut down: an idle one does so at once, a working one within 60 s."""
    name, reason = _split(session, arguments)
    return session.team.request_shutdown(USER, name, reason)


@command("forget", usage="NAME")
def forget(session: Session, arguments: str) -> str:
    """Take a teammate that is shut down out of the team."""
    name, _ = _split(session, arguments)
    return session.team.forget(name)


@command("pause", usage="[NAME]")
def pause(session: Session, arguments: str) -> str:
    """Pause a teammate, or all."""
    return _for_each(session, arguments, session.team.pause, lambda member: not member.paused)


@command("resume", usage="[NAME]")
def resume(session: Session, arguments: str) -> str:
    """Let a paused or interrupted teammate go on, or all of them."""
    return _for_each(session, arguments, session.team.resume, lambda member: member.paused or member.interrupted)


@command("wait")
def wait(session: Session, arguments: str) -> Job:
    """Wait until nobody works any more; Ctrl-C ends the waiting, not the work."""

    def until_quiet(cancel: CancelScope) -> str:
        session.team.wait_until_quiet(cancel)
        cancel.check()
        return "\n".join(["Nobody works any more.", *session.team.waiting()])

    busy = [
        member.name for member in session.team.roster.members() if member.status in (Status.SPAWNING, Status.WORKING)
    ]
    busy += [] if session.lead.is_at_rest else [LEAD]
    return Job(until_quiet, f"Waiting for {', '.join(busy) or 'nobody'}; Ctrl-C ends the waiting.")


@command("log", usage="[N]")
def log(session: Session, arguments: str) -> str:
    """Show the last N events of the timeline (20)."""
    if arguments and not re.fullmatch(r"[1-9][0-9]{0,8}", arguments):
        raise UsageError(f"N must be a whole number from 1 up, not '{arguments}': /log [N]")
    with closing(EventLog(session.state.events)) as events:
        rows = deque(events.read(), maxlen=int(arguments or LOG_LINES))
    return "\n".join(str(describe(row)) for row in rows) or "Nothing has happened yet."


@command("approve", usage="[ID]")
def approve(session: Session, arguments: str) -> str:
    """Approve a teammate's plan; without ID, show the plans that wait."""
    if not arguments:
        return _plans(session.team.roster.requests.standing(kind=Kind.PLAN))
    wanted, _, feedback = arguments.partition(" ")
    return session.team.review_plan(USER, _plan_id(session, wanted), True, feedback.strip())


@command("reject", usage="ID [FEEDBACK]")
def reject(session: Session, arguments: str) -> str:
    """Reject a teammate's plan, and say what should be different."""
    wanted, _, feedback = arguments.partition(" ")
    return session.team.review_plan(USER, _plan_id(session, wanted), False, feedback.strip())


def _mail(session: Session, name: str) -> list[Mail]:
    bus = session.team.bus
    mailbox = session.team.mailbox(name)
    if mailbox is None:  # shut down: only its transcript knows how far it had read
        mailbox = Mailbox(bus, name, read_marks(session.state.transcripts / f"{name}.jsonl"))
    return look_into(bus, name, mailbox)


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
    plans = session.team.roster.requests.standing(kind=Kind.PLAN)
    return next((plan.id for plan in plans if plan.concerns(wanted)), wanted)


def _plans(plans: Iterable[Request]) -> str:
    shown = [f"{plan.id}: the plan of {plan.teammate}\n{plan.text}" for plan in plans]
    return "\n\n".join(shown) or "No plan waits for an answer."
