"""The roster: legal changes only, one atomic file that anyone may read, nothing lost when it is damaged."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from teamcli.errors import IllegalTransition, StateError, TeamError, UnknownTeammate
from teamcli.team.requests import Kind, State
from teamcli.team.roster import Roster
from teamcli.team.roster_file import TRANSITIONS, Member, Status, read_team
from teamcli.team.roster_store import RosterFile
from tests.team.roster_stores import Stores, stores_in

SPAWNING, WORKING, IDLE, SHUTDOWN = Status.SPAWNING, Status.WORKING, Status.IDLE, Status.SHUTDOWN
LEGAL = {
    (SPAWNING, WORKING),
    (SPAWNING, IDLE),
    (SPAWNING, SHUTDOWN),
    (WORKING, IDLE),
    (IDLE, WORKING),
    (WORKING, SHUTDOWN),
    (IDLE, SHUTDOWN),
    (SHUTDOWN, SPAWNING),
}
NEVER = float("inf")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config.json"


@pytest.fixture(params=["files", "postgres"])
def store(request: pytest.FixtureRequest, path: Path) -> Iterator[Stores]:
    """Of each engine. In a database, the file is a copy."""
    with stores_in(request.param, path, request) as stores:
        yield stores


@pytest.fixture
def roster(store: Stores) -> Roster:
    return Roster(store())


@pytest.fixture
def file_roster(path: Path) -> Roster:
    return Roster(RosterFile(path))


def on_disk(path: Path) -> dict[str, Any]:
    document = json.loads(path.read_bytes())
    return {member["name"]: member for member in document["members"]}


def member_in(status: Status) -> Member:
    return Member("alice", "coder", status, error="e", interrupted=True, paused=True, waiting_for="w", since=1.0)


def in_threads(*targets: Callable[[], None]) -> None:
    with ThreadPoolExecutor(len(targets)) as pool:
        for future in [pool.submit(target) for target in targets]:
            future.result(60)


# Who is in the team


def test_a_new_team_is_empty_and_makes_no_file(roster: Roster, path: Path) -> None:
    assert roster.members() == ()
    assert roster.problem == ""
    roster.close()
    assert not path.exists()


def test_an_added_teammate_is_in_the_file_at_once_with_the_documented_fields(roster: Roster, path: Path) -> None:
    roster.add(Member("alice", "coder", tools=("bash", "grep"), model="m", plan=True))
    document = json.loads(path.read_bytes())
    assert (document["v"], document["team_name"], document["requests"]) == (1, "default", [])
    [alice] = document["members"]
    assert (alice["name"], alice["role"], alice["status"]) == ("alice", "coder", "spawning")
    assert (alice["tools"], alice["model"], alice["plan"], alice["incarnation"]) == (["bash", "grep"], "m", True, 1)
    assert alice["since"] > 0
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_was_written_is_read_back_the_same(roster: Roster, path: Path, store: Stores) -> None:
    roster.add(Member("alice", "coder – „Ünï“ \n x", tools=(), cost_usd=None, error="no\ttabs", turns=3))
    roster.add(Member("bob", "tester", tools=None, plan=True, plan_approved=True, cost_usd=1.5))
    assert Roster(store()).members() == roster.members() == read_team(path).members


def test_a_role_with_broken_unicode_does_not_damage_the_file(roster: Roster, path: Path) -> None:
    roster.add(Member("alice", "co\ud800der"))
    assert on_disk(path)["alice"]["role"] == "co?der"


def test_names_are_found_in_any_case_and_taken_in_any_case(roster: Roster) -> None:
    alice = roster.add(Member("Alice", "coder"))
    assert roster.get("aLICE") == alice
    with pytest.raises(TeamError, match="there is a teammate 'Alice' already"):
        roster.add(Member("alice", "tester"))
    assert roster.names() == ("Alice",)


@pytest.mark.parametrize("name", ["lead", "USER", "team", "all", "", "1st", "a b", "../x", "x" * 33, "é"])
def test_a_name_that_is_not_allowed_is_refused_and_no_file_is_created(roster: Roster, path: Path, name: str) -> None:
    with pytest.raises(TeamError):
        roster.add(Member(name, "coder"))
    assert not path.exists()


def test_the_error_for_an_unknown_teammate_lists_the_names(roster: Roster) -> None:
    with pytest.raises(UnknownTeammate, match="'zoe'; the team is empty"):
        roster.get("zoe")
    roster.add(Member("alice", "coder", IDLE))
    roster.add(Member("bob", "coder", SHUTDOWN))
    with pytest.raises(UnknownTeammate, match=r"'zoe'; there are: alice$"):
        roster.get("zoe")
    assert roster.get("bob").name == "bob"
    with pytest.raises(UnknownTeammate, match=r"'bob' is shut down; there are: alice$"):
        roster.get("bob", active_only=True)
    assert roster.names() == ("alice", "bob")
    assert roster.names(active_only=True) == ("alice",)


def test_only_a_shut_down_teammate_is_forgotten(roster: Roster, path: Path) -> None:
    roster.add(Member("alice", "coder", IDLE))
    with pytest.raises(IllegalTransition, match="'alice' is currently idle; shut it down first"):
        roster.forget("alice")
    roster.transition("alice", SHUTDOWN)
    assert roster.forget("Alice").name == "alice"
    assert roster.members() == ()
    assert on_disk(path) == {}
    with pytest.raises(UnknownTeammate):
        roster.forget("alice")


# Statuses


@pytest.mark.parametrize(("was", "to"), list(itertools.product(Status, Status)))
def test_only_the_transitions_of_the_table_are_made(roster: Roster, path: Path, was: Status, to: Status) -> None:
    assert (to in TRANSITIONS[was]) == ((was, to) in LEGAL)
    roster.add(member_in(was))
    if (was, to) in LEGAL:
        assert roster.transition("ALICE", to).status is to
        assert on_disk(path)["alice"]["status"] == to.value
    else:
        with pytest.raises(IllegalTransition, match=f"'alice' is currently {was}; it cannot become {to}"):
            roster.transition("alice", to)
        assert roster.get("alice") == member_in(was)
        assert on_disk(path)["alice"]["status"] == was.value


def test_starting_to_work_clears_error_interruption_and_pause(store: Stores) -> None:
    roster = Roster(store(), clock=lambda: 77.0)
    roster.add(member_in(IDLE))
    worker = roster.transition("alice", WORKING)
    assert (worker.error, worker.interrupted, worker.paused, worker.waiting_for, worker.since) == (
        "",
        False,
        False,
        "",
        77.0,
    )
    rester = roster.transition("alice", IDLE, error="it broke", interrupted=True)
    assert (rester.error, rester.interrupted) == ("it broke", True)


def test_an_idle_teammate_with_an_open_plan_waits_for_its_review(roster: Roster) -> None:
    roster.add(Member("alice", "coder", WORKING, plan=True))
    request = roster.submit_plan("alice", "plan")
    assert roster.transition("alice", IDLE).waiting_for == "plan review"
    roster.review_plan(request.id, "lead", True)
    assert roster.get("alice").waiting_for == ""
    roster.transition("alice", WORKING)
    assert roster.transition("alice", IDLE).waiting_for == ""


def test_a_new_incarnation_starts_from_scratch(roster: Roster, path: Path) -> None:
    roster.add(Member("alice", "coder", SHUTDOWN, turns=9, cost_usd=2.0, plan_approved=True, error="e", model="old"))
    fresh = roster.reincarnate(Member("ALICE", "tester", model="new"))
    assert (fresh.name, fresh.role, fresh.status, fresh.incarnation) == ("alice", "tester", SPAWNING, 2)
    assert (fresh.turns, fresh.cost_usd, fresh.plan_approved, fresh.error, fresh.model) == (0, 0.0, False, "", "new")
    assert on_disk(path)["alice"]["incarnation"] == 2
    with pytest.raises(IllegalTransition, match="'alice' is currently spawning"):
        roster.reincarnate(Member("alice", "tester"))
    with pytest.raises(UnknownTeammate):
        roster.reincarnate(Member("bob", "tester"))


def test_a_respawn_by_transition_is_a_new_incarnation_too(roster: Roster) -> None:
    roster.add(Member("alice", "coder", SHUTDOWN, incarnation=4, turns=9, plan_approved=True))
    fresh = roster.transition("alice", SPAWNING, role="tester")
    assert (fresh.incarnation, fresh.turns, fresh.plan_approved, fresh.role) == (5, 0, False, "tester")


def test_an_update_changes_anything_but_status_and_name(roster: Roster, path: Path) -> None:
    roster.add(Member("alice", "coder", IDLE))
    assert roster.update("alice", paused=True, role="tester").paused
    assert (on_disk(path)["alice"]["paused"], on_disk(path)["alice"]["role"]) == (True, "tester")
    for field in ("status", "name"):
        with pytest.raises(ValueError, match="use transition to change a status"):
            roster.update("alice", **{field: "working"})
    with pytest.raises(UnknownTeammate):
        roster.update("bob", paused=True)


def test_of_two_threads_that_wake_a_teammate_at_once_one_succeeds(roster: Roster) -> None:
    roster.add(Member("alice", "coder", IDLE))
    barrier = threading.Barrier(8)
    outcomes: list[str] = []

    def wake() -> None:
        barrier.wait(30)
        try:
            outcomes.append(roster.transition("alice", WORKING).status)
        except IllegalTransition:
            outcomes.append("refused")

    in_threads(*[wake] * 8)
    assert sorted(outcomes) == ["refused"] * 7 + ["working"]


# Being told


def test_each_change_is_reported_in_order_after_it_is_written(path: Path, store: Stores) -> None:
    told: list[tuple[str, str]] = []
    roster = Roster(
        store(), on_change=lambda member: told.append((member.status, on_disk(path)[member.name]["status"]))
    )
    roster.add(Member("alice", "coder"))
    for to in (WORKING, IDLE, SHUTDOWN):
        roster.transition("alice", to)
    roster.reincarnate(Member("alice", "coder"))
    roster.count("alice", turns=1)
    roster.update("alice", turns=5)
    roster.update("alice", paused=True)
    roster.update("alice", paused=True)
    expected = ["spawning", "working", "idle", "shutdown", "spawning", "spawning"]
    assert told == [(status, status) for status in expected]


def test_a_callback_may_change_the_roster_and_hold_locks_that_other_threads_want(store: Stores) -> None:
    lock = threading.RLock()
    told: list[tuple[str, Status]] = []

    def on_change(member: Member) -> None:
        with lock:
            told.append((member.name, member.status))
        if member.status is SPAWNING and not member.waiting_for:
            roster.transition(member.name, WORKING)

    roster = Roster(store(), on_change)
    names = [f"m{number}" for number in range(6)]

    def live(name: str) -> None:
        roster.add(Member(name, "coder"))
        for number in range(10):
            with lock:
                roster.update(name, waiting_for=str(number))

    in_threads(*[lambda name=name: live(name) for name in names])
    assert all(roster.get(name).status is WORKING for name in names)
    for name in names:
        statuses = [status for other, status in told if other == name]
        assert len(statuses) == 12
        assert statuses == sorted(statuses)  # "spawning" before "working"


def test_changes_of_many_threads_are_reported_in_their_order(path: Path, store: Stores) -> None:
    told: list[Member] = []
    roster = Roster(store(), told.append)
    roster.add(Member("alice", "coder", IDLE))

    def toggle() -> None:
        for _ in range(15):
            for to in (WORKING, IDLE):
                try:
                    roster.transition("alice", to)
                except IllegalTransition:
                    continue

    in_threads(*[toggle] * 4)
    statuses = [member.status for member in told]
    assert len(statuses) > 15
    assert all(before is not after for before, after in itertools.pairwise(statuses))
    assert told[-1] == roster.get("alice") == read_team(path).members[0]


# Many at once


def test_no_update_of_many_threads_is_lost(path: Path, store: Stores) -> None:
    roster = Roster(store(), counter_seconds=0)
    for number in range(8):
        roster.add(Member(f"m{number}", "coder"))

    def work(name: str) -> None:
        for _ in range(10):
            roster.transition(name, WORKING)
            roster.count("m0", turns=1, cost_usd=0.25)
            roster.count(name, turns=100)
            roster.transition(name, IDLE)

    in_threads(*[lambda number=number: work(f"m{number}") for number in range(8)])
    assert [member.turns for member in roster.members()] == [1080] + [1000] * 7
    assert roster.get("m0").cost_usd == 20.0
    roster.close()
    assert read_team(path).members == roster.members()


READER = """
import json, sys
sys.stdout.write("ready\\n"); sys.stdout.flush()
seen, reads = set(), 0
while reads < 3000 or len(seen) < 20:
    with open(sys.argv[1], "rb") as file:
        data = file.read()
    document = json.loads(data)
    assert len(document["members"]) == 3 and document["v"] == 1
    seen.add(data)
    reads += 1
