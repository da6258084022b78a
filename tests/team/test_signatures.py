"""Signatures of messages: which lines count as ours, and where the key and the token come from."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from teamcli.team.message import MessageType
from teamcli.team.message_bus import FileBus, MessageBus, Position
from teamcli.team.message_line import LineCodec
from teamcli.team.signing import ensure_token, load_key
from tests.team.engines import Engine
from tests.team.file_bus import MakeBus, unread
from tests.team.letters import KEY, append, contents, letter, outside


@pytest.fixture
def bus(engine: Engine, told: list[str]) -> MessageBus:
    return engine.start(told.append)


def only_foreign(bus: MessageBus, name: str = "alice") -> bool:
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
def test_a_signed_line_that_was_changed_is_foreign(
    bus: MessageBus, engine: Engine, forge: Callable[[bytes], bytes]
) -> None:
    line = engine.codec().write(letter("hi"))
    assert forge(line) != line
    engine.append(forge(line))
    assert only_foreign(bus)


def test_a_signed_line_in_another_inbox_is_foreign(bus: MessageBus, engine: Engine) -> None:
    bus.send(letter(to="bob"))
    engine.append(engine.content("bob"))
    assert only_foreign(bus)


def test_a_line_with_another_users_key_is_foreign(bus: MessageBus, engine: Engine) -> None:
    engine.append(LineCodec(b"another key").write(letter()))
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
    bus: MessageBus, engine: Engine, told: list[str]
) -> None:
    bus.send(letter("old order"))
    old = engine.content()
    for n in range(2):
        position = bus.begin_anew("alice")
        bus.send(letter(f"new order {n}"))
        engine.append(old)
        batch = bus.unread("alice", position)
        assert contents(batch.messages) == [f"new order {n}"]
        assert not batch.messages[0].is_foreign
        assert contents(engine.start().unread("alice", position).messages) == [f"new order {n}"]
        old = engine.content()[position.offset :]
    assert len(told) == 2
    assert "an earlier incarnation" in told[0]
    assert len(bus.peek("alice")) == 6  # a look shows them all


def test_no_field_can_set_the_incarnation(bus: MessageBus, engine: Engine) -> None:
    bus.send(letter("old")._replace(fields={"incarnation": 7}))
    old = engine.content()
    position = bus.begin_anew("alice")
    engine.append(old)
    assert bus.unread("alice", position).messages == ()


def test_a_forged_order_is_set_aside(bus: MessageBus, engine: Engine) -> None:
    order = letter()._replace(type=MessageType.SHUTDOWN_REQUEST)
    engine.append(LineCodec(b"another key").write(order))
    engine.append(engine.codec().write(order._replace(to="bob")))
    assert bus.unread("alice", Position()).messages == ()
    assert len(engine.set_aside()) == 2


def test_a_copy_of_a_signed_line_is_not_a_second_message(bus: MessageBus, engine: Engine) -> None:
    message = letter()
    bus.send(message)
    engine.append(engine.content() * 2)
    batch = bus.unread("alice", Position())
    assert len(batch.messages) == 1
    engine.append(engine.codec().write(message))
    assert bus.unread("alice", batch.position, {message.id}).messages == ()


def test_a_foreign_line_cannot_keep_our_message_from_being_sent_or_read(bus: MessageBus, engine: Engine) -> None:
    message = letter("ours")
    engine.append(outside("theirs", id=message.id, to="alice"))
    assert bus.send_once(message) is True
    assert contents(bus.unread("alice", Position()).messages) == ["theirs", "ours"]


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
