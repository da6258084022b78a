"""Runs shell commands so that nothing of them outlives its end, its cancellation, or teamcli itself.

One small process per program, the host, forks supervisors (see `command_supervisor`); a supervisor serves many
commands, one after the other, so that a command costs little more than its shell. Safe for any number of threads.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import math
import os
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from teamcli.environment import visible_variables
from teamcli.errors import ToolError
from teamcli.tools import command_supervisor as wire
from teamcli.tools.running_command import RunningCommand

_PR_SET_DUMPABLE = 4
_NOBODY_IS_WATCHING = {"GIT_TERMINAL_PROMPT": "0", "PAGER": "cat", "GIT_PAGER": "cat"}
_MAX_IDLE_SUPERVISORS = 8
_ANSWER_PATIENCE_SECONDS = 5.0


def command_environment(environment: Mapping[str, str], hidden: Iterable[str] = ()) -> dict[str, str]:
    """What commands see of `environment`: no credentials, and settings by which nothing waits for a person."""
    return _NOBODY_IS_WATCHING | visible_variables(environment, hidden)


def hide_secrets(visible: Mapping[str, str]) -> None:
    """Keep what runs below us from reading our credentials in /proc, where the environment we were started with stands.

    Its text is overwritten in place (Python has its own copy), and on Linux our memory is closed to other processes of
    the same user. Root can still look into memory: against that only a sandbox helps.
    """
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    for name in os.environ.keys() - visible.keys():
        address = libc.getenv(os.fsencode(name))
        if address:
            ctypes.memset(address, ord("x"), len(ctypes.string_at(address)))
    if hasattr(libc, "prctl"):
        libc.prctl(_PR_SET_DUMPABLE, 0)


def check_command(command: str) -> None:
    """Raises: ToolError"""
    if not command.strip():
        raise ToolError("command: is empty")
    if "\0" in command:
        raise ToolError("command: contains a NUL character")
    try:
        command.encode()
    except UnicodeEncodeError as e:
        raise ToolError(f"command: is not valid Unicode at character {e.start}") from e


@dataclass(frozen=True)
class _Supervisor:
    pid: int
    sock: socket.socket


class CommandHost:
    """Starts commands. `close` ends all that run; without it they end when the process does, even by SIGKILL."""

    def __init__(self, environment: Mapping[str, str], hidden: Iterable[str] = (), owns_process: bool = True) -> None:
        """`hidden` are patterns of variables that commands must not see, besides the keys.

        A process that is not ours (`owns_process`) keeps its environment and its memory as they are.
        """
        self._owns_process = owns_process
        self._environment = command_environment(environment, hidden)
        self._shell = shutil.which("bash", path=self._environment.get("PATH")) or "/bin/sh"
        self._lock = threading.Lock()
        self._process: _HostProcess | None = None
        self._idle: list[_Supervisor] = []
        self._busy: set[_Supervisor] = set()
        self._is_closed = False
        self._numbers = itertools.count(1)

    def prestart(self) -> None:
        """Start the host process, so that the first command need not wait for it. Returns at once."""
        with self._lock, contextlib.suppress(OSError):  # the first command tries again, and tells
            self._host_process()

    def next_id(self) -> str:
        """A name for a background command, unique in this program."""
        return f"bg-{next(self._numbers)}"

    def start(self, command: str, cwd: Path, given: BinaryIO | None = None) -> RunningCommand:
        """Start `command` in a shell; the caller must `follow` it.

        With a file `given` on its standard input, what it writes as errors is kept apart from its output.

        Raises: ToolError
        """
        check_command(command)
        request = (wire.RUN, os.fsencode(cwd), os.fsencode(self._shell), b"-c", b"--", command.encode())
        pipes: list[tuple[int, int]] = []
        try:
            while len(pipes) < (1 if given is None else 2):
                pipes.append(os.pipe())
            sinks = [sink for _, sink in pipes]
            supervisor = self._hand_over(request, sinks if given is None else [sinks[0], given.fileno(), sinks[1]])
        except BaseException as e:
            for source, _ in pipes:
                os.close(source)
            if isinstance(e, OSError):
                raise ToolError(f"the command cannot be started: {e.strerror or e}") from e
            raise
        finally:
            for _, sink in pipes:
                os.close(sink)
        sources = tuple(source for source, _ in pipes)
        return RunningCommand(supervisor.sock, sources, lambda reusable: self._take_back(supervisor, reusable))

    def close(self) -> None:
        """End every command, and wait until all are dead."""
        with self._lock:
            self._is_closed = True
            for supervisor in self._busy:
                with contextlib.suppress(OSError):  # lost: `follow` has noticed, or will
                    supervisor.sock.shutdown(socket.SHUT_RDWR)  # it ends its command; `follow` gets an error
            for supervisor in self._idle:
                supervisor.sock.close()
            self._idle.clear()
            self._close_process()

    def _hand_over(self, request: tuple[bytes, ...], descriptors: list[int]) -> _Supervisor:
        tries_left = _MAX_IDLE_SUPERVISORS + 1
        while True:
            supervisor = self._take()
            tries_left -= 1
            try:
                wire.send_frame(supervisor.sock, *request, descriptors=descriptors)
                return supervisor
            except BaseException as e:
                self._take_back(supervisor, reusable=False)
                was_killed_while_idle = isinstance(e, ConnectionError)
                if not was_killed_while_idle or not tries_left:
                    raise

    def _take(self) -> _Supervisor:
        with self._lock:
            supervisor = self._idle.pop() if self._idle else self._fork_supervisor()
            self._busy.add(supervisor)
            return supervisor

    def _take_back(self, supervisor: _Supervisor, reusable: bool) -> None:
        with self._lock:
            self._busy.remove(supervisor)
            if reusable and not self._is_closed and len(self._idle) < _MAX_IDLE_SUPERVISORS:
                self._idle.append(supervisor)
                return
            supervisor.sock.close()
            if self._process is None:
                return
            try:
                self._process.bury(supervisor)
            except ConnectionError:  # the host is lost as well
                self._close_process()

    def _fork_supervisor(self) -> _Supervisor:
        try:
            return self._host_process().fork()
        except ConnectionError:  # somebody has killed the host: another one
            self._close_process()
            return self._host_process().fork()

    def _host_process(self) -> _HostProcess:
        if self._is_closed:
            raise ToolError("the command cannot be started: teamcli is about to end")
        if self._process is None:
            if self._owns_process:
                hide_secrets(self._environment)
            self._process = _HostProcess(self._environment)
        return self._process

    def _close_process(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None


class _HostProcess:
    """The long-lived child process, in a session of its own: Ctrl-C at the terminal does not reach it."""

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

    def fork(self) -> _Supervisor:
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
        return _Supervisor(int(number), ours)

    def bury(self, supervisor: _Supervisor) -> None:
        """See to the end of a supervisor that has lost its socket, and of what it leaves.

        Raises: OSError
        """
        self._ask(wire.BURY, str(supervisor.pid).encode())

    def close(self) -> None:
        """It ends when its socket does, after all that it has started."""
        self._sock.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGCONT)  # a command may have stopped it
        deadline = time.monotonic() + _ANSWER_PATIENCE_SECONDS
        while not self._has_died():
            if time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGKILL)  # something cannot be ended: not worth more of the user's time
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

    @staticmethod
    def _spawn(sock: int, environment: Mapping[str, str]) -> int:
        nowhere = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)]
        return os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", wire.__file__],
            environment,
            file_actions=[(os.POSIX_SPAWN_DUP2, sock, wire.HOST_SOCKET), *nowhere],
            setsid=True,
            setsigmask=(),
        )

    def _has_died(self) -> bool:
        try:
            return os.waitpid(self.pid, os.WNOHANG)[0] != 0
        except ChildProcessError:  # whoever started teamcli has set SIGCHLD to be ignored
            return True
