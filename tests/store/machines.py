"""Several machines with one team: clones of one repository, a lead and workers as real processes, one database."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest.mock import patch

from tests.support.program import Program, Ran
from tests.support.waiting import DEADLINE_SECONDS, wait_until
from tests.worktrees.conftest import git

ProgramMaker = Callable[..., Program]
BYPASS = ("--permission-mode", "bypassPermissions")


class Worker:
    """`teamcli worker` in its own clone."""

    def __init__(self, process: subprocess.Popen[bytes], name: str) -> None:
        self.name = name
        self.process = process
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr:
            for line in self.process.stderr:
                self.lines.append(line.decode().rstrip())

    def join(self) -> None:
        """After its end."""
        self._reader.join(DEADLINE_SECONDS)

    def says(self, words: str) -> bool:
        return any(words in line for line in self.lines)

    def count(self, words: str) -> int:
        """In how many lines it says so."""
        return sum(words in line for line in self.lines)

    def wait_for(self, words: str) -> None:
        wait_until(lambda: self.says(words) or self.process.poll() is not None)
        assert self.says(words), self.lines

    def freeze(self) -> None:
        """On a busy machine, its threads run on for a moment after the signal."""
        self.process.send_signal(signal.SIGSTOP)
        status = Path(f"/proc/{self.process.pid}/stat")
        wait_until(lambda: status.read_text().rpartition(")")[2].split()[0] == "T")

    def kill(self, how: signal.Signals = signal.SIGKILL) -> int:
        self.process.send_signal(how)
        return self.process.wait(DEADLINE_SECONDS)


class Machines:
    def __init__(self, base: Path, url: str, lease_seconds: float = 30.0, make_program: ProgramMaker = Program) -> None:
        self._make_program = make_program
        self.base = base
        self.url = url
        self.remote = base / "remote.git"
        home = base / "home"
        home.mkdir()
        (home / ".gitconfig").write_text("[user]\n\tname = Test\n\temail = test@example.org\n")
        git(base, "init", "--quiet", "--bare", str(self.remote))
        self.lead = self._clone("lead", home)
        self.lead.settings(sandbox="off", lease_seconds=lease_seconds)
        directory = self.lead.directory
        (directory / "start.txt").write_text("start\n")
        git(directory, "add", ".")
        git(directory, "commit", "--quiet", "-m", "start")
        git(directory, "push", "--quiet", "origin", "HEAD")
        self._workers: list[Worker] = []
        self.make_team("")

    def make_team(self, name: str) -> None:
        from teamcli.store.location import root_commit
        from teamcli.store.postgres.teams import open_team

        with patch.dict(os.environ, HOME=str(self.lead.home)):  # which gets the key
            open_team(self.url, root_commit(self.lead.directory), name, create=True).database.close()

    def _clone(self, name: str, home: Path) -> Program:
        git(self.base, "clone", "--quiet", str(self.remote), name)
        return self._make_program(self.base / name, home, variables={"TEAMCLI_STORE": self.url})

    def clone(self, name: str) -> Program:
        """Another place where the lead, or a worker, can run."""
        program = self._clone(name, self.lead.home)
        program.url = self.lead.url
        return program

    def run(self, *arguments: str) -> Ran:
        """The lead, with -p."""
        return self.lead.run("-p", *arguments, *BYPASS)

    def worker(
        self,
        name: str,
        *arguments: str,
        permissions: tuple[str, ...] = BYPASS,
        variables: Mapping[str, str] = MappingProxyType({}),
        clone: str = "",
    ) -> Worker:
        """In the clone of that name; usually that of the host."""
        place = self.base / (clone or name)
        variables = {**self.lead.variables, **variables}
        program = self._make_program(place, self.lead.home, self.lead.url, variables=variables)
        if not place.exists():
            self._clone(place.name, self.lead.home)
        line = ("worker", "--name", name, *permissions, *arguments)
        worker = Worker(program.start(*line, stdout=subprocess.DEVNULL), name)
        self._workers.append(worker)
        worker.wait_for("is ready for")
        return worker

    def private_repository(self, clone: str) -> Path:
        """From which the host that works in that clone fetches and pushes."""
        (found,) = (self.lead.home / ".teamcli" / "remotes").glob(f"{clone}-*.git")
        return found

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        import psycopg

        with psycopg.connect(self.url) as connection:
            return connection.execute(query.encode()).fetchall()

    def close(self) -> None:
        for worker in self._workers:
            if worker.process.poll() is None:
                worker.kill()
        for worker in self._workers:
            worker.join()
            assert not worker.says("Traceback"), worker.lines


@contextmanager
def machines_in(base: Path, url: str, make_program: ProgramMaker, lease_seconds: float = 2.0) -> Iterator[Machines]:
    machines = Machines(base, url, lease_seconds, make_program)
    try:
        yield machines
    finally:
        machines.close()
