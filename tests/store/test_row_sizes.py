"""How much of a team's rows is fetched at once, whatever someone has inserted."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from teamcli.storage.team_dir import TeamDir
from teamcli.store.postgres.newest import Newest
from teamcli.team.message import LEAD
from tests.store.intruder import Intruder
from tests.store.test_transfer import contents
from tests.support.file_team import KEY, make_team
from tests.support.postgres import hold_lease

if TYPE_CHECKING:
    from teamcli.store.postgres.team_rows import Team

PAGE = 1_000_000
HUGE = 3 * PAGE
SIGNED = ("member", "request", "task", "transcript", "event", "document")


class Measured:
    """A database, and how many characters each of its answers had."""

    def __init__(self, database: Any) -> None:
        self._database = database
        self.sizes: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    def fetch(self, *arguments: Any) -> Any:
        return self.measure(self._database.fetch(*arguments))

    def run(self, act: Callable[[Any], Any], *topics: Any) -> Any:
        return self._database.run(lambda cursor: act(_Cursor(cursor, self)), *topics)

    def measure(self, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        self.sizes.append(sum(len(field) for row in rows for field in row if isinstance(field, str)))
        return rows


class _Cursor:
    def __init__(self, cursor: Any, measured: Measured) -> None:
        self._cursor = cursor
        self._measured = measured

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def execute(self, *arguments: Any) -> _Cursor:
        self._cursor.execute(*arguments)
        return self

    def fetchall(self) -> Any:
        return self._measured.measure(self._cursor.fetchall())


@pytest.fixture
def intruder(postgres_url: str) -> Iterator[Intruder]:
    """With all rights, unlike a worker's."""
    with closing(Intruder(postgres_url)) as intruder:
        yield intruder


@pytest.fixture
def measured(team: Team) -> Measured:
    return Measured(team.database)


@pytest.fixture
def seen(team: Team, measured: Any) -> Team:
    """The same team, measured."""
    return team._replace(database=measured)


@pytest.mark.parametrize("has_key", [True, False])
def test_of_no_table_a_long_signature_is_fetched(
    team: Team, seen: Team, measured: Measured, intruder: Intruder, tmp_path: Path, has_key: bool
) -> None:
    from teamcli.store.importing import Import
    from teamcli.store.mirror import Mirror

    Import(team, make_team(tmp_path / ".team"), KEY).run()
    for table in SIGNED:
        intruder.do(f"update {table} set sig = repeat('x', {HUGE})")
    mirror = Mirror(seen, TeamDir(tmp_path / "copy"), has_key)
    mirror.bring_all()
    mirror.marks_of(LEAD)
    list(mirror.last_events("box"))
    assert max(measured.sizes) <= PAGE


def test_long_conversations_and_inboxes_are_brought_in_pages_and_are_the_same(
    team: Team, seen: Team, measured: Measured, tmp_path: Path
) -> None:
    from teamcli.store.exporting import export_team
    from teamcli.store.importing import Import

    source = make_team(tmp_path / "one" / ".team")
    for name in ("transcripts/lead.jsonl", "transcripts/alice.jsonl", "inbox/alice.jsonl", "events.jsonl"):
        with (source.root / name).open("a") as file:
            for number in range(30):
                line = {"kind": "user", "content": [], "n": number, "text": "x" * 100_000, "marks": {"mail": []}}
                file.write(json.dumps(line) + "\n" * (number < 29))
    before = contents(source)
    Import(team, source, KEY).run()
    target = TeamDir(tmp_path / "two" / ".team")
    export_team(seen, target, KEY)
    assert contents(target) == before
    assert max(measured.sizes) <= PAGE


def test_a_member_that_is_large_does_not_bring_the_others_with_it(
    seen: Team, measured: Measured, intruder: Intruder
) -> None:
    from teamcli.store.team_reader import TeamReader

    intruder.do(
        f"insert into member (team, name, doc, sig) select id, 'm' || g, repeat('x', {HUGE}), 'x'"
        " from team, generate_series(1, 4) g"
    )
    assert TeamReader(seen).roster().members == ()
    assert max(measured.sizes) <= HUGE + 100