print(reads, len(seen))
"""


def test_a_reader_in_another_process_sees_only_complete_files(path: Path) -> None:
    roster = Roster(RosterFile(path), counter_seconds=0)
    names = ("alice", "bob", "carol")
    for name in names:
        roster.add(Member(name, "coder", IDLE))
    with subprocess.Popen([sys.executable, "-c", READER, str(path)], stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "ready\n"

        def write(name: str) -> None:
            while reader.poll() is None:
                roster.transition(name, WORKING)
                roster.count(name, turns=1)
                roster.transition(name, IDLE)

        in_threads(*[lambda name=name: write(name) for name in names])
        reads, versions = map(int, reader.stdout.read().split())
    assert reader.returncode == 0
    assert reads >= 3000
    assert versions >= 20


def test_readers_in_the_process_never_wait_and_see_complete_members(path: Path, store: Stores) -> None:
    roster = Roster(store())
    roster.add(Member("alice", "coder", IDLE))
    reads = 0

    def change() -> None:
        while reads < 2000:
            roster.transition("alice", WORKING, waiting_for="working")
            roster.transition("alice", IDLE, waiting_for="idle")

    def read() -> None:
        nonlocal reads
        while reads < 2000:
            member = roster.get("alice")
            assert member.waiting_for in ("", member.status.value)
            assert read_team(path).problems == ()
            reads += 1

    in_threads(change, read)


# Counters


def test_counters_are_written_at_intervals_and_with_the_next_status(path: Path, store: Stores) -> None:
    roster = Roster(store(), counter_seconds=NEVER)
    roster.add(Member("alice", "coder"))
    for _ in range(5):
        roster.count("alice", turns=1, cost_usd=0.5)
    roster.update("alice", turns=7)
    assert (roster.get("alice").turns, roster.get("alice").cost_usd) == (7, 2.5)
    assert on_disk(path)["alice"]["turns"] == 0
    roster.transition("alice", WORKING)
    assert (on_disk(path)["alice"]["turns"], on_disk(path)["alice"]["cost_usd"]) == (7, 2.5)


def test_counters_are_written_when_their_interval_is_over(path: Path, store: Stores) -> None:
    roster = Roster(store(), counter_seconds=0)
    roster.add(Member("alice", "coder"))
    roster.count("alice", turns=1)
    assert on_disk(path)["alice"]["turns"] == 1


def test_close_writes_the_rest_and_later_changes_leave_the_file_to_its_next_owner(path: Path, store: Stores) -> None:
    roster = Roster(store(), counter_seconds=NEVER)
    roster.add(Member("alice", "coder", WORKING))
    roster.count("alice", turns=3)
    roster.close()
    assert on_disk(path)["alice"]["turns"] == 3
    assert roster.transition("alice", IDLE).status is IDLE
    assert on_disk(path)["alice"]["status"] == "working"
    with pytest.raises(StateError, match="is closed"):
        roster.add(Member("bob", "coder"))
    assert roster.names() == ("alice",)


def test_an_unknown_price_makes_the_cost_unknown(roster: Roster) -> None:
    roster.add(Member("alice", "coder"))
    roster.count("alice", cost_usd=1.0)
    assert roster.count("alice", turns=1, cost_usd=None).cost_usd is None
    assert roster.count("alice", turns=1, cost_usd=1.0).cost_usd is None


# Requests in the same file


def test_requests_are_stored_in_the_file_and_loaded_with_it(roster: Roster, path: Path, store: Stores) -> None:
    roster.add(Member("alice", "coder", WORKING))
    shutdown = roster.requests.open_shutdown("alice", 1, "lead", "enough")
    plan = roster.submit_plan("alice", "the plan")
    assert [request["id"] for request in json.loads(path.read_bytes())["requests"]] == [shutdown.id, plan.id]
    again = Roster(store())
    assert again.requests.all() == (shutdown, plan) == read_team(path).requests
    again.requests.answer(shutdown.id, "alice", True, incarnation=1)
    with pytest.raises(TeamError, match="was already approved"):
        Roster(store()).requests.answer(shutdown.id, "alice", True, incarnation=1)


def test_a_plan_and_its_gate_change_together(roster: Roster, path: Path) -> None:
    roster.add(Member("alice", "coder", WORKING, plan=True, plan_approved=True))
    first = roster.submit_plan("ALICE", "one")
    assert (first.teammate, first.kind) == ("alice", Kind.PLAN)
    assert (on_disk(path)["alice"]["plan_approved"], on_disk(path)["alice"]["waiting_for"]) == (False, "plan review")
    second = roster.submit_plan("alice", "two")
    with pytest.raises(TeamError, match="is void"):
        roster.review_plan(first.id, "lead", True)
    assert not roster.get("alice").plan_approved
    roster.review_plan(second.id, "user", True)
    assert (on_disk(path)["alice"]["plan_approved"], on_disk(path)["alice"]["waiting_for"]) == (True, "")
    third = roster.submit_plan("alice", "three")
    roster.review_plan(third.id, "lead", False, "no")
    assert not roster.get("alice").plan_approved


def test_a_shutdown_request_is_not_answered_as_a_plan(roster: Roster) -> None:
    roster.add(Member("alice", "coder", WORKING, plan=True))
    request = roster.requests.open_shutdown("alice", 1, "lead")
    for by in ("lead", "alice"):
        with pytest.raises(TeamError):
            roster.review_plan(request.id, by, True)
    assert roster.requests.all_open() == (request,)
    assert not roster.get("alice").plan_approved


@pytest.mark.parametrize("respawn", [False, True])
def test_shutdown_and_respawn_void_all_open_requests(roster: Roster, path: Path, respawn: bool) -> None:
    roster.add(Member("alice", "coder", WORKING))
    roster.add(Member("bob", "coder", WORKING))
    plan = roster.submit_plan("alice", "plan")
    other = roster.submit_plan("bob", "plan")
    roster.transition("alice", SHUTDOWN)
    if respawn:
        late = roster.requests.open_plan("alice", 1, "from a thread that did not know")
        roster.reincarnate(Member("alice", "coder"))
        assert roster.requests.get(late.id).state is State.VOID
    assert roster.requests.all_open() == (other,)
    assert {request.id: request.state for request in read_team(path).requests}[plan.id] is State.VOID
    with pytest.raises(TeamError, match="is void"):
        roster.review_plan(plan.id, "lead", True)


# Starting again


def test_at_start_teammates_that_were_working_are_idle_and_interrupted(
    roster: Roster, path: Path, store: Stores
) -> None:
    for status in Status:
        roster.add(Member(status.value, "coder", status, waiting_for="permission: bash", error="e", paused=True))
    roster.add(Member("planner", "coder", WORKING))
    roster.submit_plan("planner", "plan")

    again = Roster(store(), clock=lambda: 55.0)
    interrupted = again.mark_interrupted()

    assert [member.name for member in interrupted] == ["spawning", "working", "planner"]
    assert {member.status for member in interrupted} == {IDLE}
    assert all(member.interrupted for member in interrupted)
    assert {member.since for member in interrupted} == {55.0}
    assert [member.status for member in again.members()] == [IDLE, IDLE, IDLE, SHUTDOWN, IDLE]
    assert [member.interrupted for member in again.members()] == [True, True, False, False, True]
    assert [member.waiting_for for member in again.members()] == ["", "", "", "", "plan review"]
    assert all(member.paused for member in again.members()[:4])
    assert read_team(path).members == again.members()
    assert again.mark_interrupted() == []


# Damage


@pytest.mark.parametrize(
    "data",
    [b"", b'{"members": [{"name": "al', b"[]", b"null", b"\xff\xfe\x00", b"[" * 100_000, b"\0" * 64],
    ids=["empty", "cut", "list", "null", "not utf-8", "deep", "zeros"],
)
def test_a_damaged_file_is_copied_and_reported(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    roster = Roster(RosterFile(path))
    assert roster.members() == ()
    assert roster.needs_recovery
    assert "was damaged" in roster.problem
    assert "config.json.bad-1" in roster.problem
    assert path.with_name("config.json.bad-1").read_bytes() == data
    assert path.read_bytes() == data  # until a good one is there to replace it
    assert read_team(path).problems != ()
    roster.add(Member("alice", "coder"))
    assert list(on_disk(path)) == ["alice"]
    assert not Roster(RosterFile(path)).needs_recovery


def test_each_damaged_file_is_copied_once_and_none_overwrites_another(path: Path) -> None:
    for data in (b"one", b"one", b"two", b"one"):
        path.write_bytes(data)
        Roster(RosterFile(path))
    kept = {file.name: file.read_bytes() for file in path.parent.glob("*.bad-*")}
    assert kept == {"config.json.bad-1": b"one", "config.json.bad-2": b"two"}


GOOD = {"name": "bob", "role": "tester", "status": "idle"}


@pytest.mark.parametrize(
    "bad",
    [
        {"role": "x", "status": "idle"},
        {**GOOD, "name": "../evil"},
        {**GOOD, "name": "lead"},
        {**GOOD, "name": 7},
        {**GOOD, "name": "carol", "status": "dead"},
        {**GOOD, "name": "carol", "tools": "bash"},
        {**GOOD, "name": "carol", "tools": [1]},
        {**GOOD, "name": "carol", "plan": "yes"},
        {**GOOD, "name": "carol", "turns": True},
        {**GOOD, "name": "BOB"},
        "bob",
        None,
    ],
    ids=str,
)
def test_one_damaged_entry_does_not_lose_the_others(path: Path, bad: object) -> None:
    path.write_text(json.dumps({"v": 1, "team_name": "default", "members": [GOOD, bad]}))
    roster = Roster(RosterFile(path))
    assert roster.names() == ("bob",)
    assert "members: entry 2: " in roster.problem
    assert roster.needs_recovery


@pytest.mark.parametrize("requests", [{}, [7], [{"id": "req-1"}], "x"], ids=str)
def test_damaged_requests_do_not_lose_the_team(path: Path, requests: object) -> None:
    path.write_text(json.dumps({"members": [GOOD], "requests": requests}))
    roster = Roster(RosterFile(path))
    assert roster.names() == ("bob",)
    assert "requests: " in roster.problem


def test_a_file_as_the_tutorial_writes_it_is_read(path: Path) -> None:
    path.write_text(json.dumps({"team_name": "default", "members": [GOOD]}))
    roster = Roster(RosterFile(path))
    assert (roster.problem, roster.get("bob").status, roster.get("bob").cost_usd) == ("", IDLE, 0.0)


def test_unknown_fields_are_kept_wherever_they_are(path: Path) -> None:
    request = {"id": "req-1", "kind": "plan", "teammate": "bob", "incarnation": 1, "asker": "bob", "created": 1}
    document = {
        "v": 1,
        "team_name": "ours",
        "members": [{**GOOD, "colour": {"r": 1}, "unknown": 3}],
        "requests": [{**request, "priority": "high"}],
        "motto": ["a", None],
        "unknown": "x",
    }
    path.write_text(json.dumps(document))
    roster = Roster(RosterFile(path))
    assert roster.problem == ""
    roster.transition("bob", WORKING)
    roster.transition("bob", SHUTDOWN)
    roster.reincarnate(Member("bob", "coder"))
    written = json.loads(path.read_bytes())
    assert (written["team_name"], written["motto"], written["unknown"]) == ("ours", ["a", None], "x")
    assert (written["members"][0]["colour"], written["members"][0]["unknown"]) == ({"r": 1}, 3)
    assert written["requests"][0]["priority"] == "high"


def test_a_file_of_a_newer_version_is_refused_and_left_alone(path: Path) -> None:
    path.write_text('{"v": 2, "members": 7}')
    for load in (lambda path: Roster(RosterFile(path)), read_team):
        with pytest.raises(StateError, match="newer teamcli"):
            load(path)
    assert list(path.parent.iterdir()) == [path]


def test_a_link_or_a_directory_instead_of_the_file_is_refused(path: Path) -> None:
    path.symlink_to(path.with_name("elsewhere.json"))
    with pytest.raises(StateError, match="symbolic link"):
        Roster(RosterFile(path))
    path.unlink()
    path.mkdir()
    with pytest.raises(StateError, match="not a regular file"):
        Roster(RosterFile(path))


def test_the_team_of_a_directory_without_one_is_empty(tmp_path: Path) -> None:
    team = read_team(tmp_path / "none" / "config.json")
    assert (team.members, team.problems, team.is_missing) == ((), (), True)
    assert list(tmp_path.iterdir()) == []


# Rebuilding


@pytest.fixture
def left_behind(tmp_path: Path) -> Path:
    """What a team leaves: conversations, mail, archives, and things that are no teammate's."""
    for file in (
        "transcripts/lead.jsonl",
        "transcripts/alice.jsonl",
        "transcripts/archive/alice.1.jsonl",
        "transcripts/archive/alice.2.jsonl",
        "transcripts/archive/alice-b.1.jsonl",
        "transcripts/notes.txt",
        "transcripts/a b.jsonl",
        "inbox/lead.jsonl",
        "inbox/ALICE.jsonl",
        "inbox/bob.jsonl",
        "inbox/bob.bad.jsonl",
        "inbox/archive/carol.jsonl",
    ):
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}\n")
    (tmp_path / "inbox" / "dave.jsonl").symlink_to(tmp_path / "inbox" / "bob.jsonl")
    return tmp_path


