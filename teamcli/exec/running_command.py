"""A running command, as seen by the thread that waits for it."""

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
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from teamcli.errors import ToolError
from teamcli.exec.command_output import WATCHED_CHARACTERS, PacedProgress
from teamcli.exec.supervisor import wire
from teamcli.text.redaction import redact_pieces

OnText = Callable[[str], None]

_CHUNK = 64 * 1024
_LARGEST_PIPE = 1024 * 1024
_STOP_PATIENCE_SECONDS = 2.0
"""A supervisor needs half of this to end a stubborn command. One that takes longer has been stopped itself."""


class Ended(NamedTuple):
    exit_code: int
    """Negative: the signal that ended the shell."""
    left_running: bool
    """The shell ended by itself, and something that it had started was still running and was ended."""
    survivors: tuple[int, ...]
    """Process ids that could not be ended: another user's (sudo), or stuck in the kernel."""
    timed_out: bool
    were_too_many: bool = False
    """It was ended because its processes multiplied."""


class RunningCommand:
    """`follow` must be called once. `stop` may be called from any thread."""

    def __init__(
        self,
        sock: socket.socket,
        outputs: Sequence[int],
        finish: Callable[[bool], None],
        grace_seconds: float = 0.0,
    ) -> None:
        """`outputs` are pipes: its output and, if they are kept apart, its errors.

        `finish` takes back the supervisor behind `sock`. Its argument says whether it can run another command.
        `grace_seconds` is how much longer than others this one may take to end.
        """
        self._sock = sock
        self._outputs = outputs
        self._finish = finish
        self._grace_seconds = grace_seconds
        self._lock = threading.Lock()
        self._is_over = False
        self._giving_up: threading.Timer | None = None
        self._is_given_up = False

    def stop(self) -> None:
        """End it, with everything it has started; takes less than 100 ms. Does nothing if it is over."""
        with self._lock:  # or the supervisor might already run another command
            if self._is_over or self._giving_up:
                return
            self._giving_up = threading.Timer(_STOP_PATIENCE_SECONDS + self._grace_seconds, self._give_up)
            self._giving_up.daemon = True
            with contextlib.suppress(OSError):  # the supervisor is lost: `follow` finds out
                wire.send_frame(self._sock, wire.STOP)
            try:
                self._giving_up.start()
            except RuntimeError:  # the command has used up all threads of the system, so do not wait for it
                self._is_given_up = True
                self._sock.shutdown(socket.SHUT_RDWR)

    def _give_up(self) -> None:
        """The supervisor does not answer (after `kill -STOP $PPID`, say): let `follow` return. The host ends it."""
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
        on_exit: Callable[[int], None] = lambda exit_code: None,
    ) -> Ended:
        """Wait until it is over. `on_text` gets all output at once, `progress` what a person may want to watch.

        `on_error` gets the errors, if they are kept apart. `on_exit` is called if the command has ended and what it
        left running lingers: there is no more output then, and no time limit.

        Raises: ToolError
        """
        reusable = False  # if anything goes wrong here: a supervisor that loses its socket ends what it runs
        try:
            watched = PacedProgress(progress, pace)

            def take(text: str) -> None:
                if text:
                    on_text(text)
                    watched.add(text)

            # Redacted here, before anything is cut, because half a key cannot be recognized.
            takers = (redact_pieces(take), redact_pieces(on_error))
            pipes = [_OutputPipe(each, *taker) for each, taker in zip(self._outputs, takers, strict=False)]
            ended = self._wait(pipes, watched, time.monotonic() + timeout_seconds, on_exit)
            reusable = not ended.survivors and not ended.were_too_many and not self._is_given_up
            return ended
        finally:
            with self._lock:
                self._is_over = True
                if self._giving_up:
                    self._giving_up.cancel()
            for descriptor in self._outputs:
                os.close(descriptor)
            self._finish(reusable)

    def _wait(
        self, pipes: Sequence[_OutputPipe], watched: PacedProgress, deadline: float, on_exit: Callable[[int], None]
    ) -> Ended:
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        for pipe in pipes:
            poll.register(pipe.descriptor, select.POLLIN)
        timed_out = False
        while True:
            # Once stopped, it has no further time limit: the supervisor answers, or `_give_up` shuts the socket.
            wake_at = min(math.inf if timed_out else deadline, watched.due_at)
            patience = None if wake_at == math.inf else max(0.0, wake_at - time.monotonic()) * 1000
            ready = [descriptor for descriptor, _ in poll.poll(patience)]
            for pipe in pipes:
                if pipe.descriptor in ready and not pipe.read(_CHUNK):
                    poll.unregister(pipe.descriptor)  # at its end, poll would report it again and again
            if self._sock.fileno() in ready:
                frame = wire.receive_frame(self._sock)
                _finish_all(pipes)
                if frame is None or frame[0][0] != wire.EXITED:
                    break
                deadline = math.inf  # what lingers has no time limit
                on_exit(int(frame[0][1]))
            if not timed_out and time.monotonic() >= deadline:
                timed_out = True
                self.stop()
            watched.flush_if_due()
        watched.flush()
        if frame is None and self._is_given_up:  # we have shut the socket, and the host ends the command
            return Ended(-signal.SIGKILL, False, (), timed_out)
        return _ended(frame, timed_out)


def _finish_all(pipes: Iterable[_OutputPipe]) -> None:
    for pipe in pipes:
        pipe.read(_LARGEST_PIPE)  # not to its end: another process may hold a descriptor of it
        pipe.finish()


class _OutputPipe:
    """What a command writes to one pipe, as text."""

    def __init__(self, descriptor: int, feed: OnText, end: Callable[[], None]) -> None:
        self.descriptor = descriptor
        self._feed = feed
        self._end = end
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._is_at_end = False
        os.set_blocking(descriptor, False)

    def read(self, limit: int) -> bool:
        """Pass on what was written, up to about `limit` bytes. False at the end."""
        size = 0
        while size < limit and not self._is_at_end:
            try:
                data = os.read(self.descriptor, _CHUNK)
            except BlockingIOError:
                return True
            self._is_at_end = not data
            size += len(data)
            self._feed(self._decoder.decode(data))
        return not self._is_at_end

    def finish(self) -> None:
        """Pass on the rest. What is read later is dropped."""
        self._feed(self._decoder.decode(b"", final=True))
        self._end()
        self._feed, self._end = lambda text: None, lambda: None


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
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:  # real-time signals have no names
        name = "real-time"
    return f"killed by signal {-exit_code} ({name})"
