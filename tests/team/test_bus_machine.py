"""The bus against a plain list, whatever happens in whatever order: nothing is lost, repeated or out of order."""

from __future__ import annotations

import json
import secrets
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from teamcli.team.message import Message
from teamcli.team.message_bus import FileBus, MessageBus, Position
from tests.support.waiting import wait_until
from tests.team.engines import PostgresEngine
from tests.team.letters import KEY, SOAK, append, contents, letter, outside

BAD_LINES = (b"nonsense", b"[]", b"\xff", b'{"type":"message"}', outside(type="shutdown_request").strip())
TEXT = st.text(max_size=12) | st.sampled_from(["x" * 300, '{"type":"message"}', "\n", "日本"])


class BusMachine(RuleBasedStateMachine):
    """One reader with a transcript, as an agent has it: what it read and how far, in one line."""

    @initialize()
    def start(self) -> None:
        self.directory = tempfile.TemporaryDirectory(prefix="bus-machine-")
        self.told: list[str] = []
        self.prepare(Path(self.directory.name))
        self.bus = self.new_bus()
        self.unread: list[str] = []
        self.bad: list[bytes] = []
        self.ours: list[Message] = []
        self.has_torn_line = False
        self.expected: list[str] = []
        self.transcript: list[Message] = []
        self.position = Position()

    def prepare(self, directory: Path) -> None:
        raise NotImplementedError

    def new_bus(self) -> MessageBus:
        raise NotImplementedError

    def append(self, line: bytes) -> None:
        raise NotImplementedError

    @property
    def seen(self) -> set[str]:
        return {message.read_as for message in self.transcript}

    def restart(self) -> None:
        self.bus.close()
        self.bus = self.new_bus()

    @rule(content=TEXT)
    def send(self, content: str) -> None:
        message = letter(content)
        assert self.bus.send(message)
        self.ours.append(message)
        self.unread.append(content)
        self.has_torn_line = False

    @rule(content=TEXT)
    def append_from_outside(self, content: str) -> None:
        self.append(outside(content))
        self.unread.append(content)
        self.has_torn_line = False

    @rule(line=st.sampled_from(BAD_LINES))
    def append_a_bad_line(self, line: bytes) -> None:
        self.append((b"\n" if self.has_torn_line else b"") + line + b"\n")
        self.bad.append(line)
        self.has_torn_line = False

    @precondition(lambda self: self.ours)
    @rule(data=st.data())
    def repeat_a_message(self, data: st.DataObject) -> None:
        message = data.draw(st.sampled_from(self.ours))
        if message.id in self.seen or message.content in self.unread:
            self.bus.send(message)
            self.has_torn_line = False

    @precondition(lambda self: self.ours)
    @rule(data=st.data())
    def restore_a_message(self, data: st.DataObject) -> None:
        assert self.bus.send_once(data.draw(st.sampled_from(self.ours))) is False

    @rule(crash_after=st.booleans())
    def read_and_commit(self, crash_after: bool) -> None:
        batch = self.bus.unread("alice", self.position, self.seen)
        assert contents(batch.messages) == self.unread
        self.transcript += batch.messages
        if batch.messages:  # nothing is recorded for nothing
            self.position = batch.position
        self.expected += self.unread
        self.unread = []
        assert not self.bus.has_unread("alice", self.position)
        if crash_after:
            self.restart()

    @rule()
    def read_and_crash_before_commit(self) -> None:
        assert contents(self.bus.unread("alice", self.position, self.seen).messages) == self.unread
        self.restart()

    @rule()
    def restart_and_rotate(self) -> None:
        self.restart()
        self.position = self.bus.rotate("alice", self.position)

    @invariant()
    def what_is_unread_is_known(self) -> None:
        if self.unread:
            assert self.bus.has_unread("alice", self.position)

    @invariant()
    def each_bad_line_is_set_aside_once(self) -> None:
        rows = self.set_aside()
        assert len({row["id"] for row in rows}) == len(rows)

    def set_aside(self) -> list[dict[str, object]]:
        path = Path(self.directory.name) / "alice.bad.jsonl"
        return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []

    def teardown(self) -> None:
        if not hasattr(self, "bus"):
            return
        try:
            self.check_the_end()
        finally:
            self.bus.close()
            self.directory.cleanup()

    def check_the_end(self) -> None:
        self.read_and_commit(False)
        assert contents(self.transcript) == self.expected
        assert len(self.seen) == len(self.transcript)
        lines = {str(row.get("line")) for row in self.set_aside()}
        finished = self.bad[:-1] if self.has_torn_line else self.bad
        assert all(line.strip().decode() in lines for line in finished if line.isascii())


