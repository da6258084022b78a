"""The budgets of a team and of a run on several hosts: each host counts what the members on all hosts have used.

The lead's host says how much that may be, and from where on it counts. What a member has used is in the roster. A host
learns of it after each of the member's calls, so a budget can be exceeded by the calls that run on other hosts.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Any

from psycopg import Cursor

from teamcli.agent.budgets import Budgets, chosen_from, used_from
from teamcli.agent.limits import NO_ALLOWANCE, Used
from teamcli.config.settings import Allowance
from teamcli.store.documents import Documents
from teamcli.store.line_text import decode_object
from teamcli.store.postgres.team_rows import Fence, Team
from teamcli.team.manager import TeammateManager
from teamcli.team.message import LEAD

BUDGETS_TOPIC = "budgets"
_NAME = "budgets"


class SharedBudgets:
    """Used by one thread at a time, except `is_due` and `publish`, which only look at what has been counted."""

    def __init__(self, rows: Team, fence: Fence, team: TeammateManager, budgets: Budgets, has_lead: bool) -> None:
        self._rows = rows
        self._fence = fence
        self._documents = Documents(rows)
        self._team = team
        self._budgets = budgets
        self._has_lead = has_lead
        self._used = {member.name: used_from(member.used) for member in team.roster.members()}
        """By each member since it was hired."""
        self._sum = _sum(self._used.values())
        self._before = self._sum
        """By all members before this run."""
        self._lead_used = Used()
        self._published = ""

    def count(self, names: Collection[str] | None = None) -> None:
        """These members have used something, or any. Those that run here are always counted."""
        roster, here = self._team.roster, [mate.name for mate in self._team.agents.teammates]
        wanted = {*here, *(names if names is not None else (*self._used, *roster.names()))}
        members = {name: roster.find(name) for name in wanted}
        session, team = self._budgets.session, self._budgets.team
        with session.changed:  # a call that is booked meanwhile would be lost
            for name, member in members.items():
                own = self._budgets.of(name) if name in here else None
                self._note(name, own.used if own else used_from(member.used) if member else None)
            if self._has_lead:
                lead = self._budgets.of(LEAD)
                self._lead_used = lead.used if lead else Used()
            by_team = self._sum.minus(self._before).at_least(Used())
            team.set_used(by_team)
            session.set_used(by_team.plus(self._lead_used))

    def _note(self, name: str, used: Used | None) -> None:
        before = self._used.pop(name, Used())
        if used is not None:
            self._used[name] = used
            self._sum = self._sum.plus(used).minus(before)
        else:  # it was forgotten, and what it has used in this run still counts
            self._sum, self._before = self._sum.minus(before), self._before.minus(before)

    @property
    def is_limited(self) -> bool:
        """Whether what members on other hosts use counts toward a limit."""
        return not self._budgets.session.allowance == self._budgets.team.allowance == NO_ALLOWANCE

    # On the lead's host

    @property
    def is_due(self) -> bool:
        """Whether other hosts must learn something."""
        return self._doc() != self._published

    def publish(self) -> None:
        """Raises: LeaseLost, StateError"""
        doc = self._doc()

        def put(cursor: Cursor[Any]) -> None:
            self._fence.check(cursor, LEAD)
            self._documents.put(cursor, _NAME, doc)

        self._rows.database.run(put, self._rows.topic(BUDGETS_TOPIC))
        self._published = doc

    def _doc(self) -> str:
        session, team = self._budgets.session.allowance, self._budgets.team.allowance
        lead = self._budgets.of(LEAD)
        # What the lead uses matters to others only if its calls count toward a limit.
        by_lead = lead.used if lead and session != NO_ALLOWANCE else Used()
        shared = {"before": self._before.to_dict(), "lead": by_lead._replace(seconds=0.0).to_dict()}
        return json.dumps({"session": session._asdict(), "team": team._asdict(), **shared})

    # On other hosts

    def follow(self) -> None:
        """Use the limits of the lead's host.

        Raises: StateError
        """
        found = self._rows.database.run(partial(_read, self._documents))
        if not found:
            return
        self._before, self._lead_used = used_from(_part(found, "before")), used_from(_part(found, "lead"))
        self.count()
        is_changed = False
        for budget, name in ((self._budgets.session, "session"), (self._budgets.team, "team")):
            allowance = Allowance(**chosen_from(_part(found, name)))
            if budget.allowance != allowance:
                budget.allow(allowance)
                is_changed = True
        if is_changed:
            self._team.resume_within_limits()


def _sum(all_used: Iterable[Used]) -> Used:
    total = Used()
    for used in all_used:
        total = total.plus(used)
    return total


def _read(documents: Documents, cursor: Cursor[Any]) -> Mapping[str, Any]:
    body = documents.read_one(cursor, _NAME)
    return decode_object(body) if body else {}


def _part(found: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = found.get(name)
    return part if isinstance(part, dict) else {}
