"""What any message bus must do, whatever carries the messages."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from teamcli.cancel import CancelScope
from teamcli.errors import MessageTooLong, TeamError
from teamcli.team.message import Message, MessageType
from teamcli.team.message_bus import FileBus, MessageBus, Position
from tests.support.memory_bus import MemoryBus
from tests.support.postgres_bus import HostBus
from tests.support.waiting import DEADLINE_SECONDS, wait_until
from tests.team.letters import KEY, contents, letter

NOBODY_STOPS = CancelScope()


@pytest.fixture(params=["files", "durable files", "memory", "postgres"])
def bus(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MessageBus]:
    made: MessageBus
    if request.param == "memory":
        made = MemoryBus()
    elif request.param == "postgres":
        made = HostBus(request.getfixturevalue("postgres_url"), tmp_path / "inbox")
    else:
        made = FileBus(tmp_path / "inbox", KEY, durable="durable" in request.param, poll_seconds=0.02)
    yield made
    made.close()


def test_what_is_sent_is_received_as_it_was_and_in_order(bus: MessageBus) -> None:
    sent = [
        letter("first"),
        letter('日本 🚀 \x1b \u2028 \t\r\n<&>"\\'),
        letter("", sender="bob"),
        Message(
            MessageType.SHUTDOWN_REQUEST, "lead", "alice", "?", 1.25, "msg_1", {"request_id": "r", "approve": True}
        ),
    ]
    for message in sent:
        assert bus.send(message) is True
    assert list(bus.unread("alice", Position()).messages) == sent


def test_an_inbox_that_nobody_wrote_to_is_empty(bus: MessageBus) -> None:
    assert bus.unread("alice", Position()).messages == ()
    assert not bus.has_unread("alice", Position())
    assert bus.peek("alice") == []


def test_reading_consumes_nothing_until_the_reader_moves_on(bus: MessageBus) -> None:
    bus.send(letter("one"))
    batch = bus.unread("alice", Position())
    assert bus.unread("alice", Position()) == batch
    bus.send(letter("two"))
    assert contents(bus.unread("alice", batch.position).messages) == ["two"]
    assert contents(bus.unread("alice", Position()).messages) == ["one", "two"]


def test_has_unread_says_whether_there_is_more(bus: MessageBus) -> None:
    bus.send(letter())
    assert bus.has_unread("alice", Position())
    position = bus.unread("alice", Position()).position
    assert not bus.has_unread("alice", position)
    bus.send(letter())
    assert bus.has_unread("alice", position)


def test_every_agent_has_a_separate_inbox(bus: MessageBus) -> None:
    bus.send(letter("for alice"))
    bus.send(letter("for the lead", to="lead", sender="alice"))
    assert contents(bus.unread("alice", Position()).messages) == ["for alice"]
    assert contents(bus.unread("lead", Position()).messages) == ["for the lead"]


def test_peek_shows_what_is_read_and_what_is_not(bus: MessageBus) -> None:
    bus.send(letter("read"))
    position = bus.unread("alice", Position()).position
    bus.send(letter("unread"))
    bus.send(letter("seen", id="msg_seen"))
    entries = bus.peek("alice", position, {"msg_seen"})
    assert contents(entry.message for entry in entries) == ["read", "unread", "seen"]
    assert [entry.is_read for entry in entries] == [True, False, True]


def test_a_reader_that_starts_over_gets_only_later_messages(bus: MessageBus) -> None:
    bus.send(letter("old"))
    position = bus.begin_anew("alice")
    assert not bus.has_unread("alice", position)
    bus.send(letter("unread"))
    assert contents(bus.unread("alice", position).messages) == ["unread"]


def test_messages_that_the_reader_already_has_are_not_delivered_again(bus: MessageBus) -> None:
    first, second = letter("first"), letter("second")
    for message in (first, second, first, second):
        bus.send(message)
    assert contents(bus.unread("alice", Position()).messages) == ["first", "second"]
    assert contents(bus.unread("alice", Position(), {first.id}).messages) == ["second"]


def test_send_once_sends_only_what_is_not_in_the_inbox(bus: MessageBus) -> None:
    message = letter("result")
    assert bus.send_once(message) is True
    assert bus.send_once(message) is False
    position = bus.unread("alice", Position()).position
    assert bus.send_once(message) is False
    assert not bus.has_unread("alice", position)
    assert bus.send_once(letter("another")) is True


@pytest.mark.parametrize("name", ["../../escaped", "/abs/path", "", "user", "all", "team", "a b", "ä", "x" * 33, "a.b"])
def test_a_recipient_without_a_valid_name_is_refused(bus: MessageBus, name: str, tmp_path: Path) -> None:
    with pytest.raises(TeamError):
        bus.send(letter(to=name))
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_message_that_is_too_long_is_refused_and_the_limit_is_named(bus: MessageBus) -> None:
    with pytest.raises(MessageTooLong, match="256 KB"):
        bus.send(letter("x" * 256 * 1024))
    assert not bus.has_unread("alice", Position())
    bus.send(letter("x" * 255 * 1024))
    assert bus.has_unread("alice", Position())


def test_waiting_ends_at_once_if_there_is_mail(bus: MessageBus) -> None:
    bus.send(letter())
    assert bus.wait("alice", Position(), NOBODY_STOPS, None) is True


def test_waiting_ends_when_the_time_is_up(bus: MessageBus) -> None:
    assert bus.wait("alice", Position(), NOBODY_STOPS, 0.01) is False
    assert bus.wait("alice", Position(), NOBODY_STOPS, 0) is False


def in_thread(work: Callable[[], bool]) -> Callable[[], bool]:
    """Run it; the returned function gives its result, in time."""
    results: list[bool] = []
    thread = threading.Thread(target=lambda: results.append(work()), daemon=True)
    thread.start()

    def result() -> bool:
        thread.join(DEADLINE_SECONDS)
        assert results, "it still waits"
        return results[0]

    return result


def test_a_message_wakes_only_the_threads_that_wait_for_it(bus: MessageBus) -> None:
    scope = CancelScope()
    alice = [in_thread(lambda: bus.wait("alice", Position(), scope)) for _ in range(3)]
    bob = in_thread(lambda: bus.wait("bob", Position(), scope))
    bus.send(letter())
    assert all(result() for result in alice)
    scope.cancel()
    assert bob() is False


def test_cancelling_ends_a_wait(bus: MessageBus) -> None:
    scope = CancelScope()
    waiting = in_thread(lambda: bus.wait("alice", Position(), scope))
    scope.cancel()
    assert waiting() is False
    bus.send(letter())
    assert bus.wait("alice", Position(), scope) is False


def test_closing_ends_a_wait(bus: MessageBus) -> None:
    waiting = in_thread(lambda: bus.wait("alice", Position(), NOBODY_STOPS))
    bus.close()
    assert waiting() is False


def test_no_wake_up_is_lost_between_looking_and_waiting(bus: MessageBus) -> None:
    rounds = 300

    def read_all() -> bool:
        position = Position()
        for _ in range(rounds):
            assert bus.wait("alice", position, NOBODY_STOPS, DEADLINE_SECONDS)
            position = bus.unread("alice", position).position
            read.release()
        return True

    read = threading.Semaphore(0)
    reader = in_thread(read_all)
    for _ in range(rounds):
        bus.send(letter())
        assert read.acquire(timeout=DEADLINE_SECONDS)
    assert reader()


def test_subscribers_get_the_name_of_the_recipient(bus: MessageBus) -> None:
    heard: list[str] = []
    bus.subscribe(heard.append)
    bus.send(letter(to="alice"))
    bus.send(letter(to="lead"))
    assert list(dict.fromkeys(heard)) == ["alice", "lead"]


def test_many_threads_lose_nothing_and_keep_their_order(bus: MessageBus) -> None:
    def send_many(sender: str) -> None:
        for n in range(100):
            bus.send(letter(str(n), sender=sender))

    senders = [f"s{n}" for n in range(6)]
    threads = [threading.Thread(target=send_many, args=(sender,)) for sender in senders]
    for thread in threads:
        thread.start()
    received: list[Message] = []
    position = Position()

    def have_come() -> bool:
        nonlocal position
        batch = bus.unread("alice", position)
        received.extend(batch.messages)
        position = batch.position
        return len(received) >= 600

    wait_until(have_come)
    for thread in threads:
        thread.join()
    for sender in senders:
        assert [int(message.content) for message in received if message.sender == sender] == list(range(100))
    assert not bus.has_unread("alice", position)


def test_a_rotated_inbox_delivers_nothing_twice_and_everything_new(bus: MessageBus) -> None:
    bus.send(letter("old"))
    position = bus.rotate("alice", bus.unread("alice", Position()).position)
    assert not bus.has_unread("alice", position)
    bus.send(letter("new"))
    assert contents(bus.unread("alice", position).messages) == ["new"]
