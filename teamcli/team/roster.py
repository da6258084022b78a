"""The roster: who is in the team and how each teammate stands, in `config.json`.

One owner, one lock, replaced atomically: anyone may read the file at any moment. Who is in the team and which requests
stand is on disk before a call returns, or the call fails and changes nothing. A status is first of all what is true in
this process: a full disk does not stop a teammate from resting, it is told and the file follows with the next write.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from teamcli.errors import IllegalTransition, StateError, TeamError, UnknownTeammate
from teamcli.storage.files import cannot, write_atomic
from teamcli.team.message import LEAD, check_name
from teamcli.team.requests import SHUTDOWN_SECONDS, Kind, Request, Requests
from teamcli.team.team_file import (
    TRANSITIONS,
    Member,
    Status,
    Team,
    keep_aside,
    parse_team,
    read_file,
    read_team,
)

__all__ = ["Member", "Roster", "Status", "Team", "read_team"]

PLAN_REVIEW = "plan review"
"""What a teammate waits for whose plan is open."""
UNKNOWN_ROLE = "unknown"
"""Of a teammate that was rebuilt from its files."""
COUNTER_SECONDS = 0.5
"""Counters alone are written no more often than this; they change with every model call."""
_COUNTERS = {"turns", "cost_usd", "used"}


class Roster:
    """The team in `config.json`. Reading waits for nobody; changes are made one after the other."""

    def __init__(
        self,
        path: Path,
        on_change: Callable[[Member], None] = lambda member: None,
        on_problem: Callable[[str], None] = lambda problem: None,
        clock: Callable[[], float] = time.time,
        counter_seconds: float = COUNTER_SECONDS,
        shutdown_seconds: float = SHUTDOWN_SECONDS,
    ) -> None:
        """Load the file. One that is damaged is kept beside it, `problem` says so, and what can be used is.

        `on_change` gets each teammate that was added or changed (but for its counters), in the order of the changes,
        when the file has it; no lock is held. `on_problem` is told when a status cannot be written.

        Raises: StateError
        """
        self._path = path
        self._on_change = on_change
        self._on_problem = on_problem
        self._clock = clock
        self._counter_seconds = counter_seconds
        self._shutdown_seconds = shutdown_seconds
        self._lock = threading.RLock()  # what is in memory
        self._writing = threading.RLock()  # the file; taken before the other one, never inside it
        self._revision = self._written = 0
        self._next_counter_write = 0.0
        self._tried = 0  # the revision that the last write, good or bad, was about
        self._changed: deque[tuple[int, Member]] = deque()
        self._announcing = threading.Lock()
        self._is_kept = False
        self._told = ""
        self._closed = False
        self._load()

    def _load(self) -> None:
        data = read_file(self._path)
        team = parse_team(self._path, data)
        self.problem = ""
        """What was wrong with the file, in a sentence for the user."""
        self.needs_recovery = team.is_missing or bool(team.problems)
        if data is not None and team.problems:
            aside = keep_aside(self._path, data)
            self.problem = f"{self._path} was damaged ({'; '.join(team.problems)}); it is kept as {aside.name}"
        self._team = team
        self._members = {member.name.casefold(): member for member in team.members}
        self.requests = Requests(self._kept, self._clock, self._shutdown_seconds)
        """The protocol requests, kept in the same file."""
        self.requests.load(team.requests)

    def members(self) -> tuple[Member, ...]:
        return tuple(self._members.values())

    def names(self, active_only: bool = False) -> tuple[str, ...]:
        return tuple(member.name for member in self.members() if member.is_active or not active_only)

    def find(self, name: str) -> Member | None:
        return self._members.get(name.casefold())

    def get(self, name: str, active_only: bool = False) -> Member:
        """The teammate of that name, however it is capitalised.

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
        """Raises: TeamError for a name that is taken or that nobody may have; StateError."""
        check_name(member.name)
        with self._kept():
            if known := self.find(member.name):
                raise TeamError(f"there is a teammate '{known.name}' already")
            self.requests.drop_here(member.name)
            member = self._put(replace(member, since=member.since or self._clock()))
        self._announce()
        return member

    def reincarnate(self, member: Member) -> Member:
        """Put `member` in the place of the shut-down one of its name, as its next incarnation; old requests are void.

        Raises: UnknownTeammate, IllegalTransition, StateError
        """
        with self._kept():
            earlier = self.get(member.name)
            moved = self._moved(earlier, Status.SPAWNING, {})
            self.requests.void_here(member.name)
            kept = {each: getattr(earlier, each) for each in ("name", "budget", "used", "unknown")}
            fresh = replace(member, status=moved.status, incarnation=moved.incarnation, **kept)
            member = self._put(replace(fresh, since=member.since or moved.since))
        self._announce()
        return member

    def forget(self, name: str) -> Member:
        """Take a shut-down teammate out of the team.

        Raises: UnknownTeammate, IllegalTransition, StateError
        """
        with self._kept():
            member = self.get(name)
            if member.is_active:
                raise IllegalTransition(f"'{member.name}' is currently {member.status}; shut it down first")
            self._members = {key: other for key, other in self._members.items() if other is not member}
            self.requests.drop_here(member.name)
            return member

    def transition(self, name: str, to: Status, /, **fields: Any) -> Member:
        """Change a status, and what goes with it unless `fields` says otherwise.

        To work is to leave errors, interruption and pause behind; shutdown and spawn void all requests; a spawn after a
        shutdown is a new incarnation that starts from nothing.

        Raises: UnknownTeammate, IllegalTransition
        """
        with self._lock:
            moved = self._put(self._moved(self.get(name), to, fields))
            if to in (Status.SHUTDOWN, Status.SPAWNING):
                self.requests.void_here(name)
        self._follow()
        return moved

    def reassign(self, name: str, /, **terms: Any) -> Member:
        """A new piece of work for an idle teammate, on these terms. A plan, approved or not, was for the old one.

        Raises: UnknownTeammate, IllegalTransition
        """
        with self._lock:
            self.requests.void_here(name, Kind.PLAN)
            moved = self._put(self._moved(self.get(name), Status.WORKING, {"plan_approved": False, **terms}))
        self._follow()
        return moved

    def update(self, name: str, /, **fields: Any) -> Member:
        """Change anything but the status.

        Raises: UnknownTeammate
        """
        if fields.keys() & {"name", "status"}:
            raise ValueError("a status changes by transition, a name never")
        with self._lock:
            member = self.get(name)
            updated = replace(member, **fields)
            if updated == member:
                return member
            is_counting = fields.keys() <= _COUNTERS
            updated = self._put(updated, is_counting)
        if not is_counting or time.monotonic() >= self._next_counter_write:
            self._follow()
        return updated

    def count(
        self, name: str, turns: int = 0, cost_usd: float | None = 0.0, used: Mapping[str, Any] | None = None
    ) -> Member:
        """Add to the counters, from any thread, and set what was used in all, where that is given. A cost that is not
        known makes the sum unknown.

        Raises: UnknownTeammate
        """
        with self._lock:
            member = self.get(name)
            is_known = member.cost_usd is not None and cost_usd is not None
            cost = (member.cost_usd or 0.0) + (cost_usd or 0.0) if is_known else None
            used = member.used if used is None else used
            counted = replace(member, turns=member.turns + turns, cost_usd=cost, used=used)
            self._put(counted, is_counting=True)
        if time.monotonic() >= self._next_counter_write:
            self._follow()
        return counted

    def settle(self) -> list[Member]:
        """At start, before any teammate runs: who was at work when the program ended is idle, and was interrupted."""
        with self._lock:
            self._put_all(
                replace(member, waiting_for=waits_for)
                for member in self.members()
                if member.waiting_for != (waits_for := self._waits_for(member.name))
            )
            settled = self._put_all(
                self._moved(member, Status.IDLE, {"interrupted": True})
                for member in self.members()
                if member.status in (Status.WORKING, Status.SPAWNING)
            )
        self._follow()
        return settled

    def submit_plan(self, name: str, plan: str) -> Request:
        """Open the plan's review, close the gate, and say what the teammate waits for: one change.

        Raises: UnknownTeammate, StateError
        """
        with self._kept():
            member = self.get(name)
            request = self.requests.open_plan(member.name, member.incarnation, plan)
            self._put(replace(member, plan_approved=False, waiting_for=PLAN_REVIEW))
        self._announce()
        return request

    def review_plan(self, request_id: str, by: str, approve: bool, feedback: str = "") -> Request:
        """Answer a plan, and open or close the gate with it: one change.

        Raises: TeamError, StateError
        """
        with self._kept():
            request = self.requests.answer(request_id, by, approve, feedback)
            if request.kind is not Kind.PLAN:
                raise TeamError(f"{request.id} is no plan but a {request.kind} request")
            self._put(replace(self.get(request.teammate), plan_approved=approve, waiting_for=""))
        self._announce()
        return request

    def recover(self, transcripts: Path, inboxes: Path) -> list[str]:
        """Rebuild those who are missing in the file from the files they left, and say what was done.

        Raises: StateError
        """
        if not self.needs_recovery:
            return []
        found = {name.casefold(): name for directory in (inboxes, transcripts) for name in _names_in(directory)}
        missing = [name for key, name in sorted(found.items()) if key not in self._members]
        if missing or self.problem:
            self._add_rebuilt([self._rebuilt(name, transcripts) for name in missing])
        self.needs_recovery = False
        return [
            f"'{name}' was rebuilt from its files; its role, model and tools are not known: spawn it again to set them"
            for name in missing
        ]

    def put_back(self) -> None:
        """Write the file again: somebody has deleted it."""
        with self._lock:
            self._revision += 1
        self._follow()

    def close(self) -> None:
        """Write what is not yet written. What changes later is not: the file may have another owner then."""
        self._follow()
        with self._writing:
            self._closed = True

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
        return replace(member, status=to, **{**usual, **fields})

    def _waits_for(self, name: str) -> str:
        return PLAN_REVIEW if self.requests.standing(name, Kind.PLAN) else ""

    def _rebuilt(self, name: str, transcripts: Path) -> Member:
        earlier = sum(
            path.name.casefold().startswith(f"{name.casefold()}.") for path in _files(transcripts / "archive")
        )
        return Member(name, UNKNOWN_ROLE, Status.IDLE, incarnation=1 + earlier, interrupted=True, since=self._clock())

    def _add_rebuilt(self, members: list[Member]) -> None:
        with self._kept():
            self._put_all(members)
        self._announce()

    def _put(self, member: Member, is_counting: bool = False) -> Member:
        return self._put_all([member], is_counting)[0]

    def _put_all(self, members: Iterable[Member], is_counting: bool = False) -> list[Member]:
        """Replaces the table, never alters it: readers hold no lock."""
        table, put = dict(self._members), []
        for member in members:
            before = table.get(member.name.casefold())
            if before and member.waiting_for != before.waiting_for:
                member = replace(member, waiting_since=self._clock() if member.waiting_for else 0.0)
            table[member.name.casefold()] = member
            put.append(member)
            self._revision += 1
            if not is_counting:
                self._changed.append((self._revision, member))
        self._members = table
        return put

    @contextmanager
    def _kept(self) -> Iterator[None]:
        """One change that is on disk at its end, or that never was. Inside another one it is a part of that."""
        with self._writing, self._lock:
            if self._is_kept:
                yield
                return
            self._is_kept = True
            before = self._members, self.requests.all(), self._revision
            try:
                if self._closed:
                    raise StateError(f"{self._path} is closed: teamcli is leaving")
                yield
                self._revision += 1
                self._save()
            except BaseException:
                self._undo(*before)
                raise
            finally:
                self._is_kept = False

    def _undo(self, members: dict[str, Member], requests: tuple[Request, ...], revision: int) -> None:
        self._members = members
        self.requests.load(requests)
        while self._changed and self._changed[-1][0] > revision:
            self._changed.pop()

    def _follow(self) -> None:
        """Bring the file up to date with a status. One write serves all who changed something in the meantime."""
        problem = ""
        with self._writing:
            try:
                self._save()
            except StateError as e:
                problem = str(e)
            is_news = problem != self._told
            self._told = problem
        self._announce()
        if problem and is_news:
            self._on_problem(f"{problem}; the team goes on, and the file follows as soon as it can be written")

    def _save(self) -> None:
        """The caller holds the file's lock."""
        with self._lock:
            revision = self._revision
            data = b"" if self._closed or revision == self._written else self._document().encode()
        try:
            if data:
                self._next_counter_write = time.monotonic() + self._counter_seconds
                write_atomic(self._path, data)
                self._written = revision
        finally:
            self._tried = revision

    def _announce(self) -> None:
        """Tell of each change once, in order. Who finds another thread at it leaves the rest to that one: no waiting,
        so that whoever is told may hold and take locks of its own."""
        while self._has_news() and self._announcing.acquire(blocking=False):
            try:
                while member := self._next_news():
                    self._on_change(member)
            finally:
                self._announcing.release()

    def _has_news(self) -> bool:
        with self._lock:
            return bool(self._changed) and self._changed[0][0] <= self._tried

    def _next_news(self) -> Member | None:
        with self._lock:
            return self._changed.popleft()[1] if self._has_news() else None

    def _document(self) -> Team:
        return self._team._replace(members=self.members(), requests=self.requests.all())

    def _who_there_is(self) -> str:
        names = self.names(active_only=True)
        return f"there are: {', '.join(names)}" if names else "there is nobody in the team"


def _names_in(directory: Path) -> Iterator[str]:
    """The teammates that a file in `directory` is of."""
    for path in _files(directory):
        name = path.name.removesuffix(".jsonl")
        if name != path.name and _may_be_a_name(name):
            yield name


def _may_be_a_name(name: str) -> bool:
    try:
        check_name(name)
    except TeamError:
        return False
    return True


def _files(directory: Path) -> list[Path]:
    try:
        return sorted(path for path in directory.iterdir() if path.is_file() and not path.is_symlink())
    except FileNotFoundError:
        return []
    except OSError as e:
        raise StateError(cannot("read", directory, e)) from e
