"""The bus in files: what stands on the disk, who may write to it, and what becomes of lines that are no messages."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teamcli.cancel import CancelScope
from teamcli.errors import StateError
from teamcli.team.bus import FileBus, Position
from teamcli.team.line import LineCodec, Origin, ParsedMessage
from teamcli.team.line_ids import LineIds
from teamcli.team.message import MessageType, message_id
from teamcli.team.signing import ensure_token, key_of, load_key
from tests.support.waiting import DEADLINE_SECONDS, wait_until
from tests.team.letters import KEY, append, contents, letter, outside

BEGINNING = Position()
FRAGMENTS = [b"{", b'{"type":"mess', b'{"a":', b'{"a":{"b":"', b"x", b" ", outside()[:-3], b"\xff"]
MakeBus = Callable[..., FileBus]


@pytest.fixture
def make_bus(tmp_path: Path) -> Iterator[MakeBus]:
    """Each call is a start of the program."""
    made: list[FileBus] = []

    def make(**options: object) -> FileBus:
        made.append(FileBus(tmp_path / "inbox", KEY, **({"durable": False, "poll_seconds": 0.02} | options)))
        return made[-1]

    yield make
    for bus in made:
        bus.close()


@pytest.fixture
def bus(make_bus: MakeBus, told: list[str]) -> FileBus:
    return make_bus(on_quarantine=told.append)


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    return tmp_path / "inbox" / "alice.jsonl"


def unread(bus: FileBus, position: Position = BEGINNING) -> list[str]:
    return contents(bus.unread("alice", position).messages)


def codec_of(inbox: Path) -> LineCodec:
    return LineCodec(key_of(ensure_token(inbox.parent), KEY))


def quarantined(inbox: Path) -> list[dict[str, object]]:
    path = inbox.with_name("alice.bad.jsonl")
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


# The lines


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
        "import sys; from pathlib import Path; from teamcli.team.bus import *; from tests.team.letters import *\n"
        "bus = FileBus(Path(sys.argv[1]), KEY, on_quarantine=lambda _: None)\n"
        "text = '\\u65e5\\u672c \\U0001f680'; bus.send(letter(text))\n"
        "append(Path(sys.argv[1]) / 'alice.jsonl', 'n\\xf6\\n'.encode())\n"
        "assert bus.unread('alice', Position()).messages[0].content == text"
    )
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], env=environment, check=True)
    assert "日本 🚀" in (tmp_path / "alice.jsonl").read_text("utf-8")
    assert "nö" in (tmp_path / "alice.bad.jsonl").read_text("utf-8")


# Lines from outside


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


def test_a_foreign_line_keeps_its_id_and_time_and_nothing_else_is_trusted(bus: FileBus, inbox: Path) -> None:
    append(inbox, outside(id="mine", timestamp=5, to="bob", request_id="r", approve=True, sig="x"))
    (message,) = bus.unread("alice", Position()).messages
    assert (message.id, message.timestamp, message.to, message.fields) == ("mine", 5.0, "alice", {})


@pytest.mark.parametrize("timestamp", [float("nan"), float("inf"), 10**400, -1, "soon", None, [1]])
def test_an_invalid_time_is_replaced_by_the_time_the_line_was_seen(
    bus: FileBus, inbox: Path, timestamp: object
) -> None:
    append(inbox, outside(timestamp=timestamp))
    (message,) = bus.unread("alice", Position()).messages
    assert abs(message.timestamp - time.time()) < DEADLINE_SECONDS


@pytest.mark.parametrize("id", ["", "x" * 101, 7, None, "a\nb", message_id("alice", "call", "bob")])
def test_an_invalid_id_or_one_that_looks_like_ours_is_replaced(bus: FileBus, inbox: Path, id: object) -> None:
    append(inbox, outside(id=id) * 2)
    first, second = bus.unread("alice", Position()).messages
    assert first.id != second.id
    assert id not in (first.id, second.id)


def test_the_id_of_a_line_without_one_survives_restarts(make_bus: MakeBus, inbox: Path) -> None:
    append(inbox, outside() * 2)
    first, second = (make_bus().unread("alice", Position()).messages for _ in range(2))
    assert [message.id for message in first] == [message.id for message in second]


def test_the_same_line_in_the_inbox_after_a_rotation_is_another_message(make_bus: MakeBus, inbox: Path) -> None:
    append(inbox, outside())
    bus = make_bus(rotate_bytes=1)
    batch = bus.unread("alice", Position())
    position = bus.rotate("alice", batch.position)
    append(inbox, outside())
    assert len(bus.unread("alice", position, {batch.messages[0].id}).messages) == 1


def test_odd_but_harmless_lines_are_delivered(bus: FileBus, inbox: Path) -> None:
    append(inbox, b"\n  \n" + outside("crlf").replace(b"\n", b"\r\n"))
    append(inbox, b'  { "type" : "broadcast", "from":"", "content":"a\ttab" }  \n')
    append(inbox, outside("surrogate").replace(b"surrogate", b"\\ud800!"))
    assert unread(bus) == ["crlf", "a\ttab", "?!"]
    assert not quarantined(inbox)


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
    make_bus: MakeBus, inbox: Path, told: list[str], line: bytes, reason: str
) -> None:
    before = outside("before")
    append(inbox, before + line + b"\n" + outside("after"))
    bus = make_bus(on_quarantine=told.append)
    assert unread(bus) == unread(bus) == ["before", "after"]
    assert unread(make_bus(on_quarantine=told.append)) == ["before", "after"]
    (row,) = quarantined(inbox)
    assert reason in str(row["reason"])
    assert row["offset"] == len(before)
    assert row.get("line") == line.decode() if line.isascii() else row["base64"]
    assert len(told) == 1
    assert reason in told[0]
    assert "alice.bad.jsonl" in told[0]
    assert contents(entry.message for entry in bus.peek("alice")) == ["before", "after"]


def test_peek_sets_nothing_aside(bus: FileBus, inbox: Path, told: list[str]) -> None:
    append(inbox, b"nonsense\n" + outside())
    assert len(bus.peek("alice")) == 1
    assert not told
    assert not quarantined(inbox)


def test_many_bad_lines_are_reported_at_once_and_each_is_kept(bus: FileBus, inbox: Path, told: list[str]) -> None:
    append(inbox, b"bad\n" * 3)
    unread(bus)
    append(inbox, b"worse\n")
    unread(bus)
    assert [row["offset"] for row in quarantined(inbox)] == [0, 4, 8, 12]
    assert len(told) == 2
    assert told[0].startswith("3 lines")
    assert told[1].startswith("a line")


def test_mail_is_delivered_even_if_nothing_can_be_set_aside(bus: FileBus, inbox: Path, told: list[str]) -> None:
    append(inbox, b"nonsense\n" + outside("after"))
    inbox.with_name("alice.bad.jsonl").mkdir()
    assert unread(bus) == unread(bus) == ["after"]
    assert len(told) == 1
    assert "cannot be set aside" in told[0]


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


def test_a_lone_bad_line_wakes_no_reader_again_even_if_the_position_stays(bus: FileBus, inbox: Path) -> None:
    append(inbox, b"nonsense\n")
    assert bus.has_unread("alice", Position())
    assert unread(bus) == []
    assert not bus.has_unread("alice", Position())
    append(inbox, outside())
    assert bus.has_unread("alice", Position())


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


# Signatures


def only_foreign(bus: FileBus, name: str = "alice") -> bool:
    messages = bus.unread(name, Position()).messages
    return bool(messages) and all(message.is_foreign for message in messages)


@pytest.mark.parametrize(
    "forge",
    [
        lambda line: line.replace(b"hi", b"ho"),
        lambda line: line.replace(b'"lead"', b'"user"'),
        lambda line: line.replace(b"1800000000.5", b"1800000000.6"),
        lambda line: line.replace(b'"id":"msg_', b'"id":"msg_0'),
        lambda line: line.replace(b'"sig"', b'"request_id":"r","sig"'),
        lambda line: line.replace(b'{"type"', b'{"request_id":"r","type"'),
        lambda line: line[:-3] + b'","content":"ho"}\n',
        lambda line: line[:-4] + (b"0" if line[-4:-3] != b"0" else b"1") + b'"}\n',
        lambda line: line[:-43] + b'"}\n',
        lambda line: line.replace(b"}", b" }"),
    ],
)
def test_a_signed_line_that_was_changed_is_foreign(bus: FileBus, inbox: Path, forge: Callable[[bytes], bytes]) -> None:
    line = codec_of(inbox).write(letter("hi"))
    assert forge(line) != line
    append(inbox, forge(line))
    assert only_foreign(bus)


def test_a_signed_line_in_another_inbox_is_foreign(bus: FileBus, inbox: Path) -> None:
    bus.send(letter(to="bob"))
    shutil.copy(inbox.with_name("bob.jsonl"), inbox)
    assert only_foreign(bus)


def test_a_line_with_another_users_key_is_foreign(bus: FileBus, inbox: Path) -> None:
    append(inbox, LineCodec(b"another key").write(letter()))
    assert only_foreign(bus)


def test_mail_stays_signed_when_the_project_is_renamed(tmp_path: Path) -> None:
    bus = FileBus(tmp_path / "old" / "inbox", KEY, durable=False)
    bus.send(letter("done")._replace(type=MessageType.RESULT))
    bus.close()
    (tmp_path / "old").rename(tmp_path / "new")
    moved = FileBus(tmp_path / "new" / "inbox", KEY, durable=False)
    (message,) = moved.unread("alice", Position()).messages
    moved.close()
    assert (message.content, message.type, message.is_foreign) == ("done", MessageType.RESULT, False)


@pytest.mark.parametrize("token", [b"", b"short", b"0" * 31 + b"\xff", b"0" * 200])
def test_a_damaged_token_is_replaced_before_anything_is_signed(make_bus: MakeBus, inbox: Path, token: bytes) -> None:
    append(inbox.parent.with_name(".inbox-token"), token)
    make_bus().send(letter("ours"))
    assert not only_foreign(make_bus())
    assert unread(make_bus()) == ["ours"]


def test_programs_that_sign_for_the_first_time_at_once_agree_on_the_token(tmp_path: Path) -> None:
    barrier, tokens = threading.Barrier(16), []

    def load() -> None:
        barrier.wait()
        tokens.append(ensure_token(tmp_path / "inbox"))

    threads = [threading.Thread(target=load) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(tokens) == 16
    assert len(set(tokens)) == 1
    assert [path.name for path in tmp_path.iterdir()] == [".inbox-token"]


def test_a_line_that_was_written_for_an_earlier_incarnation_is_set_aside(
    make_bus: MakeBus, inbox: Path, told: list[str]
) -> None:
    bus = make_bus(on_quarantine=told.append)
    bus.send(letter("old order"))
    old = inbox.read_bytes()
    for n in range(2):
        position = bus.begin_anew("alice")
        bus.send(letter(f"new order {n}"))
        append(inbox, old)
        batch = bus.unread("alice", position)
        assert contents(batch.messages) == [f"new order {n}"]
        assert not batch.messages[0].is_foreign
        assert unread(make_bus(), position) == [f"new order {n}"]
        old = inbox.read_bytes()[position.offset :]
    assert len(told) == 2
    assert "an earlier incarnation" in told[0]
    assert len(bus.peek("alice")) == 6  # whoever looks sees them all


def test_no_field_can_set_the_incarnation(make_bus: MakeBus, inbox: Path) -> None:
    bus = make_bus()
    bus.send(letter("old")._replace(fields={"incarnation": 7}))
    old = inbox.read_bytes()
    position = bus.begin_anew("alice")
    append(inbox, old)
    assert unread(bus, position) == []


def test_a_forged_order_is_set_aside(bus: FileBus, inbox: Path) -> None:
    order = letter()._replace(type=MessageType.SHUTDOWN_REQUEST)
    append(inbox, LineCodec(b"another key").write(order))
    append(inbox, codec_of(inbox).write(order._replace(to="bob")))
    assert unread(bus) == []
    assert len(quarantined(inbox)) == 2


def test_a_copy_of_a_signed_line_is_not_a_second_message(bus: FileBus, inbox: Path) -> None:
    message = letter()
    bus.send(message)
    append(inbox, inbox.read_bytes() * 2)
    batch = bus.unread("alice", Position())
    assert len(batch.messages) == 1
    append(inbox, codec_of(inbox).write(message))
    assert bus.unread("alice", batch.position, {message.id}).messages == ()


def test_a_foreign_line_cannot_keep_our_message_from_being_sent_or_read(bus: FileBus, inbox: Path) -> None:
    message = letter("ours")
    append(inbox, outside("theirs", id=message.id, to="alice"))
    assert bus.send_once(message) is True
    assert unread(bus) == ["theirs", "ours"]


# Replaced, rotated, deleted, full


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
    append(inbox, outside("a long line that is not there any more"))
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


# Waking


def test_a_foreign_append_wakes_waiting_threads_and_notifies_subscribers(bus: FileBus, inbox: Path) -> None:
    heard: list[str] = []
    bus.subscribe(heard.append)
    position = Position()
    for n in range(3):
        threading.Timer(0.05, append, (inbox, outside(str(n)))).start()
        assert bus.wait("alice", position, CancelScope(), DEADLINE_SECONDS) is True
        batch = bus.unread("alice", position)
        assert contents(batch.messages) == [str(n)]
        position = batch.position
        wait_until(lambda n=n: len(heard) > n)  # who waits may be quicker than who is told
    assert set(heard) == {"alice"}


def test_our_own_messages_are_not_reported_again_by_the_watcher(bus: FileBus, inbox: Path) -> None:
    heard: list[str] = []
    bus.subscribe(heard.append)
    for _ in range(200):
        bus.send(letter())
    for name in ("bob", "carol"):  # each takes the watcher another look
        append(inbox.with_name(f"{name}.jsonl"), outside())
        wait_until(lambda name=name: name in heard)
    assert heard.count("alice") < 250  # a look in the very moment of a write may tell of it too


def test_files_that_are_not_inboxes_are_ignored(bus: FileBus, inbox: Path) -> None:
    heard: list[str] = []
    bus.subscribe(heard.append)
    for name in ("user", "ALL", "a b", "alice.bad", "1", "alice.1"):
        append(inbox.with_name(f"{name}.jsonl"), outside())
    append(inbox, outside())
    wait_until(lambda: heard)
    append(inbox, outside())
    wait_until(lambda: len(heard) >= 2)
    assert set(heard) == {"alice"}


def test_a_subscriber_that_cannot_use_one_inbox_does_not_stop_the_watcher(bus: FileBus, inbox: Path) -> None:
    heard: list[str] = []

    def look(name: str) -> None:
        heard.append(name)
        bus.has_unread(name, Position())
        bus.unread(name, Position())

    bus.subscribe(look)
    inbox.parent.mkdir()
    inbox.with_name("bob.jsonl").symlink_to("/dev/null")
    wait_until(lambda: "bob" in heard)
    append(inbox, outside())
    wait_until(lambda: "alice" in heard)


def test_a_directory_that_comes_and_goes_does_not_stop_the_watcher(bus: FileBus, inbox: Path) -> None:
    heard: list[str] = []
    bus.subscribe(heard.append)
    for n in range(1, 4):
        append(inbox, outside())
        wait_until(lambda n=n: len(heard) >= n)
        assert unread(bus) == ["hi"]
        shutil.rmtree(inbox.parent)


def test_waiting_costs_next_to_nothing_with_two_hundred_inboxes(tmp_path: Path) -> None:
    bus = FileBus(tmp_path, KEY, durable=False)
    scope = CancelScope()
    names = [f"mate{n}" for n in range(200)]
    positions = {}
    for name in names:
        bus.send(letter(to=name))
        positions[name] = bus.unread(name, Position()).position
    threads = [threading.Thread(target=bus.wait, args=(name, positions[name], scope)) for name in names]
    for thread in threads:
        thread.start()
    began, used = time.monotonic(), time.process_time()
    bus.wait("lead", Position(), scope, 2.0)
    share = (time.process_time() - used) / (time.monotonic() - began)
    scope.cancel()
    for thread in threads:
        thread.join()
    bus.close()
    assert share < 0.05


# The key


def test_the_key_is_created_once_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    home = tmp_path / "home" / ".teamcli"
    key = load_key(home)
    assert len(key) == 32
    assert load_key(home) == key
    assert (home / "key").stat().st_mode & 0o777 == 0o600
    assert home.stat().st_mode & 0o777 == 0o700
    assert load_key(tmp_path / "other") != key


def test_programs_that_start_at_once_get_the_same_key(tmp_path: Path) -> None:
    barrier, keys = threading.Barrier(16), []

    def load() -> None:
        barrier.wait()
        keys.append(load_key(tmp_path))

    threads = [threading.Thread(target=load) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(keys) == 16
    assert len(set(keys)) == 1


def test_a_truncated_key_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"short")
    key = load_key(tmp_path)
    assert len(key) == 32
    assert not key.startswith(b"short")
    assert load_key(tmp_path) == key


def test_a_home_that_cannot_be_written_gives_a_key_for_this_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    first, second = load_key(tmp_path / "file"), load_key(tmp_path / "file")
    assert len(first) == len(second) == 32
    assert first != second
    (tmp_path / "key").symlink_to(tmp_path / "file")
    assert len(load_key(tmp_path)) == 32
    assert (tmp_path / "file").read_bytes() == b""
