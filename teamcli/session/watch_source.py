"""Where a watcher in another process gets what agents do: from the channel of a running lead, or from transcripts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from teamcli.agent.events import Event
from teamcli.session.watch_client import Lagged, Snapshots, WatchClient
from teamcli.session.watching import AgentSnapshot
from teamcli.storage.tail import file_identity
from teamcli.storage.team_dir import TeamDir, lock_holder
from teamcli.team.message import LEAD
from teamcli.team.roster import read_team

CHANNEL_SECONDS = 3.0
"""How long a lead that has just started may take to open its channel."""


class Remark(NamedTuple):
    """Something to say about the stream itself. An answer that has not ended by then is not continued."""

    text: str


Item = Event | Snapshots | Lagged | Remark
Pause = Callable[[WatchClient | None], None]
"""Waits until the client has something to read; without one, a moment."""


class Source(Protocol):
    """What a watcher shows."""

    def items(self) -> Iterator[Item]:
        """For ever: snapshots, then the events that follow them.

        Raises: StateError
        """


class TeamSource:
    """The team of a directory, whether it is running or not."""

    def __init__(self, state: TeamDir, agent: str, pause: Pause) -> None:
        """Of one agent, or of everyone."""
        self._state = state
        self._agent = agent
        self._pause = pause

    def items(self) -> Iterator[Item]:
        """For ever: snapshots, then the events that follow them.

        Raises: StateError
        """
        has_left = False
        while True:
            if (lead := self._lead) is None:
                yield Snapshots(tuple(self._recorded()))
                where = "teamcli has left" if has_left else f"teamcli is not running in {self._state.root.parent}"
                yield Remark(f"{where}. Waiting for it to start; Ctrl-C ends this.")
                while (lead := self._lead) is None:
                    self._pause(None)
                yield Remark(f"teamcli is running (process {lead}).")
            client = self._connect(lead)
            yield from self._stream(client) if client else self._follow_files(lead)
            has_left = True
            self._pause(None)  # a lead that lets go of a watcher is about to leave

    @property
    def _lead(self) -> int | None:
        return lock_holder(self._state.lock)

    def _connect(self, lead: int) -> WatchClient | None:
        deadline = time.monotonic() + CHANNEL_SECONDS
        while self._lead == lead and time.monotonic() < deadline:
            if client := WatchClient.open(self._state, self._agent, lead):
                return client
            self._pause(None)
        return None

    def _stream(self, client: WatchClient) -> Iterator[Item]:
        try:
            while True:
                self._pause(client)
                if (items := client.read()) is None:
                    return
                yield from items
        finally:
            client.close()

    def _follow_files(self, lead: int) -> Iterator[Item]:
        if self._lead == lead:
            yield Remark(f"teamcli (process {lead}) has no live channel here: this shows what is recorded.")
        while self._lead == lead:
            yield Snapshots(tuple(self._recorded()))
            self._pause(None)

    def _recorded(self) -> Iterator[AgentSnapshot]:
        return recorded(self._state, self._agent)


def recorded(state: TeamDir, agent: str) -> Iterator[AgentSnapshot]:
    """What an agent has recorded, or everyone."""
    for name in [agent] if agent else team_names(state):
        path = state.transcripts / f"{name}.jsonl"
        yield AgentSnapshot(name, path, *file_identity(path))


def team_names(state: TeamDir) -> list[str]:
    """The lead, and everyone in the roster."""
    return [LEAD, *(member.name for member in read_team(state.config).members)]
