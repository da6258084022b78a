"""The main thread waits and takes signals; the work is done in threads of its own."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TypeVar, cast

from teamcli.config.options import ExitStatus

T = TypeVar("T")

EXIT_CODES = {
    signal.SIGINT: ExitStatus.SIGINT,
    signal.SIGTERM: ExitStatus.SIGTERM,
    signal.SIGHUP: ExitStatus.SIGHUP,
}

INSIST_SECONDS = 1.0
THREAD_PATIENCE_SECONDS = 60.0
LONGEST_LEAVING_SECONDS = 5.0


class SignalReceived(SystemExit):
    """Raised in the main thread. A SystemExit: the one exception that event loops let through from their callbacks."""

    def __init__(self, number: int) -> None:
        super().__init__(EXIT_CODES[signal.Signals(number)])
        self.signal_name = signal.Signals(number).name
        self.exit_code = EXIT_CODES[signal.Signals(number)]


@contextmanager
def signals_raise(*numbers: signal.Signals, insists: bool = False) -> Iterator[None]:
    """Raise SignalReceived on the first of these signals inside the block; a second disturbs nobody who leaves.

    With `insists` it is raised once more where the block has not ended soon: an event loop whose terminal is gone can
    hang on its way out. And whatever hangs after that, the program ends: its files and commands stand a hard end.
    A signal that the parent told us to ignore (nohup) stays ignored.
    """
    previous = {number: signal.getsignal(number) for number in numbers}
    received: list[int] = []
    once_more, has_left = threading.Event(), threading.Event()

    def handler(number: int, frame: FrameType | None) -> None:
        if received and not once_more.is_set():
            return
        once_more.clear()
        if not received:
            received.append(number)
            with suppress(RuntimeError):  # a machine that is full starts no thread; we leave all the same
                threading.Thread(target=see_to_it, name="leaving", daemon=True).start()
        raise SignalReceived(received[0])

    def see_to_it() -> None:
        if insists and not has_left.wait(INSIST_SECONDS):
            once_more.set()
            signal.pthread_kill(cast(int, threading.main_thread().ident), received[0])
        time.sleep(LONGEST_LEAVING_SECONDS)
        os._exit(EXIT_CODES[signal.Signals(received[0])])

    for number, before in previous.items():
        if before is not signal.SIG_IGN:
            signal.signal(number, handler)
    try:
        yield
    finally:
        has_left.set()
        for number, before in previous.items():
            signal.signal(number, signal.SIG_IGN if received else before)


def in_thread(function: Callable[[], T], name: str) -> Future[T]:
    """Run `function` in a thread that cannot keep the program from leaving."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as e:  # noqa: BLE001 - handed on: it surfaces in the thread that waits
            future.set_exception(e)

    _start_patiently(lambda: threading.Thread(target=run, name=name, daemon=True).start())
    return future


def _start_patiently(start: Callable[[], None]) -> None:
    """A command may have used up all threads that the system has; it is being ended."""
    deadline = time.monotonic() + THREAD_PATIENCE_SECONDS
    while True:
        try:
            return start()
        except RuntimeError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.1)
