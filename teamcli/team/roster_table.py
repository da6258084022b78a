"""The members and requests of a team: in memory for readers that never wait, and in a store for everyone else.

`saved` blocks are in the store at their end, or undone. `follow` writes what has changed in memory, as well as it can.
`refresh` takes over what other processes have changed, where the store has any.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

from teamcli.errors import StateError
from teamcli.team.requests import SHUTDOWN_SECONDS, Request, Requests
from teamcli.team.roster_file import Member, TeamConfig
from teamcli.team.roster_merge import merged
from teamcli.team.roster_store import RosterStore

COUNTER_SECONDS = 0.5
"""The least time between two writes that only change counters, which every model call does."""
COUNTERS = frozenset({"turns", "cost_usd", "used"})


class _Memory(NamedTuple):
    """What the table holds at one moment."""

    team: TeamConfig
    members: dict[str, Member]
    requests: dict[str, Request]
    revision: int


class RosterTable:
    def __init__(
        self,
        store: RosterStore,
        on_change: Callable[[Member], None],
        on_problem: Callable[[str], None],
        clock: Callable[[], float] = time.time,
        counter_seconds: float = COUNTER_SECONDS,
        shutdown_seconds: float = SHUTDOWN_SECONDS,
    ) -> None:
        """Load the store; see `Roster` for the arguments.

        Raises: StateError
        """
        self._store = store
        self._on_change = on_change
        self._on_problem = on_problem
        self._clock = clock
        self._counter_seconds = counter_seconds
        self.lock = threading.RLock()
        """Guards the memory."""
        self._writing = threading.RLock()  # guards the store; taken before `lock`, never while holding it
        self._revision = self._written = 0
        self._next_counter_write = 0.0
        self._tried = 0  # the revision of the last write, successful or not
        self._changed: deque[tuple[int, Member]] = deque()  # not yet reported, with their revisions
        self._announcing = threading.Lock()
        self._is_saving = False
        self._reported = ""
        self._closed = False
        self._stored = self._team = team = store.load()
        self.is_incomplete = team.is_missing or bool(team.problems)
        """Whether members may be missing from the store."""
        self.members = {member.name.casefold(): member for member in team.members}
        """By name without regard to case. Replaced and never modified, since readers hold no lock."""
        self.requests = Requests(self.saved, clock, shutdown_seconds)
        """The protocol requests, kept in the same store."""
        self.requests.load(team.requests)

    @property
    def team_name(self) -> str:
        return self._team.name

    def rename(self, name: str) -> None:
        """The caller saves it."""
        self._team = self._team._replace(name=name)

    @property
    def counters_are_due(self) -> bool:
        """Whether the last write is long enough ago for one that only changes counters."""
        return time.monotonic() >= self._next_counter_write

    def put_all(self, members: Iterable[Member], is_counting: bool = False) -> list[Member]:
        """Add or replace members. The caller holds the lock."""
        table, put = dict(self.members), []
        for member in members:
            before = table.get(member.name.casefold())
            if before and member.waiting_for != before.waiting_for:
                member = member._replace(waiting_since=self._clock() if member.waiting_for else 0.0)
            table[member.name.casefold()] = member
            put.append(member)
            self._revision += 1
            if not is_counting:
                self._changed.append((self._revision, member))
        self.members = table
        return put

    def remove(self, member: Member) -> None:
        """The caller holds the lock."""
        self.members = {key: other for key, other in self.members.items() if other is not member}

    def touch(self) -> None:
        """Have the next `follow` write, even if nothing has changed."""
        with self.lock:
            self._revision += 1

    def close(self) -> None:
        """Write pending changes. Later ones are not written, since the store may have another owner then."""
        if self._store.is_by_row:  # counters may have been left out
            self._next_counter_write = 0.0
            self.touch()
        self.follow()
        with self._writing:
            self._closed = True

    @contextmanager
    def saved(self) -> Iterator[None]:
        """A block whose changes are in the store at its end, or undone. Inside another one it is part of that."""
        with self._writing:
            if not self._is_saving:
                self._take_news()  # so that what is checked inside is not old
            with self.lock:
                if self._is_saving:
                    yield
                    return
                self._is_saving = True
                before = self._memory()
                try:
                    if self._closed:
                        raise StateError(f"{self._store.name} is closed: teamcli is exiting")
                    yield
                    self._revision += 1
                except BaseException:  # also KeyboardInterrupt: memory must not be ahead of the store
                    self._undo(before, self._memory())
                    raise
                finally:
                    self._is_saving = False
                after = self._memory()
            # Without `lock`: every model call of every teammate counts under it, and must not wait for the disk.
            self._save(lambda: self._undo(before, after), _changed_keys(before, after))
        self.announce()

    def _memory(self) -> _Memory:
        requests = {request.id: request for request in self.requests.all()}
        return _Memory(self._team, self.members, requests, self._revision)

    def _undo(self, before: _Memory, after: _Memory) -> None:
        """Take back what a block has changed, and keep what others have changed since."""
        with self.lock:
            now = self._memory()
            self._team = before.team
            self.members = _taken_back(before.members, after.members, now.members, _without_change)
            requests = _taken_back(before.requests, after.requests, now.requests, lambda *, now, **_: now)
            self.requests.load(requests.values())
            kept = [entry for entry in self._changed if not before.revision < entry[0] <= after.revision]
            self._changed = deque(kept)

    def follow(self) -> None:
        """Write changed statuses. One write covers all changes that were made until then."""
        problem, wanted = "", self._revision
        with self._writing:
            try:
                # Another thread may have written them meanwhile. Later changes, which every model call makes, do not
                # matter here: each thread writes its own, and counters can wait.
                if self._written < wanted:
                    self._save()
            except StateError as e:  # the status is already true in this process, so this cannot fail the caller
                problem = str(e)
            is_news = problem != self._reported
            self._reported = problem
        self.announce()
        if problem and is_news:
            self._on_problem(f"{problem}; the team keeps working, and the file is updated as soon as it can be written")

    def refresh(self, topics: Collection[str] = ()) -> None:
        """Take over and announce what other processes have changed; with topics, as of the store, only of these.

        Raises: StateError
        """
        with self._writing:
            self._take_news(topics)
        self.announce()

    def is_current(self) -> bool:
        """Whether `refresh` would change nothing.

        Raises: StateError
        """
        with self._writing:
            return self._closed or self._store.is_current()

    def _take_news(self, topics: Collection[str] = ()) -> None:
        """The caller holds `_writing`."""
        known = self._stored
        if not self._closed and (theirs := self._store.fresh(known, topics)) is not None:
            self._stored = theirs
            self._take_over(known, theirs)

    def _take_over(self, base: TeamConfig, theirs: TeamConfig) -> None:
        """Change in memory what others have changed since `base`. It is announced, and not written again."""
        with self.lock:
            now = merged(base, self._config(), theirs)
            before, self.members = self.members, {member.name.casefold(): member for member in now.members}
            self._team = now
            self.requests.load(now.requests)
            for key, member in self.members.items():
                was = before.get(key)
                if was is not member and (was is None or member.changed_from(was) - COUNTERS):
                    self._changed.append((0, member))

    def _config(self) -> TeamConfig:
        return self._team._replace(members=tuple(self.members.values()), requests=self.requests.all())

    def _due(self) -> TeamConfig:
        """What to write now. If members are written one by one, those whose counters alone have changed can wait."""
        now = self._config()
        if not self._store.is_by_row or self.counters_are_due:
            return now
        stored = {member.name: member for member in self._stored.members}
        members = []
        for member in now.members:
            before = stored.get(member.name, member)
            members.append(member if member is before or member.changed_from(before) - COUNTERS else before)
        return now._replace(members=tuple(members))

    def _save(self, undo: Callable[[], None] = lambda: None, must: Collection[str] = ()) -> None:
        """The caller holds `_writing`. `undo` is called if the write fails, before anything of it can be announced."""
        with self.lock:
            revision = self._revision
            wanted = None if self._closed or revision == self._written else self._due()
        try:
            if wanted is not None:
                # Before the write: if it fails, the next model call does not try again at once.
                self._next_counter_write = time.monotonic() + self._counter_seconds
                self._stored = self._store.save(self._stored, wanted, must)
                self._written = revision
                if self._stored is not wanted:
                    self._take_over(wanted, self._stored)
        except BaseException:
            undo()
            raise
        finally:
            self._tried = revision

    def announce(self) -> None:
        """Report each change once, in order. If another thread is already reporting, leave the rest to that one:
        waiting for it could deadlock with the locks of a callback."""
        while self._has_news() and self._announcing.acquire(blocking=False):
            try:
                while member := self._next_news():
                    self._on_change(member)
            finally:
                self._announcing.release()

    def _has_news(self) -> bool:
        with self.lock:
            return bool(self._changed) and self._changed[0][0] <= self._tried

    def _next_news(self) -> Member | None:
        with self.lock:
            return self._changed.popleft()[1] if self._has_news() else None


EntryT = TypeVar("EntryT", Member, Request)


def _changed_keys(before: _Memory, after: _Memory) -> set[str]:
    """The members and requests that differ."""
    members = {key for key, member in after.members.items() if before.members.get(key) is not member}
    requests = {id for id, request in after.requests.items() if before.requests.get(id) is not request}
    return members | requests | (before.members.keys() - after.members.keys())


def _taken_back(
    before: Mapping[str, EntryT], after: Mapping[str, EntryT], now: Mapping[str, EntryT], merge: Callable[..., EntryT]
) -> dict[str, EntryT]:
    """`now` without what changed from `before` to `after`. `merge` decides about an entry that changed again since."""
    if now == after:  # nobody else was here
        return dict(before)
    undone = dict(now)
    for key in before.keys() | after.keys():
        was, became, is_now = before.get(key), after.get(key), now.get(key)
        if was is became:
            continue
        if was is None:
            undone.pop(key, None)
        else:
            undone[key] = was if is_now is became else merge(was=was, became=became, now=is_now)
    return undone


def _without_change(was: Member, became: Member, now: Member) -> Member:
    return now._replace(**{name: getattr(was, name) for name in became.changed_from(was)})
