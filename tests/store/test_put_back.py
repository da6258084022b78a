"""Rows that somebody has put back: signed by the team, and older than what a host has seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from teamcli.cancel import CancelScope
from teamcli.errors import StateError
from teamcli.store.postgres.newest import Newest
from teamcli.tasks.board import TaskChange, TaskStatus
from teamcli.tasks.stored_board import StoredBoard
from teamcli.team.message import Message
from teamcli.team.message_bus import BEGINNING
from teamcli.team.roster import Member, Roster, Status
from tests.store.conftest import HostMaker
from tests.store.intruder import Intruder
from tests.support.postgres import expire, hold_lease
from tests.support.postgres_bus import HostBus
from tests.team.engines import PostgresEngine
from tests.team.letters import contents, letter

if TYPE_CHECKING:
    from teamcli.store.postgres.team_rows import Fence, Team

IDLE, WORKING, SHUTDOWN = Status.IDLE, Status.WORKING, Status.SHUTDOWN
NAMES = ("lead", "alice", "bob")
MEMBER = ("team", "name")
TASK = ("team", "id")


@pytest.fixture
def intruder(postgres_url: str) -> Iterator[Intruder]:
    """With all rights, unlike a worker's."""
    with closing(Intruder(postgres_url)) as intruder:
        yield intruder


@pytest.fixture
def lead(team: Team) -> Fence:
    fence: Fence = hold_lease(team, "lead", "alice")
    return fence


@pytest.fixture
def warnings() -> list[str]:
    return []


@pytest.fixture
def remembers(tmp_path: Path, team: Team) -> Callable[[], Newest]:
    """What a host remembers, as each of its starts finds it."""
    return lambda: Newest(team.uid, tmp_path / "newest.json")


@pytest.fixture
def roster(team: Team, lead: Fence, tmp_path: Path, warnings: list[str]) -> Callable[[Newest], Roster]:
    from teamcli.store.postgres.roster import RosterRows

    def start(newest: Newest) -> Roster:
        store = RosterRows(team, lead, newest, tmp_path / "config.json", warnings.append, copy_seconds=0)
        return Roster(store, counter_seconds=0)

    return start


Start = Callable[["Newest"], Roster]
Remember = Callable[[], "Newest"]


def test_an_older_row_of_a_member_changes_nothing_and_is_reported_once(
    roster: Start, remembers: Remember, intruder: Intruder, warnings: list[str]
) -> None:
    here = roster(remembers())
    here.add(Member("alice", "coder", IDLE, paused=True))
    old = intruder.copy("member")
    here.update("alice", paused=False)
    intruder.put_back("member", MEMBER, old)
    for _ in range(2):
        here.refresh()
    assert not here.get("alice").paused
    assert len(warnings) == 1
    assert "the row of the member 'alice' in the database does not count: it is older than one" in warnings[0]
    # The next change repairs it, also for those who were never there.
    here.transition("alice", WORKING)
    assert roster(Newest()).get("alice").status is WORKING


def test_a_host_remembers_beyond_its_end(
    roster: Start, remembers: Remember, intruder: Intruder, warnings: list[str]
) -> None:
    newest = remembers()
    here = roster(newest)
    here.add(Member("alice", "coder", IDLE, plan_approved=True))
    old = intruder.copy("member")
    here.update("alice", plan_approved=False)
    newest.close()
    intruder.put_back("member", MEMBER, old)
    assert roster(remembers()).names() == ()
    assert len(warnings) == 1


def test_after_a_restore_the_file_that_is_named_is_deleted(
    roster: Start, remembers: Remember, intruder: Intruder, warnings: list[str], tmp_path: Path
) -> None:
    newest = remembers()
    here = roster(newest)
    here.add(Member("alice", "coder", IDLE))
    backup = intruder.copy("member")
    here.transition("alice", WORKING)
    newest.close()
    intruder.put_back("member", MEMBER, backup)
    roster(remembers())
    file = tmp_path / "newest.json"
    assert f"if the database was restored from a backup, stop teamcli everywhere and delete {file}" in warnings[0]
    file.unlink()
    assert roster(remembers()).get("alice").status is IDLE


