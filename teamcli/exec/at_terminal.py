"""Gives the terminal to one of the user's own commands, such as an editor, until it ends."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from teamcli.cancel import CancelScope

if TYPE_CHECKING:
    from subprocess import Popen

_TERMINAL_FD = 0


def run_at_terminal(argv: Sequence[str], cwd: Path, environment: Mapping[str, str], cancel: CancelScope) -> int:
    """Run a program as a shell does: in front, with the terminal's signals for itself. Returns its exit code, negative
    for a signal. The caller neither reads nor writes the terminal meanwhile.

    Raises: OSError
    """
    import subprocess  # only here: most sessions never need them
    import termios

    modes, own_group = termios.tcgetattr(_TERMINAL_FD), os.getpgrp()
    # A process in the background that changes the terminal would be stopped.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTTOU,))
    try:
        process = subprocess.Popen(argv, cwd=cwd, env=dict(environment), process_group=0)
        with cancel.on_cancel(lambda: _signal_group(process.pid, signal.SIGHUP)):
            return _wait_in_front(process)
    finally:
        os.tcsetpgrp(_TERMINAL_FD, own_group)
        termios.tcsetattr(_TERMINAL_FD, termios.TCSADRAIN, modes)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTTOU,))


def _wait_in_front(process: Popen[bytes]) -> int:
    while True:
        with suppress(OSError):  # it has ended already
            os.tcsetpgrp(_TERMINAL_FD, process.pid)
        # Two things stop it: looking at the terminal before it was in front, and Ctrl-Z, which has no way back here.
        _signal_group(process.pid, signal.SIGCONT)
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            process.returncode = os.waitstatus_to_exitcode(status)
            return process.returncode


def _signal_group(group: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, number)
