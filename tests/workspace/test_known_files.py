from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from teamcli.errors import ToolError
from teamcli.workspace.known_files import KnownFiles, PathLocks, digest
from tests.tools.file_agent import FileAgent

DEADLINE_SECONDS = 60.0


def together(*jobs: Callable[[], object]) -> list[object]:
    """Run all jobs at the same time and hand back what they return."""
    barrier = threading.Barrier(len(jobs))

    def started(job: Callable[[], object]) -> object:
        barrier.wait(DEADLINE_SECONDS)
        return job()

    with ThreadPoolExecutor(len(jobs)) as pool:
        return [future.result(DEADLINE_SECONDS) for future in [pool.submit(started, job) for job in jobs]]


@pytest.mark.parametrize("spelling", ["readme", "README"])
def test_a_held_path_keeps_others_out_and_other_paths_are_free(tmp_path: Path, spelling: str) -> None:
    locks = PathLocks()
    entered = threading.Event()

    def enter() -> None:
        with locks.hold(tmp_path / spelling):
            entered.set()

    waiter = threading.Thread(target=enter)
    with locks.hold(tmp_path / "readme"):
        waiter.start()
        with locks.hold(tmp_path / "other"):
            assert locks.in_use == 2
        assert not entered.is_set()
    waiter.join(DEADLINE_SECONDS)
    assert entered.is_set()


def test_locks_of_finished_paths_are_not_kept(tmp_path: Path) -> None:
    locks = PathLocks()

    def use() -> None:
        for number in range(200):
            with locks.hold(tmp_path / str(number)):
                assert 1 <= locks.in_use <= 4

    together(*[use] * 4)
    assert locks.in_use == 0


def test_a_lock_is_given_back_after_an_error(tmp_path: Path) -> None:
    locks = PathLocks()
    agent = FileAgent(tmp_path, locks)
    agent.refuses("edit_file", path="missing.txt", old_text="a", new_text="b")
    assert locks.in_use == 0
    assert agent.says("write_file", path="missing.txt", content="a")


def test_each_agent_knows_its_own_files_only(tmp_path: Path) -> None:
    locks = PathLocks()
    alice, bob = KnownFiles(locks), KnownFiles(locks, {str(tmp_path / "b"): digest(b"b")})
    assert alice.remember(tmp_path / "a", digest(b"a")) == {str(tmp_path / "a"): digest(b"a")}
    assert (alice.digest_of(tmp_path / "a"), bob.digest_of(tmp_path / "a")) == (digest(b"a"), None)
    assert (alice.digest_of(tmp_path / "b"), bob.digest_of(tmp_path / "b")) == (None, digest(b"b"))
    assert alice.forget(tmp_path / "a") == {str(tmp_path / "a"): ""}
    assert alice.digest_of(tmp_path / "a") is None


def test_edits_of_two_agents_on_one_file_are_never_lost(tmp_path: Path) -> None:
    count = 40
    names = ("alice", "bob")
    target = tmp_path / "shared.txt"
    target.write_text("".join(f"{name} {n} todo\n" for n in range(count) for name in names))
    locks = PathLocks()

    def work(name: str) -> None:
        agent = FileAgent(tmp_path, locks)
        for n in range(count):
            agent.call("edit_file", path="shared.txt", old_text=f"{name} {n} todo\n", new_text=f"{name} {n} done\n")

    together(*[partial(work, name) for name in names])
    assert target.read_text() == "".join(f"{name} {n} done\n" for n in range(count) for name in names)
    assert [file.name for file in tmp_path.iterdir()] == ["shared.txt"]


def test_of_two_writes_from_the_same_state_one_is_refused(tmp_path: Path) -> None:
    locks = PathLocks()
    for round_ in range(20):
        target = tmp_path / f"{round_}.txt"
        target.write_text("start")
        agents = [FileAgent(tmp_path, locks) for _ in range(2)]
        for agent in agents:
            agent.call("read_file", path=target.name)
        outcomes = together(*[partial(attempt, agent, target.name, f"agent {n}") for n, agent in enumerate(agents)])
        assert sorted(map(str, outcomes)) == sorted(["written", "has changed"])
        assert target.read_text() == f"agent {outcomes.index('written')}"


def test_of_many_agents_that_create_one_file_only_one_succeeds(tmp_path: Path) -> None:
    locks = PathLocks()
    agents = [FileAgent(tmp_path, locks) for _ in range(8)]
    outcomes = together(*[partial(attempt, agent, "new.txt", f"agent {n}") for n, agent in enumerate(agents)])
    assert sorted(map(str, outcomes)) == ["have not read"] * 7 + ["written"]
    assert (tmp_path / "new.txt").read_text() == f"agent {outcomes.index('written')}"


def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    locks = PathLocks()
    writer, reader = FileAgent(tmp_path, locks), FileAgent(tmp_path, locks)
    writer.call("write_file", path="a.txt", content="0" * 20_000)
    is_done = threading.Event()

    def write() -> None:
        for n in range(1, 100):
            writer.call("write_file", path="a.txt", content=str(n % 10) * 20_000)
        is_done.set()

    def read() -> int:
        reads = 0
        while not is_done.is_set() or not reads:
            text = (tmp_path / "a.txt").read_text()
            assert len(text) == 20_000
            assert len(set(text)) == 1
            reader.call("read_file", path="a.txt")
            reads += 1
        return reads

    assert together(write, read)[1]


def attempt(agent: FileAgent, path: str, content: str) -> str:
    try:
        agent.call("write_file", path=path, content=content)
    except ToolError as e:
        return next(reason for reason in ("has changed", "have not read") if reason in str(e))
    return "written"
