"""The standard streams, made so that whatever is wrong with them ends in one sentence at most."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class _Output(io.FileIO):
    """Standard output that cannot be written (a full disk, say) ends the work like a reader that has gone."""

    problem = ""

    def write(self, data: ReadableBuffer) -> int:
        if self.problem:
            return memoryview(data).nbytes
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as e:
            self.problem = e.strerror or str(e)
            raise BrokenPipeError(errno.EPIPE, self.problem) from e


class _Errors(io.FileIO):
    """Standard error that cannot be written changes nothing: the answer is what counts."""

    def write(self, data: ReadableBuffer) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def have_standard_streams() -> None:
    """Descriptors 0 to 2 lead somewhere, so that no file of ours gets their numbers.

    Pipes and files get UTF-8 whatever the locale; a terminal gets what it can show, and a `?` for the rest.
    """
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)
    sys.stdin = sys.stdin or open(0, encoding="utf-8")  # noqa: SIM115 - they stay open to the end
    if sys.stdout is sys.__stdout__ and not os.isatty(1):
        sys.stdout = _text(_Output(1, "w", closefd=False), line_buffering=False)
    if sys.stderr is sys.__stderr__ and not os.isatty(2):
        sys.stderr = _text(_Errors(2, "w", closefd=False), line_buffering=True)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding=None if stream.isatty() else "utf-8", errors="replace")


def leave_standard_output() -> str:
    """Write no more to it, or the interpreter would complain when it closes it; returns what is wrong with it.

    Nothing is wrong where only its reader has gone.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return raw.problem if isinstance(raw, _Output) else ""


def _text(raw: io.FileIO, line_buffering: bool) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8", line_buffering=line_buffering)
