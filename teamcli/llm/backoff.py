"""How long to wait before a model call is tried again, for all agents of the program together.

They share one account and one server. When one of them is turned away, all wait. Then one of them probes, and the
others follow once it gets through. Pauses grow, and after `patience_seconds` of failures every call gives up.
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
"""A server that loads its model gets this many times the patience, because it makes progress."""
LONGEST_LOADING_PAUSE = 10.0
UNREACHED_PATIENCE_SECONDS = 30.0
"""For an endpoint that no call has reached yet: its address may be wrong, or its server may not be running."""


class Pause(NamedTuple):
    """A wait before the next try."""

    seconds: float
    seconds_left: float
    """How much longer it will be tried."""
    is_news: bool
    """False if another agent has reported the same pause."""
    reason: str


OnPause = Callable[[Pause], None]


class Backoff:
    """What the calls of a program share. This changes only under `_changed`, here and in `BackedOffCall`."""

    def __init__(
        self,
        base_seconds: float = 0.5,
        cap_seconds: float = 60.0,
        patience_seconds: float = PATIENCE_SECONDS,
        max_calls: int | None = None,
        chance: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`max_calls` bounds how many model calls run at once; `chance` (0 to 1) spreads the pauses."""
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
        """Open calls, including waiting ones. When the last one ends, the outage is forgotten."""
        self._running = 0
        self._outage: _Outage | None = None
        self._version = 0
        """Grows with each recorded failure, and with the end of an outage."""
        self._was_reached = False

    def close(self) -> None:
        """End the watchdog's thread."""
        self.linger.close()

    @contextmanager
    def call(self, on_pause: OnPause = lambda pause: None) -> Iterator[BackedOffCall]:
        """One model call with all its tries. `on_pause` gets the waits that the failures of other calls cause."""
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
        """The pause after this many failures in a row."""
        pause = min(self._base_seconds * 2.0 ** min(failures - 1, 32), self._cap_seconds)
        # Spread: programs that were turned away together must not all come back together.
        return pause * (1 - 0.25 * self._chance())

    def _patience(self, error: TransientError) -> float:
        self._was_reached = self._was_reached or not isinstance(error, Unreachable)
        if not self._was_reached:
            return min(self._patience_seconds, UNREACHED_PATIENCE_SECONDS)
        return self._patience_seconds * (LOADING_PATIENCE if isinstance(error, ModelLoading) else 1)

    def _end_outage(self) -> None:
        if self._outage is not None:
            self._outage = None
            self._version += 1


class _Outage:
    """What all agents know about a server that turns calls away."""

    def __init__(self, since: float) -> None:
        self.since = since
        self.failures = 0
        self.not_before = 0.0
        self.gives_up_at = 0.0
        self.reason = ""
        self.probe: BackedOffCall | None = None
        """The call that finds out whether the outage is over."""


class BackedOffCall:
    """One model call: how often it has failed, and when it may be tried again."""

    def __init__(self, backoff: Backoff, on_pause: OnPause) -> None:
        self.failures = 0
        self.is_through = False
        """Whether the server has accepted the current or last try."""
        self._shared = backoff
        self._on_pause = on_pause
        self._since: float | None = None
        self._not_before = 0.0
        self._reported_until = 0.0
        """The end of the longest pause that was reported for this call."""
        self._seen = backoff._version
        """The shared version when the try began. If it is older now, this try says nothing about the present."""

    @contextmanager
    def turn(self, cancel: CancelScope) -> Iterator[None]:
        """Wait until a try may begin, and count it as running.

        Raises: Cancelled
        """
        self.is_through = False
        with cancel.notifying(self._shared._changed):
            while pause := self._wait_for_place(cancel):
                self._on_pause(pause)  # without the lock
        try:
            yield
        finally:
            with self._shared._changed:
                self._shared._running -= 1
                self._end_probe()
                self._shared._changed.notify_all()

    def got_through(self) -> None:
        """The server accepts calls. The outage is over, unless another call was turned away since this try began."""
        shared, self.is_through = self._shared, True
        shared._was_reached = True
        if shared._outage is None:
            return
        with shared._changed:
            if self._seen == shared._version:
                shared._end_outage()
                self._seen = shared._version
            self._end_probe()
            shared._changed.notify_all()

    def failed(self, error: TransientError, is_shared: bool) -> Pause | None:
        """The pause before the next try; None if there is none. `is_shared`: other calls must expect this failure."""
        shared = self._shared
        with shared._changed:
            now = shared._clock()
            self.failures += 1
            self._since = now if self._since is None else self._since
            is_news = not is_shared or self._seen == shared._version
            if is_shared and is_news:
                shared._outage = shared._outage or _Outage(now)
                shared._outage.failures += 1
                shared._version += 1
            # A failure that began before an outage ended says nothing about the present.
            outage = shared._outage if is_shared else None
            gives_up_at = min(self._since, outage.since if outage else now) + shared._patience(error)
            seconds = self._seconds(error, outage, gives_up_at - now)
            if seconds is None:
                return None
            self._not_before = now + seconds
            if outage:
                for_all = seconds
                if not isinstance(error, RateLimited | Overloaded):
                    # A request that is too much for the server by itself must not hold the others back for long.
                    for_all = min(seconds, shared.grown_seconds(outage.failures))
                outage.not_before = self._reported_until = max(outage.not_before, now + for_all)
                outage.gives_up_at, outage.reason = gives_up_at, str(error)
            return Pause(seconds, gives_up_at - now, is_news, str(error))

    def _seconds(self, error: TransientError, outage: _Outage | None, left: float) -> float | None:
        if left <= 0:
            return None
        if error.retry_after_seconds is not None:
            return error.retry_after_seconds if error.retry_after_seconds <= left else None
        longest = LONGEST_LOADING_PAUSE if isinstance(error, ModelLoading) else left
        failures = max(self.failures, outage.failures if outage else 0)
        return min(self._shared.grown_seconds(failures), longest, left)  # the last try is at the very end

    def _wait_for_place(self, cancel: CancelScope) -> Pause | None:
        """None once it has a place; before that, each pause that the failures of other calls cause."""
        shared = self._shared
        with shared._changed:
            while (seconds := self._wait_seconds()) != 0:
                cancel.check()
                outage, now = shared._outage, shared._clock()
                if outage and outage.not_before > max(now, self._reported_until):
                    self._reported_until = outage.not_before
                    return Pause(outage.not_before - now, outage.gives_up_at - now, False, outage.reason)
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
        is_full = shared._max_calls is not None and shared._running >= shared._max_calls
        return None if is_full or (outage and outage.probe) else 0.0

    def _end_probe(self) -> None:
        outage = self._shared._outage
        if outage and outage.probe is self:
            outage.probe = None
