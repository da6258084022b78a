"""The team right now, as a table for people and as JSON for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from teamcli.storage.files import Json
from teamcli.team.message import LEAD
from teamcli.team.requests import Kind, Request
from teamcli.team.roster import Member, Status
from teamcli.team.roster_file import ANY_HOST, TEAM_NAME
from teamcli.text.counting import counted
from teamcli.text.escaping import one_line
from teamcli.text.table import Cell, Column, Style, Table

if TYPE_CHECKING:
    from teamcli.subagents.ledger import Waiting

COLUMNS = (
    Column("NAME", "name"),
    Column("ROLE", shrinks=True),
    Column("STATUS"),
    Column("SINCE", "dim", right=True, may_go=True),
    Column("UNREAD", right=True),
    Column("CALLS", right=True, may_go=True),
    Column("COST", right=True, may_go=True),
    Column("", "warn", goes_below=True),
)
STATUS_STYLES: Mapping[str, Style] = {Status.WORKING: "good", Status.SPAWNING: "warn", Status.SHUTDOWN: "dim"}
ROLE_LIMIT, NOTE_LIMIT, PLAN_LIMIT = 24, 300, 80
_CENTURY_SECONDS = 36_525 * 86_400.0
NO_TEAMMATES = "No teammates yet. Ask the lead to hire some."
HOW_TO_ANSWER = "Answer a plan at the prompt: /approve ID, or /reject ID WHY. /approve alone shows it in full."


class LeadStatus(NamedTuple):
    status: str
    since: float | None = None
    turns: int | None = None
    """Model calls of this run. Like the fields below, only the running program knows this; None in another shell."""
    cost_usd: float | None = None
    waiting_for: str = ""
    waiting_since: float = 0.0
    limit: str = ""
    """The limit at which it stopped."""


class HostState(NamedTuple):
    """A host of a team in a database."""

    name: str
    is_alive: bool
    members: int
    """How many it runs."""
    silent_seconds: float = 0.0
    """How long nothing was heard of it, if that is longer than usual."""
    slots: int = 0
    """How many it runs at most."""


class Overview(NamedTuple):
    lead: LeadStatus
    members: tuple[Member, ...]
    requests: tuple[Request, ...]
    """The open ones."""
    unread: Mapping[str, int]
    subagents: tuple[Waiting, ...] = ()
    """Those that wait for the user."""
    team_name: str = TEAM_NAME
    hosts: Mapping[str, str] | None = None
    """By agent, the living host that runs it, or nothing. None if the team is on this machine alone."""
    host_states: tuple[HostState, ...] = ()

    def to_json(self) -> Json:
        lead = self.lead
        state = {name: getattr(lead, name) for name in ("status", "since", "turns", "cost_usd")}
        report = {
            "lead": {**state, "unread": self.unread.get(LEAD, 0)},
            "members": [{**member.to_dict(), "unread": self.unread.get(member.name, 0)} for member in self.members],
            "requests": [request.to_dict() for request in self.requests],
            "subagents": [each._asdict() for each in self.subagents],
        }
        if self.hosts is None:
            return report
        return {**report, "hosts": [each._asdict() for each in self.host_states], "running_on": dict(self.hosts)}

    def to_table(self, now: float) -> Table:
        rows = (self._lead_row(now), *(self._member_row(member, now) for member in self.members))
        notes = [] if self.members else [NO_TEAMMATES]
        waiting = [_request_line(request, now) for request in self.requests]
        for each in self.subagents:
            what = one_line(f"sub-agent of {each.parent}: {each.waiting_for}", NOTE_LIMIT)
            waiting.append(f"  {one_line(each.id, 20)}  {what}")
        if waiting:
            notes += ["Waiting for an answer:", *waiting]
        if any(request.kind is Kind.PLAN for request in self.requests):
            notes.append(HOW_TO_ANSWER)
        title = "" if self.team_name == TEAM_NAME else f"Team: {one_line(self.team_name, NOTE_LIMIT)}"
        if self.hosts is None:
            return Table(title, COLUMNS, rows, tuple(notes))
        notes += map(_host_line, self.host_states)
        hosts = [
            one_line(self.hosts.get(LEAD, ""), 32),
            *(self._host_of(member, self.hosts) for member in self.members),
        ]
        with_hosts = [(row[0], host, *row[1:]) for host, row in zip(hosts, rows, strict=True)]
        return Table(title, (COLUMNS[0], Column("HOST"), *COLUMNS[1:]), tuple(with_hosts), tuple(notes))

    def _host_of(self, member: Member, hosts: Mapping[str, str]) -> str | Cell:
        """The host that runs it, or last did. One without a host of its own is where the lead is."""
        if not member.is_active:
            return ""
        if running := hosts.get(member.name):
            return one_line(running, 32)
        if not member.host:
            return one_line(hosts.get(LEAD, ""), 32)
        wanted = one_line(member.host, 32)
        if there := next((each for each in self.host_states if each.is_alive and each.name == member.host), None):
            return Cell(f"{wanted} (full)", "warn") if there.members >= there.slots else wanted
        if member.runs_on:
            return Cell(f"{one_line(member.runs_on, 32)} (gone)", "bad")
        return "" if member.host == ANY_HOST else Cell(f"{wanted} (not there)", "warn")

    def _lead_row(self, now: float) -> tuple[str | Cell, ...]:
        lead = self.lead
        since = "" if lead.since is None else age(now - lead.since)
        calls, cost = ("", "") if lead.turns is None else (str(lead.turns), dollars(lead.cost_usd))
        limit = f"paused: {lead.limit}" if lead.limit else ""
        note = one_line(_waiting(lead.waiting_for, lead.waiting_since, now) or limit, NOTE_LIMIT)
        return (LEAD, "", _status(lead.status), since, self._unread(LEAD), calls, cost, note)

    def _member_row(self, member: Member, now: float) -> tuple[str | Cell, ...]:
        style: Style = "bad" if member.error else "warn" if member.waiting_for or member.stuck_since else "dim"
        return (
            member.name,
            one_line(member.role, ROLE_LIMIT),
            _status(member.status),
            age(now - member.since),
            self._unread(member.name),
            str(member.turns),
            dollars(member.cost_usd),
            Cell(one_line("; ".join(_notes(member, now)), NOTE_LIMIT), style),
        )

    def _unread(self, name: str) -> Cell:
        count = self.unread.get(name, 0)
        return Cell(str(count), "warn" if count else "dim")


def age(seconds: float) -> str:
    """A duration in the largest unit that fits."""
    if seconds > _CENTURY_SECONDS:  # any program may have written the timestamp
        return "long"
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def dollars(cost: float | None) -> str:
    return "unknown" if cost is None else f"${cost:.4f}"


def _status(status: str) -> Cell:
    return Cell(status, STATUS_STYLES.get(status, ""))


def _waiting(what: str, since: float, now: float) -> str:
    """The duration comes first, because `what` may be long and is cut."""
    return f"{age(now - since)} waiting for {what}" if what and since else f"waiting for {what}" if what else ""


def _notes(member: Member, now: float) -> Iterator[str]:
    if member.branch:
        yield f"on {member.branch}"
    if member.stuck_since:
        yield f"stuck: no progress for {age(now - member.stuck_since)}"
    if member.interrupted:
        yield "interrupted"
    if member.paused:
        yield f"paused: {member.limit}" if member.limit else "paused"
    if member.waiting_for:
        yield _waiting(member.waiting_for, member.waiting_since, now)
    elif member.plan and not member.plan_approved and member.is_active:
        yield "needs an approved plan"
    # A limit is also recorded as an error, and is shown above.
    if member.error and member.error != member.limit:
        yield f"error: {member.error}"


def _host_line(host: HostState) -> str:
    state = f"runs {counted(host.members, 'member')}" if host.is_alive else "not running"
    silent = f"; no sign of life for {age(host.silent_seconds)}" if host.silent_seconds else ""
    return f"Host {one_line(host.name, 64)}: {state}{silent}"


def _request_line(request: Request, now: float) -> str:
    ago = f"{age(now - request.created)} ago"
    if request.kind is Kind.PLAN:
        return f"  {request.id}  plan of {request.teammate} ({ago}): {one_line(request.text, PLAN_LIMIT)}"
    return f"  {request.id}  {request.asker} asked {request.teammate} to shut down ({ago})"
