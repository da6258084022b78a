"""Where the tasks of a test are: in files or in a database."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

from teamcli.cancel import CancelScope
from teamcli.tasks.storage import TaskStorage
from teamcli.tasks.task_files import TaskFiles
from tests.support.postgres import hold_lease, open_test_team

if TYPE_CHECKING:
    from teamcli.store.postgres.database import Database

Warn = Callable[[str], None]


class Tasks(Protocol):
    @property
    def place(self) -> str:
        """What a process is given to find it; see `places.py`."""

    def storage(self, warn: Warn = lambda text: None) -> TaskStorage:
        """As each process has its own."""


class FileTasks:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.place = str(directory)

    def storage(self, warn: Warn = lambda text: None) -> TaskStorage:
        return TaskFiles(self.directory, warn)


class RowTasks:
    def __init__(self, url: str, name: str = "") -> None:
        self.url = url
        self.team = open_test_team(url, name)
        self.fence = hold_lease(self.team, "lead")
        self._databases: list[Database] = [self.team.database]

    @property
    def place(self) -> str:
        return f"{self.url} {self.team.id} {self.team.uid} {self.fence.epoch('lead')}"

    def storage(self, warn: Warn = lambda text: None, is_apart: bool = False) -> TaskStorage:
        """With `is_apart`, it has its own connection, as in another process."""
        from teamcli.store.postgres.database import Database
        from teamcli.store.postgres.newest import Newest
        from teamcli.store.postgres.tasks import TaskRows

        team = self.team
        if is_apart:
            self._databases.append(Database(self.url, CancelScope()))
            team = team._replace(database=self._databases[-1])
        return TaskRows(team, self.fence, Newest(), warn)

    def close(self) -> None:
        for database in self._databases:
            database.close()


@contextlib.contextmanager
def tasks_in(engine: str, directory: Path, request: pytest.FixtureRequest) -> Iterator[Tasks]:
    if engine == "files":
        yield FileTasks(directory)
        return
    with contextlib.closing(RowTasks(request.getfixturevalue("postgres_url"))) as rows:
        yield rows
