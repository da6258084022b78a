"""The ground rules of every test: no real credentials, no proxies, an empty home, no network except loopback."""

from __future__ import annotations

import gc
import itertools
import os
import shutil
import signal
import socket
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.forks import ForkedProgram, Forks
from tests.support.program import MakeProgram, Program
from tests.support.tmux import Tmux

pytest_plugins = ["tests.support.postgres"]

settings.register_profile("any machine", deadline=None)  # no test depends on speed
settings.load_profile("any machine")

for number in (signal.SIGINT, signal.SIGHUP):
    # Started in the background or by nohup, pytest ignores these signals, and so would every process it starts.
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

gc.disable()  # until all tests are collected

_LOOPBACK = ("127.", "::1", "localhost")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Twice the number of cores: tests often wait for something that uses no CPU."""
    return 2 * (os.cpu_count() or 1)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("soak_only") and not os.environ.get("TEAMCLI_SOAK"):
        pytest.skip("runs in `make soak`")
    if item.get_closest_marker("interop") and not os.environ.get("TEAMCLI_INTEROP"):
        pytest.skip("runs in `make interop`")


@pytest.fixture(scope="session")
def new_homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Empty homes, numbered here: `mktemp` would list all of them for each of thousands."""
    parent = tmp_path_factory.mktemp("homes")
    return (parent / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def clean_environment(new_homes: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty home, and no variable that would lead to a real endpoint."""
    home = next(new_homes)
    home.mkdir(0o700)
    for name in list(os.environ):
        if (
            name.startswith(("ANTHROPIC_", "CLAUDE_CODE_", "AWS_"))
            or name.lower().endswith("_proxy")
            or name == "MODEL_ID"
        ):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    yield home


@pytest.fixture(autouse=True)
def only_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that would leave the machine fails instead."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: object) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6):
            host = str(address[0]) if isinstance(address, tuple) else str(address)
            assert host.startswith(_LOOPBACK), f"a test tried to reach {host}"
        connect(self, address)  # type: ignore[arg-type]

    monkeypatch.setattr(socket.socket, "connect", guarded)


@pytest.fixture
def program(tmp_path: Path, clean_environment: Path) -> Program:
    directory = tmp_path / "work"
    directory.mkdir()
    return Program(directory, clean_environment)


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    with Forks() as forks:
        yield forks


@pytest.fixture(scope="session")
def forked(forks: Forks) -> MakeProgram:
    """Makes programs whose runs to the end are forks. What they `start` is a new Python."""
    return partial(ForkedProgram, forks=forks)


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[Tmux]:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    made = Tmux(tmp_path / uuid.uuid4().hex[:8])
    yield made
    made.end()


def pytest_collection_finish() -> None:
    """Thousands of tests and their modules stay until the end: the garbage collector need not look at them again."""
    gc.freeze()
    gc.enable()
