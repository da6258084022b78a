"""Where the transcripts and the timeline of a test are: in files, or in a database with a copy there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from teamcli.storage.append_log import AppendLog
from teamcli.storage.log import Log
from tests.support.postgres import hold_lease, open_test_team

OpenLog = Callable[[Path], Log]
ENGINES = ("files", "postgres")


@contextmanager
def transcripts_in(engine: str, request: pytest.FixtureRequest) -> Iterator[OpenLog]:
    """Opens the lead's transcript, as each start of the program does."""
    if engine == "files":
        yield AppendLog
        return
    url = request.getfixturevalue("postgres_url")
    from teamcli.store.postgres.newest import Newest
    from teamcli.store.postgres.transcripts import TranscriptRows

    team = open_test_team(url)
    with closing(team.database):
        yield lambda path: TranscriptRows(team, hold_lease(team, "lead"), Newest(), "lead", 0, path)


@contextmanager
def timelines_in(engine: str, request: pytest.FixtureRequest) -> Iterator[OpenLog]:
    if engine == "files":
        yield lambda path: AppendLog(path, durable=False, is_shared=False)
        return
    url = request.getfixturevalue("postgres_url")
    from teamcli.store.postgres.events import EventRows
    from teamcli.store.postgres.newest import Newest

    team = open_test_team(url)
    with closing(team.database):
        yield lambda path: EventRows(team, Newest(), "host", path)
