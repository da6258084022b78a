"""Who waits for the disk when several threads change the roster, and what a failed write takes back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from teamcli.errors import StateError
from teamcli.team import roster_store as module
from teamcli.team.roster import Roster
from teamcli.team.roster_file import Member, Status, read_team
from teamcli.team.roster_store import RosterFile
from tests.support.waiting import wait_until
from tests.team.test_roster import in_threads

PATIENCE_SECONDS = 30
During = Callable[[], None]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config.json"


@pytest.fixture
def roster(path: Path) -> Roster:
    roster = Roster(RosterFile(path), counter_seconds=float("inf"))
    roster.add(Member("bob", "coder", Status.IDLE))
    return roster


@pytest.fixture
def during_write(monkeypatch: pytest.MonkeyPatch) -> Callable[[During], list[bytes]]:
    """Calls a function in the middle of each write; the list is what was written."""

    def install(during: During) -> list[bytes]:
        written: list[bytes] = []
        write = module.write_atomic

        def slow_write(path: Path, data: bytes) -> None:
            written.append(data)
            during()
            write(path, data)

        monkeypatch.setattr(module, "write_atomic", slow_write)
        return written

    return install


def in_another_thread(act: Callable[[], object]) -> None:
    thread = threading.Thread(target=act)
    thread.start()
    thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive(), "it waits for the disk"


def test_counting_does_not_wait_for_a_spawn_that_is_being_written(
    roster: Roster, during_write: Callable[[During], list[bytes]]
) -> None:
    during_write(lambda: in_another_thread(lambda: roster.count("bob", turns=1)))
    roster.add(Member("alice", "coder"))
    assert roster.get("bob").turns == 1


def test_a_spawn_that_cannot_be_written_takes_back_only_itself(
    roster: Roster, during_write: Callable[[During], list[bytes]]
) -> None:
    def fail() -> None:
        in_another_thread(lambda: roster.count("bob", turns=1))
        raise StateError("the disk is full")

    during_write(fail)
    with pytest.raises(StateError):
        roster.add(Member("alice", "coder"))
    assert {member.name: member.turns for member in roster.members()} == {"bob": 1}


def test_a_plan_that_cannot_be_written_leaves_what_the_teammate_has_used_since(
    roster: Roster, during_write: Callable[[During], list[bytes]]
) -> None:
    def fail() -> None:
        in_another_thread(lambda: roster.count("bob", turns=1))
        raise StateError("the disk is full")

    during_write(fail)
    with pytest.raises(StateError):
        roster.submit_plan("bob", "1. think")
    bob = roster.get("bob")
    assert (bob.turns, bob.waiting_for, roster.requests.all()) == (1, "", ())


def test_a_change_that_was_taken_back_is_never_announced(
    path: Path, during_write: Callable[[During], list[bytes]]
) -> None:
    announced: list[str] = []
    roster = Roster(RosterFile(path), on_change=lambda member: announced.append(member.name))

    def fail() -> None:
        raise StateError("the disk is full")

    during_write(fail)
    with pytest.raises(StateError):
        roster.add(Member("alice", "coder"))
    roster.put_back()
    assert announced == []


def test_one_write_serves_every_status_that_changed_while_another_was_written(
    path: Path, during_write: Callable[[During], list[bytes]]
) -> None:
    roster = Roster(RosterFile(path), counter_seconds=float("inf"))
    names = [f"mate{number}" for number in range(8)]
    for name in names:
        roster.add(Member(name, "coder", Status.IDLE))

    def wait_for_the_others() -> None:
        wait_until(lambda: all(member.status is not Status.IDLE for member in roster.members()), PATIENCE_SECONDS)

    written = during_write(wait_for_the_others)
    in_threads(*(partial(roster.transition, name, Status.WORKING) for name in names))
    assert {member.status for member in read_team(path).members} == {Status.WORKING}
    assert len(written) <= 2
