"""The roster in PostgreSQL: several processes change it, nothing is lost, and the first decision counts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from teamcli.cancel import CancelScope
from teamcli.errors import IllegalTransition, LeaseLost, TeamError
from teamcli.store.postgres.newest import Newest
from teamcli.team.quiescence import Quiescence
from teamcli.team.remote_teammate import OtherHosts
from teamcli.team.requests import State
from teamcli.team.roster import Member, Roster, Status, read_team
from teamcli.team.running_agents import RunningAgents
from tests.support.postgres import hold_lease, open_test_team
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from teamcli.store.postgres.team_rows import Fence, Team

IDLE, WORKING, SHUTDOWN = Status.IDLE, Status.WORKING, Status.SHUTDOWN
MakeRoster = Callable[..., Roster]


@pytest.fixture
def team(postgres_url: str) -> Iterator[Team]:
    team: Team = open_test_team(postgres_url)
    yield team
    team.database.close()


@pytest.fixture
def lead(team: Team) -> Fence:
    fence: Fence = hold_lease(team, "lead")
    return fence


@pytest.fixture
def make(team: Team, lead: Fence, tmp_path: Path, postgres_url: str) -> Iterator[MakeRoster]:
    """Each one is another process, with its own copy of the file; with `is_apart`, also its own connection. Without a
    fence, they share the lead's."""
    from teamcli.store.postgres.database import Database
    from teamcli.store.postgres.roster import RosterRows

    made: list[Roster] = []
    databases: list[Database] = []

    def make_one(
        fence: Fence | None = None,
        team: Team = team,
        is_apart: bool = False,
        warn: Callable[[str], None] = lambda text: None,
        **ports: Any,
    ) -> Roster:
        if is_apart:
            databases.append(Database(postgres_url, CancelScope()))
            team = team._replace(database=databases[-1])
        ports = {"counter_seconds": 0, **ports}
        made.append(
            Roster(
                RosterRows(team, fence or lead, Newest(), tmp_path / f"{len(made)}.json", warn, copy_seconds=0), **ports
            )
        )
        return made[-1]

    yield make_one
    for database in databases:
        database.close()


def execute(team: Team, sql: str) -> None:
    team.database.run(lambda cursor: cursor.execute(sql, (team.id,)))


def test_what_one_process_writes_another_one_reads(make: MakeRoster, tmp_path: Path) -> None:
    one = make()
    one.add(Member("alice", "coder – „Ünï“ \n x", tools=(), cost_usd=None, error="no\ttabs", turns=3))
    one.add(Member("Bob", "co\ud800der", IDLE, budget={"usd": 1.5}))
    one.rename("ours")
    plan = one.submit_plan("alice", "1. think")
    two = make()
    assert two.members() == (
        one.get("alice"),
        Member("Bob", "co?der", IDLE, budget={"usd": 1.5}, since=two.get("bob").since),
    )
    assert (two.team_name, two.requests.all()) == ("ours", (plan,))
    assert read_team(tmp_path / "0.json") == read_team(tmp_path / "1.json")


def test_two_processes_change_different_fields_of_one_member(make: MakeRoster) -> None:
    one = make()
    one.add(Member("alice", "coder", IDLE))
    two = make()
    one.update("alice", paused=True)
    two.count("alice", turns=3)
    two.update("alice", error="broken")
    one.refresh()
    for roster in (one, two, make()):
        alice = roster.get("alice")
        assert (alice.paused, alice.turns, alice.error) == (True, 3, "broken")


def test_no_change_of_many_processes_is_lost(make: MakeRoster) -> None:
    make().add(Member("alice", "coder", IDLE))
    fields = ("turns", "role", "error", "limit", "model", "cwd")
    rosters = {name: make(is_apart=True) for name in fields}
    barrier = threading.Barrier(len(fields))

    def change(name: str) -> None:
        barrier.wait(60)
        for number in range(1, 11):
            rosters[name].update("alice", **{name: number if name == "turns" else str(number)})

    threads = [threading.Thread(target=change, args=(name,)) for name in fields]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    alice = make().get("alice")
    assert [str(getattr(alice, name)) for name in fields] == ["10"] * len(fields)


def test_what_others_have_changed_is_announced_once_and_not_written_again(make: MakeRoster, team: Team) -> None:
    announced: list[tuple[str, Status]] = []
    one, two = make(), make(on_change=lambda member: announced.append((member.name, member.status)))
    one.add(Member("alice", "coder", IDLE))
    one.transition("alice", WORKING)
    one.count("alice", turns=1)
    two.refresh()
    two.refresh()
    assert announced == [("alice", WORKING)]
    one.count("alice", turns=1)
    two.refresh()
    assert (announced, two.get("alice").turns) == ([("alice", WORKING)], 2)
    sql = "select version from member where team = %s"
    version = team.database.run(lambda cursor: cursor.execute(sql, (team.id,)).fetchone())
    two.put_back()
    assert team.database.run(lambda cursor: cursor.execute(sql, (team.id,)).fetchone()) == version


