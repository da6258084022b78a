"""The standard streams, set up so that a problem with them causes at most one line of output."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class _StandardOutput(io.FileIO):
    """If it cannot be written (for example on a full disk), the program ends as it does for a closed pipe."""

    problem = ""

    def write(self, data: ReadableBuffer) -> int:
        if self.problem:
            return memoryview(data).nbytes
        try:
            return super().write(data)
        except BrokenPipeError:  # the reader has gone, which is not a problem to report
            raise
        except OSError as e:
            self.problem = e.strerror or str(e)
            raise BrokenPipeError(errno.EPIPE, self.problem) from e


class _StandardError(io.FileIO):
    """Ignores that it cannot be written: the answer on standard output is what counts."""

    def write(self, data: ReadableBuffer) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def prepare_standard_streams() -> None:
    """Make sure that descriptors 0 to 2 are open, so that none of our files gets their numbers.

    Pipes and files are UTF-8 whatever the locale. A terminal gets what it can show, and a `?` for the rest.
    """
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)
    sys.stdin = sys.stdin or open(0, encoding="utf-8")  # noqa: SIM115 - it stays open until the end
    if sys.stdout is sys.__stdout__ and not os.isatty(1):
        sys.stdout = _text(_StandardOutput(1, "w", closefd=False), line_buffering=False)
    if sys.stderr is sys.__stderr__ and not os.isatty(2):
        sys.stderr = _text(_StandardError(2, "w", closefd=False), line_buffering=True)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding=None if stream.isatty() else "utf-8", errors="replace")


def abandon_standard_output() -> str:
    """Stop writing to it, so that the interpreter does not complain when it closes it.

    Returns what is wrong with it; empty if its reader has just closed the pipe.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return raw.problem if isinstance(raw, _StandardOutput) else ""


def _text(raw: io.FileIO, line_buffering: bool) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8", line_buffering=line_buffering)