def recover(roster: Roster, root: Path) -> list[str]:
    return roster.recover(root / "transcripts", root / "inbox")


@pytest.mark.parametrize("damage", [b"{", None], ids=["corrupt", "deleted"])
def test_a_lost_roster_is_rebuilt_from_the_files_of_the_team(
    left_behind: Path, path: Path, damage: bytes | None
) -> None:
    if damage is not None:
        path.write_bytes(damage)
    roster = Roster(RosterFile(path))
    told = recover(roster, left_behind)
    assert [(member.name, member.status, member.interrupted, member.incarnation) for member in roster.members()] == [
        ("alice", IDLE, True, 3),
        ("bob", IDLE, True, 1),
    ]
    assert [sentence.split(" ")[0] for sentence in told] == ["'alice'", "'bob'"]
    assert "spawn it again" in told[0]
    assert read_team(path).members == roster.members()
    assert recover(Roster(RosterFile(path)), left_behind) == []


def test_a_good_roster_is_not_added_to(left_behind: Path, path: Path) -> None:
    Roster(RosterFile(path)).add(Member("carol", "coder"))
    roster = Roster(RosterFile(path))
    assert recover(roster, left_behind) == []
    assert roster.names() == ("carol",)


def test_the_readable_part_of_a_damaged_file_is_kept(left_behind: Path, path: Path) -> None:
    path.write_text(json.dumps({"members": [GOOD, {**GOOD, "name": "alice", "turns": "many"}]}))
    roster = Roster(RosterFile(path))
    assert len(recover(roster, left_behind)) == 1
    assert [(member.name, member.role) for member in roster.members()] == [("bob", "tester"), ("alice", "unknown")]