class FileBusMachine(BusMachine):
    """With all that can happen to a file."""

    def prepare(self, directory: Path) -> None:
        self.inbox = directory / "alice.jsonl"

    def new_bus(self) -> MessageBus:
        return FileBus(self.inbox.parent, KEY, False, self.told.append, rotate_bytes=400)

    def append(self, line: bytes) -> None:
        append(self.inbox, line)

    @precondition(lambda self: not self.has_torn_line)
    @rule(length=st.integers(1, 40))
    def leave_a_torn_line(self, length: int) -> None:
        fragment = outside("torn")[:length]
        self.append(fragment)
        self.bad.append(fragment)
        self.has_torn_line = True

    @rule()
    def restart_and_rotate(self) -> None:
        super().restart_and_rotate()
        if not self.inbox.exists():
            self.has_torn_line = False

    @precondition(lambda self: self.inbox.exists())
    @rule(in_place=st.booleans(), is_running=st.booleans())
    def replace(self, in_place: bool, is_running: bool) -> None:
        """As an editor, `sed -i` or a copy that is put back does."""
        data = self.inbox.read_bytes()
        if not in_place:
            self.inbox.unlink()
        self.inbox.write_bytes(data)
        if not is_running:
            self.restart_and_rotate()

    @precondition(lambda self: self.archives())
    @rule(data=st.data(), content=TEXT, is_running=st.booleans())
    def append_to_an_archive(self, data: st.DataObject, content: str, is_running: bool) -> None:
        """As a writer does that has had it open since it was the inbox."""
        if not is_running:
            self.bus.close()
        append(data.draw(st.sampled_from(self.archives())), outside(content))
        if not is_running:
            self.bus = self.new_bus()
        assert contents(self.bus.unread("alice", self.position, self.seen).messages) == [*self.unread, content]
        self.unread.append(content)
        self.has_torn_line = False

    def archives(self) -> list[Path]:
        return sorted(self.inbox.parent.glob("archive/*"))

    @rule()
    def delete(self) -> None:
        """What was not read is gone, by the user's own act; what comes after it must not be."""
        self.bus.close()
        self.inbox.unlink(missing_ok=True)
        self.bus = self.new_bus()
        self.position = self.bus.rotate("alice", self.position)
        self.unread, self.bad, self.has_torn_line = [], [], False
        self.ours = [message for message in self.ours if self.is_archived(message)]

    def is_archived(self, message: Message) -> bool:
        return any(message.id.encode() in path.read_bytes() for path in self.archives())


class PostgresBusMachine(BusMachine):
    """On one server for all histories, each with a team of its own."""

    url = ""

    def prepare(self, directory: Path) -> None:
        self.engine = PostgresEngine(directory, self.url, team=secrets.token_hex(8))

    def new_bus(self) -> MessageBus:
        return self.engine.start(self.told.append, listens=True)

    def append(self, line: bytes) -> None:
        self.engine.append(line.decode("utf-8", "replace").encode())

    @invariant()
    def what_is_unread_is_known(self) -> None:
        """The bus notices a moment later what others have written."""
        if self.unread:
            wait_until(lambda: self.bus.has_unread("alice", self.position))

    @rule()
    def kill_the_connections(self) -> None:
        """What was committed is kept, and the bus and its listener continue on new connections."""
        self.engine.connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and application_name = 'teamcli' and pid <> pg_backend_pid()"
        )

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "engine"):
            self.engine.close()


@pytest.mark.soak
@pytest.mark.timeout(3600 if SOAK else 120)
class TestBusMachine(FileBusMachine.TestCase):  # type: ignore[misc]  # made by hypothesis at run time
    settings = settings(
        max_examples=1000 if SOAK else 100,
        stateful_step_count=40,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )


@pytest.mark.soak
@pytest.mark.timeout(3600 if SOAK else 120)
class TestPostgresBusMachine(PostgresBusMachine.TestCase):  # type: ignore[misc]
    settings = settings(
        max_examples=500 if SOAK else 10,
        stateful_step_count=40,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )

    @pytest.fixture(autouse=True)
    def database(self, postgres_url: str) -> None:
        PostgresBusMachine.url = postgres_url
