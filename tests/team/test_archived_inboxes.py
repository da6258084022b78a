"""Inboxes that are archived at a start: what slow writers still append to them is delivered, once."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from teamcli.team.message_bus import FileBus, Position
from tests.support.waiting import wait_until
from tests.team.file_bus import MakeBus, quarantined, unread
from tests.team.letters import append, contents, letter, outside


def test_a_fully_read_inbox_over_the_limit_goes_to_the_archive(make_bus: MakeBus, inbox: Path) -> None:
    bus, position = make_bus(rotate_bytes=500), Position()
    sent = [letter(f"{n} {'x' * 500}") for n in range(3)]
    for message in sent:
        bus.send(message)
        position = bus.rotate("alice", bus.unread("alice", position).position)
        assert position == Position()
        assert not bus.has_unread("alice", position)
        assert not inbox.exists()
    archived = sorted(path.name for path in (inbox.parent / "archive").iterdir())
    assert archived == ["alice.1.jsonl", "alice.2.jsonl", "alice.3.jsonl"]
    assert not any(make_bus().send_once(message) for message in sent)


def test_an_inbox_with_unread_mail_or_under_the_limit_stays(make_bus: MakeBus, inbox: Path) -> None:
    bus = make_bus(rotate_bytes=500)
    bus.send(letter("small"))
    position = bus.unread("alice", Position()).position
    assert bus.rotate("alice", position) == position
    bus.send(letter("x" * 1000))
    assert bus.rotate("alice", position) == position
    assert bus.rotate("bob", Position()) == Position()
    assert inbox.exists()
    assert not (inbox.parent / "archive").exists()


def test_lines_that_a_slow_writer_appends_to_the_archived_file_are_delivered(make_bus: MakeBus, inbox: Path) -> None:
    heard: list[str] = []
    bus = make_bus(rotate_bytes=1)
    bus.send(letter("old"))
    fd = os.open(inbox, os.O_WRONLY | os.O_APPEND)
    position = bus.rotate("alice", bus.unread("alice", Position()).position)
    os.write(fd, outside("late 1"))
    assert unread(bus, position) == ["late 1"]
    bus.subscribe(heard.append)
    os.write(fd, outside("late 2"))
    wait_until(lambda: heard)
    assert unread(bus, position) == ["late 1", "late 2"]
    os.close(fd)


def open_for_ever(inbox: Path) -> int:
    """As `prog >> inbox` has it: a writer that keeps the file open whatever becomes of its name."""
    return os.open(inbox, os.O_WRONLY | os.O_APPEND)


def delivered(bus: FileBus, position: Position, seen: set[str]) -> tuple[list[str], Position]:
    batch = bus.unread("alice", position, seen)
    seen |= {message.read_as for message in batch.messages}
    return contents(batch.messages), batch.position if batch.messages else position


def test_lines_appended_to_an_archived_file_while_nothing_runs_are_delivered_once(
    make_bus: MakeBus, inbox: Path
) -> None:
    seen, position, writers = set[str](), Position(), []
    for n in range(3):
        bus = make_bus(rotate_bytes=1)
        bus.send(letter(f"old {n}"))
        read, position = delivered(bus, position, seen)
        assert read == [f"old {n}"]
        writers.append(open_for_ever(inbox))
        bus.close()
        bus = make_bus(rotate_bytes=1)
        position = bus.rotate("alice", position)
        bus.close()
    for n, fd in enumerate(writers):
        os.write(fd, outside(f"late {n}") * 2 + outside(f"late {n}", id=f"own {n}") + b"not JSON\n")
    for _ in range(2):
        bus = make_bus(rotate_bytes=10**6)
        position = bus.rotate("alice", position)
        read, position = delivered(bus, position, seen)
        bus.close()
        if _ == 0:
            assert sorted(read) == sorted(f"late {n}" for n in range(3) for _ in range(3))
        else:
            assert read == []
    assert len(quarantined(inbox)) == 3
    for fd in writers:
        os.close(fd)


def test_a_program_killed_right_after_it_moved_an_inbox_away_misses_nothing(make_bus: MakeBus, inbox: Path) -> None:
    seen, bus = set[str](), make_bus()
    bus.send(letter("old"))
    append(inbox, outside("same"))
    read, position = delivered(bus, Position(), seen)
    bus.close()
    writer = open_for_ever(inbox)
    (inbox.parent / "archive").mkdir()
    inbox.rename(inbox.parent / "archive" / "alice.1.jsonl")
    os.write(writer, outside("same"))
    for expected in (["same"], []):
        bus = make_bus()
        position = bus.rotate("alice", position)
        read, position = delivered(bus, position, seen)
        assert read == expected
        bus.close()
    os.close(writer)


def test_a_program_killed_before_it_recorded_copied_lines_delivers_them_once(make_bus: MakeBus, inbox: Path) -> None:
    seen, bus = set[str](), make_bus(rotate_bytes=1)
    bus.send(letter("old"))
    read, position = delivered(bus, Position(), seen)
    writer = open_for_ever(inbox)
    position = bus.rotate("alice", position)
    noted = inbox.with_name("alice.state.json").read_bytes()
    os.write(writer, outside("late") * 2)
    os.close(writer)
    read, position = delivered(bus, position, seen)
    bus.close()
    inbox.with_name("alice.state.json").write_bytes(noted)
    again, position = delivered(make_bus(), position, seen)
    assert (read, again) == (["late", "late"], [])


def test_deleted_archives_do_no_harm_and_their_numbers_are_not_reused(make_bus: MakeBus, inbox: Path) -> None:
    seen, position = set[str](), Position()
    for content in ("1", "2", "3"):
        bus = make_bus(rotate_bytes=1)
        position = bus.rotate("alice", position)
        bus.send(letter(content))
        read, position = delivered(bus, position, seen)
        assert read == [content]
        shutil.rmtree(inbox.parent / "archive", ignore_errors=True)
        bus.close()
    make_bus(rotate_bytes=1).rotate("alice", position)
    assert [path.name for path in (inbox.parent / "archive").iterdir()] == ["alice.3.jsonl"]


def test_lines_in_an_archived_file_that_was_emptied_are_delivered(make_bus: MakeBus, inbox: Path) -> None:
    seen, bus = set[str](), make_bus(rotate_bytes=1)
    bus.send(letter("old"))
    _, position = delivered(bus, Position(), seen)
    writer = open_for_ever(inbox)
    position = bus.rotate("alice", position)
    bus.close()
    os.truncate(inbox.parent / "archive" / "alice.1.jsonl", 0)
    os.write(writer, outside("late"))
    os.close(writer)
    for expected in (["late"], []):
        read, position = delivered(make_bus(), position, seen)
        assert read == expected


@pytest.mark.parametrize(
    "state",
    [
        {"archived": {"1": -5, "x": 1, "9" * 5000: 7, "": 0}, "moved": {"from": 1, "to": [2]}, "begun": 10**400},
        {"generation": "2", "incarnation": True, "archived": [1], "moved": [], "begun": "now"},
        {"moved": {"from": {"offset": 10**400}, "to": {"offset": -1}}, "begun": float("inf")},
    ],
)
def test_a_state_file_that_was_written_by_hand_does_no_harm(
    make_bus: MakeBus, inbox: Path, state: dict[str, object]
) -> None:
    append(inbox, outside("hi"))
    append(inbox.with_name("alice.state.json"), json.dumps(state).encode())
    bus = make_bus()
    position = bus.rotate("alice", Position.from_mark({"offset": 10**400, "check": "x", "generation": 0}))
    assert bus.has_unread("alice", position)
    assert unread(bus, position) == ["hi"]
    bus.begin_anew("alice")
    bus.send(letter("ours"))
    assert unread(make_bus()) == ["hi", "ours"]


def test_checking_a_thousand_archives_costs_little(make_bus: MakeBus, inbox: Path) -> None:
    archive = inbox.parent / "archive"
    archive.mkdir(parents=True)
    for n in range(1, 1001):
        (archive / f"alice.{n}.jsonl").write_bytes(outside())
    bus = make_bus()
    bus.unread("alice", bus.rotate("alice", Position()))
    used = time.process_time()
    for _ in range(10):
        assert unread(bus) == []
    assert (time.process_time() - used) / 10 < 0.05


def test_another_process_that_sends_during_a_rotation_reaches_the_new_file(make_bus: MakeBus, inbox: Path) -> None:
    bus, other = make_bus(rotate_bytes=1), make_bus()
    other.send(letter("old"))
    batch = bus.unread("alice", Position())
    position = bus.rotate("alice", batch.position)
    other.send(letter("new"))
    assert contents(bus.unread("alice", position, {batch.messages[0].id}).messages) == ["new"]
