"""What the team file does to a roster: who joins, who changes, who returns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from teamcli.config.team_file import PlannedMember, TeamFile
from teamcli.team.bring_up import bring_up
from teamcli.team.roster import Member, Roster, Status, read_team
from teamcli.team.roster_store import RosterFile

ALICE = PlannedMember("alice", "coder", tools=("bash",), cwd="src", prompt="be brief", budget_usd=2.0)


@pytest.fixture
def roster(tmp_path: Path) -> Roster:
    return Roster(RosterFile(tmp_path / "config.json"))


def bring(roster: Roster, *members: PlannedMember, name: str = "", brings_back: bool = False) -> dict[str, str]:
    return dict(bring_up(roster, TeamFile(name, members), lambda planned: {}, brings_back))


def add(roster: Roster, **fields: Any) -> Member:
    known = {"role": "coder", "status": Status.IDLE, "tools": ("bash",), "cwd": "src", "prompt": "be brief"}
    return roster.add(Member("alice", **{**known, **fields}))


def test_a_missing_member_joins_idle_with_all_its_terms(roster: Roster) -> None:
    assert bring(roster, ALICE) == {"alice": "joined"}
    alice = roster.get("alice")
    assert (alice.status, alice.role, alice.tools, alice.cwd) == (Status.IDLE, "coder", ("bash",), "src")
    assert (alice.prompt, alice.budget, alice.incarnation) == ("be brief", {"usd": 2.0}, 1)


def test_it_starts_over_before_it_is_in_the_roster(roster: Roster) -> None:
    known: list[tuple[str, Member | None]] = []

    def begin(planned: PlannedMember) -> dict[str, object]:
        known.append((planned.name, roster.find(planned.name)))
        return {}

    bring_up(roster, TeamFile("", (ALICE,)), begin, False)
    assert known == [("alice", None)]


def test_bringing_up_twice_changes_nothing(roster: Roster, tmp_path: Path) -> None:
    bring(roster, ALICE)
    before = (tmp_path / "config.json").read_bytes()
    assert bring(roster, ALICE) == {"alice": "unchanged"}
    assert (tmp_path / "config.json").read_bytes() == before


def test_the_name_of_the_team_is_in_the_file_of_the_roster(roster: Roster, tmp_path: Path) -> None:
    bring(roster, name="shop")
    assert roster.team_name == "shop"
    assert read_team(tmp_path / "config.json").name == "shop"


def test_a_changed_member_takes_the_new_terms(roster: Roster) -> None:
    add(roster, role="tester", model="old", budget={"usd": 2.0})
    assert bring(roster, ALICE) == {"alice": "takes the new role, model with its next piece of work"}
    assert (roster.get("alice").role, roster.get("alice").model) == ("coder", "")


@pytest.mark.parametrize("stopped", ["interrupted", "paused"])
def test_a_member_with_open_work_keeps_its_terms_until_that_is_done(roster: Roster, stopped: str) -> None:
    add(roster, role="tester", **{stopped: True})
    assert "role" in bring(roster, ALICE)["alice"]
    assert roster.get("alice").role == "tester"


@pytest.mark.parametrize(("had_checkout", "planned"), [(False, True), (True, False)])
def test_a_member_that_was_rebuilt_from_its_files_takes_the_terms_at_once_and_works_in_a_worktree(
    roster: Roster, tmp_path: Path, had_checkout: bool, planned: bool
) -> None:
    (tmp_path / "transcripts").mkdir()
    (tmp_path / "transcripts/alice.jsonl").touch()
    (tmp_path / "worktrees").mkdir()
    if had_checkout:
        (tmp_path / "worktrees/alice.json").touch()
    roster.recover(tmp_path / "transcripts", tmp_path / "inbox")
    bring(roster, ALICE._replace(worktree=planned))
    alice = roster.get("alice")
    assert (alice.role, alice.tools, alice.worktree) == ("coder", ("bash",), True)


def test_a_new_budget_applies_at_once_and_keeps_other_bounds(roster: Roster) -> None:
    add(roster, budget={"usd": 1.0, "calls": 5}, interrupted=True)
    assert bring(roster, ALICE) == {"alice": "takes the new budget"}
    assert roster.get("alice").budget == {"usd": 2.0, "calls": 5}


def test_without_a_budget_in_the_file_the_present_one_stays(roster: Roster) -> None:
    add(roster, budget={"usd": 1.0})
    assert bring(roster, ALICE._replace(budget_usd=None)) == {"alice": "unchanged"}
    assert roster.get("alice").budget == {"usd": 1.0}


def test_members_that_are_not_in_the_file_stay(roster: Roster) -> None:
    add(roster)
    assert bring(roster, PlannedMember("bob", "tester")) == {"bob": "joined"}
    assert roster.names() == ("alice", "bob")


def test_a_name_that_differs_in_case_is_the_same_member(roster: Roster) -> None:
    add(roster, budget={"usd": 2.0})
    assert bring(roster, ALICE._replace(name="Alice")) == {"alice": "unchanged"}


def test_a_member_that_was_shut_down_stays_down_at_a_plain_start(roster: Roster) -> None:
    add(roster, status=Status.SHUTDOWN)
    assert bring(roster, ALICE) == {"alice": "shut down"}
    assert roster.get("alice").status is Status.SHUTDOWN


def test_up_brings_it_back_idle_as_a_new_incarnation(roster: Roster) -> None:
    add(roster, status=Status.SHUTDOWN, turns=3, used={"calls": 3}, budget={"usd": 1.0})
    assert bring(roster, ALICE, brings_back=True) == {"alice": "brought back"}
    alice = roster.get("alice")
    assert (alice.status, alice.incarnation, alice.turns) == (Status.IDLE, 2, 0)
    assert (alice.used, alice.budget) == ({"calls": 3}, {"usd": 2.0})
