"""A project with a team that is killed again and again: as it was before the runs, and how to run it."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

from tests.support.faults.injection import OPERATIONS
from tests.support.forks import Forks
from tests.support.program import Program
from tests.team.test_team import BYPASS


class KilledTeam:
    def __init__(self, base: Path, forks: Forks) -> None:
        self._forks = forks
        self._base = base
        for place in ("work", "home"):
            (base / place).mkdir()
        self.program = Program(base / "work", base / "home")

    def keep(self) -> None:
        """From now on, `reset` brings this state back."""
        for place in ("work", "home"):
            shutil.copytree(self._base / place, self._base / "kept" / place)

    def reset(self) -> None:
        for place in (self.program.directory, self.program.home):
            shutil.rmtree(place)
            shutil.copytree(self._base / "kept" / place.name, place)

    def run(self, *arguments: str, fault: dict[str, Any] | None = None) -> int:
        ran = self._forks.run(self.program, "-p", "--continue", *arguments, *BYPASS, fault=fault)
        assert "Traceback" not in ran.err, ran.err
        return ran.code

    def sites(self) -> Counter[tuple[str, str]]:
        """How often each kind of call is made in a run that nobody kills."""
        self.reset()
        log = self.program.home / "calls"
        assert self.run("GO!", fault={"log": str(log)}) == 0
        calls = (tuple(line.split(" ", 1)) for line in log.read_text().splitlines())
        return Counter(call for call in calls if call[0] in OPERATIONS)  # type: ignore[misc]