def test_a_topic_refreshes_only_what_it_names(make: MakeRoster) -> None:
    one = make()
    for name in ("alice", "bob", "carol"):
        one.add(Member(name, "coder", IDLE))
    two = make()
    one.transition("alice", SHUTDOWN)
    one.forget("alice")
    plan = one.submit_plan("bob", "plan")
    one.update("carol", paused=True)
    two.refresh(["member/alice", f"request/{plan.id}", "member/nobody", "member/carol'; --"])
    assert two.names() == ("bob", "carol")
    assert (two.requests.all(), two.get("carol").paused) == ((plan,), False)
    two.refresh(["member/*"])
    assert two.get("carol").paused


def test_every_change_wakes_those_who_listen(make: MakeRoster, team: Team, postgres_url: str) -> None:
    import psycopg

    with psycopg.connect(postgres_url, autocommit=True) as listener:
        listener.execute(f"listen {team.channel}".encode())
        roster = make()
        roster.add(Member("alice", "coder", IDLE, host="any"))
        plan = roster.submit_plan("alice", "plan")
        topics = [each.payload for each in listener.notifies(timeout=30, stop_after=3)]
    assert topics == ["member/alice", "member/alice", f"request/{plan.id}"]


def test_what_a_member_does_wakes_only_the_host_of_the_lead(make: MakeRoster, team: Team, postgres_url: str) -> None:
    import psycopg

    make().add(Member("alice", "coder", IDLE, host="any"))
    worker = make(hold_lease(team, "alice"), is_apart=True)
    with psycopg.connect(postgres_url, autocommit=True) as listener:
        for channel in (team.channel, team.lead_channel):
            listener.execute(f"listen {channel}".encode())
        worker.transition("alice", WORKING)
        worker.count("alice", turns=1)
        worker.transition("alice", IDLE)
        worker.update("alice", paused=True)
        worker.transition("alice", SHUTDOWN)
        heard = [(each.channel, each.payload) for each in listener.notifies(timeout=30, stop_after=3)]
    # Three changes were gathered, and the first one that others have to know took them with it.
    topic = "member/alice"
    assert heard == [(team.lead_channel, topic), (team.channel, topic), (team.channel, topic)]


def test_what_only_the_screen_shows_is_announced_a_moment_later(
    make: MakeRoster, team: Team, postgres_url: str
) -> None:
    import psycopg

    make().add(Member("alice", "coder", IDLE, host="any"))
    worker = make(hold_lease(team, "alice"), is_apart=True)
    with psycopg.connect(postgres_url, autocommit=True) as listener:
        listener.execute(f"listen {team.lead_channel}".encode())
        worker.transition("alice", WORKING)
        assert [each.payload for each in listener.notifies(timeout=30, stop_after=1)] == ["member/alice"]


