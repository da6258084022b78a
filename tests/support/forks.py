"""Runs teamcli many times at little cost: a process that has loaded all of it forks for each run.

A run is a process of its own, with its own environment, directory, standard streams and exit code; only Python and its
modules are loaded already. A test of what happens while they load, or of what the system knows of a process that was
started (`/proc/PID/environ`), needs a `Program`.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import termios
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.program import PATIENCE_SECONDS, ROOT, Program, Ran

_READ_BY_PYTHON = ("PYTHON", "LANG", "LC_", "LD_", "TZ", "COVERAGE")
"""Variables that count when an interpreter starts."""
_STORE = "teamcli.store.postgres"
"""It has a library that few runs need; those load it as always, unless `Forks` should."""


class Forks:
    """`with Forks() as forks: forks.run(program, "-p", "go", fault={...})`."""

    def __init__(self, has_store: bool = False) -> None:
        nowhere = Path("/nonexistent")
        environment = Program(nowhere, nowhere).env()
        self._python = _python_variables(environment)
        self._channel, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.forks", str(theirs.fileno()), *["store"] * has_store],
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
            code = self.start(program.directory, program.env(), arguments, streams, fault=fault).wait()
        return Ran(code, *(path.read_text(errors="replace") for path in outputs))

    def start(
        self,
        directory: Path,
        environment: Mapping[str, str],
        arguments: Sequence[str],
        streams: Sequence[int],
        is_terminal: bool = False,
        fault: dict[str, Any] | None = None,
    ) -> Fork:
        """Start with these file descriptors as its standard streams, of a terminal that becomes its own or not."""
        run = {
            "directory": str(directory),
            "environment": dict(environment),
            "arguments": arguments,
            "is_terminal": is_terminal,
            "fault": fault and json.dumps(fault),
        }
        ours, theirs = socket.socketpair()
        with theirs, tempfile.TemporaryFile("w+") as file:  # a message in a socket would have a limit
            json.dump(run, file)
            file.seek(0)
            socket.send_fds(self._channel, [b"."], [*streams, file.fileno(), theirs.fileno()])
        return Fork(ours)


class Fork:
    """A run that was started."""

    def __init__(self, channel: socket.socket) -> None:
        channel.settimeout(PATIENCE_SECONDS)
        self._channel = channel
        self.pid = int.from_bytes(channel.recv(4))

    def poll(self) -> int | None:
        """The exit code, negative for a signal; `None` while it runs."""
        return self.wait() if self.ends_within(0) else None

    def ends_within(self, seconds: float | None) -> bool:
        return bool(select.select([self._channel], [], [], seconds)[0])

    def wait(self) -> int:
        with self._channel:
            try:
                return int.from_bytes(self._channel.recv(4), signed=True)
            except TimeoutError:
                os.kill(self.pid, signal.SIGKILL)
                raise


class ForkedProcess:
    """A run that was started, as `subprocess.Popen` shows one."""

    def __init__(
        self,
        start: Callable[[Sequence[int]], Fork],
        stdin: Any = subprocess.DEVNULL,
        stdout: Any = subprocess.PIPE,
        stderr: Any = subprocess.PIPE,
    ) -> None:
        self.stdin, given = _stream(stdin, is_input=True)
        self.stdout, out = _stream(stdout)
        self.stderr, err = (None, os.dup(out)) if stderr == subprocess.STDOUT else _stream(stderr)
        self._fork = start([given, out, err])
        for fd in (given, out, err):
            os.close(fd)
        self.pid = self._fork.pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._fork.poll()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not self._fork.ends_within(timeout):
                raise subprocess.TimeoutExpired(["teamcli"], timeout or 0.0)
            self.returncode = self._fork.wait()
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[bytes | None, bytes | None]:
        """What it prints to pipes, to its end."""
        with ThreadPoolExecutor(2) as pool:
            printed = [stream and pool.submit(_read_all, stream) for stream in (self.stdout, self.stderr)]
            try:
                self.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()  # or the pool would wait for ever
                raise
            out, err = [each and each.result() for each in printed]
        return out, err

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _read_all(stream: Any) -> bytes:
    with stream:
        return bytes(stream.read())


def _stream(wanted: Any, is_input: bool = False) -> tuple[Any, int]:
    """Our end of a pipe, if that is wanted, and what the run gets."""
    if wanted == subprocess.PIPE:
        read, write = os.pipe()
        return (open(write, "wb", 0), read) if is_input else (open(read, "rb"), write)  # noqa: PTH123
    return None, os.open(os.devnull, os.O_RDWR) if wanted == subprocess.DEVNULL else os.dup(wanted.fileno())


@dataclass
class ForkedProgram(Program):
    """A `Program` whose runs are forks, except for those that need an interpreter of their own."""

    forks: Forks = field(kw_only=True)
    forks_starts: bool = field(default=False, kw_only=True)
    """What it starts is a fork, too."""

    def start(self, *arguments: str, **options: Any) -> Any:
        environment = self.env()
        if not self.forks_starts or not self.forks.can_run(environment):
            return super().start(*arguments, **options)
        return ForkedProcess(partial(self.forks.start, self.directory, environment, arguments), **options)

    def run(self, *arguments: str, stdin: str | bytes | None = None, env: Mapping[str, str] | None = None) -> Ran:
        environment = {**self.env(), **(env or {})}
        if not self.forks.can_run(environment):
            return super().run(*arguments, stdin=stdin, env=env)
        data = stdin.encode() if isinstance(stdin, str) else stdin
        given, to_give = (os.open(os.devnull, os.O_RDONLY), None) if data is None else os.pipe()
        outputs, written = zip(os.pipe(), os.pipe(), strict=True)
        fork = self.forks.start(self.directory, environment, arguments, [given, *written])
        for fd in (given, *written):
            os.close(fd)
        with ThreadPoolExecutor(3) as pool:
            if to_give is not None:
                pool.submit(_write, to_give, data)
            texts = [pool.submit(_read, fd) for fd in outputs]  # to the end: nobody else may keep them open
            ran = Ran(fork.wait(), *(each.result() for each in texts))
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


def _serve(channel: socket.socket, has_store: bool) -> tuple[dict[str, Any], list[int]]:
    """Returns in each process that is to be a run: what to run, and its standard streams."""
    _load_all(has_store)
    woken, waker = socket.socketpair()
    waker.setblocking(False)
    signal.set_wakeup_fd(waker.fileno())
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    runs: dict[int, socket.socket] = {}
    with channel, woken, waker:
        while True:
            if woken in select.select([channel, woken], [], [])[0]:
                woken.recv(1000)
                _report_ended(runs)
                continue
            message, fds, _, _ = socket.recv_fds(channel, 1, 5)
            if not message:
                sys.exit()
            *streams, run, ending = fds
            pid = os.fork()
            if pid == 0:
                for each in runs.values():
                    each.close()
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                with open(run) as file:  # noqa: PTH123
                    return json.load(file), streams
            for fd in (*streams, run):
                os.close(fd)
            runs[pid] = socket.socket(fileno=ending)
            runs[pid].send(pid.to_bytes(4))


def _report_ended(runs: dict[int, socket.socket]) -> None:
    while runs and (ended := os.waitpid(-1, os.WNOHANG))[0]:
        pid, status = ended
        with runs.pop(pid) as ending, contextlib.suppress(BrokenPipeError):  # the test ended earlier
            ending.send(os.waitstatus_to_exitcode(status).to_bytes(4, signed=True))


def _load_all(has_store: bool) -> None:
    import teamcli

    for module in pkgutil.walk_packages(teamcli.__path__, "teamcli."):
        is_wanted = has_store or not module.name.startswith(_STORE)
        if is_wanted and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    gc.collect()
    gc.freeze()


def _run(run: dict[str, Any], streams: list[int]) -> None:
    """As `python -m teamcli` does. Never returns."""
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
    os.closerange(3, 1000)
    if run["is_terminal"]:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    _open_streams()
    os.environ.clear()
    os.environ.update(run["environment"])
    os.chdir(run["directory"])
    if run["fault"]:
        from tests.support.faults.injection import inject

        inject(run["fault"])
    sys.argv[1:] = run["arguments"]
    sys.path[0] = run["directory"]
    runpy.run_module("teamcli", run_name="__main__", alter_sys=True)


def _open_streams() -> None:
    """Those of this process know whether the old ones were terminals, and could seek."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        old = getattr(sys, name)
        buffering = 1 if name == "stderr" else -1
        new = open(number, mode, buffering, old.encoding, old.errors, closefd=False)  # noqa: SIM115
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)


if __name__ == "__main__":
    _run(*_serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2:] == ["store"]))
