"""A merge that is killed at any step leaves the target untouched or merged, and the next one completes it."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.worktrees.conftest import git, open_checkouts
from tests.worktrees.killed_merges import KilledMerges

SOAK = bool(os.environ.get("TEAMCLI_SOAK"))
KILLS = 200 if SOAK else 10


@pytest.fixture(scope="module")
def merges() -> Iterator[KilledMerges]:
    with KilledMerges() as merges:
        yield merges


class Place:
    """A project in which alice and the user have both changed something, as it is before each merge."""

    def __init__(self, base: Path, repository: Path, merges: KilledMerges) -> None:
        self.root = base / "project"
        self._home = base / "home"
        self._home.mkdir()
        self._kept = base / "kept"
        self._merges = merges
        shutil.copytree(repository, self.root, symlinks=True)
        (self.root / ".team").mkdir()
        (self.root / ".team/.gitignore").write_text("*\n")
        checkouts, host = open_checkouts(self.root, self._home, is_confined=False)
        checkouts.prepare("alice")
        checkouts.hosts.close_all()
        host.close()
        alice = self.root / ".team/worktrees/alice"
        self._change(alice)
        (alice / "uncommitted").write_text("x\n")
        for number in range(5):
            (self.root / f"mine-{number}").write_text("y\n" * 10_000)
        git(self.root, "add", "--all")
        git(self.root, "commit", "--quiet", "-m", "Mine")
        (self.root / "README.md").write_text("my notes\n")  # uncommitted, and not part of the merge
        (self.root / "staged").write_text("z\n")
        git(self.root, "add", "staged")
        self.old = git(self.root, "rev-parse", "main")
        self.before = self.files()
        shutil.copytree(self.root, self._kept, symlinks=True)

    def _change(self, alice: Path) -> None:
        (alice / "src/cart.py").unlink()
        (alice / "src").rmdir()
        (alice / "src").write_text("a file where a directory was\n")
        (alice / "deep/er").mkdir(parents=True)
        (alice / "deep/er/data").write_bytes(bytes(range(256)) * 1000)
        (alice / "link").symlink_to("deep/er/data")
        (alice / ".gitignore").write_text((alice / ".gitignore").read_text() + "*.log\n")
        git(alice, "add", "--all")
        git(alice, "commit", "--quiet", "-m", "Theirs")

    def reset(self) -> None:
        shutil.rmtree(self.root)
        shutil.copytree(self._kept, self.root, symlinks=True)

    def merge(self, step: int = 0, how: str = "") -> dict[str, Any]:
        return self._merges.run(self.root, self._home, step, how)

    def files(self) -> dict[str, bytes]:
        found = (path for path in self.root.rglob("*") if path.is_file())
        names = {path: path.relative_to(self.root) for path in found}
        return {str(name): path.read_bytes() for path, name in names.items() if name.parts[0] not in (".git", ".team")}

    @property
    def status(self) -> str:
        return git(self.root, "status", "--porcelain", "--untracked-files=all")


@pytest.mark.soak
@pytest.mark.timeout(3600 if SOAK else 300)
def test_killed_at_any_step_the_target_is_untouched_or_merged_and_the_next_merge_completes_it(
    tmp_path: Path, repository_to_copy: Path, merges: KilledMerges
) -> None:
    place = Place(tmp_path, repository_to_copy, merges)
    steps = place.merge()["steps"]
    merged = place.files()
    chance = random.Random(0)
    cases = [(step, how) for step in range(1, steps + 1) for how in ("before", "after")]
    # Every step in a soak. Git is killed at another point of its work each time, so some more of those.
    more = [(step, "after") for step in chance.choices(range(1, steps + 1), k=max(0, KILLS - len(cases)))]
    for step, how in [*chance.sample(cases, min(KILLS, len(cases))), *more]:
        place.reset()
        assert place.merge(step, how)["code"] == -9, (step, how)
        tip = git(place.root, "rev-parse", "main")
        assert tip == place.old or git(place.root, "log", "-1", "--format=%s", "main").startswith("Merge main"), step
        if tip == place.old:
            assert place.files() == place.before, (step, how)
        second = place.merge()
        assert second["code"] == 0, (step, how, second)
        assert "Refused" not in second["said"], (step, how, second)
        assert "Error" not in second["said"], (step, how, second)
        assert place.files() == merged, (step, how, second)
        assert place.status == "M README.md\nA  staged", (step, how, second)
        assert git(place.root, "log", "--format=%s", "main").count("Theirs") == 1
        assert git(place.root, "fsck", "--no-dangling", "--no-progress") == "", (step, how)
        left = [*(place.root / ".git").rglob("*.lock"), *(place.root / ".team").glob("merge*.json")]
        assert left == [], (step, how, second)
        assert not (place.root / ".git/teamcli-merge").exists(), (step, how, second)
