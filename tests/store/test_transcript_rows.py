"""Transcripts and the timeline in PostgreSQL: kept once, in order, by one host at a time, with a copy in a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from teamcli.agent.conversation import Conversation, text_block
from teamcli.agent.transcript_sessions import begin_session, list_sessions
from teamcli.errors import LeaseLost, StateError
from teamcli.store.postgres.newest import Newest
from tests.store.conftest import HostMaker
from tests.support.postgres import expire, hold_lease, open_test_team

if TYPE_CHECKING:
    from teamcli.store.postgres.events import EventRows
    from teamcli.store.postgres.team_rows import Team
    from teamcli.store.postgres.transcripts import TranscriptRows

Open = Callable[..., "TranscriptRows"]


@pytest.fixture
def team(postgres_url: str) -> Iterator[Team]:
    team: Team = open_test_team(postgres_url)
    yield team
    team.database.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "alice.jsonl"


@pytest.fixture
def opened(team: Team, path: Path) -> Iterator[Open]:
    """Opens the conversation of alice, as a host that takes her over. A second one is another host."""
    from teamcli.store.postgres.transcripts import TranscriptRows

    logs = []

    def open_one(path: Path = path, incarnation: int = 1, **ports: Any) -> TranscriptRows:
        logs.append(TranscriptRows(team, hold_lease(team, "alice"), Newest(), "alice", incarnation, path, **ports))
        return logs[-1]

    yield open_one
    for log in logs:
        log.close()


def rows(team: Team, what: str = "entry", table: str = "transcript") -> list[Any]:
    """One column of a table, in its order."""
    sql = f"select {what} from {table} where team = %s order by seq"
    return team.database.run(lambda cursor: [row[0] for row in cursor.execute(sql, (team.id,)).fetchall()])


def spoil(team: Team, assignment: str, seq: int = 0) -> None:
    sql = f"update transcript set {assignment} where team = %s and seq = %s"
    team.database.run(lambda cursor: cursor.execute(sql, (team.id, seq)))


def test_the_rows_and_the_file_hold_the_same_lines(team: Team, path: Path, opened: Open) -> None:
    log = opened()
    log.append({"n": 1}, {"text": "Ünï 日本 \n \x00 \ud800"})
    log.append({"n": 2})
    assert rows(team) == path.read_text().splitlines()
    assert json.loads(rows(team)[1])["text"] == "Ünï 日本 \n \x00 ?"
    assert log.end == path.stat().st_size


def test_another_host_gets_a_file_with_the_same_bytes(path: Path, tmp_path: Path, opened: Open) -> None:
    opened().append(*({"n": number} for number in range(5)))
    copy = tmp_path / "there" / "alice.jsonl"
    log = opened(copy)
    assert copy.read_bytes() == path.read_bytes()
    log.append({"n": 5})
    assert copy.read_bytes().splitlines()[-1] == b'{"n":5}'


@pytest.mark.parametrize("old", [b"", b'{"n":0}\n', b'{"n":0}\n{"n', b"something else\n"])
def test_a_file_that_was_left_on_a_host_is_brought_up_to_date(tmp_path: Path, opened: Open, old: bytes) -> None:
    opened().append({"n": 0}, {"n": 1})
    copy = tmp_path / "left.jsonl"
    copy.write_bytes(old)
    opened(copy)
    assert copy.read_bytes() == b'{"n":0}\n{"n":1}\n'


def test_a_link_in_place_of_the_file_is_replaced_and_not_followed(tmp_path: Path, opened: Open) -> None:
    opened().append({"n": 0})
    outside, copy = tmp_path / "outside", tmp_path / "link.jsonl"
    outside.write_text("mine")
    copy.symlink_to(outside)
    opened(copy)
    assert outside.read_text() == "mine"
    assert copy.read_bytes() == b'{"n":0}\n'


def test_each_incarnation_has_its_own_conversation(team: Team, path: Path, tmp_path: Path, opened: Open) -> None:
    opened().append({"n": 0})
    later = opened(tmp_path / "later.jsonl", incarnation=2)
    later.append({"n": 1})
    assert (path.read_bytes(), (tmp_path / "later.jsonl").read_bytes()) == (b'{"n":0}\n', b'{"n":1}\n')
    assert rows(team, "seq") == [0, 0]


def test_what_is_written_is_kept_by_the_sync_that_follows(team: Team, opened: Open) -> None:
    log = opened()
    log.write({"n": 0})
    log.write({"n": 1})
    assert rows(team) == ['{"n":0}']
    log.sync()
    log.sync()
    assert rows(team) == ['{"n":0}', '{"n":1}']


def test_what_is_written_before_the_end_is_kept(team: Team, path: Path, opened: Open) -> None:
    log = opened()
    log.write({"n": 0})
    log.close()
    assert rows(team) == path.read_text().splitlines() == ['{"n":0}']


def test_nothing_is_kept_after_the_end(team: Team, opened: Open) -> None:
    log = opened()
    log.close()
    log.close()
    with pytest.raises(StateError, match="is closed: teamcli is exiting"):
        log.append({"n": 0})
    assert rows(team) == []


def test_a_host_that_was_replaced_writes_nothing(team: Team, path: Path, tmp_path: Path, opened: Open) -> None:
    old = opened()
    old.append({"n": 0})
    old.write({"n": "late"})
    new = opened(tmp_path / "new.jsonl")
    for attempt in (old.sync, lambda: old.append({"n": "later"})):
        with pytest.raises(LeaseLost, match="'alice' runs on another host now"):
            attempt()
    new.append({"n": 1})
    assert rows(team) == ['{"n":0}', '{"n":1}']
    assert path.read_bytes() == b'{"n":0}\n'


def test_a_host_that_has_given_its_agent_up_writes_nothing(team: Team, path: Path) -> None:
    from teamcli.store.postgres.transcripts import TranscriptRows

    fence = hold_lease(team, "alice")
    log = TranscriptRows(team, fence, Newest(), "alice", 1, path)
    fence.lose("alice", 1)
    fence.forget("alice")
    with pytest.raises(LeaseLost, match="'alice' does not run on this host"):
        log.append({"n": 0})
    assert rows(team) == []


def test_not_even_the_lead_writes_for_a_member_that_it_does_not_run(team: Team, path: Path) -> None:
    from teamcli.store.postgres.transcripts import TranscriptRows

    log = TranscriptRows(team, hold_lease(team, "lead"), Newest(), "alice", 1, path)
    with pytest.raises(LeaseLost, match="'alice' does not run on this host"):
        log.append({"n": 0})
    assert rows(team) == []


def test_a_line_whose_commit_was_not_confirmed_is_kept_once(team: Team, opened: Open) -> None:
    """The insert runs twice, as after a lost connection."""
    log = opened()
    log.append({"n": 0})
    log._next = 0
    log.append({"n": 0})
    assert rows(team) == ['{"n":0}']


def test_a_place_that_another_line_has_means_that_the_agent_was_continued_elsewhere(team: Team, opened: Open) -> None:
    log = opened()
    log.append({"n": 0})
    log._next = 0
    with pytest.raises(LeaseLost, match="the conversation of 'alice' was continued elsewhere"):
        log.append({"n": "other"})
    assert rows(team) == ['{"n":0}']


@pytest.mark.parametrize(
    "assignment", ["entry = '{}'", "sig = ''", "epoch = 9", "incarnation = 2", "agent = 'bob', incarnation = 1"]
)
def test_a_row_that_was_not_written_by_the_team_is_left_out_and_named(
    team: Team, tmp_path: Path, opened: Open, assignment: str
) -> None:
    from teamcli.store.postgres.transcripts import read_transcript

    log = opened()
    log.append({"n": 0}, {"n": 1})
    spoil(team, assignment, seq=1)
    warnings: list[str] = []
    agent, incarnation = team.database.run(
        lambda cursor: cursor.execute(
            "select agent, incarnation from transcript where team = %s and seq = 1", (team.id,)
        ).fetchone()
    )
    entries, following, _ = read_transcript(team, agent, incarnation, warnings.append)
    assert ('{"n":1}' in entries, "{}" in entries, following) == (False, False, 2)
    assert warnings == [
        f"rows of the conversation of '{agent}' are left out, since they are not signed with the team's key"
    ]


def test_a_team_with_another_key_reads_nothing(team: Team, opened: Open) -> None:
    from teamcli.store.postgres.transcripts import read_transcript

    opened().append({"n": 0})
    assert read_transcript(team._replace(key=b"x" * 32), "alice", 1, lambda text: None) == ([], 1, 0)


def test_a_full_disk_stops_nobody_and_the_copy_is_completed_later(
    team: Team, path: Path, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened()
    log.append({"n": 0})
    with monkeypatch.context() as full:

        def fail(*args: Any) -> None:
            raise StateError("the disk is full")

        full.setattr(log._file, "append", fail)
        log.append({"n": 1})
    log.append({"n": 2})
    assert rows(team) == path.read_text().splitlines() == ['{"n":0}', '{"n":1}', '{"n":2}']


def test_a_conversation_is_kept_and_restored(team: Team, path: Path, tmp_path: Path, opened: Open) -> None:
    log = opened()
    session = begin_session(log, "m")
    conversation = Conversation(log)
    conversation.add_user([text_block("hello")], is_next_sent=True)
    conversation.sync()
    copy = tmp_path / "there.jsonl"
    opened(copy)
    assert [(each.id, each.first_prompt) for each in list_sessions(copy)] == [(session, "hello")]


def test_a_conversation_that_was_taken_over_is_what_it_was_without_the_last_message(team: Team, opened: Open) -> None:
    conversation = Conversation(opened())
    conversation.add_user([text_block("hello")])
    conversation.add_user([text_block("late")], is_next_sent=True)
    hold_lease(team, "alice")
    with pytest.raises(LeaseLost):
        conversation.sync()
    assert [message.content for message in conversation.messages] == [(text_block("hello"),)]


class Measured:
    """A database, and how large each of its answers was."""

    def __init__(self, database: Any) -> None:
        self._database = database
        self.sizes: list[int] = []

    def fetch(self, query: str, values: dict[str, Any], *topics: Any) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = self._database.fetch(query, values, *topics)
        self.sizes.append(sum(len(field) for row in rows for field in row if isinstance(field, str)))
        return rows


def test_a_long_conversation_is_read_in_parts_that_a_slow_line_carries_in_time(team: Team, opened: Open) -> None:
    from teamcli.store.postgres.transcripts import read_transcript

    values = [{"n": n, "text": "ä" * size} for n, size in enumerate((*[100_000] * 25, 3_000_000, *[10] * 300))]
    opened().append(*values)
    measured: Any = Measured(team.database)
    entries, following, _ = read_transcript(team._replace(database=measured), "alice", 1, pytest.fail)
    assert [json.loads(entry) for entry in entries] == values
    assert following == len(values)
    assert max(measured.sizes) <= 1_000_000


# The timeline


@pytest.fixture
def timeline(team: Team, tmp_path: Path) -> Callable[[str], EventRows]:
    from teamcli.store.postgres.events import EventRows

    return lambda host: EventRows(team, Newest(), host, tmp_path / f"{host}.jsonl")


def test_each_host_numbers_its_own_events(team: Team, tmp_path: Path, timeline: Callable[[str], EventRows]) -> None:
    one, two = timeline("one"), timeline("two")
    one.append({"n": 0}, {"n": 1})
    two.append({"n": 2})
    one.append({"n": 3})
    one.close()
    timeline("one").append({"n": 4})
    assert sorted(rows(team, "host || seq", "event")) == ["one0", "one1", "one2", "one3", "two0"]
    assert (tmp_path / "one.jsonl").read_text().split() == ['{"n":0}', '{"n":1}', '{"n":3}', '{"n":4}']


def test_a_process_that_was_replaced_writes_no_events(team: Team, tmp_path: Path, make_host: HostMaker) -> None:
    from teamcli.store.postgres.events import EventRows

    first = make_host("box")
    log = EventRows(team, Newest(), "box", tmp_path / "first.jsonl", epoch=first.epoch)
    log.append({"n": 0})
    expire(team, "box")
    second = make_host("box")
    with pytest.raises(LeaseLost, match="another process is the host 'box' now"):
        log.append({"n": 1})
    EventRows(team, Newest(), "box", tmp_path / "second.jsonl", epoch=second.epoch).append({"n": 2})
    assert sorted(rows(team, "entry", "event")) == ['{"n":0}', '{"n":2}']


def test_events_whose_commit_was_not_confirmed_are_kept_once(team: Team, timeline: Callable[[str], EventRows]) -> None:
    log = timeline("one")
    for _ in range(2):
        log._next = 0
        log.append({"n": 0}, {"n": 1})
    log.append({"n": 2})
    assert rows(team, "entry", "event") == ['{"n":0}', '{"n":1}', '{"n":2}']


def test_a_host_continues_after_the_last_event_of_an_earlier_process(
    team: Team, timeline: Callable[[str], EventRows]
) -> None:
    new, old = timeline("one"), timeline("one")
    old.append({"n": "old"})
    new.append({"n": "new"}, {"n": "newer"})
    assert rows(team, "entry", "event") == ['{"n":"old"}', '{"n":"new"}', '{"n":"newer"}']
