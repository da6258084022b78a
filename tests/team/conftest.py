"""A bus in files, as each test of it starts one; the engines for the promises that all of them keep; a fast program."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from teamcli.team.message_bus import FileBus
from tests.support.program import MakeProgram, Program
from tests.team.engines import ENGINES, Engine, opened_engine
from tests.team.file_bus import MakeBus
from tests.team.letters import KEY


@pytest.fixture
def program(program: Program, forked: MakeProgram) -> Program:
    return forked(program.directory, program.home)


@pytest.fixture
def make_bus(tmp_path: Path) -> Iterator[MakeBus]:
    """Each call is a start of the program."""
    made: list[FileBus] = []

    def make(**options: object) -> FileBus:
        made.append(FileBus(tmp_path / "inbox", KEY, **({"durable": False, "poll_seconds": 0.02} | options)))
        return made[-1]

    yield make
    for bus in made:
        bus.close()


@pytest.fixture
def bus(make_bus: MakeBus, told: list[str]) -> FileBus:
    return make_bus(on_quarantine=told.append)


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    with opened_engine(request, tmp_path / "inbox") as made:
        yield made


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    return tmp_path / "inbox" / "alice.jsonl"
