"""How long to wait before a model call is tried again, for all agents of the program together.

They share one account and one server. When one of them is turned away, all wait; then one of them tries, and the others
follow once it got through. Pauses grow, and after `patience_seconds` of failures everyone gives up.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from teamcli.cancel import CancelScope
from teamcli.errors import ModelLoading, Overloaded, RateLimited, TransientError, Unreachable
from teamcli.llm.watchdog import Watchdog

LINGER_SECONDS = 0.5
PATIENCE_SECONDS = 600.0
LOADING_PATIENCE = 3
"""A server that loads its model is given so many times the patience: it makes progress."""
LONGEST_LOADING_PAUSE = 10.0
UNREACHED_PATIENCE_SECONDS = 30.0
"""For an endpoint that no call has reached yet: its address may be wrong, or its server not started."""


class Pause(NamedTuple):
    """A wait before the next try."""

    seconds: float
    seconds_left: float
    """For how much longer it will be tried."""
    is_news: bool
    """False if another agent has reported the same pause."""
    reason: str


OnPause = Callable[[Pause], None]


class Backoff:
    def __init__(
        self,
        base_seconds: float = 0.5,
        cap_seconds: float = 60.0,
        patience_seconds: float = PATIENCE_SECONDS,
        max_calls: int | None = None,
        chance: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`max_calls` bounds how many model calls run at once; `chance` spreads the pauses, from 0 to 1."""
        self._base_seconds = base_seconds
        self._cap_seconds = cap_seconds
        self._patience_seconds = patience_seconds
        self._max_calls = max_calls
        self._chance = chance
        self._clock = clock
        self.linger = Watchdog(LINGER_SECONDS)
        """Guards connections that an endpoint keeps open after the end of its answer."""
        self._changed = threading.Condition()
        self._calls = 0
        """Those under way, waiting ones included. With the last, all that is known of an outage is forgotten."""
        self._running = 0
        self._outage: _Outage | None = None
        self._version = 0
        """Grows with each failure that is noted, and with the end of an outage."""
        self._was_reached = False

    def close(self) -> None:
        """End the watchdog's thread."""
        self.linger.close()

    @contextmanager
    def call(self, on_pause: OnPause = lambda pause: None) -> Iterator[BackedOffCall]:
        """One model call, with all its tries. `on_pause` hears of waits that the failures of others cause."""
        with self._changed:
            self._calls += 1
        try:
            yield BackedOffCall(self, on_pause)
        finally:
            with self._changed:
                self._calls -= 1
                if not self._calls:
                    self._end_outage()

    @contextmanager
    def turn(self, cancel: CancelScope) -> Iterator[None]:
        """A call with a single try.

        Raises: Cancelled
        """
        with self.call() as call, call.turn(cancel):
            yield

    def grown_seconds(self, failures: int) -> float:
        """The pause after so many failures in a row."""
        pause = min(self._base_seconds * 2.0 ** min(failures - 1, 32), self._cap_seconds)
        return pause * (1 - 0.25 * self._chance())

    def _patience(self, error: TransientError) -> float:
        self._was_reached = self._was_reached or not isinstance(error, Unreachable)
        if not self._was_reached:
            return min(self._patience_seconds, UNREACHED_PATIENCE_SECONDS)
        return self._patience_seconds * (LOADING_PATIENCE if isinstance(error, ModelLoading) else 1)

    def _note_failure(self, now: float) -> None:
        self._outage = self._outage or _Outage(now)
        self._outage.failures += 1
        self._version += 1

    def _end_outage(self) -> None:
        if self._outage is not None:
            self._outage = None
            self._version += 1

    def _is_full(self) -> bool:
        return self._max_calls is not None and self._running >= self._max_calls


class _Outage:
    """What all agents know of a server that turns calls away."""

    def __init__(self, since: float) -> None:
        self.since = since
        self.failures = 0
        self.not_before = 0.0
        self.gives_up_at = 0.0
        self.reason = ""
        self.probe: BackedOffCall | None = None
        """The call that tries whether it is over."""


