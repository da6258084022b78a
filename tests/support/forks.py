"""Runs teamcli many times at little cost: a process that has loaded all of it forks for each run.

A run is a process of its own, with its own environment, directory, standard streams and exit code; only Python and its
modules are loaded already. A test of what happens while they load, or of what the system knows of a process that was
started (`/proc/PID/environ`), needs a `Program`.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.program import PATIENCE_SECONDS, ROOT, Program, Ran

_READ_BY_PYTHON = ("PYTHON", "LANG", "LC_", "LD_", "TZ", "COVERAGE")
"""Variables that count when an interpreter starts."""
_LEFT_OUT = ("teamcli.ui.terminal", "teamcli.store.postgres")
"""Parts with large libraries that few runs need; those load them as always."""


class Forks:
    """`with Forks() as forks: forks.run(program, "-p", "go", fault={...})`."""

    def __init__(self) -> None:
        nowhere = Path("/nonexistent")
        environment = Program(nowhere, nowhere).env()
        self._python = _python_variables(environment)
        self._channel, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.forks", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                env=environment,
                cwd=ROOT,
                pass_fds=[theirs.fileno()],
            )

    def __enter__(self) -> Forks:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._channel.close()
        self._process.wait(PATIENCE_SECONDS)

    def can_run(self, environment: Mapping[str, str]) -> bool:
        """False if these variables make another interpreter."""
        return _python_variables(environment) == self._python

    def run(self, program: Program, *arguments: str, fault: dict[str, Any] | None = None) -> Ran:
        """Run to the end. Processes that it leaves behind may keep its output open, as those of a killed program do."""
        outputs = program.home / "out", program.home / "err"
        with Path(os.devnull).open() as nothing, outputs[0].open("w") as out, outputs[1].open("w") as err:
            streams = [stream.fileno() for stream in (nothing, out, err)]
            code = self.start(program.directory, program.env(), arguments, streams, fault)()
        return Ran(code, *(path.read_text(errors="replace") for path in outputs))

    def start(
        self,
        directory: Path,
        environment: Mapping[str, str],
        arguments: Sequence[str],
        streams: Sequence[int],
        fault: dict[str, Any] | None = None,
    ) -> Ending:
        """Start with these file descriptors as its standard streams."""
        run = {"directory": str(directory), "environment": dict(environment), "arguments": arguments}
        ours, theirs = socket.socketpair()
        with theirs, tempfile.TemporaryFile("w+") as file:  # a message in a socket would have a limit
            json.dump({**run, "fault": fault and json.dumps(fault)}, file)
            file.seek(0)
            socket.send_fds(self._channel, [b"."], [*streams, file.fileno(), theirs.fileno()])
        return Ending(ours)


@dataclass(frozen=True)
class Ending:
    """Call it to wait for the end of a run; it returns the exit code, negative for a signal."""

    _channel: socket.socket

    def __call__(self) -> int:
        with self._channel:
            self._channel.settimeout(PATIENCE_SECONDS)
            pid = int.from_bytes(self._channel.recv(4))
            try:
                return int.from_bytes(self._channel.recv(4), signed=True)
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                raise


@dataclass
class ForkedProgram(Program):
    """A `Program` whose runs are forks, except for those that need an interpreter of their own."""

    forks: Forks = field(kw_only=True)

    def run(self, *arguments: str, stdin: str | bytes | None = None, env: Mapping[str, str] | None = None) -> Ran:
        environment = {**self.env(), **(env or {})}
        if not self.forks.can_run(environment):
            return super().run(*arguments, stdin=stdin, env=env)
        data = stdin.encode() if isinstance(stdin, str) else stdin
        given, to_give = (os.open(os.devnull, os.O_RDONLY), None) if data is None else os.pipe()
        outputs, written = zip(os.pipe(), os.pipe(), strict=True)
        end = self.forks.start(self.directory, environment, arguments, [given, *written])
        for fd in (given, *written):
            os.close(fd)
        with ThreadPoolExecutor(3) as pool:
            if to_give is not None:
                pool.submit(_write, to_give, data)
            texts = [pool.submit(_read, fd) for fd in outputs]  # to the end: nobody else may keep them open
            ran = Ran(end(), *(each.result() for each in texts))
        assert "Traceback" not in ran.err, ran.err
        return ran


def _write(fd: int, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), open(fd, "wb") as pipe:
        pipe.write(data)


def _read(fd: int) -> str:
    with open(fd, "rb") as pipe:
        return pipe.read().decode(errors="replace")


def _python_variables(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_READ_BY_PYTHON)}


def _serve(channel: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Returns in each process that is to be a run: what to run, and its standard streams."""
    _load_all()
    while True:
        message, fds, _, _ = socket.recv_fds(channel, 1, 5)
        if not message:
            channel.close()
            sys.exit()
        if os.fork() == 0:
            channel.close()
            *streams, run, ending = fds
            if not _keep(streams, ending):
                with open(run) as file:  # noqa: PTH123
                    return json.load(file), streams
        for fd in fds:
            os.close(fd)
        with contextlib.suppress(ChildProcessError):  # no more of them
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _keep(streams: list[int], ending: int) -> bool:
    """Fork, and report the end of the child. False in the child."""
    pid = os.fork()
    if pid == 0:
        os.close(ending)
        return False
    for fd in streams:
        os.close(fd)
    os.write(ending, pid.to_bytes(4))
    _, status = os.waitpid(pid, 0)
    os.write(ending, os.waitstatus_to_exitcode(status).to_bytes(4, signed=True))
    os._exit(0)


def _load_all() -> None:
    import teamcli

    for module in pkgutil.walk_packages(teamcli.__path__, "teamcli."):
        if not module.name.endswith("__main__") and not module.name.startswith(_LEFT_OUT):
            importlib.import_module(module.name)
    gc.collect()
    gc.freeze()


def _run(run: dict[str, Any], streams: list[int]) -> None:
    """As `python -m teamcli` does. Never returns."""
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
        os.close(fd)
    os.environ.clear()
    os.environ.update(run["environment"])
    os.chdir(run["directory"])
    if run["fault"]:
        from tests.support.faults.injection import inject

        inject(run["fault"])
    sys.argv[1:] = run["arguments"]
    sys.path[0] = run["directory"]
    runpy.run_module("teamcli", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _run(*_serve(socket.socket(fileno=int(sys.argv[1]))))
