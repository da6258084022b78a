"""A team that works in worktrees and merges is killed at any change of a file of its state, and starts again.

Afterwards every commit is in the main branch once, and the main checkout is whole: no half merge, no lock, no journal.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.redteam.conftest import need_sandbox
from tests.support.fake_api import FakeAPI, answer, text, tool
from tests.support.faults.forks import Forks
from tests.support.faults.injection import OPERATIONS
from tests.support.program import Program
from tests.support.team_script import agent_of
from tests.worktrees.conftest import git

SOAK = bool(os.environ.get("TEAMCLI_SOAK"))
KILLS = 200 if SOAK else 10
NAMES = ("alice", "bob")
BYPASS = ("--permission-mode", "bypassPermissions", "--max-turns", "30")


def talk(request: dict[str, Any], n: int) -> Any:
    """Worked out from the history alone, so that it survives kills."""
    name, history = agent_of(request), str(request["messages"])
    if name == "lead":
        return lead(history, n)
    if f"{name}-done" in history:
        return text("done")
    # A git that was killed may have left a lock. Then the file is not committed, and the merge does that.
    work = f"echo {name} > {name}.txt; git add -A && git commit -qm 'Work of {name}'; echo {name}-do''ne"
    return tool("bash", command=work)


def lead(history: str, n: int) -> Any:
    there = [name for name in NAMES if f"Spawned '{name}'" in history or f"'{name}' is currently working" in history]
    if missing := [name for name in NAMES if name not in there]:
        return answer(*(spawn(name, n) for name in missing))
    ready = [name for name in NAMES if f'from="{name}" type="result"' in history.replace('\\"', '"')]
    left = [name for name in ready if f"Merged team/{name}" not in history and f"of team/{name}." not in history]
    return tool("merge_teammate", name=left[0]) if left else text("fine")


def spawn(name: str, n: int) -> Any:
    return tool("spawn_teammate", f"spawn-{name}-{n}", name=name, role="coder", prompt="Go.", worktree=True)


class Place:
    def __init__(self, base: Path, repository: Path, forks: Forks) -> None:
        self._forks = forks
        self._repository = repository
        (base / "home").mkdir()
        self.program = Program(base / "work", base / "home")

    def reset(self) -> None:
        for place in (self.program.directory, self.program.home):
            shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(self._repository, self.program.directory, symlinks=True)
        self.program.home.mkdir()

    def run(self, fault: dict[str, Any] | None = None) -> int:
        ran = self._forks.run(self.program, "-p", "--continue", "GO!", *BYPASS, fault=fault)
        assert "Traceback" not in ran.err, ran.err
        return ran.code

    def sites(self) -> list[dict[str, Any]]:
        """Every kind of call of a run that nobody kills, and where it can be killed."""
        self.reset()
        log = self.program.home / "calls"
        assert self.run({"log": str(log)}) == 0
        calls = Counter(line for line in log.read_text().splitlines() if line.split()[0] in OPERATIONS)
        return [
            {"operation": call.split(" ", 1)[0], "file": call.split(" ", 1)[1], "number": number, "how": how}
            for call, count in sorted(calls.items())
            for number in range(1, count + 1)
            for how in ("before", "torn", "after")
        ]

    def check(self, case: dict[str, Any]) -> None:
        root = self.program.directory
        for name in NAMES:
            assert (root / f"{name}.txt").exists(), case
            assert (root / f"{name}.txt").read_text() == f"{name}\n", case
        subjects = Counter(git(root, "log", "--format=%s").splitlines())
        assert all(subjects[f"Work of {name}"] == 1 for name in NAMES), (case, subjects)
        assert git(root, "status", "--porcelain") == "", case
        assert git(root, "fsck", "--no-dangling", "--no-progress") == "", case
        assert [*(root / ".git").rglob("*.lock"), *(root / ".team").glob("merge*.json")] == [], case


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with Forks() as forks:
        yield forks


@pytest.mark.soak
@pytest.mark.timeout(7200 if SOAK else 300)
def test_killed_at_any_change_of_its_files_a_team_in_worktrees_loses_no_commit_and_leaves_no_half_merge(
    tmp_path: Path, repository_to_copy: Path, forks: Forks
) -> None:
    need_sandbox()
    place, killed = Place(tmp_path, repository_to_copy, forks), 0
    with FakeAPI(talk) as api:
        place.program.url = api.url
        for case in random.Random(0).sample(place.sites(), KILLS):
            place.reset()
            killed += place.run(case) == -9
            for _ in range(3):  # a member that was interrupted reports after the lead's last turn
                if place.run() == 0 and all((place.program.directory / f"{name}.txt").exists() for name in NAMES):
                    break
            place.check(case)
    assert killed > 0.7 * KILLS  # not all: threads make some calls more or less often than in the first run
