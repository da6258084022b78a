"""Where the mail of a test is: in files or in a database. What is written past the bus is hostile or foreign."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

from teamcli.store.postgres.database import connect
from teamcli.team.message_bus import FileBus, MessageBus
from teamcli.team.message_line import LineCodec
from teamcli.team.signing import ensure_token, key_of
from tests.support.postgres import open_test_team
from tests.support.postgres_bus import HostBus
from tests.team.letters import KEY, append

ENGINES = ("files", "postgres")
"""For `opened_engine`, as the parameters of a fixture."""


class Engine(Protocol):
    @property
    def place(self) -> str:
        """What a process is given to find it."""

    writers: int
    """How many processes write at once in a test, and how many are killed: fewer if they cost more."""
    kills: int

    def start(self, on_quarantine: Callable[[str], None] = lambda _: None, listens: bool = False) -> MessageBus:
        """A bus, as each start of the program has its own. In a database, only one that listens notices what others
        write; in files, every one does."""

    def append(self, data: bytes, name: str = "alice") -> None:
        """Add lines to an inbox as another program can."""

    def content(self, name: str = "alice") -> bytes:
        """The lines of an inbox."""

    def codec(self, key: bytes = KEY) -> LineCodec: ...

    def set_aside(self) -> list[dict[str, Any]]:
        """The lines in the inbox of alice that cannot be delivered."""

    def close(self) -> None: ...


class _Started:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._made: list[MessageBus] = []

    def set_aside(self) -> list[dict[str, Any]]:
        path = self.directory / "alice.bad.jsonl"
        return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []

    def close(self) -> None:
        for bus in self._made:
            bus.close()


class FileEngine(_Started):
    writers, kills = 8, 10

    @property
    def place(self) -> str:
        return str(self.directory)

    def start(self, on_quarantine: Callable[[str], None] = lambda _: None, listens: bool = False) -> MessageBus:
        self._made.append(FileBus(self.directory, KEY, False, on_quarantine, poll_seconds=0.02))
        return self._made[-1]

    def append(self, data: bytes, name: str = "alice") -> None:
        append(self.directory / f"{name}.jsonl", data)

    def content(self, name: str = "alice") -> bytes:
        return (self.directory / f"{name}.jsonl").read_bytes()

    def codec(self, key: bytes = KEY) -> LineCodec:
        return LineCodec(key_of(ensure_token(self.directory), key))


class PostgresEngine(_Started):
    writers, kills = 4, 4

    @property
    def place(self) -> str:
        return self.url

    def __init__(self, directory: Path, url: str, team: str = "default") -> None:
        super().__init__(directory)
        self.url = url
        self._name = team
        self.connection = connect(url)
        self.team = open_test_team(url, team, KEY)
        self.team.database.close()

    def start(self, on_quarantine: Callable[[str], None] = lambda _: None, listens: bool = False) -> MessageBus:
        bus = HostBus(self.url, self.directory, self._name, on_quarantine, listens=listens, key=KEY)
        self._made.append(bus)
        return bus

    def append(self, data: bytes, name: str = "alice") -> None:
        try:
            lines = data.decode().split("\n")[:-1]
        except UnicodeDecodeError:
            lines = ["\0"]
        if any("\0" in line for line in lines):
            pytest.skip("a database holds only text without NUL")
        for line in lines:
            self.insert(line, name, id=self._free_id(line, name))

    def _free_id(self, line: str, name: str) -> str:
        """That of a signed message, as its sender has stored it; empty if a row has it already."""
        found = re.search(r'"id":"(\w+)","sig":"', line)
        query = "select 1 from message where team = %s and inbox = %s and id = %s"
        is_used = found and self.connection.execute(query, (self.team.id, name, found[1])).fetchone()
        return found[1] if found and not is_used else ""

    def insert(self, body: str, name: str = "alice", pos: int | None = None, id: str = "") -> None:
        """Add a row: after the others, unless a position is given."""
        at = {"team": self.team.id, "name": name}
        with self.connection.transaction():
            self.connection.execute(
                "insert into inbox (team, name) values (%(team)s, %(name)s) on conflict do nothing", at
            )
            row = self.connection.execute(
                "select tail from inbox where team = %(team)s and name = %(name)s for update", at
            ).fetchone()
            tail = row[0] if row else 0
            self.connection.execute(
                "insert into message (team, inbox, pos, id, body)"
                " values (%(team)s, %(name)s, %(pos)s, %(id)s, %(body)s)",
                {**at, "pos": tail if pos is None else pos, "id": id or secrets.token_hex(8), "body": body},
            )
            if pos is None:
                after = tail + len(body.encode()) + 1
                self.connection.execute(
                    "update inbox set tail = %(tail)s where team = %(team)s and name = %(name)s", {**at, "tail": after}
                )
        self.connection.execute("select pg_notify(%s, %s)", self.team.topic(f"inbox/{name}")[:2])

    def content(self, name: str = "alice") -> bytes:
        rows = self.connection.execute(
            "select body from message where team = %s and inbox = %s order by pos", (self.team.id, name)
        ).fetchall()
        return b"".join(body.encode() + b"\n" for (body,) in rows)

    def codec(self, key: bytes = KEY) -> LineCodec:
        return LineCodec(key_of(self.team.uid.encode(), key))

    def close(self) -> None:
        super().close()
        self.connection.close()


@contextmanager
def opened_engine(request: pytest.FixtureRequest, directory: Path) -> Iterator[Engine]:
    if request.param == "files":
        made: Engine = FileEngine(directory)
    else:
        made = PostgresEngine(directory, request.getfixturevalue("postgres_url"))
    yield made
    made.close()
