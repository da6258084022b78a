"""Where the members of a team on several hosts run, in the words of the roster and of `/team`."""

from __future__ import annotations

from typing import Any

import pytest

from teamcli.commands.reports.team import HostState, LeadStatus, Overview
from teamcli.team.manager import describe_member
from teamcli.team.roster import Member, Status
from teamcli.text.table import Cell


def member(**fields: Any) -> Member:
    return Member("alice", "coder", Status.IDLE, **fields)


@pytest.mark.parametrize(
    ("fields", "holders", "words"),
    [
        ({}, {}, "  alice (coder): idle"),
        ({"host": "any", "runs_on": "box"}, {"alice": "box"}, "  alice (coder): idle (on box)"),
        ({"host": "any"}, {}, "  alice (coder): idle (no host runs it yet: it is for any)"),
        (
            {"host": "box", "runs_on": "box"},
            {},
            "  alice (coder): idle (on box, which is not running: any other host continues its work)",
        ),
    ],
)
def test_a_model_learns_where_a_member_runs(fields: dict[str, Any], holders: dict[str, str], words: str) -> None:
    assert describe_member(member(**fields), holders) == words


@pytest.mark.parametrize(
    ("fields", "hosts", "shown"),
    [
        ({}, {"lead": "laptop"}, "laptop"),
        ({"host": "box", "runs_on": "box"}, {"lead": "laptop", "alice": "box"}, "box"),
        ({"host": "box", "runs_on": "box"}, {"lead": "laptop"}, Cell("box (gone)", "bad")),
        ({"host": "box", "runs_on": "box"}, {"lead": "laptop", "alice": ""}, Cell("box (gone)", "bad")),
        ({"host": "any"}, {"lead": "laptop"}, ""),
        ({"host": "box"}, {"lead": "laptop"}, Cell("box (not there)", "warn")),
        ({"host": "busy"}, {"lead": "laptop"}, Cell("busy (full)", "warn")),
        ({"host": "free"}, {"lead": "laptop"}, "free"),
    ],
)
def test_the_table_says_if_the_host_of_a_member_is_gone(
    fields: dict[str, Any], hosts: dict[str, str], shown: str | Cell
) -> None:
    states = (HostState("box", False, 0), HostState("busy", True, 2, slots=2), HostState("free", True, 1, slots=2))
    overview = Overview(LeadStatus("idle"), (member(**fields),), (), {}, hosts=hosts, host_states=states)
    table = overview.to_table(0.0)
    assert table.rows[1][1] == shown
    assert "Host box: not running" in table.notes
