"""The channel for watchers in other processes: over real sockets, with clients of every kind."""

from __future__ import annotations

import json
import os
import socket
import stat
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from teamcli.agent import events
from teamcli.agent.conversation import text_block
from teamcli.agent.events import Event
from teamcli.app.watch_channel import WatchChannel
from teamcli.errors import StateError
from teamcli.session import watch_server
from teamcli.session.follower import Follower
from teamcli.session.watch_client import Lagged, Snapshots, WatchClient
from teamcli.storage.team_dir import LeadLock, TeamDir
from teamcli.storage.unix_socket import connect
from tests.session.test_watching import Scene, words
from tests.support.waiting import wait_until

ALICE = "alice"
SOMEONE_ELSE = 54321
"""The id of a user who runs no test."""


class Channel:
    """The channel of a lead, and the thread that looks at it."""

    def __init__(self, directory: Path) -> None:
        self.scene = Scene(directory)
        self.state = self.scene.state
        self.state.root.chmod(0o700)
        lock = LeadLock.take(self.state.lock)
        assert lock is not None
        self.lock = lock
        self.channel = WatchChannel(self.state, lock, self.scene.bus, self.scene.watching, lambda: ["lead", ALICE])
        self._readers: list[Reader] = []
        self._is_over = threading.Event()
        self._looking = threading.Thread(target=self._look, daemon=True)
        self._looking.start()
        wait_until(self.state.watch_socket.exists)

    def _look(self) -> None:
        while not self._is_over.wait(0.01):
            self.channel.look()

    def close(self) -> None:
        for reader in self._readers:
            reader.client.close()
        self.end()

    def end(self) -> None:
        """As a lead that leaves."""
        self._is_over.set()
        self._looking.join()
        self.channel.close()
        self.lock.release()

    def connect(self, request: bytes = b'{"v":1,"watch":"alice"}\n') -> socket.socket:
        wait_until(lambda: self._open(ALICE))  # it listens only a moment after its socket is there
        connection = connect(self.state.watch_socket)
        connection.sendall(request)
        connection.settimeout(30)
        return connection

    def client(self, agent: str = ALICE) -> Reader:
        wait_until(lambda: self._open(agent))
        return self._readers[-1]

    def _open(self, agent: str) -> bool:
        client = WatchClient.open(self.state, agent, os.getpid())
        self._readers += [Reader(client)] if client else []
        return client is not None

    def emit(self, *all: Event) -> None:
        for event in all:
            self.scene.bus(event)


class Reader:
    """Reads what a client gets."""

    def __init__(self, client: WatchClient) -> None:
        self.client = client
        self.items: list[Event | Snapshots | Lagged] = []
        self.has_ended = False

    def read(self) -> None:
        items = self.client.read()
        self.has_ended = items is None
        self.items += items or []

    def wait_for(self, wanted: Any) -> None:
        def is_there() -> bool:
            self.read()
            return any(item == wanted and type(item) is type(wanted) for item in self.items)

        wait_until(is_there)

    def wait_for_snapshots(self, count: int = 1) -> list[Snapshots]:
        def found() -> list[Snapshots]:
            return [item for item in self.items if isinstance(item, Snapshots)]

        def are_there() -> bool:
            self.read()
            return len(found()) >= count

        wait_until(are_there)
        return found()


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[Channel]:
    made = Channel(tmp_path)
    yield made
    made.close()


def lines(connection: socket.socket) -> Iterator[dict[str, Any]]:
    with connection.makefile("rb") as file, suppress(ConnectionResetError):
        for line in file:
            yield json.loads(line)


def test_a_watcher_gets_a_snapshot_and_then_what_happens(channel: Channel) -> None:
    channel.emit(events.TextArrived(ALICE, "Hel"))
    reader = channel.client()
    first = reader.wait_for_snapshots()[0].snapshots
    channel.emit(last := events.TextArrived(ALICE, "lo"))
    reader.wait_for(last)
    assert [(each.agent, each.current) for each in first] == [(ALICE, (events.TextArrived(ALICE, "Hel"),))]


