"""Where the members and requests of a team are kept: `config.json`, or another engine."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Protocol

from teamcli.storage.files import write_atomic
from teamcli.team.roster_file import TeamConfig, keep_aside, parse_team, read_file


class RosterStore(Protocol):
    """One thread at a time calls it."""

    @property
    def name(self) -> str:
        """For messages to the user."""

    @property
    def is_by_row(self) -> bool:
        """Whether each member that has changed costs a write of its own."""

    @property
    def problem(self) -> str:
        """What was wrong with it when it was loaded, as a sentence for the user."""

    def load(self) -> TeamConfig:
        """All there is.

        Raises: StateError
        """

    def fresh(self, known: TeamConfig, topics: Collection[str] = ()) -> TeamConfig | None:
        """What other processes have made of what this one knows; None if they have changed nothing. With topics, such
        as `member/alice`, only these are looked at.

        Raises: StateError
        """

    def is_current(self) -> bool:
        """Whether `fresh` would find nothing.

        Raises: StateError
        """

    def save(self, before: TeamConfig, after: TeamConfig, must: Collection[str]) -> TeamConfig:
        """Write what has changed since `before`, which was loaded or saved here. Returns what is there now: this and
        what others changed. If they decided otherwise, theirs counts. If it is about one of `must` (members by their
        names without regard to case, requests by their ids), nothing is written.

        Raises: StateError; TeamError, if others have decided otherwise about one of `must`
        """


class RosterFile:
    """A `RosterStore` that this process alone writes."""

    is_by_row = False
    problem = ""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.name = str(path)

    def load(self) -> TeamConfig:
        """A damaged file is copied first, and its usable parts are used."""
        data = read_file(self._path)
        team = parse_team(self._path, data)
        if data is not None and team.problems:
            aside = keep_aside(self._path, data)
            self.problem = f"{self._path} was damaged ({'; '.join(team.problems)}); it is kept as {aside.name}"
        return team

    def fresh(self, known: TeamConfig, topics: Collection[str] = ()) -> TeamConfig | None:
        return None

    def is_current(self) -> bool:
        return True

    def save(self, before: TeamConfig, after: TeamConfig, must: Collection[str]) -> TeamConfig:
        write_atomic(self._path, after.encode())
        return after
