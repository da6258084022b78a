"""Runs teamcli many times at little cost: a process that has loaded all of it forks for each run.

`python -m tests.support.faults.forks` reads runs from standard input, one JSON object a line, and answers each with the
exit code (negative for a signal). A run is a process of its own, with its own environment, directory and files.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.program import ROOT, Program, Ran


class Forks:
    """`with Forks() as forks: forks.run(program, "-p", "go", fault={...})`."""

    def __init__(self) -> None:
        environment = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.faults.forks"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**environment, "PYTHONPATH": str(ROOT), "HOME": "/nonexistent"},
            cwd=ROOT,
            text=True,
        )

    def __enter__(self) -> Forks:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()

    def run(self, program: Program, *arguments: str, fault: dict[str, Any] | None = None) -> Ran:
        assert self._process.stdin
        assert self._process.stdout
        outputs = program.home / "out", program.home / "err"
        run = {
            "arguments": arguments,
            "environment": program.env(),
            "directory": str(program.directory),
            "outputs": [str(path) for path in outputs],
            "fault": fault and json.dumps(fault),
        }
        self._process.stdin.write(json.dumps(run) + "\n")
        self._process.stdin.flush()
        code = int(self._process.stdout.readline())
        return Ran(code, *(path.read_text(errors="replace") for path in outputs))


def _serve() -> None:
    _load_all()
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _run(json.loads(line))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _load_all() -> None:
    import teamcli

    for module in pkgutil.walk_packages(teamcli.__path__, "teamcli."):
        if not module.name.endswith("__main__") and ".ui.terminal" not in module.name:
            importlib.import_module(module.name)


def _run(run: dict[str, Any]) -> None:
    """In the child; never returns."""
    os.environ.clear()
    os.environ.update(run["environment"])
    os.chdir(run["directory"])
    for fd, path in ((0, os.devnull), *enumerate(run["outputs"], 1)):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600), fd)
    if run["fault"]:
        from tests.support.faults.injection import inject

        inject(run["fault"])
    from teamcli.__main__ import main

    sys.argv = ["teamcli", *run["arguments"]]
    sys.path[:] = [path for path in sys.path if path and Path(path) != Path(run["directory"])]
    main()


if __name__ == "__main__":
    _serve()
