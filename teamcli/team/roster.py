"""The roster: who is in the team, and the status of each teammate, in `config.json`.

One process owns the file and replaces it atomically, so anyone may read it at any moment. A change of the members or of
requests is on disk before the call returns, or the call fails and changes nothing. A status first changes in memory: a
full disk does not stop a teammate from going idle. The problem is reported, and the next write includes the change.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from teamcli.errors import IllegalTransition, StateError, TeamError, UnknownTeammate
from teamcli.storage.files import as_state_error, write_atomic
from teamcli.team.message import LEAD, check_name
from teamcli.team.requests import SHUTDOWN_SECONDS, Kind, Request, Requests
from teamcli.team.roster_file import (
    TRANSITIONS,
    Member,
    Status,
    TeamConfig,
    keep_aside,
    parse_team,
    read_file,
    read_team,
)

__all__ = ["Member", "Roster", "Status", "TeamConfig", "read_team"]

PLAN_REVIEW = "plan review"
"""What a teammate with an open plan waits for."""
UNKNOWN_ROLE = "unknown"
"""The role of a teammate that was rebuilt from its files."""
COUNTER_SECONDS = 0.5
"""The least time between two writes that only change counters, which every model call does."""
_COUNTERS = {"turns", "cost_usd", "used"}


class Roster:
    """The team in `config.json`. Reads never wait; changes are made one after the other."""

    def __init__(
        self,
        path: Path,
        on_change: Callable[[Member], None] = lambda member: None,
        on_problem: Callable[[str], None] = lambda problem: None,
        clock: Callable[[], float] = time.time,
        counter_seconds: float = COUNTER_SECONDS,
        shutdown_seconds: float = SHUTDOWN_SECONDS,
    ) -> None:
        """Load the file. A damaged file is copied first, `problem` says so, and its usable parts are used.

        `on_change` gets each teammate that was added or changed (except for its counters), in the order of the changes,
        after the file was written and without a lock. `on_problem` gets a message when a status cannot be written.

        Raises: StateError
        """
        self._path = path
        self._on_change = on_change
        self._on_problem = on_problem
        self._clock = clock
        self._counter_seconds = counter_seconds
        self._shutdown_seconds = shutdown_seconds
        self._lock = threading.RLock()  # guards the memory
        self._writing = threading.RLock()  # guards the file; taken before `_lock`, never while holding it
        self._revision = self._written = 0
        self._next_counter_write = 0.0
        self._tried = 0  # the revision of the last write, successful or not
        self._changed: deque[tuple[int, Member]] = deque()  # not yet reported, with their revisions
        self._announcing = threading.Lock()
        self._is_kept = False
        self._reported = ""
        self._closed = False
        self._load()

    def _load(self) -> None:
        data = read_file(self._path)
        team = parse_team(self._path, data)
        self.problem = ""
        """What was wrong with the file, as a sentence for the user."""
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
        with self._kept():
            if known := self.find(member.name):
                raise TeamError(f"there is a teammate '{known.name}' already")
            self.requests.drop_here(member.name)
            member = self._put(replace(member, since=member.since or self._clock()))
        self._announce()
        return member

    def reincarnate(self, member: Member) -> Member:
        """Replace the shut-down teammate of the same name by `member`, its next incarnation. Old requests are void.

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
        """Remove a shut-down teammate from the team.

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
        """Change a status, and the fields that depend on it unless they are in `fields`.

        Starting to work clears errors, interruption and pause. Shutdown and spawn void all requests. A spawn after a
        shutdown is a new incarnation.

        Raises: UnknownTeammate, IllegalTransition
        """
        with self._lock:
            moved = self._put(self._moved(self.get(name), to, fields))
            if to in (Status.SHUTDOWN, Status.SPAWNING):
                self.requests.void_here(name)
        self._follow()
        return moved

    def reassign(self, name: str, /, **terms: Any) -> Member:
        """Give an idle teammate a new piece of work, on these terms. An earlier plan, approved or not, is void.

        Raises: UnknownTeammate, IllegalTransition
        """
        with self._lock:
            self.requests.void_here(name, Kind.PLAN)
            moved = self._put(self._moved(self.get(name), Status.WORKING, {"plan_approved": False, **terms}))
        self._follow()
        return moved

    def update(self, name: str, /, **fields: Any) -> Member:
        """Change anything except the status.

        Raises: UnknownTeammate
        """
        if fields.keys() & {"name", "status"}:
            raise ValueError("use transition to change a status; a name never changes")
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
        """Add to the counters, from any thread, and set the total that was used, if given. An unknown cost makes the
        sum unknown.

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

    def mark_interrupted(self) -> list[Member]:
        """At start, before any teammate runs: teammates that worked when the program ended become idle, interrupted."""
        with self._lock:
            self._put_all(
                replace(member, waiting_for=waits_for)
                for member in self.members()
                if member.waiting_for != (waits_for := self._waits_for(member.name))
            )
            interrupted = self._put_all(
                self._moved(member, Status.IDLE, {"interrupted": True})
                for member in self.members()
                if member.status in (Status.WORKING, Status.SPAWNING)
            )
        self._follow()
        return interrupted

    def submit_plan(self, name: str, plan: str) -> Request:
        """Open the review of a plan and block changes until it is approved, in one step.

        Raises: UnknownTeammate, StateError
        """
        with self._kept():
            member = self.get(name)
            request = self.requests.open_plan(member.name, member.incarnation, plan)
            self._put(replace(member, plan_approved=False, waiting_for=PLAN_REVIEW))
        self._announce()
        return request

    def review_plan(self, request_id: str, by: str, approve: bool, feedback: str = "") -> Request:
        """Answer a plan, and allow or block changes, in one step.

        Raises: TeamError, StateError
        """
        with self._kept():
            request = self.requests.answer(request_id, by, approve, feedback)
            if request.kind is not Kind.PLAN:
                raise TeamError(f"{request.id} is not a plan but a {request.kind} request")
            self._put(replace(self.get(request.teammate), plan_approved=approve, waiting_for=""))
        self._announce()
        return request

    def recover(self, transcripts: Path, inboxes: Path) -> list[str]:
        """Rebuild teammates that are missing in the file from their inboxes and transcripts. Returns what was done.

        Raises: StateError
        """
        if not self.needs_recovery:
            return []
        found = {name.casefold(): name for directory in (inboxes, transcripts) for name in _names_in(directory)}
        missing = [name for key, name in sorted(found.items()) if key not in self._members]
        if missing or self.problem:
            rebuilt = [self._rebuilt(name, transcripts) for name in missing]
            with self._kept():
                self._put_all(rebuilt)
            self._announce()
        self.needs_recovery = False
        return [
            f"'{name}' was rebuilt from its files; its role, model and tools are unknown: spawn it again to set them"
            for name in missing
        ]

    def put_back(self) -> None:
        """Write the file again after it was deleted."""
        with self._lock:
            self._revision += 1
        self._follow()

    def close(self) -> None:
        """Write pending changes. Later ones are not written, since the file may have another owner then."""
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

    def _put(self, member: Member, is_counting: bool = False) -> Member:
        return self._put_all([member], is_counting)[0]

    def _put_all(self, members: Iterable[Member], is_counting: bool = False) -> list[Member]:
        """Replaces the table and never modifies it, since readers hold no lock."""
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
        """A block whose changes are on disk at its end, or undone. Inside another such block it is a part of that."""
        with self._writing, self._lock:
            if self._is_kept:
                yield
                return
            self._is_kept = True
            before = self._members, self.requests.all(), self._revision
            try:
                if self._closed:
                    raise StateError(f"{self._path} is closed: teamcli is exiting")
                yield
                self._revision += 1
                self._save()
            except BaseException:  # also KeyboardInterrupt: memory must not be ahead of the file
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
        """Write changed statuses to the file. One write covers all changes that were made until then."""
        problem = ""
        with self._writing:
            try:
                self._save()
            except StateError as e:  # the status is already true in this process, so this cannot fail the caller
                problem = str(e)
            is_news = problem != self._reported
            self._reported = problem
        self._announce()
        if problem and is_news:
            self._on_problem(f"{problem}; the team keeps working, and the file is updated as soon as it can be written")

    def _save(self) -> None:
        """The caller holds `_writing`."""
        with self._lock:
            revision = self._revision
            data = b""
            if not self._closed and revision != self._written:
                data = self._team._replace(members=self.members(), requests=self.requests.all()).encode()
        try:
            if data:
                # Before the write: if it fails, the next model call does not try again at once.
                self._next_counter_write = time.monotonic() + self._counter_seconds
                write_atomic(self._path, data)
                self._written = revision
        finally:
            self._tried = revision

    def _announce(self) -> None:
        """Report each change once, in order. If another thread is already reporting, leave the rest to that one:
        waiting for it could deadlock with the locks of a callback."""
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

    def _who_there_is(self) -> str:
        names = self.names(active_only=True)
        return f"there are: {', '.join(names)}" if names else "the team is empty"


def _names_in(directory: Path) -> Iterator[str]:
    """The names of the teammates that have a file in `directory`."""
    for path in _files(directory):
        if path.name.endswith(".jsonl"):
            with suppress(TeamError):
                check_name(path.name.removesuffix(".jsonl"))
                yield path.name.removesuffix(".jsonl")


def _files(directory: Path) -> list[Path]:
    with as_state_error("read", directory):
        try:
            return sorted(path for path in directory.iterdir() if path.is_file() and not path.is_symlink())
        except FileNotFoundError:
            return []
