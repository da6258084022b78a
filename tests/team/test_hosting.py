"""How free members are shared out among the hosts of a team, and what becomes of one that is taken away meanwhile."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from teamcli.cancel import CancelScope
from teamcli.team.host_row import HostRow
from teamcli.team.hosting import Hosting, shared_out
from teamcli.team.roster import Member, Roster, Status
from teamcli.team.roster_store import RosterFile
from teamcli.team.running_agents import RunningAgents
from tests.support.waiting import DEADLINE_SECONDS, wait_until


def host(name: str, members: int = 0, has_lead: bool = False) -> HostRow:
    return HostRow(name, True, 8, members, has_lead=has_lead)


def test_members_are_shared_out_equally_and_in_the_same_way_everywhere() -> None:
    hosts = [host("one"), host("two"), host("three", members=2), host("home", has_lead=True)]
    names = [f"mate{number}" for number in range(7)]
    shared = shared_out(names, hosts)
    assert Counter(shared.values()) == {"one": 3, "two": 3, "three": 1}
    assert shared_out(reversed(names), hosts[::-1]) == shared


def test_the_host_of_the_lead_gets_what_no_other_host_has_room_for() -> None:
    hosts = [host("one", members=7), host("home", members=7, has_lead=True)]
    assert shared_out(["alice", "bob", "carol"], hosts) == {"alice": "one", "bob": "home"}


class Mate:
    """As much of a `Teammate` as a host uses."""

    name = "alice"
    agent = None
    is_alive = False

    def __init__(self) -> None:
        self.done: list[str] = []

    def hand_over(self, at_once: bool = False) -> None:
        self.done.append("hand over")

    def join(self) -> None:
        self.done.append("join")

    def dismiss(self) -> None:
        self.done.append("dismiss")


class Leases:
    """A `LeasePort` of a host that is alone."""

    name, slots, is_away = "box", 8, False

    def __init__(self) -> None:
        self.forgotten: list[str] = []
        self.taken: list[str] = []
        self.given_up: list[str] = []

    def take(self, agent: str) -> bool:
        self.taken.append(agent)
        return True

    def give_up(self, agent: str) -> None:
        self.given_up.append(agent)

    def forget(self, agent: str) -> None:
        self.forgotten.append(agent)

    def announce_leave(self) -> None:
        pass

    def free(self) -> set[str]:
        return {"alice"} - set(self.taken)

    def hosts(self) -> tuple[()]:
        return ()


@pytest.fixture
def roster(tmp_path: Path) -> Roster:
    roster = Roster(RosterFile(tmp_path / "config.json"))
    roster.add(Member("alice", "coder", Status.IDLE, host="box"))
    return roster


def test_a_member_that_is_lost_while_it_is_brought_here_does_not_stay(roster: Roster) -> None:
    agents, leases, mate, cancel = RunningAgents(), Leases(), Mate(), CancelScope()
    is_coming, may_come = threading.Event(), threading.Event()

    def take_over(*arguments: object) -> None:
        is_coming.set()
        assert may_come.wait(DEADLINE_SECONDS)
        agents.add(mate)  # type: ignore[arg-type]

    outbox = SimpleNamespace(warn=lambda *_: None)
    protocols = SimpleNamespace(restore=lambda name: None)
    team: Any = SimpleNamespace(agents=agents, roster=roster, outbox=outbox, take_over=take_over, protocols=protocols)
    hosting = Hosting(team, leases, cancel, False, lambda name: None)
    hosting.start()
    assert is_coming.wait(DEADLINE_SECONDS)
    hosting.lost(["alice"])
    may_come.set()
    wait_until(lambda: leases.forgotten == ["alice"])
    assert not hosting.runs("alice")
    assert mate.done == ["hand over", "join", "dismiss"]
    cancel.cancel()
