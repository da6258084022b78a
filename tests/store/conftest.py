"""A team in a database, as two processes see it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.postgres_bus import HostBus
from tests.team.engines import PostgresEngine
from tests.team.letters import KEY


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
