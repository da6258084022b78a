"""A team in a database, as two processes see it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.store.machines import Machines, ProgramMaker, machines_in
from tests.support.forks import ForkedProgram, Forks
from tests.support.postgres import open_test_team
from tests.support.postgres_bus import HostBus
from tests.team.engines import PostgresEngine
from tests.team.letters import KEY

if TYPE_CHECKING:
    from teamcli.store.postgres.leases import Host
    from teamcli.store.postgres.team_rows import Team

HostMaker = Callable[[str], "Host"]


@pytest.fixture(scope="session")
def store_program() -> Iterator[ProgramMaker]:
    """Makes programs whose runs are forks of a process that has loaded all that a team in a database needs."""
    with Forks(has_store=True) as forks:
        yield partial(ForkedProgram, forks=forks, forks_starts=True)


@pytest.fixture
def machines(tmp_path: Path, postgres_url: str, store_program: ProgramMaker) -> Iterator[Machines]:
    with machines_in(tmp_path, postgres_url, store_program) as machines:
        yield machines


@pytest.fixture
def rows(postgres_url: str, tmp_path: Path) -> Iterator[PostgresEngine]:
    """The rows of the team `default`, to read and to forge."""
    made = PostgresEngine(tmp_path / "inbox", postgres_url)
    yield made
    made.close()


@pytest.fixture
def notices() -> list[str]:
    return []


@pytest.fixture
def here(rows: PostgresEngine, notices: list[str]) -> Iterator[HostBus]:
    bus = HostBus(rows.url, rows.directory, on_quarantine=notices.append, key=KEY)
    yield bus
    bus.close()


@pytest.fixture
def there(rows: PostgresEngine, tmp_path: Path) -> Iterator[HostBus]:
    bus = HostBus(rows.url, tmp_path / "there", key=KEY)
    yield bus
    bus.close()


@pytest.fixture
def team(postgres_url: str) -> Iterator[Team]:
    team: Team = open_test_team(postgres_url)
    yield team
    team.database.close()


@pytest.fixture
def make_host(team: Team) -> HostMaker:
    from teamcli.store.postgres.leases import Host
    from teamcli.store.postgres.team_rows import Fence

    def make(name: str) -> Host:
        host = Host(team, name, 4, Fence(team))
        host.join()
        return host

    return make