def test_what_another_team_has_in_the_same_directory_does_not_matter(
    roster: Start, remembers: Remember, tmp_path: Path, team: Team
) -> None:
    other = Newest("another team", tmp_path / "newest.json")
    other.admits("member/alice", 100)
    other.close()
    here = roster(remembers())
    here.add(Member("alice", "coder"))
    assert here.names() == ("alice",)


def test_a_member_that_somebody_deletes_stays(
    roster: Start, remembers: Remember, intruder: Intruder, warnings: list[str]
) -> None:
    newest = remembers()
    here = roster(newest)
    here.add(Member("alice", "coder", IDLE))
    intruder.do("delete from member")
    here.refresh()
    assert here.names() == ("alice",)
    assert "it was deleted by someone without the team's key" in warnings[0]
    newest.close()
    roster(remembers())
    assert len(warnings) == 2  # also by a process that finds nothing
    here.transition("alice", WORKING)
    assert roster(remembers()).names() == ("alice",)


def test_a_member_that_was_forgotten_does_not_come_back_and_its_name_can_be_used_again(
    roster: Start, remembers: Remember, intruder: Intruder
) -> None:
    newest = remembers()
    here, there = roster(newest), roster(remembers())
    here.add(Member("alice", "coder", SHUTDOWN))
    there.refresh()
    old = intruder.copy("member")
    here.forget("alice")
    intruder.put_back("member", MEMBER, old)
    here.refresh()
    assert here.names() == ()
    here.add(Member("alice", "tester"))
    there.refresh()
    assert there.get("alice").role == "tester"
    here.transition("alice", IDLE)
    here.transition("alice", SHUTDOWN)
    here.forget("alice")
    there.refresh()
    assert there.names() == ()
    here.add(Member("Alice", "coder"))
    there.refresh()
    assert there.names() == ("Alice",)


def test_a_request_that_was_answered_is_not_open_again(roster: Start, remembers: Remember, intruder: Intruder) -> None:
    here = roster(remembers())
    here.add(Member("alice", "coder", IDLE))
    request = here.submit_plan("alice", "the plan")
    old = intruder.copy("request")
    here.review_plan(request.id, "lead", approve=False)
    intruder.put_back("request", ("team", "id"), old)
    here.refresh()
    assert here.requests.all_open() == ()


@pytest.mark.parametrize("version", [0, 7, 2**62, 2**63 - 1])
def test_a_forged_version_keeps_nobody_from_changing_a_member(
    roster: Start, remembers: Remember, intruder: Intruder, version: int
) -> None:
    here, there = roster(remembers()), roster(remembers())
    here.add(Member("alice", "coder", IDLE))
    there.refresh()
    intruder.do(f"update member set version = {version}, doc = '{{}}'")
    here.refresh()
    here.transition("alice", WORKING)
    there.refresh()
    assert there.get("alice").status is WORKING


@pytest.mark.parametrize("column", ["doc", "sig"])
def test_a_row_that_is_too_large_is_not_fetched(
    roster: Start, remembers: Remember, intruder: Intruder, warnings: list[str], column: str
) -> None:
    here = roster(remembers())
    here.add(Member("alice", "coder", IDLE))
    intruder.do(f"update member set version = 9, {column} = repeat('x', 70000000)")
    here.refresh()
    assert warnings == ["the row of the member 'alice' in the database does not count: it is too large"]
    here.transition("alice", WORKING)
    assert roster(remembers()).names() == ("alice",)


# Tasks


@pytest.fixture
def board(team: Team, lead: Fence, warnings: list[str]) -> Callable[[], StoredBoard]:
    from teamcli.store.postgres.tasks import TaskRows

    return lambda: StoredBoard(TaskRows(team, lead, Newest(), warnings.append), lambda: NAMES)


Board = Callable[[], StoredBoard]


def test_a_task_that_is_done_is_not_free_again(board: Board, intruder: Intruder, warnings: list[str]) -> None:
    here = board()
    here.create("lead", "work")
    old = intruder.copy("task")
    here.claim_next("alice")
    here.update("alice", 1, TaskChange(status=TaskStatus.COMPLETED))
    intruder.put_back("task", TASK, old)
    intruder.do("update task set change = 4")
    intruder.do("update team set task_changes = 4")
    assert here.get(1).status is TaskStatus.COMPLETED
    assert here.claim_next("bob") is None
    assert "it is older than one that was here" in warnings[0]
    assert len(warnings) == 1


