"""How long to wait before a model call is tried again, for all agents of the program together.

When one of them is told to slow down, the others wait too before their next call: they share one account.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from teamcli.cancel import CancelScope
from teamcli.llm.watchdog import Watchdog

LINGER_SECONDS = 0.5


class Backoff:
    def __init__(
        self,
        base_seconds: float = 0.5,
        cap_seconds: float = 8.0,
        longest_retry_after_seconds: float = 60.0,
        max_calls: int | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`max_calls` bounds how many model calls run at once; `chance` spreads the waits, from 0 to 1."""
        self._base_seconds = base_seconds
        self._cap_seconds = cap_seconds
        self._longest_retry_after_seconds = longest_retry_after_seconds
        self._max_calls = max_calls
        self._chance = chance
        self.linger = Watchdog(LINGER_SECONDS)
        """Guards connections that an endpoint keeps open after the end of its answer."""
        self._changed = threading.Condition()
        self._not_before = 0.0
        self._running = 0

    def delay_seconds(self, attempt: int, retry_after_seconds: float | None) -> float | None:
        """How long to wait after the failure of try number `attempt`; None where it is asked for too long a wait."""
        if retry_after_seconds is not None:
            return retry_after_seconds if retry_after_seconds <= self._longest_retry_after_seconds else None
        delay = min(self._base_seconds * 2.0 ** (attempt - 1), self._cap_seconds)
        return delay * (1 - 0.25 * self._chance())

    def close(self) -> None:
        """End the watchdog's thread."""
        self.linger.close()

    def slow_down(self, seconds: float) -> None:
        """No call of any agent begins before so many seconds have passed."""
        with self._changed:
            self._not_before = max(self._not_before, time.monotonic() + seconds)

    @property
    def pause_seconds(self) -> float:
        """How long a call that would begin now has to wait because somebody was told to slow down."""
        return max(0.0, self._not_before - time.monotonic())

    @contextmanager
    def turn(self, cancel: CancelScope) -> Iterator[None]:
        """Wait until a call may begin, and hold its place while it runs.

        Raises: Cancelled
        """
        with cancel.on_cancel(self._wake):
            self._take_place(cancel)
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def _take_place(self, cancel: CancelScope) -> None:
        with self._changed:
            while (pause := self.pause_seconds) or self._is_full():
                cancel.check()
                self._changed.wait(pause or None)
            cancel.check()
            self._running += 1

    def _is_full(self) -> bool:
        return self._max_calls is not None and self._running >= self._max_calls

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()
