"""A command under way, as the thread that waits for it sees it."""

from __future__ import annotations

import codecs
import contextlib
import errno
import math
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from teamcli.errors import ToolError
from teamcli.exec.command_output import WATCHED_CHARACTERS, PacedProgress
from teamcli.exec.supervisor import wire
from teamcli.text.redaction import redact_pieces

OnText = Callable[[str], None]

_CHUNK = 64 * 1024
_LARGEST_PIPE = 1024 * 1024
_STOP_PATIENCE_SECONDS = 2.0
"""A supervisor needs half of this to end what does not want to; one that takes longer has been stopped itself."""


class Ended(NamedTuple):
    exit_code: int
    """Negative: the signal that ended the shell."""
    left_running: bool
    """The shell ended by itself, and something that it had started still ran and has been ended."""
    survivors: tuple[int, ...]
    """Process ids that could not be ended: another user's (sudo), or stuck in the kernel."""
    timed_out: bool
    were_too_many: bool = False
    """It was ended because its processes multiplied."""


class RunningCommand:
    """`follow` must be called, once; `stop` may be, from any thread."""

    def __init__(self, sock: socket.socket, outputs: Sequence[int], finish: Callable[[bool], None]) -> None:
        """`outputs` are its output and, where they are kept apart, its errors.

        `finish` takes back the supervisor behind `sock`, and is told whether it can run another command.
        """
        self._sock = sock
        self._outputs = [_Output(descriptor) for descriptor in outputs]
        self._finish = finish
        self._lock = threading.Lock()
        self._is_over = False
        self._giving_up: threading.Timer | None = None
        self._is_given_up = False

    def stop(self) -> None:
        """End it, with all it has started; takes less than 100 ms. Does nothing when it is over."""
        with self._lock:  # or the supervisor might already run somebody else's command
            if self._is_over or self._giving_up:
                return
            self._giving_up = threading.Timer(_STOP_PATIENCE_SECONDS, self._give_up)
            self._giving_up.daemon = True
            with contextlib.suppress(OSError):  # the supervisor is lost: `follow` finds out
                wire.send_frame(self._sock, wire.STOP)
            try:
                self._giving_up.start()
            except RuntimeError:  # the command has used up all threads that the system has: no patience with it
                self._is_given_up = True
                self._sock.shutdown(socket.SHUT_RDWR)

    def _give_up(self) -> None:
        """The supervisor does not answer (`kill -STOP $PPID`, say): let `follow` end, and the host see to it."""
        with self._lock:
            if not self._is_over:
                self._is_given_up = True
                self._sock.shutdown(socket.SHUT_RDWR)

    def follow(
        self,
        on_text: OnText,
        progress: OnText,
        timeout_seconds: float = math.inf,
        pace: int = WATCHED_CHARACTERS,
        on_error: OnText = lambda text: None,
    ) -> Ended:
        """Wait until it is over. `on_text` gets all output at once, `progress` what a person may want to watch.

        `on_error` gets what was kept apart.

        Raises: ToolError
        """
        reusable = False  # whatever goes wrong here: a supervisor that loses its socket ends what it runs
        try:
            watched = PacedProgress(progress, pace)

            def take(text: str) -> None:
                if text:
                    on_text(text)
                    watched.add(text)

            # Masked here, before anything is cut: half a key is no key that could be known again later.
            out, end_out = redact_pieces(take)
            errors, end_errors = redact_pieces(on_error)
            takers = dict(zip(self._outputs, (_Taker(out, end_out), _Taker(errors, end_errors)), strict=False))
            ended = self._wait(takers, watched, time.monotonic() + timeout_seconds)
            reusable = not ended.survivors and not ended.were_too_many and not self._is_given_up
            return ended
        finally:
            with self._lock:
                self._is_over = True
                if self._giving_up:
                    self._giving_up.cancel()
            for output in self._outputs:
                os.close(output.descriptor)
            self._finish(reusable)

    def _wait(self, takers: Mapping[_Output, _Taker], watched: PacedProgress, deadline: float) -> Ended:
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        for output in takers:
            poll.register(output.descriptor, select.POLLIN)
        timed_out = False
        while True:
            wake_at = min(math.inf if timed_out else deadline, watched.due_at)
            ready = [descriptor for descriptor, _ in poll.poll(_milliseconds_until(wake_at))]
            for output, take in takers.items():
                if output.descriptor in ready and not output.read(take.feed, _CHUNK):
                    poll.unregister(output.descriptor)
            if self._sock.fileno() in ready:
                break
            if not timed_out and time.monotonic() >= deadline:
                timed_out = True
                self.stop()
            watched.flush_if_due()
        frame = wire.receive_frame(self._sock)
        for output, take in takers.items():
            output.read(take.feed, _LARGEST_PIPE)  # not to its end: a descriptor may have been passed to somebody else
            output.finish(take.feed)
            take.end()
        watched.flush()
        if frame is None and self._is_given_up:
            return Ended(-signal.SIGKILL, False, (), timed_out)
        return _ended(frame, timed_out)


class _Taker(NamedTuple):
    """Who takes what a command writes."""

    feed: OnText
    end: Callable[[], None]


class _Output:
    """What a command writes to one pipe, as text."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        os.set_blocking(descriptor, False)

    def read(self, on_text: OnText, limit: int) -> bool:
        """Take what has been written, up to about `limit`; false at its end."""
        size = 0
        while size < limit:
            try:
                data = os.read(self.descriptor, _CHUNK)
            except BlockingIOError:
                return True
            if not data:
                return False
            size += len(data)
            on_text(self._decoder.decode(data))
        return True

    def finish(self, on_text: OnText) -> None:
        on_text(self._decoder.decode(b"", final=True))


def _milliseconds_until(moment: float) -> float | None:
    return None if moment == math.inf else max(0.0, moment - time.monotonic()) * 1000


def _ended(frame: wire.Frame | None, timed_out: bool) -> Ended:
    if frame is None:
        raise ToolError("the process that watches over this command is gone, and so is the command; run it again")
    fields, _ = frame
    if fields[0] == wire.FAILED:
        number = int(fields[1])
        if number == errno.E2BIG:
            raise ToolError("command: is too long for the system; write it to a script file and run that")
        raise ToolError(f"the command cannot be started in {os.fsdecode(fields[2])}: {os.strerror(number)}")
    exit_code, left_running, survivors, too_many = fields[1:]
    return Ended(int(exit_code), bool(left_running), tuple(map(int, survivors.split())), timed_out, bool(too_many))


def describe_exit(exit_code: int) -> str:
    if exit_code >= 0:
        return f"exit code {exit_code}"
    return f"killed by signal {-exit_code} ({signal_name(-exit_code)})"


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # real-time signals have no names
        return "real-time"