@pytest.mark.parametrize("number", [-1, 0, 1, 2**53, 2**62, 2**63 - 1])
def test_no_number_of_changes_makes_two_agents_claim_one_task(board: Board, intruder: Intruder, number: int) -> None:
    here, there = board(), board()
    for _ in range(3):
        here.create("lead", "work")
    there.tasks()
    intruder.do(f"update team set task_changes = {number}")
    claimed = [each.claim_next(name) for each in (here, there, board()) for name in ("alice", "bob")]
    assert sorted(task.id for task in claimed if task) == [1, 2, 3]
    assert {task.id: task.owner for task in board().tasks()} == {task.id: task.owner for task in claimed if task}


@pytest.mark.parametrize("number", [0, 999_999_999, 2**62])
def test_no_last_number_fills_the_board(board: Board, intruder: Intruder, number: int) -> None:
    here = board()
    here.create("lead", "work")
    intruder.do(f"update team set last_task = {number}")
    assert here.create("lead", "more").id == 2


@pytest.mark.parametrize("version", [2, 2**63 - 1])
def test_a_forged_version_keeps_nobody_from_changing_a_task(board: Board, intruder: Intruder, version: int) -> None:
    here = board()
    here.create("lead", "work")
    intruder.do(f"update task set version = {version}, doc = repeat('x', 70000000), change = 5")
    here.update("lead", 1, TaskChange(subject="changed"))
    assert [task.subject for task in board().tasks()] == ["changed"]


# Conversations and the timeline


@pytest.fixture
def conversation(team: Team, lead: Fence, tmp_path: Path, warnings: list[str]) -> Callable[[Newest], Any]:
    from teamcli.store.postgres.transcripts import TranscriptRows

    return lambda newest: TranscriptRows(team, lead, newest, "alice", 1, tmp_path / "alice.jsonl", warnings.append)


def test_a_conversation_whose_end_is_missing_is_not_continued_on_a_host_that_knows_more(
    conversation: Callable[[Newest], Any], remembers: Remember, intruder: Intruder, tmp_path: Path
) -> None:
    newest = remembers()
    conversation(newest).append({"n": 0}, {"n": 1})
    newest.close()
    intruder.do("delete from transcript where seq = 1")
    with pytest.raises(StateError, match=r"the end of the conversation of 'alice' is missing.*restored from a backup"):
        conversation(remembers())
    (tmp_path / "newest.json").unlink()
    conversation(remembers()).append({"n": 2})
    assert (tmp_path / "alice.jsonl").read_text() == '{"n":0}\n{"n":2}\n'


@pytest.mark.parametrize("seq", [1, 2, 50, 2**53, 2**63 - 1])
def test_a_forged_row_at_any_number_ends_no_conversation(
    conversation: Callable[[Newest], Any], remembers: Remember, intruder: Intruder, tmp_path: Path, seq: int
) -> None:
    log = conversation(remembers())
    log.append({"n": 0})
    forge = f"select team, agent, incarnation, {seq}, 9, repeat('x', 10), sig from transcript where seq = 0"
    intruder.do(f"insert into transcript (team, agent, incarnation, seq, epoch, entry, sig) {forge}")
    log.append({"n": 1}, {"n": 2})
    log.append({"n": 3})
    again = conversation(remembers())
    again.append({"n": 4})
    expected = "".join(f'{{"n":{n}}}\n' for n in range(5))
    assert (tmp_path / "alice.jsonl").read_text() == expected
    conversation(remembers())
    assert (tmp_path / "alice.jsonl").read_text() == expected


def test_a_line_that_is_too_large_is_not_fetched(
    conversation: Callable[[Newest], Any], remembers: Remember, intruder: Intruder, tmp_path: Path, warnings: list[str]
) -> None:
    log = conversation(remembers())
    log.append({"n": 0}, {"n": 1})
    intruder.do("update transcript set entry = repeat('x', 70000000) where seq = 0")
    conversation(remembers())
    assert (tmp_path / "alice.jsonl").read_text() == '{"n":1}\n'
    assert len(warnings) == 1


