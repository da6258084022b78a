"""The commands about the team: its members, mail and timeline, sub-agents and plans. None of them calls a model."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import closing

from teamcli.cancel import CancelScope
from teamcli.commands.base import ArgumentKind, Choice, CommandResult, Group, Job, Option, Table, command
from teamcli.commands.reports.inbox import count_unread, inbox_of, mail_table, whole_text
from teamcli.commands.reports.log import TimelineReader, last_lead_turn, timeline_table
from teamcli.commands.reports.subagents import NO_SUBAGENTS, steps_of, subagent_table
from teamcli.commands.reports.team import HostState, LeadStatus, Overview
from teamcli.errors import ToolError, UsageError
from teamcli.session.session import Session
from teamcli.team.message import LEAD, USER, find_name
from teamcli.team.requests import Kind as RequestKind
from teamcli.team.roster import Member, Status
from teamcli.worktrees.checkout import checkouts_in

LOG_LINES = 20
INBOX_LINES = 50
PAUSED = "Everyone is paused already."


@command("team", usage="[save]", arguments=(ArgumentKind.TEAM_VERB,), group=Group.TEAM)
def team(session: Session, arguments: str) -> CommandResult:
    """Show the lead, its teammates, and who waits for what.

    SINCE is how long the status has not changed; UNREAD counts messages the agent has not read; CALLS are model calls.
    The last column says what holds an agent up: a permission question with its command, a plan that waits for a review,
    a message that it waits for, a pause, an interruption, an error.
    The same from another shell: teamcli team
    /team save            write the members to .team/team.toml, for everyone who works in this project
    /team save --force    replace what is there, including comments
    """
    if arguments:
        return _save(session, arguments.split())
    lead, meter, manager = session.lead, session.lead.agent.meter, session.team
    manager.roster.refresh()
    turn = last_lead_turn(session.state.events)
    # Without a model call in this run, the last turn in the timeline belongs to an earlier run.
    state = LeadStatus(
        "idle" if lead.is_idle else "working",
        turn.at if turn and meter.turns else None,
        meter.turns,
        meter.cost_usd,
        manager.quiescence.lead_waits_for,
        manager.quiescence.lead_waits_since,
        lead.limit,
    )
    roster = manager.roster
    unread = {name: count_unread(inbox_of(session, name)) for name in (LEAD, *roster.names())}
    waiting = session.subagents.waiting() if session.subagents else ()
    overview = Overview(state, roster.members(), roster.requests.all_open(), unread, waiting, roster.team_name)
    return _with_hosts(session, overview).to_table(time.time())


def _with_hosts(session: Session, overview: Overview) -> Overview:
    host = session.team_host
    if host is None:
        return overview
    states = tuple(HostState(row.name, row.is_alive, row.members, row.silent_seconds, row.slots) for row in host.rows())
    return overview._replace(hosts=host.holders(), host_states=states)


def _save(session: Session, words: list[str]) -> str:
    if words not in (["save"], ["save", "--force"]):
        raise UsageError(f"'{' '.join(words)}' is not something that /team does: /team, or /team save [--force]")
    if not session.has_team_tools:
        raise UsageError("there is no team in this run, so there is nothing to save")
    return session.team.save(replaces="--force" in words)


@command("inbox", usage="[NAME] [N]", arguments=(ArgumentKind.AGENT,), group=Group.TEAM)
def inbox(session: Session, arguments: str) -> CommandResult:
    """Show messages to the lead or NAME, or one in full.

    This consumes nothing: unread messages stay unread until the agent reads them. The newest is at the end.
    /inbox            messages to the lead
    /inbox alice      messages to alice
    /inbox alice 3    her third message, in full
    Each inbox is a file, .team/inbox/NAME.jsonl, one message a line; any program may append to it.
    """
    words = arguments.split()
    # A name begins with a letter, so a number at the end can only be N.
    number = words.pop() if words and words[-1].isdecimal() else ""
    name = session.team.roster.exact_name(words[0].removeprefix("@") if words else LEAD)
    if len(words) > 1:
        raise UsageError(f"'{words[1]}' is not a number: /inbox [NAME] [N]")
    mails = inbox_of(session, name)
    if not number:
        return mail_table(name, mails, time.time(), last=INBOX_LINES)
    if (found := next((mail for mail in mails if str(mail.number) == number), None)) is None:
        raise UsageError(f"there is no message {number} for {name}: it has {len(mails)}")
    return whole_text(found)


@command("send", usage="NAME TEXT", arguments=(ArgumentKind.ANY_AGENT, ArgumentKind.TEXT), group=Group.TALK)
def send(session: Session, arguments: str) -> str:
    """Send a message to a teammate; it wakes and acts on it.

    The same as @NAME TEXT. A working teammate reads it between two steps; an idle or paused one wakes. You see its
    answer, and the lead reads it with its next turn.
    """
    name, text = _split(session, arguments)
    if not text:
        raise UsageError(f"there is no text for {name}: /send NAME TEXT")
    if session.subagents and session.subagents.owns(name):
        return session.subagents.send(name, text)
    return session.say(name, text)


@command("stop", usage="NAME", arguments=(ArgumentKind.ANY_AGENT,), group=Group.TEAM)
def stop(session: Session, arguments: str) -> str:
    """Interrupt a teammate (or the lead).

    It keeps its memory: /resume NAME or a message resumes its work. A sub-agent, named by its id, ends for good.
    """
    name, _ = _split(session, arguments)
    if session.subagents and session.subagents.owns(name):
        return f"Stopped {name}" if session.subagents.cancel_one(name) else f"{name} has ended already"
    if name.casefold() == LEAD:
        return "Stopped the lead" if session.interrupt() else "The lead is not working"
    return session.team.stop(name)


@command("shutdown", usage="NAME [WHY]", arguments=(ArgumentKind.TEAMMATE, ArgumentKind.TEXT), group=Group.TEAM)
def shutdown(session: Session, arguments: str) -> str:
    """Ask a teammate to shut down; an idle one does at once.

    A working one answers when it can, and may refuse. Repeat the command to stop it at once; without an answer it is
    stopped after 60 s. Mail that it has not read goes back to the senders.
    Its name can be used again for a new teammate with an empty memory. /forget NAME removes it.
    """
    name, reason = _split(session, arguments)
    return session.team.protocols.request_shutdown(USER, name, reason)


@command("forget", usage="NAME", arguments=(ArgumentKind.TEAMMATE,), group=Group.TEAM)
def forget(session: Session, arguments: str) -> str:
    """Remove a shut-down teammate from the team."""
    name = session.team.roster.get(_split(session, arguments)[0]).name
    forgotten = session.team.forget(name)
    session.budgets.close(name)  # a new member with this name starts from zero
    return forgotten


@command("discard", usage="NAME", arguments=(ArgumentKind.TEAMMATE,), group=Group.TEAM)
def discard(session: Session, arguments: str) -> CommandResult:
    """Delete a teammate's checkout and branch; asks first.

    Everything that is not merged is lost. A teammate that is idle is shut down first; a working one keeps both.
    If nobody can be asked, use /discard NAME yes.
    """
    wanted, sure = _split(session, arguments)
    checkouts = session.team.checkouts.open()
    known = [each.member for each in checkouts_in(checkouts.directory) if checkouts.find(each.member)]
    known += [each.name for each in session.team.roster.members() if each.remote_branch and each.name not in known]
    name = find_name(wanted, known)
    if name is None:
        raise UsageError(f"'{wanted}' has no checkout; there are: {', '.join(known) or 'none'}")
    member = session.team.roster.find(name)
    if member is not None and member.status in (Status.WORKING, Status.SPAWNING):
        raise UsageError(f"'{name}' is {member.status}: /stop {name} first")

    def choose(answer: str) -> CommandResult:
        if answer != "yes":
            return f"Nothing is deleted; {name} keeps its checkout."
        if member is not None and member.is_active:
            session.team.protocols.request_shutdown(USER, name, "its checkout is discarded")
        # The shutdown removes a checkout that has nothing in it.
        return session.team.checkouts.discard(name) or f"Removed the checkout and branch of '{name}'."

    try:
        state = str(checkouts.status(name))
    except ToolError as e:
        state = f"team/{name}: {e}"
    if sure:
        return choose(sure)
    options = (Option("no", "keep it", is_current=True), Option("yes", f"delete .team/worktrees/{name} and its branch"))
    return Choice(f"Delete this for good? {state}", options, choose)


@command("pause", usage="[NAME]", arguments=(ArgumentKind.TEAMMATE,), group=Group.TEAM)
def pause(session: Session, arguments: str) -> str:
    """Pause a teammate, or all of them.

    It stops working, and only /resume or a message from you wakes it.
    """
    return _for_each(session, arguments, session.team.pause, lambda member: not member.paused) or PAUSED


@command("resume", usage="[NAME]", arguments=(ArgumentKind.TEAMMATE,), group=Group.TEAM)
def resume(session: Session, arguments: str) -> str:
    """Resume NAME, or all who are paused or interrupted."""
    resumed = _for_each(session, arguments, session.team.resume, lambda member: member.paused or member.interrupted)
    return resumed or "No one is paused or interrupted."


@command("wait", group=Group.TEAM)
def wait(session: Session, arguments: str) -> Job:
    """Wait until everyone is idle; Ctrl-C ends the waiting."""

    def until_idle(cancel: CancelScope) -> str:
        session.team.quiescence.wait_for_busy(cancel)
        cancel.check()  # the wait also ends when the user presses Ctrl-C
        waiters = [f"{name} waits for a message" for name in session.team.quiescence.waiters()]
        return "\n".join(["Everyone is idle.", *waiters, *session.team.protocols.open_requests()])

    busy = ", ".join(session.team.quiescence.busy())
    return Job(until_idle, f"Waiting for {busy}; Ctrl-C ends the waiting." if busy else "")


@command("log", usage="[N]", group=Group.REPORTS)
def log(session: Session, arguments: str) -> Table:
    """Show the last N events of the timeline (20).

    Everything that happened here, in this run and before: spawns, messages, tool calls with their outcome, model calls
    with their cost, refusals, errors. The same from another shell, as it happens: teamcli log -f
    """
    if arguments and not re.fullmatch(r"[1-9][0-9]{0,8}", arguments):
        raise UsageError(f"N must be a whole number from 1 up, not '{arguments}': /log [N]")
    with closing(TimelineReader(session.state.events)) as events:
        return timeline_table(events.read(), int(arguments or LOG_LINES), time.time())


@command("agents", usage="[ID]", arguments=(ArgumentKind.SUBAGENT,), group=Group.REPORTS)
def agents(session: Session, arguments: str) -> CommandResult:
    """Show the sub-agents, or ID with its last steps.

    A sub-agent does one job for the agent that started it, then ends. /stop ID ends one, /send ID TEXT sends a message
    to a running one. Its full transcript is .team/transcripts/subagents/ID.jsonl.
    """
    manager = session.subagents
    if manager is None:
        return NO_SUBAGENTS
    if arguments:
        return steps_of(manager.snapshot(arguments.strip().removeprefix("@")), time.time())
    return subagent_table(manager.snapshots(), time.time())


@command("approve", usage="[ID] [WORDS]", arguments=(ArgumentKind.PLAN, ArgumentKind.TEXT), group=Group.TEAM)
def approve(session: Session, arguments: str) -> str:
    """Approve a plan; alone, show those that wait.

    ID is the plan's id, or the teammate's name. Until you approve, it can neither run commands nor change files.
    """
    if arguments:
        return _review(session, arguments, approve=True)
    plans = session.team.roster.requests.all_open(kind=RequestKind.PLAN)
    shown = [f"{plan.id}: the plan of {plan.teammate}\n{plan.text}" for plan in plans]
    return "\n\n".join(shown) or "No plan waits for an answer."


@command("reject", usage="ID [FEEDBACK]", arguments=(ArgumentKind.PLAN, ArgumentKind.TEXT), group=Group.TEAM)
def reject(session: Session, arguments: str) -> str:
    """Reject a teammate's plan, and say what to change."""
    return _review(session, arguments, approve=False)


