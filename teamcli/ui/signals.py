"""Signals: the main thread waits for them, and the work runs in other threads.

At the prompt, Ctrl-C is a key and no signal: see `terminal/prompt.py`.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
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
START_SECONDS = 60.0
MAX_LEAVING_SECONDS = 5.0
LOOK_SECONDS = 0.5
"""How long the main thread waits before it looks for a signal. One that comes just before a wait begins, or in another
thread, does not end that wait."""


class SignalReceived(SystemExit):
    """Raised in the main thread. A SystemExit, because event loops let no other exception out of their callbacks."""

    def __init__(self, number: int) -> None:
        self.signal_name = signal.Signals(number).name
        self.exit_code = EXIT_CODES[signal.Signals(number)]
        super().__init__(self.exit_code)


@contextmanager
def signals_raise(
    *numbers: signal.Signals, insists: bool = False, leaving_seconds: float = MAX_LEAVING_SECONDS
) -> Iterator[None]:
    """Raise SignalReceived on the first of these signals inside the block. Later ones do not disturb the clean-up.

    With `insists` it is raised once more if the block does not end soon: an event loop whose terminal is gone can hang
    on its way out. If the program still hangs, it is ended hard, which its files and commands survive.
    With more `leaving_seconds` than usual, the next signal ends it so.
    A signal that the parent process ignores (nohup) stays ignored.
    """
    previous = {number: signal.getsignal(number) for number in numbers}
    received: list[int] = []
    once_more, has_left = threading.Event(), threading.Event()

    def handler(number: int, frame: FrameType | None) -> None:
        if received and not once_more.is_set():
            if leaving_seconds > MAX_LEAVING_SECONDS:
                os._exit(EXIT_CODES[signal.Signals(number)])
            return
        once_more.clear()
        if not received:
            received.append(number)
            with suppress(RuntimeError):  # no thread can be started; leave without it
                threading.Thread(target=force_exit, name="leaving", daemon=True).start()
        raise SignalReceived(received[0])

    def force_exit() -> None:
        if insists and not has_left.wait(INSIST_SECONDS):
            once_more.set()
            signal.pthread_kill(cast(int, threading.main_thread().ident), received[0])
        time.sleep(leaving_seconds)
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


def result_of(future: Future[T]) -> T:
    """Wait in the main thread, so that no signal is missed.

    Raises: what the future does
    """
    while not wait((future,), LOOK_SECONDS).done:
        pass
    return future.result()


def in_thread(function: Callable[[], T], name: str) -> Future[T]:
    """Run `function` in a thread that does not keep the program from exiting."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as e:  # noqa: BLE001 - raised again in the thread that waits
            future.set_exception(e)

    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            threading.Thread(target=run, name=name, daemon=True).start()
            return future
        except RuntimeError:  # a command uses up all threads of the system; it is about to be stopped
            if time.monotonic() > deadline:
                raise
        time.sleep(0.1)
