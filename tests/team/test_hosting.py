"""How free members are shared out among the hosts of a team."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from teamcli.team.hosting import shared_out


class Host(NamedTuple):
    name: str
    members: int = 0
    slots: int = 8
    is_alive: bool = True
    has_lead: bool = False


def test_members_are_shared_out_equally_and_in_the_same_way_everywhere() -> None:
    hosts = [Host("one"), Host("two"), Host("three", members=2), Host("home", has_lead=True)]
    names = [f"mate{number}" for number in range(7)]
    shared = shared_out(names, hosts)
    assert Counter(shared.values()) == {"one": 3, "two": 3, "three": 1}
    assert shared_out(reversed(names), hosts[::-1]) == shared


def test_the_host_of_the_lead_gets_what_no_other_host_has_room_for() -> None:
    hosts = [Host("one", members=7), Host("home", members=7, has_lead=True)]
    assert shared_out(["alice", "bob", "carol"], hosts) == {"alice": "one", "bob": "home"}
