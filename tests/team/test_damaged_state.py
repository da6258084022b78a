"""Files under `.team/` in which any value may be anything: readers use what is sound, and none crashes."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from teamcli.agent.conversation import History
from teamcli.agent.transcript_sessions import list_sessions, read_marks, session_rows
from teamcli.commands.reports.log import TimelineReader, last_lead_turn, timeline_table
from teamcli.commands.reports.sessions import describe_session
from teamcli.errors import StateError
from teamcli.storage.files import read_lines
from teamcli.subagents.ledger import Ledger, read_waiting
from teamcli.team.mailbox import Mailbox
from teamcli.team.piece_of_work import LatestWork, calls_in_latest_work, used_in
from teamcli.team.roster_file import read_team
from tests.support.memory_bus import MemoryBus
from tests.support.program import Program

ANYTHING: list[Any] = [None, 5, -1, 1e400, 10**400, True, "x", [], [5], [[]], {}, {"a": 1}, {"type": "text", "text": 5}]
WORK = {"number": 1, "by_user": False, "key": "a1"}
USAGE = {"input_tokens": 5, "output_tokens": 2}
TRANSCRIPT = [
    {"v": 1, "kind": "session", "id": "s-1", "ts": 1.0, "model": "m"},
    {
        "kind": "user",
        "ts": 2.0,
        "content": [{"type": "text", "text": "go"}],
        "marks": {"work": WORK, "inbox": {"offset": 3, "file": 4}, "mail": ["msg_1"]},
        "files": {"a.txt": "digest"},
    },
    {
        "kind": "assistant",
        "ts": 3.0,
        "key": "k",
        "content": [{"type": "tool_use", "id": "t", "name": "bash", "input": {"command": "ls"}}],
        "usage": USAGE,
        "cost_usd": 0.1,
        "stop_reason": "tool_use",
    },
    {"kind": "user", "ts": 4.0, "content": [{"type": "tool_result", "tool_use_id": "t", "content": "out"}]},
    {"kind": "compaction", "ts": 5.0, "shortened": {"t": "o"}, "opening": [{"type": "text", "text": "sum"}], "kept": 2},
    {"kind": "end", "ts": 6.0, "type": "result", "text": "done", "work": WORK},
    {"kind": "assistant", "ts": 7.0, "content": [{"type": "text", "text": "bye"}], "stop_reason": "end_turn"},
]
EVENTS = [
    {"ts": 1.0, "agent": "lead", "event": "turn_started"},
    {"ts": 2.0, "agent": "lead", "event": "tool_started", "tool": "bash", "id": "t", "summary": "$ ls"},
    {"ts": 3.0, "agent": "lead", "event": "tool_finished", "tool": "bash", "id": "t", "seconds": 0.1, "is_error": True},
    {"ts": 4.0, "agent": "alice", "event": "message", "to": "lead", "type": "result", "content": "hi"},
    {"ts": 5.0, "agent": "lead", "event": "answer", "model": "m", "usage": USAGE, "cost_usd": 0.1},
    {"ts": 6.0, "agent": "lead", "event": "turn_ended", "outcome": "done", "seconds": 1.0},
]
REQUEST = {"id": "req-1", "kind": "shutdown", "teammate": "a", "incarnation": 1, "asker": "lead", "created": 1.0}
MEMBER = {"name": "a", "role": "r", "status": "idle", "tools": ["bash"], "budget": {"usd": 1}, "used": {"usd": 1.0}}
TEAM = [{"v": 1, "team_name": "default", "members": [MEMBER], "requests": [{**REQUEST, "deadline": 2.0}]}]
LEDGER = [
    {
        "v": 1,
        "running": [{"id": "sa-1", "parent": "lead", "description": "d", "began": 1.0}],
        "waiting": [{"id": "sa-2", "parent": "lead", "waiting_for": "x"}],
    }
]


def read_transcript(path: Path) -> None:
    for session in list_sessions(path):
        describe_session(session)
        History.read(session_rows(path, session.id))
    Mailbox(MemoryBus(), "alice", read_marks(path))
    rows = [row for _, row in read_lines(path) if row is not None]
    Mailbox(MemoryBus(), "alice", {}).replay(rows)
    history = History.read(rows)
    LatestWork.read(rows, history)
    calls_in_latest_work(rows)
    used_in(rows)
    assert all(message.encoded for message in history.messages)


def read_events(path: Path) -> None:
    log = TimelineReader(path)
    timeline_table(list(log.read()), 20, 10.0).to_text()
    log.close()
    last_lead_turn(path)


def read_ledger(path: Path) -> None:
    Ledger(path)
    read_waiting(path)


@pytest.mark.parametrize(
    ("rows", "read"),
    [
        (TRANSCRIPT, read_transcript),
        (EVENTS, read_events),
        (TEAM, lambda path: read_team(path).encode()),
        (LEDGER, read_ledger),
    ],
    ids=["transcript", "events", "config", "subagents"],
)
def test_a_value_of_any_type_in_any_field_stops_no_agent(
    rows: list[dict[str, Any]], read: Callable[[Path], object], tmp_path: Path
) -> None:
    path = tmp_path / "file.jsonl"
    tried = 0
    for number, row in enumerate(rows):
        for place in places(row):
            for value in ANYTHING:
                changed = [*rows[:number], put(row, place, value), *rows[number + 1 :]]
                path.write_text("".join(json.dumps(each) + "\n" for each in changed))
                with contextlib.suppress(StateError):  # one sentence for the user; for a newer version, say
                    read(path)
                tried += 1
    assert tried > len(rows) * len(ANYTHING)


def places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield above
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield from places(each, (*above, key))


def put(value: Any, place: tuple[Any, ...], new: Any) -> Any:
    if not place:
        return new
    value = copy.deepcopy(value)
    target = value
    for key in place[:-1]:
        target = target[key]
    target[place[-1]] = new
    return value


def test_sessions_are_listed_although_a_line_holds_a_number_for_a_text(program: Program) -> None:
    assert program.run("--offline", "-p", "list").code == 0
    with (program.directory / ".team/transcripts/lead.jsonl").open("a") as file:
        file.write('{"v":1,"kind":"session","id":"s-2","ts":1.0}\n{"kind":"user","content":5}\n')
    ran = program.run("sessions")
    assert ran.code == 0
    assert "list" in ran.out