def test_forged_lines_hide_no_position(team: Team, conversation: Callable[[Newest], Any], intruder: Intruder) -> None:
    from teamcli.store.postgres.transcripts import read_position

    conversation(Newest()).append({"kind": "user", "marks": {"inbox": {"offset": 77, "check": ""}}})
    forge = "select team, agent, 5, generate_series(1, 100), epoch, entry, '' from transcript where seq = 0"
    intruder.do(f"insert into transcript (team, agent, incarnation, seq, epoch, entry, sig) {forge}")
    assert read_position(team, "alice") == 77


@pytest.mark.parametrize("seq", [0, 1, 2**53, 2**63 - 1])
def test_a_forged_event_at_any_number_ends_no_timeline(
    team: Team, intruder: Intruder, tmp_path: Path, seq: int
) -> None:
    from teamcli.store.postgres.events import EventRows
    from teamcli.store.team_reader import TeamReader

    forge = f"insert into event (team, host, seq, entry) values ({team.id}, 'box', {seq}, '{{\"event\": \"forged\"}}')"
    intruder.do(forge)
    log = EventRows(team, Newest(), "box", tmp_path / "one.jsonl")
    log.append({"n": 0}, {"n": 1})
    EventRows(team, Newest(), "box", tmp_path / "two.jsonl").append({"n": 2})
    entries = [(row.entry, row.is_signed) for row in TeamReader(team).events("box", 0)]
    assert [entry for entry, is_signed in entries if is_signed] == ['{"n":0}', '{"n":1}', '{"n":2}']
    assert [entry for entry, is_signed in entries if not is_signed] == ['{"event":"forged","unverified":true}']


# Mail and orders


def test_a_copy_of_a_message_is_set_aside(here: HostBus, rows: PostgresEngine) -> None:
    here.send(letter("pay"))
    (body,) = rows.content().decode().splitlines()
    rows.insert(body)
    found = here.unread("alice", BEGINNING)
    assert contents(found.messages) == ["pay"]
    assert here.unread("alice", found.position).messages == ()
    assert not here.has_unread("alice", found.position)
    assert [each["reason"] for each in rows.set_aside()] == ["a copy of a message"]


@pytest.mark.parametrize("end", [10**6, 2**53, 2**62])
def test_an_end_of_an_inbox_that_goes_up_and_down_makes_no_message_disappear(
    here: HostBus, rows: PostgresEngine, intruder: Intruder, end: int
) -> None:
    here.send(letter("one"))
    intruder.do(f"update inbox set tail = {end}")
    here.look_again()
    position = here.unread("alice", BEGINNING).position
    intruder.do("update inbox set tail = 10")
    here.look_again()
    here.send(letter("two"))
    assert here.has_unread("alice", position)
    assert contents(here.unread("alice", position).messages) == ["two"]


def test_a_lowered_end_hides_no_message(here: HostBus, there: HostBus, intruder: Intruder) -> None:
    here.send(letter("one"))
    intruder.do("update inbox set tail = 0")
    there.look_again()
    assert there.has_unread("alice", BEGINNING)
    assert contents(there.unread("alice", BEGINNING).messages) == ["one"]


@pytest.mark.parametrize("incarnation", [0, 1, 99, 2**31 - 1])
def test_no_incarnation_that_an_intruder_names_brings_old_mail_back_or_makes_new_mail_void(
    here: HostBus, there: HostBus, intruder: Intruder, incarnation: int
) -> None:
    here.send(letter("old"))
    for _ in range(2):
        position = here.begin_anew("alice")
    here.send(letter("new"))
    intruder.do(f"update inbox set incarnation = {incarnation}")
    there.send(letter("newer"))
    intruder.do("update message set pos = pos + 1000000 where pos = 0")
    assert contents(here.unread("alice", position).messages) == ["new", "newer"] or incarnation < 2
    assert "old" not in contents(here.unread("alice", position).messages)
    position = here.begin_anew("alice")
    there.send(letter("newest"))
    assert contents(here.unread("alice", position).messages) == ["newest"]