def test_a_damaged_file_with_nothing_to_rebuild_is_replaced_and_a_missing_one_is_not_created(path: Path) -> None:
    assert recover(Roster(RosterFile(path)), path.parent) == []
    assert not path.exists()
    path.write_bytes(b"{")
    assert recover(Roster(RosterFile(path)), path.parent) == []
    assert on_disk(path) == {}
    assert Roster(RosterFile(path)).problem == ""


# A disk that does not take it


@pytest.fixture
def blocked(path: Path) -> Iterator[Callable[[bool], None]]:
    """Make the file unwritable, and writable again: a directory that is not empty cannot be replaced by a file."""
    saved = path.with_name("saved")

    def block(is_blocked: bool) -> None:
        if is_blocked:
            path.rename(saved)
            (path / "full").mkdir(parents=True)
        else:
            (path / "full").rmdir()
            path.rmdir()
            saved.rename(path)

    yield block


def test_a_change_that_cannot_be_written_is_undone(
    file_roster: Roster, path: Path, blocked: Callable[[bool], None]
) -> None:
    file_roster.add(Member("alice", "coder", WORKING, plan=True))
    file_roster.add(Member("gone", "coder", SHUTDOWN))
    plan = file_roster.submit_plan("alice", "plan")
    before = file_roster.members(), file_roster.requests.all()
    blocked(True)
    for attempt in (
        lambda: file_roster.add(Member("bob", "coder")),
        lambda: file_roster.forget("gone"),
        lambda: file_roster.reincarnate(Member("gone", "coder")),
        lambda: file_roster.submit_plan("alice", "another"),
        lambda: file_roster.review_plan(plan.id, "lead", True),
        lambda: file_roster.requests.answer(plan.id, "lead", True),
        lambda: file_roster.requests.open_shutdown("alice", 1, "lead"),
        lambda: file_roster.requests.void("alice"),
    ):
        with pytest.raises(StateError, match=r"cannot write .*config\.json"):
            attempt()
        assert (file_roster.members(), file_roster.requests.all()) == before
    blocked(False)
    assert [file.name for file in path.parent.iterdir()] == ["config.json"]
    assert file_roster.review_plan(plan.id, "lead", True).state is State.APPROVED
    assert read_team(path).members == file_roster.members()


