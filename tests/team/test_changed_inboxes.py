"""Inboxes that are deleted, emptied, edited or replaced: no message is lost, and none is delivered twice."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from teamcli.team.message_bus import FileBus, Position
from tests.support.waiting import wait_until
from tests.team.file_bus import MakeBus, unread
from tests.team.letters import append, contents, letter, outside


def test_a_deleted_inbox_breaks_nothing_and_comes_back_with_the_next_message(bus: FileBus, inbox: Path) -> None:
    for message in ("one", "two"):
        bus.send(letter(message))
    position = bus.unread("alice", Position()).position
    inbox.unlink()
    assert not bus.has_unread("alice", position)
    assert bus.unread("alice", position).messages == ()
    for message in ("three", "four", "five"):
        bus.send(letter(message))
    assert bus.has_unread("alice", position)
    assert unread(bus, position) == ["three", "four", "five"]


@pytest.mark.parametrize("lines", [1, 2, 3])
def test_a_new_file_in_the_place_of_a_deleted_one_is_read_from_its_beginning(
    make_bus: MakeBus, inbox: Path, lines: int
) -> None:
    append(inbox, outside("one") + outside("two"))
    bus = make_bus()
    position = bus.unread("alice", Position()).position
    bus.close()
    inbox.unlink()
    append(inbox, outside("six") * lines)
    assert unread(make_bus(), position) == ["six"] * lines


def empty(inbox: Path) -> None:
    os.truncate(inbox, 0)


@pytest.mark.parametrize("remove", [Path.unlink, empty])
def test_the_same_line_is_a_new_message_once_the_old_file_is_seen_to_be_gone(
    make_bus: MakeBus, inbox: Path, remove: Callable[[Path], None]
) -> None:
    append(inbox, outside("same"))
    bus, heard = make_bus(), list[str]()
    batch = bus.unread("alice", Position())
    bus.subscribe(heard.append)
    append(inbox, b"\n")
    wait_until(lambda: heard)  # it looks
    remove(inbox)
    gone = inbox.with_name("alice.state.json")
    wait_until(lambda: bus.has_unread("alice", batch.position) or gone.exists())
    append(inbox, outside("same"))
    seen = {batch.messages[0].id}
    assert len(bus.unread("alice", batch.position, seen).messages) == 1
    assert len(make_bus().unread("alice", batch.position, seen).messages) == 1


def test_a_file_that_is_restored_after_it_was_gone_delivers_nothing_twice(make_bus: MakeBus, inbox: Path) -> None:
    append(inbox, outside("same") * 2)
    batch = make_bus().unread("alice", Position())
    aside = inbox.rename(inbox.with_name("aside"))
    os.utime(aside, (1_000_000_000, 1_000_000_000))
    make_bus().rotate("alice", batch.position)
    aside.rename(inbox)
    bus = make_bus()
    position = bus.rotate("alice", batch.position)
    seen = {message.id for message in batch.messages}
    assert bus.unread("alice", position, seen).messages == ()
    append(inbox, outside("same"))
    assert len(bus.unread("alice", position, seen).messages) == 1


@pytest.mark.parametrize("remove", [Path.unlink, empty])
def test_the_same_line_is_a_new_message_if_the_file_was_gone_at_a_start(
    make_bus: MakeBus, inbox: Path, remove: Callable[[Path], None]
) -> None:
    append(inbox, outside("same"))
    batch = make_bus().unread("alice", Position())
    remove(inbox)
    make_bus().rotate("alice", batch.position)
    append(inbox, outside("same"))
    bus = make_bus()
    position = bus.rotate("alice", batch.position)
    again = bus.unread("alice", position, {batch.messages[0].id})
    assert len(again.messages) == 1
    seen = {message.id for message in (*batch.messages, *again.messages)}
    assert make_bus().unread("alice", again.position, seen).messages == ()


REPLACE: dict[str, Callable[[Path], object]] = {
    "sed -i": lambda path: subprocess.run(["sed", "-i", "s/a/a/", path], check=True),
    "sed -i that changes a line": lambda path: subprocess.run(["sed", "-i", "s/signed/SIGNED/", path], check=True),
    "sed -i that deletes a line": lambda path: subprocess.run(["sed", "-i", "/signed/d", path], check=True),
    "cp -a back": lambda path: shutil.move(shutil.copy2(path, f"{path}.copy"), path),
    "an editor that writes in place": lambda path: path.write_bytes(path.read_bytes()),
    "an editor that keeps a backup": lambda path: path.rename(f"{path}~").touch() or shutil.copy(f"{path}~", path),
    "other line ends": lambda path: path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n")),
}


@pytest.mark.parametrize("name", REPLACE)
@pytest.mark.parametrize("is_running", [True, False])
def test_a_file_that_is_edited_or_replaced_delivers_nothing_twice_and_loses_nothing(
    make_bus: MakeBus, inbox: Path, name: str, is_running: bool, told: list[str]
) -> None:
    bus = make_bus(on_quarantine=told.append)
    append(inbox, outside("same"))
    bus.send(letter("signed"))
    append(inbox, outside("same") + b"nonsense\n" + outside("with an id", id="x"))
    batch = bus.unread("alice", Position())
    assert contents(batch.messages) == ["same", "signed", "same", "with an id"]
    append(inbox, outside("same"))  # not read yet
    seen = {message.read_as for message in batch.messages}
    for _ in range(2):
        REPLACE[name](inbox)
        bus = bus if is_running else make_bus(on_quarantine=told.append)
        position = bus.rotate("alice", batch.position) if not is_running else batch.position
        again = bus.unread("alice", position, seen)
        assert [each for each in contents(again.messages) if each != "signed" and each != "SIGNED"] == ["same"]
    seen |= {message.read_as for message in again.messages}
    REPLACE[name](inbox)
    assert [m for m in bus.unread("alice", again.position, seen).messages if m.content == "same"] == []
    append(inbox, outside("same"))
    assert "same" in contents(bus.unread("alice", again.position, seen).messages)
    assert "same" in contents(make_bus().unread("alice", again.position, seen).messages)
    assert len(told) == 1


def test_a_line_is_new_though_an_equal_one_was_deleted_before(make_bus: MakeBus, inbox: Path) -> None:
    append(inbox, outside("same") * 3 + outside("other"))
    batch = make_bus().unread("alice", Position())
    seen = {message.id for message in batch.messages}
    inbox.write_bytes(outside("same") + outside("other"))
    assert make_bus().unread("alice", batch.position, seen).messages == ()
    append(inbox, outside("same") * 2)
    again = make_bus().unread("alice", batch.position, seen)
    assert contents(again.messages) == ["same", "same"]
    seen |= {message.id for message in again.messages}
    inbox.write_bytes(inbox.read_bytes() + b"\n" + outside("new"))
    assert contents(make_bus().unread("alice", again.position, seen).messages) == ["new"]


def test_many_lines_in_a_replaced_file_are_delivered_in_parts_and_none_twice(make_bus: MakeBus, inbox: Path) -> None:
    append(inbox, outside("old") * 5)
    bus = make_bus()
    batch = bus.unread("alice", Position())
    read = [message.read_as for message in batch.messages]
    inbox.write_bytes(b"".join(outside(f"{n} new") for n in range(20)) + outside("old") * 6)
    taken, position = [], batch.position
    while (batch := bus.unread("alice", position, set(read), most=500)).messages:
        taken += contents(batch.messages)
        read += [message.read_as for message in batch.messages]
        position = Position.from_mark(json.loads(json.dumps(batch.position.to_mark())))
    assert taken == [*(f"{n} new" for n in range(20)), "old"]


@pytest.mark.parametrize("is_running", [True, False])
def test_an_inbox_cut_in_place_and_grown_to_its_old_length_loses_nothing(
    make_bus: MakeBus, inbox: Path, is_running: bool
) -> None:
    bus = make_bus()
    for content in ("1", "2", "3"):
        bus.send(letter(content))
    batch = bus.unread("alice", Position())
    assert not bus.has_unread("alice", batch.position)
    os.truncate(inbox, inbox.read_bytes().index(b"\n") + 1)
    for content in ("4", "5"):
        make_bus().send(letter(content))
    assert inbox.stat().st_size == batch.position.offset
    bus = bus if is_running else make_bus()
    assert bus.has_unread("alice", batch.position)
    seen = {message.id for message in batch.messages}
    assert contents(bus.unread("alice", batch.position, seen).messages) == ["4", "5"]


def test_a_position_of_an_earlier_version_is_still_valid(make_bus: MakeBus, inbox: Path) -> None:
    append(inbox, outside("read"))
    offset = inbox.stat().st_size
    append(inbox, outside("unread"))
    position = Position.from_mark({"offset": offset, "file": 1234})
    assert unread(make_bus(), position) == ["unread"]


def test_an_inbox_that_was_emptied_is_read_from_its_beginning(bus: FileBus, inbox: Path) -> None:
    append(inbox, outside("a long line that is gone later"))
    position = bus.unread("alice", Position()).position
    os.truncate(inbox, 0)
    assert not bus.has_unread("alice", position)
    bus.send(letter("new"))
    assert unread(bus, position) == ["new"]


@pytest.mark.parametrize("kept", [b"", outside("one")])
def test_an_inbox_that_was_rewritten_loses_nothing_new(bus: FileBus, inbox: Path, kept: bytes) -> None:
    append(inbox, outside("one") + outside("two"))
    batch = bus.unread("alice", Position())
    inbox.write_bytes(kept + outside("three") * 3)
    seen = {message.id for message in batch.messages}
    assert contents(bus.unread("alice", batch.position, seen).messages) == ["three"] * 3


def test_a_deleted_directory_comes_back_with_the_mail_that_was_in_it(bus: FileBus, inbox: Path) -> None:
    bus.send(letter("one"))
    shutil.rmtree(inbox.parent)
    bus.send(letter("two"))
    assert unread(bus) == ["one", "two"]
