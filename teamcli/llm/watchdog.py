"""Ends operations that should have ended by themselves. One thread serves all of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

IDLE_AFTER_SECONDS = 10.0


class Watchdog:
    """`with watchdog.guard(end_it): …` calls `end_it` if the block takes longer than the patience (up to twice that).

    The thread checks at intervals instead of being woken for each guard: a guarded block usually ends in microseconds,
    and waking a thread would cost more than that. With nothing to guard, the thread sleeps.
    """

    def __init__(self, patience_seconds: float) -> None:
        self._patience_seconds = patience_seconds
        self._changed = threading.Condition()
        self._guarded: dict[object, tuple[float, Callable[[], None]]] = {}
        self._is_awake = False
        self._is_closed = False
        self._thread: threading.Thread | None = None

    @contextmanager
    def guard(self, end_it: Callable[[], None]) -> Iterator[None]:
        key = object()
        with self._changed:
            self._guarded[key] = (time.monotonic() + self._patience_seconds, end_it)
            if not self._is_awake and not self._is_closed:
                self._is_awake = True
                self._changed.notify()
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
                    self._thread.start()
        try:
            yield
        finally:
            with self._changed:
                self._guarded.pop(key, None)

    def close(self) -> None:
        """End the thread. Later guards do nothing."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        last_needed = time.monotonic()
        while True:
            with self._changed:
                if not self._is_closed:
                    self._changed.wait(self._patience_seconds if self._is_awake else None)
                if self._is_closed:
                    return
                now = time.monotonic()
                late = [key for key, (deadline, _) in self._guarded.items() if deadline <= now]
                overdue = [self._guarded.pop(key)[1] for key in late]
                last_needed = now if self._guarded or overdue else last_needed
                self._is_awake = now - last_needed < IDLE_AFTER_SECONDS
            for end_it in overdue:
                end_it()