def test_forged_tasks_are_fetched_one_after_the_other_and_once(
    seen: Team, measured: Measured, intruder: Intruder
) -> None:
    from teamcli.store.postgres.tasks import TaskRows
    from teamcli.tasks.stored_board import StoredBoard

    fence = hold_lease(seen, LEAD)
    warnings: list[str] = []
    board = StoredBoard(TaskRows(seen, fence, Newest(), warnings.append), lambda: (LEAD,))
    board.create(LEAD, "work")
    forge = "insert into task (team, id, version, change, status, doc, sig) select id, g, 1, {}, 'pending', {}, 'x'"
    for ids, change, doc in (("2, 5", 1 << 50, HUGE), ("6, 9", 3, HUGE), ("10, 12", 1 << 50, 9_000_000)):
        rows = forge.format(change, f"repeat('x', {doc})")
        intruder.do(f"{rows} from team, generate_series({ids}) g")
    measured.sizes.clear()
    assert [task.subject for task in board.tasks()] == ["work"]
    assert max(measured.sizes) <= HUGE + 100
    measured.sizes.clear()
    board.tasks()
    assert max(measured.sizes) == 0
    # What the team writes in their place counts, and what it writes elsewhere is seen.
    there = StoredBoard(TaskRows(seen, fence, Newest(), warnings.append), lambda: (LEAD,))
    for number in range(12):
        there.create(LEAD, f"more {number}")
    assert {task.subject for task in board.tasks()} == {"work", *(f"more {number}" for number in range(12))}


def test_of_forged_positions_one_is_fetched_at_a_time(
    team: Team, seen: Team, measured: Measured, intruder: Intruder, tmp_path: Path
) -> None:
    from teamcli.store.postgres.transcripts import TranscriptRows, read_position

    log = TranscriptRows(team, hold_lease(team, "alice"), Newest(), "alice", 1, tmp_path / "alice.jsonl")
    log.append({"kind": "user", "content": [], "marks": {"inbox": {"offset": 42, "check": "x"}}})
    log.close()
    intruder.do(
        "insert into transcript (team, agent, incarnation, seq, epoch, entry, sig)"
        f" select team, agent, 1, g, 1, entry || repeat('x', {HUGE}), 'x' from transcript, generate_series(1, 5) g"
    )
    assert read_position(seen, "alice") == 42
    assert max(measured.sizes) <= HUGE + 1_000


def test_of_forged_lines_in_the_way_one_is_fetched_at_a_time(
    seen: Team, measured: Measured, intruder: Intruder, tmp_path: Path
) -> None:
    from teamcli.store.postgres.transcripts import TranscriptRows

    log = TranscriptRows(seen, hold_lease(seen, "alice"), Newest(), "alice", 1, tmp_path / "alice.jsonl")
    log.append({"n": 0})
    intruder.do(
        "insert into transcript (team, agent, incarnation, seq, epoch, entry, sig)"
        f" select team, agent, 1, g, 1, repeat('x', {HUGE}), 'x' from transcript, generate_series(1, 5) g"
    )
    log.append({"n": 1})
    log.close()
    assert intruder.do("select seq, entry from transcript where sig <> 'x' order by seq") == [
        (0, '{"n":0}'),
        (6, '{"n":1}'),
    ]
    assert max(measured.sizes) <= HUGE + 1_000


def test_what_a_roster_has_besides_its_rows_is_not_fetched_if_it_is_large(
    seen: Team, measured: Measured, intruder: Intruder, tmp_path: Path
) -> None:
    from teamcli.store.postgres.roster import RosterRows
    from teamcli.store.team_reader import TeamReader

    intruder.do("update team set doc = '{\"x\": \"' || repeat('x', %s) || '\"}'", HUGE)
    roster = RosterRows(seen, hold_lease(seen, LEAD), Newest(), tmp_path / "config.json", copy_seconds=0)
    assert not roster.load().unknown
    assert not TeamReader(seen).roster().unknown
    assert max(measured.sizes) <= PAGE
