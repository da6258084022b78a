"""Runs merges in processes that are killed at a given step. `python -m tests.worktrees.killed_merges` serves them.

A step is any call that changes a file or starts git. Killed after the start of git means: while git runs. Each run is a
forked process, and the answer comes when everything that it has started is dead.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.program import ROOT

_PR_SET_CHILD_SUBREAPER = 36
_CALLS = ("rename", "replace", "link", "unlink", "rmdir", "mkdir", "write", "fsync", "utime")


class KilledMerges:
    """`with KilledMerges() as merges: merges.run(root, home, step=7, how="after")`."""

    def __enter__(self) -> KilledMerges:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.worktrees.killed_merges"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": "/nonexistent"},
            cwd=ROOT,
            text=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()

    def run(self, root: Path, home: Path, step: int = 0, how: str = "") -> dict[str, Any]:
        """Merge alice; `steps` is how many there were, `said` what the merge returned, `code` negative for a kill."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps([str(root), str(home), step, how]) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer


class _Steps:
    def __init__(self, kill_at: int, how: str) -> None:
        self.count = 0
        self._kill_at = kill_at
        self._how = how
        self._lock = threading.Lock()

    def wrapped(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            with self._lock:
                self.count += 1
                is_meant = self.count == self._kill_at
            if is_meant and self._how == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                return function(*arguments, **named)
            finally:
                if is_meant:
                    os.kill(os.getpid(), signal.SIGKILL)

        return call


def _merge(root: Path, home: Path, steps: _Steps) -> str:
    from teamcli.cancel import CancelScope
    from teamcli.errors import TeamcliError
    from teamcli.exec.command_host import CommandHost
    from teamcli.storage.team_dir import TeamDir
    from teamcli.team.merging import Merging
    from teamcli.team.roster_file import Member, Status
    from teamcli.worktrees.merge import Merger
    from tests.worktrees.conftest import open_checkouts

    checkouts, host = open_checkouts(root, home, is_confined=False)
    merger = Merger(checkouts, TeamDir.of(root), gate="test -f README.md")
    alice = Member("alice", "coder", Status.IDLE, worktree=True, since=1.0)
    merging = Merging(merger, lambda name: alice, lambda message: None, lambda event: None)
    host.start("true", root).follow(lambda text: None, lambda text: None)  # its own calls are not of interest
    checkouts.hosts.of("alice").start("true", root).follow(lambda text: None, lambda text: None)
    for name in _CALLS:
        setattr(os, name, steps.wrapped(getattr(os, name)))
    CommandHost.start = steps.wrapped(CommandHost.start)  # type: ignore[method-assign]
    fcntl.flock = steps.wrapped(fcntl.flock)  # type: ignore[assignment]
    try:
        said = merging.recover(CancelScope())
        return said + merging.merge("lead", "alice", "", CancelScope(), lambda text: None)
    except TeamcliError as e:
        return f"{type(e).__name__}: {e}"


def _run_in_child(root: Path, home: Path, step: int, how: str, answer: int) -> None:
    steps = _Steps(step, how)
    write = os.write
    said = _merge(root, home, steps)
    write(answer, json.dumps({"said": said, "steps": steps.count}).encode())
    os._exit(0)


def _serve() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    import tests.worktrees.conftest  # noqa: F401 - loaded once, for all

    for line in sys.stdin:
        root, home, step, how = json.loads(line)
        source, sink = os.pipe()
        child = os.fork()
        if child == 0:
            _run_in_child(Path(root), Path(home), step, how, sink)
        os.close(sink)
        with os.fdopen(source, "rb") as reader:
            answer = json.loads(reader.read() or b"{}")
        _, status = os.waitpid(child, 0)
        while True:  # the supervisors of the child end what it has started, and then themselves
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                break
        print(json.dumps({"code": os.waitstatus_to_exitcode(status), **answer}), flush=True)


if __name__ == "__main__":
    _serve()
