"""A watcher's end of the channel: connects to the lead of a directory, and reads what its agents do."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from teamcli.agent.events import Event
from teamcli.errors import StateError
from teamcli.session.event_codec import decode_event
from teamcli.session.watching import AgentSnapshot
from teamcli.storage.files import LARGEST_LINE, VERSION, Json, as_number, decode_line, encode_line
from teamcli.storage.team_dir import TeamDir
from teamcli.storage.unix_socket import connect, peer
from teamcli.team.message import is_address

CONNECT_SECONDS = 5.0
_CHUNK = 1 << 16


class Snapshots(NamedTuple):
    """The agents at one moment: the first, and again after something was missed."""

    snapshots: tuple[AgentSnapshot, ...]


class Lagged(NamedTuple):
    """This watcher was too slow; new snapshots follow."""


class WatchClient:
    def __init__(self, state: TeamDir, connection: socket.socket) -> None:
        self._transcripts = state.transcripts
        self._connection = connection
        self._rest = b""

    @classmethod
    def open(cls, state: TeamDir, agent: str, lead: int) -> WatchClient | None:
        """Connect to the process that leads in the directory; None if it has no channel, or not yet.

        Raises: StateError, if it refuses
        """
        try:
            connection = connect(state.watch_socket)
        except OSError:
            return None
        try:
            pid, user = peer(connection)
            # An agent's command could have put a socket there, too.
            if user not in (None, os.geteuid()) or pid not in (None, lead):
                connection.close()
                return None
            connection.settimeout(CONNECT_SECONDS)
            connection.sendall(encode_line({"v": VERSION, "watch": agent}))
        except OSError:
            connection.close()
            return None
        connection.setblocking(False)
        return cls(state, connection)

    def fileno(self) -> int:
        return self._connection.fileno()

    def close(self) -> None:
        self._connection.close()

    def read(self) -> list[Event | Snapshots | Lagged] | None:
        """What has arrived; None if the other end has gone.

        Raises: StateError, if it refuses
        """
        try:
            data = self._connection.recv(_CHUNK)
        except BlockingIOError:
            return []
        except OSError:
            return None
        if not data:
            return None
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LARGEST_LINE:
            return None
        values = (value for line in lines if (value := decode_line(line)) is not None)
        return [item for value in values if (item := self._item(value)) is not None]

    def _item(self, value: Json) -> Event | Snapshots | Lagged | None:
        """None for what this version does not know."""
        match value.get("kind"):
            case "event":
                return decode_event(value)
            case "snapshots":
                return Snapshots(tuple(self._snapshots(value)))
            case "missed":
                return Lagged()
            case "error":
                raise StateError(f"the running teamcli refuses: {value.get('text')}")
        return None

    def _snapshots(self, value: Json) -> Iterator[AgentSnapshot]:
        given = value.get("snapshots")
        for each in given if isinstance(given, list) else []:
            if isinstance(each, dict) and is_address(agent := str(each.get("agent"))):
                current = each.get("current")
                events = map(decode_event, current if isinstance(current, list) else [])
                path = Path(self._transcripts, f"{agent}.jsonl")
                end, file = int(as_number(each.get("end"))), str(each.get("file"))
                yield AgentSnapshot(agent, path, end, file, tuple(event for event in events if event is not None))
