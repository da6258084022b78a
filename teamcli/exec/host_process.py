"""The host process, as teamcli sees it: a small, long-lived child that forks supervisors, sandboxed or not."""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from teamcli.errors import ToolError
from teamcli.exec.supervisor import serve, wire

if TYPE_CHECKING:
    from teamcli.exec.sandbox.plan import SandboxPlan

_ANSWER_PATIENCE_SECONDS = 5.0
_FIRST_ANSWER_PATIENCE_SECONDS = 30.0
"""A busy machine must not be mistaken for one on which the sandbox does not work."""
_OPTIONS = wire.HOST_SOCKET + 1


class SandboxRefused(ToolError):
    """What the sandbox program said before it gave up."""


class SupervisorHandle(NamedTuple):
    pid: int
    sock: socket.socket
    process: HostProcess


def _host_command() -> list[str]:
    """Import the package, because Python would compile a script again each time.

    Its directory comes last in the path, so that modules of Python take precedence over ours with the same name.
    """
    package = Path(serve.__file__).parent
    begin = f"import sys; sys.path.append({str(package.parent)!r}); from {package.name}.serve import main; main()"
    return [sys.executable, "-I", "-S", "-B", "-c", begin]


class HostProcess:
    """Runs in its own session, so that Ctrl-C at the terminal does not reach it."""

    is_outdated = False
    _leaving_patience_seconds = 5.0

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Raises: OSError"""
        self._sock, theirs = socket.socketpair()
        self._sock.settimeout(_ANSWER_PATIENCE_SECONDS)
        try:
            with theirs:
                self.pid = self._spawn(theirs.fileno(), environment)
        except BaseException:
            self._sock.close()
            raise
        with contextlib.suppress(OSError):  # if it has died already, the first question finds out
            wire.send_frame(self._sock, *(os.fsencode(f"{name}={value}") for name, value in environment.items()))

    def fork(self) -> SupervisorHandle:
        """Raises: OSError"""
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                kind, number = self._ask(wire.FORK, descriptors=(theirs.fileno(),))
            if kind == wire.FAILED:
                raise OSError(int(number), os.strerror(int(number)))
        except BaseException:
            ours.close()
            raise
        return SupervisorHandle(int(number), ours, self)

    def bury(self, supervisor: SupervisorHandle) -> None:
        """Wait for the end of a supervisor that has lost its socket, and end what it leaves.

        Raises: OSError
        """
        self._ask(wire.BURY, str(supervisor.pid).encode())

    def close(self) -> None:
        """It exits when its socket closes, after everything it has started. If it does not, kill it."""
        self._sock.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGCONT)  # a command may have stopped it
        deadline = time.monotonic() + self._leaving_patience_seconds
        while not self._has_died():
            if time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGKILL)  # something cannot be ended, and the user should not wait for it
                deadline = math.inf
            time.sleep(0.001)

    def _ask(self, *fields: bytes, descriptors: tuple[int, ...] = ()) -> list[bytes]:
        try:
            wire.send_frame(self._sock, *fields, descriptors=descriptors)
            frame = wire.receive_frame(self._sock)
        except TimeoutError:
            frame = None
        if frame is None:
            raise ConnectionResetError("the process that runs commands was killed or hangs; try again")
        return frame[0]

    def _spawn(self, sock: int, environment: Mapping[str, str]) -> int:
        return _spawn(_host_command(), environment, {wire.HOST_SOCKET: sock})

    def _has_died(self) -> bool:
        try:
            return os.waitpid(self.pid, os.WNOHANG)[0] != 0
        except ChildProcessError:  # the process that started teamcli has set SIGCHLD to be ignored
            return True


class SandboxedHostProcess(HostProcess):
    """A host in a sandbox. `pid` is that of the sandbox program outside: everything inside ends with it."""

    _leaving_patience_seconds = 1.0  # killing it leaves nothing behind either

    def __init__(self, program: str, plan: SandboxPlan) -> None:
        """Returns when the sandbox works, which it has shown by forking a supervisor.

        Raises: OSError, and ToolError with the reason why it does not work
        """
        self._program = program
        self._plan = plan
        self._close_proxy: Callable[[], None] = lambda: None
        self._is_dead = threading.Event()
        self._first: SupervisorHandle | None = None
        errors, self._error_sink = os.pipe()
        try:
            try:
                super().__init__(plan.environment)
            finally:
                os.close(self._error_sink)
            self._first = self._prove(errors)
        finally:
            os.close(errors)

    @property
    def is_outdated(self) -> bool:  # type: ignore[override]
        return self._plan.is_outdated

    def fork(self) -> SupervisorHandle:
        first, self._first = self._first, None
        return first or super().fork()

    def close(self) -> None:
        if self._first:
            self._first.sock.close()
        super().close()
        self._close_proxy()

    def _prove(self, errors: int) -> SupervisorHandle:
        self._sock.settimeout(_FIRST_ANSWER_PATIENCE_SECONDS)
        try:
            if self._plan.port is not None:
                self._close_proxy = self._plan.serve(self._lent_socket())
            _, *identities, mounts = self._ask(wire.LOOK, *self._plan.to_check)
            if objection := self._plan.objection(identities, mounts):
                self.close()
                raise ToolError(objection)
            supervisor = super().fork()
            self._sock.settimeout(_ANSWER_PATIENCE_SECONDS)
            return supervisor
        except OSError as e:
            self.close()
            complaint = os.read(errors, 4096).decode("utf-8", "replace").strip()
            if complaint:
                raise SandboxRefused(complaint.splitlines()[-1]) from e
            raise ToolError(f"bwrap does not answer: {e}") from e

    def _lent_socket(self) -> socket.socket:
        frame = wire.receive_frame(self._sock)
        if frame is None or not frame[1]:
            raise ConnectionResetError("it does not have a network")
        return socket.socket(fileno=frame[1][0])

    def _spawn(self, sock: int, environment: Mapping[str, str]) -> int:
        """The sandbox ends with the thread that started it (`--die-with-parent`), so that thread stays."""
        answers: queue.SimpleQueue[int | OSError] = queue.SimpleQueue()

        def start_and_wait() -> None:
            try:
                pid = self._start(sock)
            except OSError as e:
                answers.put(e)
                return
            answers.put(pid)
            with contextlib.suppress(ChildProcessError):  # the process that started teamcli ignores SIGCHLD
                os.waitpid(pid, 0)
            self._is_dead.set()

        threading.Thread(target=start_and_wait, name="sandbox process", daemon=True).start()
        answer = answers.get()
        if isinstance(answer, OSError):
            raise answer
        return answer

    def _start(self, sock: int) -> int:
        options = os.memfd_create("options")  # not as arguments, which `ps` would show to every command
        try:
            os.write(options, b"\0".join(map(os.fsencode, self._plan.options)))
            os.lseek(options, 0, os.SEEK_SET)
            port = () if self._plan.port is None else (str(self._plan.port),)
            command = [self._program, "--args", str(_OPTIONS), *_host_command(), wire.CONFINED, *port]
            descriptors = {2: self._error_sink, wire.HOST_SOCKET: sock, _OPTIONS: options}
            return _spawn(command, self._plan.environment, descriptors)
        finally:
            os.close(options)

    def _has_died(self) -> bool:
        return self._is_dead.is_set()


def _spawn(command: list[str], environment: Mapping[str, str], descriptors: Mapping[int, int]) -> int:
    """Start a process in its own session, with these descriptors under these numbers. Returns its id.

    Raises: OSError
    """
    closed = [number for number in (0, 1, 2) if number not in descriptors]
    with contextlib.ExitStack() as copies:
        actions: list[tuple[int, ...]] = []
        for number, descriptor in descriptors.items():  # copied to high numbers first, or one would overwrite another
            copy = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _OPTIONS + 1)
            copies.callback(os.close, copy)
            actions.append((os.POSIX_SPAWN_DUP2, copy, number))
        return os.posix_spawn(
            command[0],
            command,
            environment,
            file_actions=[*((os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in closed), *actions],
            setsid=True,
            setsigmask=(),
        )