def test_a_watcher_of_one_agent_gets_nothing_of_another(channel: Channel) -> None:
    reader = channel.client()
    reader.wait_for_snapshots()
    channel.emit(events.TextArrived("bob", "secret"), last := events.TextArrived(ALICE, "x"))
    reader.wait_for(last)
    assert [item for item in reader.items if getattr(item, "agent", "") == "bob"] == []


def test_a_watcher_of_everyone_gets_a_snapshot_of_each_and_sees_who_comes_later(channel: Channel) -> None:
    reader = channel.client("")
    first = reader.wait_for_snapshots()[0].snapshots
    channel.emit(late := events.TextArrived("carol", "I am new"))
    reader.wait_for(late)
    assert [each.agent for each in first] == ["lead", ALICE]


def test_the_socket_is_private_and_gone_after_the_end(tmp_path: Path) -> None:
    channel = Channel(tmp_path)
    mode = stat.S_IMODE(channel.state.watch_socket.stat().st_mode)
    channel.close()
    assert mode == 0o600
    assert not channel.state.watch_socket.exists()


def test_what_happens_last_still_reaches_a_watcher(tmp_path: Path) -> None:
    channel = Channel(tmp_path)
    reader = channel.client()
    reader.wait_for_snapshots()
    channel.emit(last := events.Notice(ALICE, "bye"))
    channel.end()
    reader.wait_for(last)
    reader.client.close()


@pytest.mark.parametrize("left", ["socket", "file", "link"])
def test_what_a_dead_process_has_left_there_is_replaced(tmp_path: Path, left: str) -> None:
    state = TeamDir.of(tmp_path)
    state.root.mkdir(0o700)
    if left == "socket":
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(str(state.watch_socket))
    elif left == "file":
        state.watch_socket.write_text("x")
    else:
        state.watch_socket.symlink_to(tmp_path / "nowhere")
    channel = Channel(tmp_path)
    try:
        channel.client().wait_for_snapshots()
    finally:
        channel.close()


def test_a_directory_in_its_place_disturbs_nobody(tmp_path: Path) -> None:
    state = TeamDir.of(tmp_path)
    (state.watch_socket / "x").mkdir(parents=True)
    channel = Channel(tmp_path)
    channel.emit(events.TextArrived(ALICE, "x"))
    channel.close()
    assert (state.watch_socket / "x").exists()


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="the system has no other way to a long path")
def test_a_long_path_has_a_channel_too(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["a-long-name-of-a-directory"] * 8)
    deep.mkdir(parents=True)
    channel = Channel(deep)
    try:
        channel.client().wait_for_snapshots()
    finally:
        channel.close()
    assert len(os.fsencode(channel.state.watch_socket)) > 200


def test_a_socket_that_was_deleted_comes_back(channel: Channel) -> None:
    channel.state.watch_socket.unlink()
    wait_until(channel.state.watch_socket.exists)
    channel.client().wait_for_snapshots()


def test_a_lead_that_has_lost_its_directory_leaves_the_new_socket_alone(channel: Channel) -> None:
    channel.state.lock.unlink()
    channel.state.watch_socket.unlink()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(channel.state.watch_socket))
        inode = channel.state.watch_socket.stat().st_ino
        channel.channel.look()
        assert channel.state.watch_socket.stat().st_ino == inode


