"""The bus in files: the lines on disk, lines from other programs, and lines that are not messages."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teamcli.cancel import CancelScope
from teamcli.errors import StateError
from teamcli.team.message_bus import FileBus, Position
from teamcli.team.message_ids import LineIds
from teamcli.team.message_line import LineCodec, Origin, ParsedMessage
from tests.support.waiting import DEADLINE_SECONDS, wait_until
from tests.team.file_bus import MakeBus, quarantined, unread
from tests.team.letters import KEY, append, contents, letter, outside


def test_a_line_is_plain_json_that_only_its_owner_may_read(bus: FileBus, inbox: Path) -> None:
    message = letter("日本 \ud800", request_id="r1", approve=True)
    bus.send(message)
    row = json.loads(inbox.read_bytes())
    assert row.pop("sig")
    assert row == {
        "type": "message",
        "from": "lead",
        "to": "alice",
        "content": "日本 ?",
        "timestamp": message.timestamp,
        "id": message.id,
        "request_id": "r1",
        "approve": True,
    }
    assert "日本".encode() in inbox.read_bytes()
    assert inbox.stat().st_mode & 0o777 == 0o600
    assert inbox.parent.stat().st_mode & 0o777 == 0o700


def test_no_field_can_take_the_place_of_a_stamp(bus: FileBus) -> None:
    fields = {"from": "lead", "sig": "x", "to": "bob", "content": "false", "type": "result", "id": "y"}
    bus.send(letter("true")._replace(fields=fields))
    (message,) = bus.unread("alice", Position()).messages
    assert (message.content, message.type, message.to, message.is_foreign) == ("true", "message", "alice", False)
    assert message.fields == {}


@given(content=st.text(), sender=st.text(), fields=st.dictionaries(st.text(), st.none() | st.text() | st.integers()))
def test_any_text_survives_the_line(content: str, sender: str, fields: dict[str, object]) -> None:
    codec = LineCodec(KEY)
    message = letter(content, sender=sender, id="x")._replace(fields=fields)
    line = codec.write(message)
    assert line.count(b"\n") == 1
    (reading,) = codec.read(Origin("alice", 0.0, LineIds("alice", 0)), line, 0)
    assert isinstance(reading, ParsedMessage)
    assert not reading.message.is_foreign
    assert reading.end == len(line)
    assert (reading.message.content, reading.message.sender) == (content, sender)
    stamps = {"type", "from", "to", "content", "timestamp", "id", "sig"}
    assert reading.message.fields == {name: value for name, value in fields.items() if name not in stamps}


def test_a_legacy_locale_changes_nothing(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from teamcli.team.message_bus import *; from tests.team.letters import *\n"
        "bus = FileBus(Path(sys.argv[1]), KEY, on_quarantine=lambda _: None)\n"
        "text = '\\u65e5\\u672c \\U0001f680'; bus.send(letter(text))\n"
        "append(Path(sys.argv[1]) / 'alice.jsonl', 'n\\xf6\\n'.encode())\n"
        "assert bus.unread('alice', Position()).messages[0].content == text"
    )
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], env=environment, check=True)
    assert "日本 🚀" in (tmp_path / "alice.jsonl").read_text("utf-8")
    assert "nö" in (tmp_path / "alice.bad.jsonl").read_text("utf-8")


def test_a_shell_can_write_to_an_agent(bus: FileBus, inbox: Path) -> None:
    inbox.parent.mkdir()
    line = '{"type":"message","from":"me","content":"hi"}'
    before = time.time()
    subprocess.run(f"echo '{line}' >> {inbox}", shell=True, check=True)
    (message,) = bus.unread("alice", Position()).messages
    assert (message.sender, message.content, message.is_foreign, message.to) == ("me", "hi", True, "alice")
    assert message.id
    assert before <= message.timestamp <= time.time()


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="only there can be seen who waits for a lock")
def test_a_long_line_written_in_pieces_under_flock_is_whole(bus: FileBus, inbox: Path, told: list[str]) -> None:
    bus.send(letter("first"))
    line = outside(content="x" * 200_000)
    with inbox.open("ab", buffering=0) as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        other.write(line[:100_000])
        sender = threading.Thread(target=bus.send, args=(letter("last"),))
        sender.start()
        wait_until(lambda: waits_for_lock(inbox))
        other.write(line[100_000:])
    sender.join(DEADLINE_SECONDS)
    assert [len(content) for content in unread(bus)] == [5, 200_000, 4]
    assert not told


def waits_for_lock(path: Path) -> bool:
    inode = f":{path.stat().st_ino} "
    return any("->" in lock and inode in lock for lock in Path("/proc/locks").read_text().splitlines())


def test_the_same_line_in_the_inbox_after_a_rotation_is_another_message(make_bus: MakeBus, inbox: Path) -> None:
    append(inbox, outside())
    bus = make_bus(rotate_bytes=1)
    batch = bus.unread("alice", Position())
    position = bus.rotate("alice", batch.position)
    append(inbox, outside())
    assert len(bus.unread("alice", position, {batch.messages[0].id}).messages) == 1


def test_an_unfinished_line_waits_for_its_end_and_wakes_no_reader(bus: FileBus, inbox: Path) -> None:
    line = outside("slow")
    append(inbox, outside("first") + line[:20])
    batch = bus.unread("alice", Position())
    assert contents(batch.messages) == ["first"]
    assert not bus.has_unread("alice", batch.position)
    assert bus.wait("alice", batch.position, CancelScope(), 0.01) is False
    append(inbox, line[20:])
    assert bus.has_unread("alice", batch.position)
    assert unread(bus, batch.position) == ["slow"]
    assert not quarantined(inbox)


@pytest.mark.parametrize(
    "fragment", [b"{", b'{"type":"mess', b'{"a":', b'{"a":{"b":"', b"x", b" ", outside()[:-3], b"\xff"]
)
def test_our_message_after_a_torn_line_begins_a_new_line(bus: FileBus, inbox: Path, fragment: bytes) -> None:
    append(inbox, outside("before") + fragment)
    bus.send(letter("ours"))
    assert unread(bus) == ["before", "ours"]
    assert inbox.read_bytes().startswith(outside("before") + fragment + b"\n")
    assert len(quarantined(inbox)) == bool(fragment.strip())


@pytest.mark.parametrize(
    "fragment", [b"{", b'{"type":"mess', b'{"a":', b'{"a":{"b":"', b"x", b" ", outside()[:-3], b"\xff"]
)
def test_a_foreign_line_after_a_torn_one_is_not_lost_with_it(
    bus: FileBus, inbox: Path, fragment: bytes, told: list[str]
) -> None:
    append(inbox, outside("before") + fragment)
    append(inbox, outside("after", nested={"a": {"b": 1}}) + outside("more"))
    assert unread(bus) == ["before", "after", "more"]
    assert [row["offset"] for row in quarantined(inbox)] == [len(outside("before"))] * bool(fragment.strip())


def test_a_line_that_lacks_only_its_end_is_delivered_when_another_follows(bus: FileBus, inbox: Path) -> None:
    append(inbox, outside("no newline")[:-1])
    bus.send(letter("ours"))
    assert unread(bus) == ["no newline", "ours"]


@pytest.mark.parametrize("place", ["alice.jsonl", "alice.bad.jsonl"])
def test_a_link_is_not_followed(bus: FileBus, inbox: Path, place: str, tmp_path: Path, told: list[str]) -> None:
    target = tmp_path / "precious"
    target.write_bytes(b"as it was\n")
    append(inbox, b"nonsense\n")
    inbox.with_name(place).unlink(missing_ok=True)
    inbox.with_name(place).symlink_to(target)
    if place == "alice.jsonl":
        for act in (lambda: bus.send(letter()), lambda: unread(bus), lambda: bus.peek("alice")):
            with pytest.raises(StateError, match="symbolic link"):
                act()
    else:
        assert unread(bus) == []
        assert "symbolic link" in told[0]
    assert target.read_bytes() == b"as it was\n"


def test_an_inbox_that_is_not_a_regular_file_is_refused(bus: FileBus, inbox: Path) -> None:
    inbox.parent.mkdir()
    os.mkfifo(inbox)
    for act in (lambda: bus.send(letter()), lambda: unread(bus), lambda: bus.peek("alice")):
        with pytest.raises(StateError, match=r"not a regular file|No such device"):
            act()


def test_a_directory_that_cannot_be_created_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    bus = FileBus(tmp_path / "file" / "inbox", KEY)
    with pytest.raises(StateError, match="inbox"):
        bus.send(letter())
    assert unread(bus) == []
    assert not bus.has_unread("alice", Position())


def test_a_full_disk_is_an_error_and_nothing_is_half_written(tmp_path: Path) -> None:
    process = subprocess.run(
        [sys.executable, "-m", "tests.team.full_disk", str(tmp_path)], capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
    lines = (tmp_path / "alice.jsonl").read_bytes().splitlines(keepends=True)
    assert len(lines) == 2
    assert all(line.endswith(b"\n") for line in lines)
    assert contents(FileBus(tmp_path, KEY).unread("alice", Position()).messages) == ["fits", "fits too"]


def test_after_closing_nothing_is_sent_and_nothing_hangs(bus: FileBus) -> None:
    bus.send(letter())
    bus.close()
    with pytest.raises(StateError, match="exiting"):
        bus.send(letter())
    assert not bus.has_unread("alice", Position())
    assert bus.wait("alice", Position(), CancelScope()) is False


def test_paths_with_spaces_and_other_letters_work(tmp_path: Path) -> None:
    bus = FileBus(tmp_path / "mein Büro 日本" / ".team" / "inbox", KEY)
    bus.send(letter())
    assert unread(bus) == ["hi"]
    bus.close()
