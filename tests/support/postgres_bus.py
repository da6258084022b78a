"""The bus in PostgreSQL with connections of its own, as a process of the program has it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from teamcli.store.postgres.bus import PostgresBus
from teamcli.store.postgres.listener import Listener
from teamcli.store.postgres.newest import Newest
from teamcli.store.postgres.team_rows import Fence, Team
from tests.support.postgres import open_test_team
from tests.support.waiting import DEADLINE_SECONDS


class HostBus(PostgresBus):
    """Each one is a start of the program. `close` closes all of it."""

    def __init__(
        self,
        url: str,
        directory: Path,
        team: str = "default",
        on_quarantine: Callable[[str], None] = lambda _: None,
        epochs: Mapping[str, int] | None = None,
        listens: bool = True,
        **options: Any,
    ) -> None:
        self.team: Team = open_test_team(url, team, **options)
        fence = Fence(self.team)
        for name, epoch in (epochs or {}).items():
            fence.hold(name, epoch)
        super().__init__(self.team, fence, Newest(), directory, on_quarantine)
        channels = (self.team.channel, self.team.lead_channel)
        self.listener = Listener(url, channels, self._on_topics, self._on_gap) if listens else None
        self._listens = threading.Event()
        if self.listener:
            self.listener.start()
            assert self._listens.wait(DEADLINE_SECONDS)

    def close(self) -> None:
        super().close()
        if self.listener:
            self.listener.close()
        self.team.database.close()

    def _on_gap(self) -> None:
        self.look_again()
        self._listens.set()

    def _on_topics(self, topics: Sequence[str]) -> None:
        for topic in topics:
            if topic.startswith("inbox/"):
                self.changed(topic.removeprefix("inbox/"))
