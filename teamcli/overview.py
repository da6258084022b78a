"""The team at one moment, as a table for people and as an object for programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from teamcli.files import Json
from teamcli.plain import one_line
from teamcli.team.message import LEAD
from teamcli.team.requests import Kind, Request
from teamcli.team.roster import Member

TITLES = ("NAME", "ROLE", "STATUS", "SINCE", "UNREAD", "CALLS", "COST", "")
ROLE_LIMIT, NOTE_LIMIT, PLAN_LIMIT = 24, 100, 80
HOW_TO_ANSWER = "Answer a plan at the prompt: /approve ID, or /reject ID WHY. /approve alone shows it whole."


class LeadState(NamedTuple):
    status: str
    since: float | None = None
    turns: int | None = None
    """Model calls of this run; None where nobody can know."""
    cost_usd: float | None = None


class Overview(NamedTuple):
    lead: LeadState
    members: tuple[Member, ...]
    requests: tuple[Request, ...]
    """Those that stand open."""
    unread: Mapping[str, int]

    def to_json(self) -> Json:
        unread = self.unread
        return {
            "lead": {**self.lead._asdict(), "unread": unread.get(LEAD, 0)},
            "members": [{**member.to_dict(), "unread": unread.get(member.name, 0)} for member in self.members],
            "requests": [request.to_dict() for request in self.requests],
        }

    def to_text(self, now: float) -> str:
        rows = [TITLES, self._lead_row(now), *(self._row(member, now) for member in self.members)]
        parts = [table(rows)]
        if not self.members:
            parts.append("No teammates yet.")
        if self.requests:
            parts.append("\n".join(["Waiting for an answer:", *(_request_line(r, now) for r in self.requests)]))
        if any(request.kind is Kind.PLAN for request in self.requests):
            parts.append(HOW_TO_ANSWER)
        return "\n".join(parts)

    def _lead_row(self, now: float) -> tuple[str, ...]:
        lead = self.lead
        since = "" if lead.since is None else age(now - lead.since)
        calls, cost = ("", "") if lead.turns is None else (str(lead.turns), _dollars(lead.cost_usd))
        return (LEAD, "", lead.status, since, str(self.unread.get(LEAD, 0)), calls, cost, "")

    def _row(self, member: Member, now: float) -> tuple[str, ...]:
        return (
            member.name,
            one_line(member.role, ROLE_LIMIT),
            member.status,
            age(now - member.since),
            str(self.unread.get(member.name, 0)),
            str(member.turns),
            _dollars(member.cost_usd),
            one_line("; ".join(_notes(member)), NOTE_LIMIT),
        )


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells, each column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def age(seconds: float) -> str:
    """How long something has been so, in the largest unit that fits."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def _notes(member: Member) -> Iterable[str]:
    if member.interrupted:
        yield "interrupted"
    if member.paused:
        yield "paused"
    if member.waiting_for:
        yield f"waiting for {member.waiting_for}"
    elif member.plan and not member.plan_approved and member.is_active:
        yield "needs an approved plan"
    if member.error:
        yield f"error: {member.error}"


def _request_line(request: Request, now: float) -> str:
    ago = f"{age(now - request.created)} ago"
    if request.kind is Kind.PLAN:
        return f"  {request.id}  plan of {request.teammate} ({ago}): {one_line(request.text, PLAN_LIMIT)}"
    return f"  {request.id}  {request.asker} asked {request.teammate} to shut down ({ago})"


def _dollars(cost: float | None) -> str:
    return "unknown" if cost is None else f"${cost:.4f}"