def test_a_status_changes_although_the_disk_is_full_and_is_written_later(
    path: Path, blocked: Callable[[bool], None]
) -> None:
    told: list[str] = []
    changes: list[Status] = []
    roster = Roster(RosterFile(path), lambda member: changes.append(member.status), told.append, counter_seconds=0)
    roster.add(Member("alice", "coder", WORKING))
    blocked(True)
    assert roster.transition("alice", IDLE).status is IDLE
    roster.count("alice", turns=1)
    roster.update("alice", paused=True)
    assert roster.get("alice").paused
    assert len(told) == 1
    assert "cannot write" in told[0]
    assert "config.json" in told[0]
    assert "the team keeps working" in told[0]
    blocked(False)
    assert on_disk(path)["alice"]["status"] == "working"
    roster.transition("alice", WORKING)
    assert (on_disk(path)["alice"]["status"], on_disk(path)["alice"]["turns"]) == ("working", 1)
    assert changes == [WORKING, IDLE, IDLE, WORKING]
    blocked(True)
    roster.transition("alice", IDLE)
    assert len(told) == 2  # it had worked in between
    blocked(False)


def test_a_refused_change_is_not_reported(path: Path, blocked: Callable[[bool], None]) -> None:
    changes: list[str] = []
    roster = Roster(RosterFile(path), lambda member: changes.append(member.name))
    roster.add(Member("alice", "coder"))
    blocked(True)
    with pytest.raises(StateError):
        roster.add(Member("bob", "coder"))
    blocked(False)
    roster.transition("alice", WORKING)
    assert changes == ["alice", "alice"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes anywhere")
def test_the_error_for_a_read_only_directory_names_it(file_roster: Roster, path: Path) -> None:
    path.parent.chmod(0o500)
    try:
        with pytest.raises(StateError, match=r"cannot write .*config\.json: Permission denied"):
            file_roster.add(Member("alice", "coder"))
    finally:
        path.parent.chmod(0o700)


def test_a_path_with_spaces_and_other_letters_works(tmp_path: Path) -> None:
    path = tmp_path / "mein Übungs-Ordner 日本" / "config.json"
    Roster(RosterFile(path)).add(Member("alice", "coder"))
    assert read_team(path).members[0].name == "alice"
