"""The host and its supervisors: what they do for teamcli at the other end of their sockets."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import socket
import sys
import time
from collections.abc import Callable

from . import wire
from .processes import (
    KILL_PATIENCE_SECONDS,
    MOST_PROCESSES,
    SERVER_GRACE_SECONDS,
    TERM_GRACE_SECONDS,
    Children,
    ProcessCount,
    is_alone_in_sandbox,
    read,
    send_signal,
    threads_in_total,
)

LEFTOVER_GRACE_SECONDS = 0.2
"""What still runs when the shell ends may be about to finish by itself, like `tee` in `> >(tee log)`."""
_OOM_SCORE = 500
"""Added to the out-of-memory score (at most 1000), so that the system ends a command rather than teamcli."""
_IGNORED_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)  # the host ends when teamcli does
_DEFAULT_IN_COMMANDS = (*_IGNORED_SIGNALS, signal.SIGPIPE, signal.SIGXFSZ)  # Python ignores the last two
_PR_SET_DUMPABLE = 4


class Supervisor:
    """Runs one command after another for the other end of `sock`."""

    def __init__(self, sock: socket.socket, environment: dict[bytes, bytes]) -> None:
        self._sock = sock
        self._environment = environment
        self._children = Children(self._note_exit)
        self._shell = 0
        self._count = ProcessCount(0)
        self._exit_code: int | None = None

    def serve(self) -> None:
        while (frame := wire.receive_frame(self._sock)) is not None:
            fields, descriptors = frame
            if fields[0] == wire.RUN and not self._run(self._environment, fields[1:], descriptors):
                return
            if fields[0] == wire.LINGER and not self._run(self._environment, fields[1:], descriptors, lingers=True):
                return
            if fields[0] == wire.SERVE and not self._serve(fields[1:], descriptors):
                return

    def _serve(self, fields: list[bytes], descriptors: list[int]) -> bool:
        """False if this supervisor cannot run another command."""
        count = int(fields[0])
        given = {name: value for name, _, value in (field.partition(b"=") for field in fields[1 : 1 + count])}
        return self._run(self._environment | given, fields[1 + count :], descriptors, SERVER_GRACE_SECONDS)

    def _run(
        self,
        environment: dict[bytes, bytes],
        command: list[bytes],
        descriptors: list[int],
        grace_seconds: float = TERM_GRACE_SECONDS,
        lingers: bool = False,
    ) -> bool:
        """False if this supervisor cannot run another command."""
        cwd, *argv = command
        self._exit_code = None
        try:
            os.chdir(cwd)
            self._shell = self._start(environment, argv, *descriptors)
        except OSError as e:
            wire.send_frame(self._sock, wire.FAILED, str(e.errno).encode(), cwd)
            return True
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        self._children.watch(self._shell)
        self._count = ProcessCount(self._shell)
        left_running, survivors = self._see_it_end(grace_seconds, lingers)
        os.chdir("/")  # a directory that no process uses can be removed or unmounted
        exit_code = -signal.SIGKILL if self._exit_code is None else self._exit_code
        too_many = "too many" if self._count.is_too_high else ""
        report = (str(exit_code), "left" if left_running else "", " ".join(map(str, survivors)), too_many)
        wire.send_frame(self._sock, wire.ENDED, *(field.encode() for field in report))
        if self._count.is_unknown:
            # End everything in the sandbox at once, so that nothing escapes by forking. Other commands in it are lost;
            # teamcli reports that they must be run again.
            os.kill(-1, signal.SIGKILL)
        return not survivors

    def _start(
        self,
        environment: dict[bytes, bytes],
        argv: list[bytes],
        output: int,
        given: int | None = None,
        errors: int | None = None,
    ) -> int:
        closed = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
        source = closed if given is None else (os.POSIX_SPAWN_DUP2, given, 0)
        sinks = (output, output if errors is None else errors)
        outputs = [(os.POSIX_SPAWN_DUP2, sink, number) for number, sink in enumerate(sinks, 1)]
        return os.posix_spawn(
            argv[0],
            argv,
            environment,
            file_actions=[source, *outputs],
            setsid=True,
            setsigdef=_DEFAULT_IN_COMMANDS,
        )

    def _see_it_end(self, grace_seconds: float, lingers: bool) -> tuple[bool, list[int]]:
        """Whether something was left running, and what could not be ended."""
        stopped = not self._watch(self._has_exited) or not self._watch(self._is_childless, LEFTOVER_GRACE_SECONDS)
        if lingers and not stopped and not self._is_childless():
            wire.send_frame(self._sock, wire.EXITED, str(self._exit_code).encode())
            stopped = not self._watch(self._is_childless)
        if self._is_childless():
            return False, []
        survivors = [] if self._count.is_unknown else self._children.end(grace_seconds)
        if survivors and is_alone_in_sandbox():  # no other user's processes are in here, so these multiply
            self._count.give_up()
            survivors = []
        return not stopped, survivors

    def _watch(self, done: Callable[[], bool], seconds: float | None = None) -> bool:
        """Wait until `done`, or until the time is up. False if teamcli is gone or wants it to end, or they multiply."""
        deadline = math.inf if seconds is None else time.monotonic() + seconds
        while not done():
            if time.monotonic() >= deadline:
                return True
            if self._children.pause(min(deadline, self._count.next_at) - time.monotonic(), self._sock):
                return False  # whatever it says: the only frame sent while a command runs is STOP
            if self._count.check():
                return False
        return True

    def _has_exited(self) -> bool:
        self._children.reap()
        return self._exit_code is not None

    def _is_childless(self) -> bool:
        return not self._children.alive()

    def _note_exit(self, pid: int, exit_code: int) -> None:
        if pid == self._shell:
            self._exit_code = exit_code


class SupervisorHost:
    """Forks supervisors, and inherits what a lost one leaves. Small and single-threaded, so that forking is cheap."""

    def __init__(self, sock: socket.socket, environment: dict[bytes, bytes]) -> None:
        self._sock = sock
        self._environment = environment
        self._supervisors: set[int] = set()
        self._children = Children(lambda pid, _: self._supervisors.discard(pid), lambda: self._supervisors)

    def serve(self) -> None:
        while (frame := wire.receive_frame(self._sock)) is not None:
            fields, descriptors = frame
            if fields[0] == wire.FORK:
                wire.send_frame(self._sock, *self._fork(descriptors[0]))
            elif fields[0] == wire.BURY:
                self._bury({int(fields[1])})
                wire.send_frame(self._sock, wire.BURIED)
            elif fields[0] == wire.LOOK:
                wire.send_frame(self._sock, wire.SEEN, *map(_identity, fields[1:]), read("/proc/self/mountinfo"))
        self._bury(self._supervisors.copy())

    def _fork(self, descriptor: int) -> tuple[bytes, bytes]:
        try:
            pid = os.fork()
        except OSError as e:
            os.close(descriptor)
            return wire.FAILED, str(e.errno).encode()
        if pid == 0:
            try:
                self._sock.close()
                Supervisor(socket.socket(fileno=descriptor), self._environment).serve()
            finally:
                os._exit(0)
        os.close(descriptor)
        self._supervisors.add(pid)
        return wire.FORKED, str(pid).encode()

    def _bury(self, supervisors: set[int]) -> None:
        """Wait for the end of these, each of which has lost its socket, then end what they left: it is ours now.

        A command may have stopped its supervisor. It is resumed here, and killed if it is stopped again.
        """
        for number, seconds in (
            (signal.SIGCONT, 2 * KILL_PATIENCE_SECONDS),
            (signal.SIGKILL, KILL_PATIENCE_SECONDS),
        ):
            for pid in supervisors & self._supervisors:  # not collected yet, so the id is still theirs
                send_signal(os.kill, pid, number)
            deadline = time.monotonic() + seconds
            while self._children.reap() and supervisors & self._supervisors and time.monotonic() < deadline:
                self._children.pause(deadline - time.monotonic())
        if self._children.alive():
            self._children.end()


def main() -> None:
    _close_inherited_descriptors()
    _raise_oom_score()
    limit_processes()
    if wire.CONFINED in sys.argv[1:]:
        # Commands in the sandbox belong to the same user. None of them may reach teamcli by debugging this process.
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    os.set_inheritable(wire.HOST_SOCKET, False)
    for number in _IGNORED_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    os.chdir("/")
    sock = socket.socket(fileno=wire.HOST_SOCKET)
    frame = wire.receive_frame(sock)
    if frame is not None:
        if sys.argv[2:]:  # lend teamcli a socket of the sandbox's network
            with socket.create_server(("127.0.0.1", int(sys.argv[2])), backlog=128) as listener:
                wire.send_frame(sock, wire.LISTENS, descriptors=(listener.fileno(),))
        pairs = (field.partition(b"=") for field in frame[0])
        SupervisorHost(sock, {name: value for name, _, value in pairs if name}).serve()
    os._exit(0)  # nothing is left to do, and teamcli waits for it


def _close_inherited_descriptors() -> None:
    """Close what was open when teamcli started."""
    for descriptor in [int(entry.name) for entry in os.scandir("/dev/fd")]:
        if descriptor > wire.HOST_SOCKET:
            with contextlib.suppress(OSError):  # the one that listed them is closed already
                os.close(descriptor)


def _raise_oom_score() -> None:
    """If memory runs out, the system should end what takes it, and not the program that can report it."""
    try:
        score = int(read("/proc/self/oom_score_adj"))
        descriptor = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
    except OSError:  # not Linux
        return
    try:
        os.write(descriptor, str(min(1000, score + _OOM_SCORE)).encode())
    finally:
        os.close(descriptor)


def limit_processes() -> None:
    """However fast processes multiply before they are counted, the system grants no more than this (except to root).

    The limit counts all threads of the user, on older systems also those outside of a sandbox.
    """
    if sys.platform == "linux" and os.getuid() and (now := threads_in_total()):
        import resource

        wanted = now + 2 * MOST_PROCESSES
        chosen = resource.getrlimit(resource.RLIMIT_NPROC)  # by the user, maybe less
        usual, most = (wanted if each == resource.RLIM_INFINITY else min(each, wanted) for each in chosen)
        resource.setrlimit(resource.RLIMIT_NPROC, (usual, most))


def _identity(path: bytes) -> bytes:
    try:
        found = os.stat(path)  # noqa: PTH116 - a path of bytes
    except OSError:
        return b""
    return b"%d %d" % (found.st_dev, found.st_ino)