def _review(session: Session, arguments: str, approve: bool) -> str:
    wanted, _, feedback = arguments.partition(" ")
    if not wanted:
        raise UsageError("say which plan: /team lists them with their ids")
    plans = session.team.roster.requests.all_open(kind=RequestKind.PLAN)
    # An id that does not wait is passed on: the roster says whether it was answered or never existed.
    id = next((plan.id for plan in plans if plan.concerns(wanted)), wanted)
    return session.team.protocols.review_plan(USER, id, approve, feedback.strip())


def _split(session: Session, arguments: str) -> tuple[str, str]:
    """A name and the text after it."""
    name, _, rest = arguments.partition(" ")
    if not name:
        raise UsageError(f"a name is missing: {_names(session)}")
    return name.removeprefix("@"), rest.strip()


def _for_each(session: Session, arguments: str, act: Callable[[str], str], is_meant: Callable[[Member], bool]) -> str:
    """Act on the named teammate, or on all to whom it makes a difference; empty if it makes none."""
    if arguments:
        return act(_split(session, arguments)[0])
    members = [member for member in session.team.roster.members() if member.is_active]
    if not members:
        return f"Nothing to do: {_names(session)}."
    return "\n".join(act(member.name) for member in members if is_meant(member))


def _names(session: Session) -> str:
    names = session.team.names()
    return f"there are: {', '.join(names)}" if names else "there are no teammates"
