"""A run of the program that is a fork, in a pseudo-terminal. Has what `Screen` uses of `pexpect.spawn`."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import termios
from collections.abc import Mapping, Sequence

from pexpect.fdpexpect import fdspawn

from tests.support.forks import ForkedProgram


class ForkedTerminal(fdspawn):  # type: ignore[misc]
    def __init__(
        self, program: ForkedProgram, arguments: Sequence[str], env: Mapping[str, str], dimensions: tuple[int, int]
    ) -> None:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", *dimensions, 0, 0))
        modes = termios.tcgetattr(theirs)
        modes[3] &= ~termios.ECHO
        termios.tcsetattr(theirs, termios.TCSANOW, modes)
        self._fork = program.forks.start(program.directory, env, arguments, [theirs] * 3, is_terminal=True)
        self.exitstatus: int | None = None
        self.signalstatus: int | None = None
        os.close(theirs)
        super().__init__(ours, encoding="utf-8")
        self.pid = self._fork.pid

    def isalive(self) -> bool:
        if self.exitstatus is None and self.signalstatus is None:
            self._ended(self._fork.poll())
        return self.exitstatus is None and self.signalstatus is None

    def wait(self) -> None:
        if self.isalive():
            self._ended(self._fork.wait())

    def kill(self, number: int) -> None:
        os.kill(self.pid, number)

    def _ended(self, code: int | None) -> None:
        if code is not None and code >= 0:
            self.exitstatus = code
        elif code is not None:
            self.signalstatus = -code
