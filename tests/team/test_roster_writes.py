"""Who waits for the disk when several threads change the roster, and what a failed write takes back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from teamcli.errors import StateError
from teamcli.team.roster import Roster
from teamcli.team.roster_file import Member, Status, TeamConfig, read_team
from teamcli.team.roster_store import RosterStore
from tests.support.waiting import wait_until
from tests.team.roster_stores import stores_in
from tests.team.test_roster import in_threads

PATIENCE_SECONDS = 30
During = Callable[[], None]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config.json"


class SlowStore:
    """A store that calls a function in the middle of each write."""

    def __init__(self, store: RosterStore) -> None:
        self._store = store
        self.during: During = lambda: None
        self.written = 0

    def save(self, before: TeamConfig, after: TeamConfig, must: Collection[str]) -> TeamConfig:
        self.written += 1
        self.during()
        return self._store.save(before, after, must)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@pytest.fixture(params=["files", "postgres"])
def store(request: pytest.FixtureRequest, path: Path) -> Iterator[SlowStore]:
    with stores_in(request.param, path, request) as stores:
        yield SlowStore(stores())


@pytest.fixture
def roster(store: Any) -> Roster:
    roster = Roster(store, counter_seconds=float("inf"))
    roster.add(Member("bob", "coder", Status.IDLE))
    return roster


def in_another_thread(act: Callable[[], object]) -> None:
    thread = threading.Thread(target=act)
    thread.start()
    thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive(), "it waits for the disk"


def test_counting_does_not_wait_for_a_spawn_that_is_being_written(roster: Roster, store: SlowStore) -> None:
    store.during = lambda: in_another_thread(lambda: roster.count("bob", turns=1))
    roster.add(Member("alice", "coder"))
    assert roster.get("bob").turns == 1


def test_a_spawn_that_cannot_be_written_takes_back_only_itself(roster: Roster, store: SlowStore) -> None:
    def fail() -> None:
        in_another_thread(lambda: roster.count("bob", turns=1))
        raise StateError("the disk is full")

    store.during = fail
    with pytest.raises(StateError):
        roster.add(Member("alice", "coder"))
    assert {member.name: member.turns for member in roster.members()} == {"bob": 1}


def test_a_plan_that_cannot_be_written_leaves_what_the_teammate_has_used_since(
    roster: Roster, store: SlowStore
) -> None:
    def fail() -> None:
        in_another_thread(lambda: roster.count("bob", turns=1))
        raise StateError("the disk is full")

    store.during = fail
    with pytest.raises(StateError):
        roster.submit_plan("bob", "1. think")
    bob = roster.get("bob")
    assert (bob.turns, bob.waiting_for, roster.requests.all()) == (1, "", ())


def test_a_change_that_was_taken_back_is_never_announced(path: Path, store: SlowStore) -> None:
    announced: list[str] = []
    roster = Roster(store, on_change=lambda member: announced.append(member.name))

    def fail() -> None:
        raise StateError("the disk is full")

    store.during = fail
    with pytest.raises(StateError):
        roster.add(Member("alice", "coder"))
    roster.put_back()
    assert announced == []


def test_one_write_serves_every_status_that_changed_while_another_was_written(path: Path, store: SlowStore) -> None:
    roster = Roster(store, counter_seconds=float("inf"))
    names = [f"mate{number}" for number in range(8)]
    for name in names:
        roster.add(Member(name, "coder", Status.IDLE))

    def wait_for_the_others() -> None:
        wait_until(lambda: all(member.status is not Status.IDLE for member in roster.members()), PATIENCE_SECONDS)

    store.during, store.written = wait_for_the_others, 0
    in_threads(*(partial(roster.transition, name, Status.WORKING) for name in names))
    assert {member.status for member in read_team(path).members} == {Status.WORKING}
    assert store.written <= 2