def test_a_private_state_has_no_channel(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    channel = WatchChannel(scene.state, None, scene.bus, scene.watching, list)
    channel.look()
    channel.close()
    assert not scene.state.watch_socket.exists()


def test_the_client_trusts_only_the_socket_of_the_lead(channel: Channel) -> None:
    assert WatchClient.open(channel.state, ALICE, lead=1) is None


def test_another_user_is_refused(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("teamcli.storage.unix_socket.peer", lambda connection: (1, SOMEONE_ELSE))
    with channel.connect() as connection:
        assert list(lines(connection)) == []


@pytest.mark.parametrize(
    "request_line",
    [
        b"\n",
        b"GET / HTTP/1.1\r\n",
        b'{"watch":7}\n',
        b'{"watch":"../../etc/passwd"}\n',
        b"[]\n",
        b"\xff" * 100 + b"\n",
        b"x" * 10_000,
    ],
)
def test_a_request_that_makes_no_sense_is_refused(channel: Channel, request_line: bytes) -> None:
    with channel.connect(request_line) as connection:
        assert [line["kind"] for line in lines(connection)] == ["error"]


def test_an_event_that_cannot_be_sent_stops_no_other(channel: Channel) -> None:
    strange = events.MailSent(ALICE, "bob", "message", "x", {"where": Path("/")})
    channel.emit(strange)
    reader = channel.client()
    reader.wait_for_snapshots()
    channel.emit(strange, last := events.TextArrived(ALICE, "hi"))
    reader.wait_for(last)


def test_a_client_that_says_nothing_disturbs_nobody(channel: Channel) -> None:
    with channel.connect(b""):
        channel.client().wait_for_snapshots()


def test_a_client_that_leaves_is_forgotten(channel: Channel) -> None:
    channel.client().wait_for_snapshots()
    before = threading.active_count()
    for _ in range(5):
        client = WatchClient.open(channel.state, ALICE, os.getpid())
        assert client is not None
        client.close()
    channel.client().wait_for_snapshots()
    wait_until(lambda: threading.active_count() <= before + 1)


def test_there_is_room_again_when_watchers_leave(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_server, "MOST_WATCHERS", 3)
    held = [channel.client() for _ in range(3)]
    for reader in held:
        reader.wait_for_snapshots()
    refused = channel.client()
    with pytest.raises(StateError, match="3 watchers already"):
        wait_until(lambda: refused.read() or refused.has_ended)
    for reader in held:
        reader.client.close()
    channel.client().wait_for_snapshots()


class TestSlowWatcher:
    @pytest.fixture
    def small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(watch_server, "MOST_WAITING", 50)

    def flood(self, channel: Channel, count: int) -> None:
        """More than fits into the buffers of a socket."""
        for number in range(count):
            channel.emit(events.Notice(ALICE, f"{number} " + "x" * 2_000))

    @pytest.mark.usefixtures("small")
    def test_it_delays_no_agent_and_learns_that_it_missed_something(self, channel: Channel) -> None:
        reader = channel.client()
        reader.wait_for_snapshots()
        self.flood(channel, 2_000)  # nobody reads: would an agent wait for this watcher, it would wait for ever
        reader.wait_for_snapshots(2)
        assert any(isinstance(item, Lagged) for item in reader.items)

    @pytest.mark.usefixtures("small")
    def test_it_shows_every_recorded_step_once_all_the_same(self, channel: Channel) -> None:
        conversation = channel.scene.open()
        reader, follower = channel.client(), Follower(ALICE)
        expected = []
        for turn in range(40):
            mail = f'<message from="bob" type="message" id="m{turn}" time="t">mail {turn}</message>'
            conversation.add_user([text_block(mail)], marks={"mail": [f"m{turn}"]})
            self.flood(channel, 20)
            expected.append(f"mail:bob>alice:mail {turn}")
        channel.emit(last := events.Notice(ALICE, "the end"))
        shown: list[Event] = []

        def has_shown_all() -> bool:
            reader.read()
            for item in reader.items:
                if isinstance(item, Snapshots):
                    shown.extend(follower.begin(item.snapshots))
                elif not isinstance(item, Lagged):
                    shown.extend(follower.follow(item))
            reader.items = []
            return last in shown

        wait_until(has_shown_all)
        assert words(shown) == expected