def test_an_order_is_obeyed_once_and_only_by_the_process_that_it_was_for(
    make_host: HostMaker, team: Team, tmp_path: Path, intruder: Intruder
) -> None:
    from types import SimpleNamespace

    from teamcli.app.held_members import HostLeases
    from teamcli.app.store_engine import _Orders
    from teamcli.store.postgres.bus import PostgresBus
    from teamcli.team.remote_teammate import Order

    def leases(name: str) -> Any:
        host = make_host(name)
        bus = PostgresBus(team, host._fence, Newest(), tmp_path)
        engine = SimpleNamespace(host=host, team=team, scope=CancelScope())
        return HostLeases(engine, bus)  # type: ignore[arg-type]

    def orders(found: list[Message]) -> list[Any]:
        return [order.fields["order"] for order in found]

    first, asker = leases("box"), make_host("lead")
    assert first.take("alice")
    bus = PostgresBus(team, asker._fence, Newest(), tmp_path)
    sender = _Orders(SimpleNamespace(host=asker, team=team), bus, None)  # type: ignore[arg-type]
    sender.order("alice", Order.PAUSE, "why")
    sender.order("alice", Order.RESUME)
    assert orders(first.new_orders("alice")) == ["pause", "resume"]
    move = "update message set pos = pos + 100000 where inbox = 'alice/orders'"
    intruder.do(move)
    assert orders(first.new_orders("alice")) == []
    expire(team, "box")
    second = leases("other")
    assert second.take("alice")
    intruder.do(move)
    assert orders(second.new_orders("alice")) == []
    sender.order("alice", Order.INTERRUPT)
    assert orders(second.new_orders("alice")) == ["interrupt"]


# A host that has seen more rows than it can remember


def see_many_rows(newest: Newest) -> None:
    """So many that all earlier ones are forgotten."""
    from teamcli.store.postgres.newest import MOST_REMEMBERED

    for n in range(MOST_REMEMBERED):
        newest.admits(f"transcript/{n}/1", 1)


def test_a_member_that_a_host_has_forgotten_is_changed_for_all_hosts(
    roster: Start, remembers: Remember, team: Team
) -> None:
    newest = remembers()
    here, there = roster(newest), roster(Newest(team.uid))
    here.add(Member("alice", "coder", IDLE))
    for paused in (True, False, True, False):
        here.update("alice", paused=paused)
    there.refresh()
    see_many_rows(newest)
    here.update("alice", paused=True)
    there.refresh()
    assert there.get("alice").paused


def test_a_task_that_a_host_has_forgotten_is_claimed_once(team: Team, lead: Fence, warnings: list[str]) -> None:
    from teamcli.store.postgres.tasks import TaskRows

    newest = Newest(team.uid)
    here = StoredBoard(TaskRows(team, lead, newest, warnings.append), lambda: NAMES)
    there = StoredBoard(TaskRows(team, lead, Newest(team.uid), warnings.append), lambda: NAMES)
    here.create("lead", "work")
    here.update("lead", 1, TaskChange(description="more"))
    there.tasks()
    see_many_rows(newest)
    assert here.claim_next("alice")
    assert there.claim_next("bob") is None
    assert there.get(1).owner == "alice"


def test_the_next_version_of_a_forgotten_row_is_newer_also_after_a_restart(remembers: Remember) -> None:
    newest = remembers()
    newest.admits("task/1", 7)
    see_many_rows(newest)
    newest.close()
    assert newest.of("task/1") == 0
    assert remembers().next("task/1") == 8


def test_a_host_forgets_the_rows_first_that_it_has_not_looked_at_for_longest(team: Team) -> None:
    from teamcli.store.postgres.newest import MOST_REMEMBERED

    newest = Newest(team.uid)
    newest.admits("member/alice", 7)
    newest.admits("member/bob", 7)
    for n in range(MOST_REMEMBERED - 1):
        newest.admits("member/alice", 7)
        newest.admits(f"task/{n}", 1)
    assert newest.of("member/alice") == 7
    assert newest.of("member/bob") == 0
