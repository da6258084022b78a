"""The process that forks supervisors, and the supervisors that wait for their next command."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable

from teamcli.errors import ToolError
from teamcli.exec.host_process import HostProcess, SupervisorHandle

MAX_IDLE_SUPERVISORS = 8


class SupervisorPool:
    """Not safe for threads: its owner calls it under a lock."""

    def __init__(self, start_process: Callable[[], HostProcess]) -> None:
        """`start_process` raises ToolError or OSError if there can be none."""
        self._start_process = start_process
        self.process: HostProcess | None = None
        """The one in which commands are started; None before the first, and after one was lost."""
        self._retired: list[HostProcess] = []
        """Commands still run in these, and no new ones are started in them."""
        self._idle: list[SupervisorHandle] = []
        self._busy: set[SupervisorHandle] = set()
        self.is_closed = False

    def take(self) -> SupervisorHandle:
        """A supervisor for one command; `give_back` must follow.

        Raises: ToolError, OSError
        """
        if self.process is not None and self.process.is_outdated:  # before each command: files appear at any time
            self.retire()
        supervisor = self._idle.pop() if self._idle else self._fork()
        self._busy.add(supervisor)
        return supervisor

    def give_back(self, supervisor: SupervisorHandle, reusable: bool) -> None:
        """Its command has ended. Unless it is `reusable`, what it has left is ended, too."""
        self._busy.remove(supervisor)
        is_current = supervisor.process is self.process
        if reusable and is_current and not self.is_closed and len(self._idle) < MAX_IDLE_SUPERVISORS:
            self._idle.append(supervisor)
            return
        supervisor.sock.close()
        if is_current:
            try:
                supervisor.process.bury(supervisor)
            except ConnectionError:  # the host is lost too
                self._close_process()
        else:
            self._close_retired()

    def ensure_process(self) -> HostProcess:
        """Raises: ToolError, OSError"""
        if self.is_closed:
            raise ToolError("the command cannot be started: teamcli is about to end")
        if self.process is None:
            self.process = self._start_process()
        return self.process

    def retire(self) -> None:
        """Start later commands in a new process. Those that run finish in the old one."""
        if self.process is not None:
            self._retired.append(self.process)
            self.process = None
        self._drop_idle()
        self._close_retired()

    def end_unused(self) -> None:
        """End the process, unless a command runs."""
        if not self._busy:
            self._close_process()

    def close(self) -> None:
        """End every command, and wait until all are dead."""
        self.is_closed = True
        for supervisor in self._busy:
            with contextlib.suppress(OSError):  # lost: `follow` has noticed, or will
                supervisor.sock.shutdown(socket.SHUT_RDWR)  # it ends its command; `follow` gets an error
        self._close_process()
        for process in self._retired:
            process.close()
        self._retired.clear()

    def _fork(self) -> SupervisorHandle:
        process = self.ensure_process()
        try:
            return process.fork()
        except ConnectionError:  # the host was killed: start another one
            self._close_process()
            return self.ensure_process().fork()

    def _close_retired(self) -> None:
        in_use = {id(supervisor.process) for supervisor in self._busy}
        for process in [each for each in self._retired if id(each) not in in_use]:
            self._retired.remove(process)
            process.close()

    def _close_process(self) -> None:
        self._drop_idle()
        if self.process is not None:
            self.process.close()
            self.process = None

    def _drop_idle(self) -> None:
        for supervisor in self._idle:
            supervisor.sock.close()
        self._idle.clear()
