"""Lines from other programs, and lines that are not messages, in files and in a database."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from teamcli.team.message import MessageType, message_id
from teamcli.team.message_bus import MessageBus, Position
from teamcli.team.message_line import MAX_LINE_BYTES
from tests.support.waiting import DEADLINE_SECONDS, wait_until
from tests.team.engines import Engine, FileEngine
from tests.team.letters import contents, outside


@pytest.fixture
def bus(engine: Engine, told: list[str]) -> MessageBus:
    return engine.start(told.append)


def received(bus: MessageBus) -> list[str]:
    return contents(bus.unread("alice", Position()).messages)


def test_a_foreign_line_keeps_its_id_and_time_and_nothing_else_is_trusted(bus: MessageBus, engine: Engine) -> None:
    engine.append(outside(id="mine", timestamp=5, to="bob", request_id="r", approve=True, sig="x"))
    (message,) = bus.unread("alice", Position()).messages
    assert (message.id, message.timestamp, message.to, message.fields) == ("mine", 5.0, "alice", {})


@pytest.mark.parametrize("timestamp", [float("nan"), float("inf"), 10**400, -1, "soon", None, [1]])
def test_an_invalid_time_is_replaced_by_the_time_the_line_was_seen(
    bus: MessageBus, engine: Engine, timestamp: object
) -> None:
    engine.append(outside(timestamp=timestamp))
    (message,) = bus.unread("alice", Position()).messages
    assert abs(message.timestamp - time.time()) < DEADLINE_SECONDS


@pytest.mark.parametrize("id", ["", "x" * 101, 7, None, "a\nb", message_id("alice", "call", "bob")])
def test_an_invalid_id_or_one_that_looks_like_ours_is_replaced(bus: MessageBus, engine: Engine, id: object) -> None:
    engine.append(outside(id=id) * 2)
    first, second = bus.unread("alice", Position()).messages
    assert first.id != second.id
    assert id not in (first.id, second.id)


def test_the_id_of_a_line_without_one_survives_restarts(engine: Engine) -> None:
    engine.append(outside() * 2)
    first, second = (engine.start().unread("alice", Position()).messages for _ in range(2))
    assert [message.id for message in first] == [message.id for message in second]


def test_odd_but_harmless_lines_are_delivered(bus: MessageBus, engine: Engine) -> None:
    engine.append(b"\n  \n" + outside("crlf").replace(b"\n", b"\r\n"))
    engine.append(b'  { "type" : "broadcast", "from":"", "content":"a\ttab" }  \n')
    engine.append(outside("surrogate").replace(b"surrogate", b"\\ud800!"))
    assert received(bus) == ["crlf", "a\ttab", "?!"]
    assert not engine.set_aside()


BAD_LINES = [
    (b"half a li", "not JSON"),
    (b'{"type":"message","from":"me","content":"hi"', "torn"),
    (b"\xff\xfe", "not UTF-8"),
    (b'{"type":"message","from":"me","content":"\xe4"}', "not UTF-8"),
    (b"[1]", "not a JSON object"),
    (b"7", "not a JSON object"),
    (b"{}", "`type` is missing"),
    (b'{"type":"message","content":"hi"}', "`from` is missing"),
    (b'{"type":"message","from":"me"}', "`content` is missing"),
    (b'{"type":"message","from":"me","content":["hi"]}', "`content` must be a text"),
    (b'{"type":"news","from":"me","content":"hi"}', "'news' without a valid signature"),
    (b'{"type":["message"],"from":"me","content":"hi"}', "`type` must be a text"),
    (b"[" * 100_000, "not JSON"),
    (b'{"type":"message","from":"me","content":"%s"}' % (b"x" * 300_000), "longer than"),
    (b'{"type":"message","from":"me","content":"hi","n":%s}' % (b"9" * 10_000), "not JSON"),
    *((outside(type=kind).strip(), "without a valid signature") for kind in MessageType if "_" in kind),
    (outside(type="result").strip(), "without a valid signature"),
    (outside(type="error").strip(), "without a valid signature"),
]


@pytest.mark.parametrize(("line", "reason"), BAD_LINES, ids=lambda value: str(value)[:40])
def test_a_bad_line_is_set_aside_once_with_its_reason_and_all_others_are_delivered(
    engine: Engine, told: list[str], line: bytes, reason: str
) -> None:
    before = outside("before")
    engine.append(before + line + b"\n" + outside("after"))
    bus = engine.start(told.append)
    assert received(bus) == received(bus) == ["before", "after"]
    assert received(engine.start(told.append)) == ["before", "after"]
    (row,) = engine.set_aside()
    assert reason in str(row["reason"])
    assert row["offset"] == len(before)
    if isinstance(engine, FileEngine) or len(line) < MAX_LINE_BYTES:  # a large row stays in the database
        assert row.get("line") == line.decode() if line.isascii() else row["base64"]
    assert len(told) == 1
    assert reason in told[0]
    assert "alice.bad.jsonl" in told[0]
    assert contents(entry.message for entry in bus.peek("alice")) == ["before", "after"]


def test_peek_sets_nothing_aside(bus: MessageBus, engine: Engine, told: list[str]) -> None:
    engine.append(b"nonsense\n" + outside())
    assert len(bus.peek("alice")) == 1
    assert not told
    assert not engine.set_aside()


def test_many_bad_lines_are_reported_at_once_and_each_is_kept(bus: MessageBus, engine: Engine, told: list[str]) -> None:
    engine.append(b"bad\n" * 3)
    received(bus)
    engine.append(b"worse\n")
    received(bus)
    assert [row["offset"] for row in engine.set_aside()] == [0, 4, 8, 12]
    assert len(told) == 2
    assert told[0].startswith("3 lines")
    assert told[1].startswith("a line")


def test_mail_is_delivered_even_if_nothing_can_be_set_aside(
    bus: MessageBus, engine: Engine, told: list[str], tmp_path: Path
) -> None:
    engine.append(b"nonsense\n" + outside("after"))
    (tmp_path / "inbox/alice.bad.jsonl").mkdir(parents=True, exist_ok=True)
    assert received(bus) == received(bus) == ["after"]
    assert len(told) == 1
    assert "cannot be set aside" in told[0]


def test_a_lone_bad_line_wakes_no_reader_again_even_if_the_position_stays(engine: Engine) -> None:
    bus = engine.start(listens=True)
    engine.append(b"nonsense\n")
    wait_until(lambda: bus.has_unread("alice", Position()))
    assert received(bus) == []
    assert not bus.has_unread("alice", Position())
    engine.append(outside())
    wait_until(lambda: bus.has_unread("alice", Position()))
