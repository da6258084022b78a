"""Brings the roster in line with the team file: members that are missing join idle, without a model call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from teamcli.team.roster import Member, Roster, Status
from teamcli.team.roster_recovery import UNKNOWN_ROLE

if TYPE_CHECKING:
    from teamcli.config.team_file import PlannedMember, TeamFile

STANDING_TERMS = ("role", "model", "tools", "plan", "worktree", "claims", "cwd", "prompt")
"""What the file sets anew for a member that exists, from its next piece of work on."""
UNCHANGED, JOINED = "unchanged", "joined"


def bring_up(
    roster: Roster, file: TeamFile, begin: Callable[[PlannedMember], Mapping[str, Any]], brings_back: bool
) -> list[tuple[str, str]]:
    """Returns each member's name with what was done. `begin` gives a member an empty conversation and inbox, and says
    where it runs; `brings_back`: members that were shut down return.

    Raises: StateError
    """
    if file.name:
        roster.rename(file.name)
    return [_bring_up_member(roster, planned, begin, brings_back) for planned in file.members]


def _bring_up_member(
    roster: Roster, planned: PlannedMember, begin: Callable[[PlannedMember], Mapping[str, Any]], brings_back: bool
) -> tuple[str, str]:
    known = roster.find(planned.name)
    name, did = (known.name if known else planned.name), UNCHANGED
    if known is None:
        place = begin(planned)
        roster.add(Member(name, status=Status.IDLE, **{**standing_terms(planned), **place}))
        did = JOINED
    elif not known.is_active and not brings_back:
        return name, "shut down"
    elif not known.is_active:
        place = begin(planned._replace(name=name))
        roster.reincarnate(Member(name, status=Status.IDLE, **{**standing_terms(planned), **place}))
        did = "brought back"
    elif changed := changed_terms(known, planned):
        did = f"takes the new {', '.join(changed)} with its next piece of work"
        if known.role == UNKNOWN_ROLE:  # rebuilt after a crash: its own terms are lost, and its checkout is not
            roster.update(name, **{**changed, "worktree": known.worktree or planned.worktree})
        elif not (known.interrupted or known.paused):  # it has no open work
            roster.update(name, **changed)
    budget = roster.get(name).budget
    if planned.budget_usd is not None and budget.get("usd") != planned.budget_usd:
        # At once: a member that has reached its budget gets no other piece of work.
        roster.update(name, budget={**budget, "usd": planned.budget_usd})
        did = "takes the new budget" if did == UNCHANGED else did
    return name, did


def standing_terms(planned: PlannedMember) -> dict[str, Any]:
    return {term: getattr(planned, term) for term in STANDING_TERMS}


def changed_terms(member: Member, planned: PlannedMember) -> Mapping[str, Any]:
    return {term: value for term, value in standing_terms(planned).items() if value != getattr(member, term)}