class BackedOffCall:
    """One model call: how often it has failed, and when it may be tried again."""

    def __init__(self, backoff: Backoff, on_pause: OnPause) -> None:
        self.failures = 0
        self.is_through = False
        """Whether the server has taken the try that is under way, or was the last."""
        self._shared = backoff
        self._on_pause = on_pause
        self._since: float | None = None
        self._not_before = 0.0
        self._heard = 0.0
        """The end of the longest pause that was reported for this call."""
        self._seen = backoff._version
        """The version of what was known when the try began."""

    @contextmanager
    def turn(self, cancel: CancelScope) -> Iterator[None]:
        """Wait until a try may begin, and hold its place while it runs.

        Raises: Cancelled
        """
        shared, self.is_through = self._shared, False
        with cancel.on_cancel(self._wake):
            self._take_place(cancel)
        try:
            yield
        finally:
            with shared._changed:
                shared._running -= 1
                self._end_probe()
                shared._changed.notify_all()

    def got_through(self) -> None:
        """The server takes calls: unless another was turned away since this try began, the outage is over."""
        shared, self.is_through = self._shared, True
        shared._was_reached = True
        if shared._outage is None:
            return
        with shared._changed:
            if self._is_up_to_date():
                shared._end_outage()
                self._seen = shared._version
            self._end_probe()
            shared._changed.notify_all()

    def failed(self, error: TransientError, is_shared: bool) -> Pause | None:
        """The pause before the next try; None if there is none. `is_shared`: others must expect the same failure."""
        shared = self._shared
        with shared._changed:
            now = shared._clock()
            self.failures += 1
            self._since = now if self._since is None else self._since
            is_news = not is_shared or self._is_up_to_date()
            if is_shared and is_news:
                shared._note_failure(now)
            # a failure from before an outage ended says nothing about now
            outage = shared._outage if is_shared else None
            gives_up_at = min(self._since, outage.since if outage else now) + shared._patience(error)
            seconds = self._seconds(error, outage, gives_up_at - now)
            if seconds is None:
                return None
            self._not_before = now + seconds
            if outage:
                outage.not_before = max(outage.not_before, now + self._seconds_for_all(error, outage, seconds))
                outage.gives_up_at, outage.reason = gives_up_at, str(error)
                self._heard = outage.not_before
            return Pause(seconds, gives_up_at - now, is_news, str(error))

    def _seconds(self, error: TransientError, outage: _Outage | None, left: float) -> float | None:
        if left <= 0:
            return None
        if error.retry_after_seconds is not None:
            return error.retry_after_seconds if error.retry_after_seconds <= left else None
        longest = LONGEST_LOADING_PAUSE if isinstance(error, ModelLoading) else left
        failures = max(self.failures, outage.failures if outage else 0)
        return min(self._shared.grown_seconds(failures), longest, left)  # the last try is at the very end

    def _seconds_for_all(self, error: TransientError, outage: _Outage, seconds: float) -> float:
        """A request that alone is too much for the server must not hold the others back for long."""
        if isinstance(error, RateLimited | Overloaded):
            return seconds
        return min(seconds, self._shared.grown_seconds(outage.failures))

    def _is_up_to_date(self) -> bool:
        """Whether no failure was noted since this try began."""
        return self._seen == self._shared._version

    def _take_place(self, cancel: CancelScope) -> None:
        while pause := self._wait_for_place(cancel):
            self._on_pause(pause)  # not while holding the lock

    def _wait_for_place(self, cancel: CancelScope) -> Pause | None:
        """None once it has a place; before that, each pause that the failures of others cause."""
        shared = self._shared
        with shared._changed:
            while (seconds := self._wait_seconds()) != 0:
                cancel.check()
                if pause := self._unheard():
                    return pause
                shared._changed.wait(seconds)
            cancel.check()
            shared._running += 1
            self._seen = shared._version
            if shared._outage:
                shared._outage.probe = self
            return None

    def _wait_seconds(self) -> float | None:
        """0 if a try may begin; None if that depends on other calls."""
        shared, outage = self._shared, self._shared._outage
        pause = max(self._not_before, outage.not_before if outage else 0.0) - shared._clock()
        if pause > 0:
            return pause
        return None if shared._is_full() or (outage and outage.probe) else 0.0

    def _unheard(self) -> Pause | None:
        outage, now = self._shared._outage, self._shared._clock()
        if outage is None or outage.not_before <= max(now, self._heard):
            return None
        self._heard = outage.not_before
        return Pause(outage.not_before - now, outage.gives_up_at - now, False, outage.reason)

    def _end_probe(self) -> None:
        outage = self._shared._outage
        if outage and outage.probe is self:
            outage.probe = None

    def _wake(self) -> None:
        with self._shared._changed:
            self._shared._changed.notify_all()
