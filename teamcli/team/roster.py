"""The roster: who is in the team, and the status of each teammate.

It is kept in a store, usually `config.json`. A change of the members or of requests is in the store before the call
returns, or the call fails and changes nothing. A status first changes in memory: a full disk does not stop a teammate
from going idle. The problem is reported, and the next write includes the change.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from teamcli.errors import IllegalTransition, TeamError, UnknownTeammate
from teamcli.team.message import LEAD, check_name
from teamcli.team.requests import SHUTDOWN_SECONDS, Kind, Request
from teamcli.team.roster_file import TRANSITIONS, Member, Status, TeamConfig, read_team
from teamcli.team.roster_recovery import missing_members
from teamcli.team.roster_store import RosterStore
from teamcli.team.roster_table import COUNTER_SECONDS, COUNTERS, RosterTable

__all__ = ["Member", "Roster", "Status", "TeamConfig", "read_team"]

PLAN_REVIEW = "plan review"
"""What a teammate with an open plan waits for."""


class Roster:
    """Reads never wait; changes are made one after the other."""

    def __init__(
        self,
        store: RosterStore,
        on_change: Callable[[Member], None] = lambda member: None,
        on_problem: Callable[[str], None] = lambda problem: None,
        clock: Callable[[], float] = time.time,
        counter_seconds: float = COUNTER_SECONDS,
        shutdown_seconds: float = SHUTDOWN_SECONDS,
    ) -> None:
        """Load the store. If it is damaged, `problem` says so, and its usable parts are used.

        `on_change` gets each teammate that was added or changed (except for its counters), in the order of the changes,
        after it was written and without a lock. `on_problem` gets a message when a status cannot be written.

        Raises: StateError
        """
        self._table = RosterTable(store, on_change, on_problem, clock, counter_seconds, shutdown_seconds)
        self._clock = clock
        self.problem = store.problem
        """What was wrong with the store, as a sentence for the user."""
        self.needs_recovery = self._table.is_incomplete
        self.requests = self._table.requests
        """The protocol requests, kept in the same store."""

    @property
    def team_name(self) -> str:
        return self._table.team_name

    def rename(self, name: str) -> None:
        """Give the team another name.

        Raises: StateError
        """
        if name != self.team_name:
            with self._table.saved():
                self._table.rename(name)

    def members(self) -> tuple[Member, ...]:
        return tuple(self._table.members.values())

    def names(self, active_only: bool = False) -> tuple[str, ...]:
        return tuple(member.name for member in self.members() if member.is_active or not active_only)

    def find(self, name: str) -> Member | None:
        return self._table.members.get(name.casefold())

    def get(self, name: str, active_only: bool = False) -> Member:
        """The teammate with that name, regardless of case.

        Raises: UnknownTeammate
        """
        member = self.find(name)
        if member is None:
            raise UnknownTeammate(f"there is no teammate {name!r:.80}; {self._who_there_is()}")
        if active_only and not member.is_active:
            raise UnknownTeammate(f"'{member.name}' is shut down; {self._who_there_is()}")
        return member

    def exact_name(self, name: str) -> str:
        """The name of the lead or a teammate as it is spelled.

        Raises: UnknownTeammate
        """
        return LEAD if name.casefold() == LEAD else self.get(name).name

    def add(self, member: Member) -> Member:
        """Raises: TeamError for a name that is taken or not allowed; StateError."""
        check_name(member.name)
        with self._table.saved():
            if known := self.find(member.name):
                raise TeamError(f"there is a teammate '{known.name}' already")
            self.requests.drop_here(member.name)
            member = self._put(member._replace(since=member.since or self._clock()))
        self._table.announce()
        return member

    def reincarnate(self, member: Member) -> Member:
        """Replace the shut-down teammate of the same name by `member`, its next incarnation, which is spawning or idle.
        Old requests are void.

        Raises: UnknownTeammate, IllegalTransition, StateError
        """
        with self._table.saved():
            earlier = self.get(member.name)
            moved = self._moved(earlier, Status.SPAWNING, {})
            self.requests.void_here(member.name)
            # Budgets bound what a teammate uses over all its incarnations.
            kept = {each: getattr(earlier, each) for each in ("name", "budget", "used", "unknown")}
            status = member.status if member.status is Status.IDLE else moved.status
            incarnation = max(member.incarnation, moved.incarnation)
            fresh = member._replace(status=status, incarnation=incarnation, **kept)
            member = self._put(fresh._replace(since=member.since or moved.since))
        self._table.announce()
        return member

    def forget(self, name: str) -> Member:
        """Remove a shut-down teammate from the team.

        Raises: UnknownTeammate, IllegalTransition, StateError
        """
        with self._table.saved():
            member = self.get(name)
            if member.is_active:
                raise IllegalTransition(f"'{member.name}' is currently {member.status}; shut it down first")
            self._table.remove(member)
            self.requests.drop_here(member.name)
            return member

    def transition(self, name: str, to: Status, /, **fields: Any) -> Member:
        """Change a status, and the fields that depend on it unless they are in `fields`.

        Starting to work clears errors, interruption and pause. Shutdown and spawn void all requests. A spawn after a
        shutdown is a new incarnation.

        Raises: UnknownTeammate, IllegalTransition
        """
        with self._table.lock:
            moved = self._put(self._moved(self.get(name), to, fields))
            if to in (Status.SHUTDOWN, Status.SPAWNING):
                self.requests.void_here(name)
        self._table.follow()  # without the lock, under which every model call counts: it must not wait for the disk
        return moved

    def reassign(self, name: str, /, **terms: Any) -> Member:
        """Give an idle teammate a new piece of work, on these terms. An earlier plan, approved or not, is void.

        Raises: UnknownTeammate, IllegalTransition
        """
        with self._table.lock:
            self.requests.void_here(name, Kind.PLAN)
            moved = self._put(self._moved(self.get(name), Status.WORKING, {"plan_approved": False, **terms}))
        self._table.follow()
        return moved

    def update(self, name: str, /, **fields: Any) -> Member:
        """Change anything except the status.

        Raises: UnknownTeammate
        """
        if fields.keys() & {"name", "status"}:
            raise ValueError("use transition to change a status; a name never changes")
        with self._table.lock:
            member = self.get(name)
            updated = member._replace(**fields)
            if updated == member:
                return member
            is_counting = fields.keys() <= COUNTERS
            updated = self._put(updated, is_counting)
        if not is_counting or self._table.counters_are_due:
            self._table.follow()
        return updated

    def count(
        self, name: str, turns: int = 0, cost_usd: float | None = 0.0, used: Mapping[str, Any] | None = None
    ) -> Member:
        """Add to the counters, from any thread, and set the total that was used, if given. An unknown cost makes the
        sum unknown.

        Raises: UnknownTeammate
        """
        with self._table.lock:
            member = self.get(name)
            is_known = member.cost_usd is not None and cost_usd is not None
            cost = (member.cost_usd or 0.0) + (cost_usd or 0.0) if is_known else None
            used = member.used if used is None else used
            counted = member._replace(turns=member.turns + turns, cost_usd=cost, used=used)
            self._put(counted, is_counting=True)
        if self._table.counters_are_due:
            self._table.follow()
        return counted

    def mark_interrupted(self, is_here: Callable[[Member], bool] = lambda member: True) -> list[Member]:
        """At start, before any teammate runs: teammates that worked when the program ended become idle, interrupted.
        Only those that this process runs."""
        with self._table.lock:
            # A question or a wait for mail has ended with the program. The review of a plan has not.
            self._table.put_all(
                member._replace(waiting_for=waits_for)
                for member in self.members()
                if member.waiting_for != (waits_for := self._waits_for(member.name)) and is_here(member)
            )
            interrupted = self._table.put_all(
                self._moved(member, Status.IDLE, {"interrupted": True})
                for member in self.members()
                if member.status in (Status.WORKING, Status.SPAWNING) and is_here(member)
            )
        self._table.follow()
        return interrupted

    def submit_plan(self, name: str, plan: str) -> Request:
        """Open the review of a plan and block changes until it is approved, in one step.

        Raises: UnknownTeammate, StateError
        """
        with self._table.saved():
            member = self.get(name)
            request = self.requests.open_plan(member.name, member.incarnation, plan)
            self._put(member._replace(plan_approved=False, waiting_for=PLAN_REVIEW))
        self._table.announce()
        return request

    def review_plan(self, request_id: str, by: str, approve: bool, feedback: str = "") -> Request:
        """Answer a plan, and allow or block changes, in one step.

        Raises: TeamError, StateError
        """
        with self._table.saved():
            request = self.requests.answer(request_id, by, approve, feedback)
            if request.kind is not Kind.PLAN:
                raise TeamError(f"{request.id} is not a plan but a {request.kind} request")
            self._put(self.get(request.teammate)._replace(plan_approved=approve, waiting_for=""))
        self._table.announce()
        return request

    def recover(self, transcripts: Path, inboxes: Path) -> list[str]:
        """Rebuild teammates that are missing in the file from their inboxes and transcripts. Returns what was done.

        Raises: StateError
        """
        if not self.needs_recovery:
            return []
        missing = missing_members(self._table.members, transcripts, inboxes)
        if missing or self.problem:  # a damaged file is replaced, even if nobody is missing
            with self._table.saved():
                self._table.put_all(member._replace(since=self._clock()) for member in missing)
            self._table.announce()
        self.needs_recovery = False
        return [
            f"'{name}' was rebuilt from its files; its role, model and tools are unknown: spawn it again to set them"
            for name in (member.name for member in missing)
        ]

    def refresh(self, topics: Collection[str] = ()) -> None:
        """Take over what other processes have changed, where the store lets them. With topics, such as `member/alice`
        or `request/req-1`, only these are looked at.

        Raises: StateError
        """
        self._table.refresh(topics)

    def is_current(self) -> bool:
        """Whether `refresh` would change nothing.

        Raises: StateError
        """
        return self._table.is_current()

    def put_back(self) -> None:
        """Write the file again after it was deleted."""
        self._table.touch()
        self._table.follow()

    def close(self) -> None:
        """Write pending changes. Later ones are not written, since the store may have another owner then."""
        self._table.close()

    def _moved(self, member: Member, to: Status, fields: Mapping[str, Any]) -> Member:
        if to not in TRANSITIONS[member.status]:
            raise IllegalTransition(f"'{member.name}' is currently {member.status}; it cannot become {to}")
        usual: dict[str, Any] = {"since": self._clock(), "waiting_for": "", "stuck_since": 0.0}
        match to:
            case Status.IDLE:
                usual |= {"waiting_for": self._waits_for(member.name)}
            case Status.WORKING:
                usual |= {"error": "", "interrupted": False, "paused": False, "limit": ""}
            case Status.SHUTDOWN:
                usual |= {"interrupted": False, "paused": False, "limit": ""}
            case Status.SPAWNING:
                usual |= {"incarnation": member.incarnation + 1, "plan_approved": False, "error": ""}
                usual |= {"turns": 0, "cost_usd": 0.0}
        return member._replace(status=to, **{**usual, **fields})

    def _waits_for(self, name: str) -> str:
        return PLAN_REVIEW if self.requests.all_open(name, Kind.PLAN) else ""

    def _put(self, member: Member, is_counting: bool = False) -> Member:
        return self._table.put_all([member], is_counting)[0]

    def _who_there_is(self) -> str:
        names = self.names(active_only=True)
        return f"there are: {', '.join(names)}" if names else "the team is empty"