class Hosts:
    """Of members that have read all their mail."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster

    @property
    def is_current(self) -> bool:
        return self._roster.is_current()

    def has_unread(self, name: str) -> bool:
        return False


def test_a_team_is_not_idle_while_a_member_of_another_host_has_begun_something(make: MakeRoster, team: Team) -> None:
    lead = make()
    lead.add(Member("alice", "coder", IDLE, host="any"))
    tasks = SimpleNamespace(has_new=False, held=lambda name: ())
    others = OtherHosts(lead, cast(Any, Hosts(lead)), lambda: cast(Any, tasks), is_only_here=lambda member: False)
    background = SimpleNamespace(running_detached=list)
    quiescence = Quiescence(RunningAgents(others), lead, cast(Any, background), is_headless=True)
    assert quiescence.wait_until_idle(CancelScope(), timeout_seconds=0)
    worker = make(hold_lease(team, "alice"), is_apart=True)
    worker.transition("alice", WORKING)
    assert not quiescence.wait_until_idle(CancelScope(), timeout_seconds=0)
    worker.transition("alice", IDLE)
    lead.refresh()
    assert not quiescence.is_working
    worker.transition("alice", WORKING)
    assert quiescence.is_working


def test_counters_are_not_written_with_what_another_member_does(make: MakeRoster, team: Team) -> None:
    one = make(counter_seconds=3600)
    for name in ("alice", "bob"):
        one.add(Member(name, "coder", IDLE))
    one.count("bob", turns=3)
    one.transition("alice", WORKING)
    assert make().get("bob").turns == 0
    one.transition("bob", WORKING)
    assert make().get("bob").turns == 3
    one.count("bob", turns=1)
    one.transition("alice", IDLE)
    one.close()
    assert make().get("bob").turns == 4


def test_a_name_is_given_once(make: MakeRoster) -> None:
    one, two = make(), make()
    two._table._store.fresh = lambda known, topics=(): None  # type: ignore[method-assign]  # it does not know yet
    one.add(Member("alice", "coder"))
    with pytest.raises(TeamError, match="there is a teammate 'alice' already"):
        two.add(Member("alice", "tester"))
    with pytest.raises(TeamError, match="another host has added or removed 'Alice' meanwhile"):
        two.add(Member("Alice", "tester"))
    assert two.names() == ()
    assert [member.role for member in make().members()] == ["coder"]


def test_a_request_is_answered_once(make: MakeRoster) -> None:
    one = make()
    one.add(Member("alice", "coder", WORKING))
    plan = one.submit_plan("alice", "plan")
    two = make()
    one.review_plan(plan.id, "lead", True)
    with pytest.raises(TeamError, match=f"{plan.id} was already approved by lead; the first answer counts"):
        two.review_plan(plan.id, "user", False)
    assert two.get("alice").plan_approved


@pytest.mark.parametrize("attempt", range(3))
def test_of_many_processes_that_answer_at_once_one_succeeds(make: MakeRoster, attempt: int) -> None:
    one = make()
    one.add(Member("alice", "coder", WORKING))
    plan = one.submit_plan("alice", "plan")
    rosters = [make(is_apart=True) for _ in range(6)]
    barrier = threading.Barrier(len(rosters))
    outcomes: list[str] = []

    def answer(number: int) -> None:
        barrier.wait(60)
        try:
            rosters[number].review_plan(plan.id, "lead", number % 2 == 0, f"by {number}")
            outcomes.append(f"by {number}")
        except TeamError as e:
            assert "the first answer counts" in str(e)

    threads = [threading.Thread(target=answer, args=(number,)) for number in range(len(rosters))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    last = make()
    assert [last.requests.get(plan.id).feedback] == outcomes
    assert last.get("alice").plan_approved == (last.requests.get(plan.id).state is State.APPROVED)


def test_an_answer_counts_that_another_process_does_not_know_of_when_it_ends_the_request(make: MakeRoster) -> None:
    """The status, which does not wait for the database, voids what the teammate had open."""
    one = make()
    one.add(Member("alice", "coder", WORKING))
    plan = one.submit_plan("alice", "plan")
    two = make()
    one.review_plan(plan.id, "lead", True)
    two.transition("alice", SHUTDOWN)
    assert (two.requests.get(plan.id).state, make().get("alice").status) == (State.APPROVED, SHUTDOWN)


def test_a_status_that_cannot_follow_that_of_another_process_is_given_up(make: MakeRoster) -> None:
    one = make()
    one.add(Member("alice", "coder", WORKING))
    two = make()
    one.transition("alice", SHUTDOWN)
    two.transition("alice", IDLE, error="late")
    two.count("alice", turns=2)
    for roster in (two, make()):
        alice = roster.get("alice")
        assert (alice.status, alice.error, alice.turns) == (SHUTDOWN, "", 2)


def test_what_an_earlier_incarnation_did_does_not_count_for_the_next_one(make: MakeRoster) -> None:
    one = make()
    one.add(Member("alice", "coder", WORKING))
    two = make()
    one.transition("alice", SHUTDOWN)
    one.reincarnate(Member("alice", "tester", IDLE))
    two.transition("alice", SHUTDOWN, turns=9)
    alice = make().get("alice")
    assert (alice.status, alice.turns, alice.incarnation) == (IDLE, 0, 2)
    assert two.get("alice") == alice


def test_a_member_that_another_process_has_brought_back_is_not_forgotten(make: MakeRoster) -> None:
    one = make()
    one.add(Member("alice", "coder", SHUTDOWN))
    two = make()
    two._table._store.fresh = lambda known, topics=(): None  # type: ignore[method-assign]  # it does not know yet
    one.reincarnate(Member("alice", "coder", IDLE))
    with pytest.raises(IllegalTransition, match="'alice' is currently idle; another host has changed it meanwhile"):
        two.forget("alice")
    assert two.names() == make().names() == ("alice",)


def test_a_removed_member_is_gone_everywhere_whatever_others_still_write(make: MakeRoster) -> None:
    one = make()
    one.add(Member("alice", "coder", SHUTDOWN))
    two = make()
    one.forget("alice")
    two.count("alice", turns=1)
    assert two.names() == make().names() == ()


# Hosts that were replaced


def test_a_host_that_was_replaced_changes_nothing(make: MakeRoster, team: Team) -> None:
    make().add(Member("alice", "coder", WORKING))
    old = make(hold_lease(team, "alice"))
    new = make(hold_lease(team, "alice"))
    old.transition("alice", IDLE, error="too late")
    with pytest.raises(LeaseLost, match="'alice' runs on another host now"):
        old.submit_plan("alice", "plan")
    assert (old.get("alice").status, old.get("alice").error) == (WORKING, "")
    new.transition("alice", IDLE)
    assert (make().get("alice").error, make().requests.all()) == ("", ())


def test_a_host_writes_for_its_own_members_although_it_has_lost_another_one(make: MakeRoster, team: Team) -> None:
    lead = make()
    for name in ("alice", "bob"):
        lead.add(Member(name, "coder", WORKING))
    fence = hold_lease(team, "alice", "bob")
    old = make(fence, counter_seconds=float("inf"))
    hold_lease(team, "alice")
    old.count("alice", turns=1)
    plan = old.submit_plan("bob", "plan")
    now = make()
    assert (now.get("alice").turns, now.requests.all()) == (0, (plan,))


def test_a_host_without_a_lease_changes_nothing(make: MakeRoster, team: Team) -> None:
    from teamcli.store.postgres.team_rows import Fence

    make().add(Member("alice", "coder", WORKING))
    stranger = make(Fence(team))
    stranger.transition("alice", IDLE)
    with pytest.raises(LeaseLost, match="'bob' does not run on this host"):
        stranger.add(Member("bob", "coder"))
    with pytest.raises(LeaseLost, match="'lead' does not run on this host"):
        stranger.rename("mine")
    assert [(member.name, member.status) for member in make().members()] == [("alice", WORKING)]


def test_a_lead_that_was_replaced_changes_nothing(make: MakeRoster, team: Team) -> None:
    old = make()
    old.add(Member("alice", "coder", WORKING))
    hold_lease(team, "lead")
    with pytest.raises(LeaseLost, match="'lead' runs on another host now"):
        old.add(Member("bob", "coder"))
    assert old.names() == ("alice",)


# Hostile rows


@pytest.mark.parametrize(
    "sql",
    [
        "update member set doc = replace(doc, 'coder', 'boss') where team = %s and name = 'alice'",
        "update member set sig = '' where team = %s and name = 'alice'",
        "update member set version = 7 where team = %s and name = 'alice'",
        "update member set name = 'mallory' where team = %s and name = 'alice'",
        "update member b set doc = a.doc, sig = a.sig from member a"
        " where a.team = b.team and a.name = 'bob' and b.name = 'alice' and a.team = %s",
    ],
)
def test_a_member_that_the_team_did_not_write_is_left_out(make: MakeRoster, team: Team, sql: str) -> None:
    roster = make()
    for name in ("alice", "bob"):
        roster.add(Member(name, "coder", IDLE))
    execute(team, sql)
    warnings: list[str] = []
    again = make(warn=warnings.append)
    again.refresh()
    assert again.names() == ("bob",)
    assert len(warnings) == 1
    assert warnings[0].endswith("does not count: it is not signed with the team's key")


def test_a_row_that_was_spoiled_is_written_again_by_those_who_know_better(make: MakeRoster, team: Team) -> None:
    roster = make()
    roster.add(Member("alice", "coder", IDLE))
    execute(team, "update member set doc = '{}', version = 9 where team = %s")
    roster.refresh()
    roster.transition("alice", WORKING)
    assert make().members() == roster.members()
    assert roster.get("alice").status is WORKING


@pytest.mark.parametrize("doc", ["nonsense", "[]", '{"team_name": 5}'])
def test_a_team_whose_own_row_was_spoiled_still_has_its_members(make: MakeRoster, team: Team, doc: str) -> None:
    make().add(Member("alice", "coder"))
    execute(team, f"update team set doc = '{doc}' where id = %s")
    assert make().names() == ("alice",)


def test_a_team_with_another_key_has_no_members(make: MakeRoster, team: Team) -> None:
    make().add(Member("alice", "coder"))
    assert make(team=team._replace(key=b"x" * 32)).names() == ()


def test_the_copy_follows_soon(team: Team, lead: Fence, tmp_path: Path) -> None:
    from teamcli.store.postgres.roster import RosterRows

    roster = Roster(RosterRows(team, lead, Newest(), tmp_path / "config.json"))
    roster.add(Member("alice", "coder"))
    for status in (WORKING, IDLE, WORKING):
        roster.transition("alice", status)
    wait_until(lambda: [member.status for member in read_team(tmp_path / "config.json").members] == [WORKING])


def test_a_copy_that_cannot_be_written_stops_nobody(make: MakeRoster, tmp_path: Path) -> None:
    roster = make()
    (tmp_path / "0.json" / "full").mkdir(parents=True)
    roster.add(Member("alice", "coder"))
    assert make().names() == ("alice",)
