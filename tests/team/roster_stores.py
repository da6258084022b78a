"""Where the roster of a test is: in `config.json`, or in a database with a copy there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from teamcli.team.roster_store import RosterFile, RosterStore
from tests.support.postgres import hold_lease, open_test_team

Stores = Callable[[], RosterStore]


@contextmanager
def stores_in(engine: str, path: Path, request: pytest.FixtureRequest) -> Iterator[Stores]:
    """Makes a store of the same roster for each start of the program."""
    if engine == "files":
        yield lambda: RosterFile(path)
        return
    url = request.getfixturevalue("postgres_url")
    from teamcli.store.postgres.newest import Newest
    from teamcli.store.postgres.roster import RosterRows

    team = open_test_team(url)
    fence = hold_lease(team, "lead")
    yield lambda: RosterRows(team, fence, Newest(), path, copy_seconds=0)
    team.database.close()
