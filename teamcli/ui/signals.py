"""The main thread waits and takes signals; the work is done in threads of its own."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

from teamcli.options import ExitStatus

T = TypeVar("T")

EXIT_CODES = {
    signal.SIGINT: ExitStatus.SIGINT,
    signal.SIGTERM: ExitStatus.SIGTERM,
    signal.SIGHUP: ExitStatus.SIGHUP,
}


class SignalReceived(SystemExit):
    """Raised in the main thread. A SystemExit: the one exception that event loops let through from their callbacks."""

    def __init__(self, number: int) -> None:
        super().__init__(EXIT_CODES[signal.Signals(number)])
        self.signal_name = signal.Signals(number).name
        self.exit_code = EXIT_CODES[signal.Signals(number)]


@contextmanager
def signals_raise(*numbers: signal.Signals) -> Iterator[None]:
    """Raise SignalReceived on the first of these signals inside the block; leaving must not be disturbed by a second.

    A signal that the parent told us to ignore (nohup) stays ignored.
    """
    previous = {number: signal.getsignal(number) for number in numbers}

    def handler(number: int, frame: FrameType | None) -> None:
        for other in numbers:
            signal.signal(other, signal.SIG_IGN)
        raise SignalReceived(number)

    for number, before in previous.items():
        if before is not signal.SIG_IGN:
            signal.signal(number, handler)
    try:
        yield
    finally:
        for number, before in previous.items():
            signal.signal(number, before)


def in_thread(function: Callable[[], T], name: str) -> Future[T]:
    """Run `function` in a thread that cannot keep the program from leaving."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as e:  # noqa: BLE001 - handed on: it surfaces in the thread that waits
            future.set_exception(e)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future
