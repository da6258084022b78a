"""Does something about what has changed: at once, but not again within a short time. Then it does so for all of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from teamcli.store.later import Later


class Gathering:
    def __init__(self, act: Callable[[Sequence[str]], None], seconds: float) -> None:
        """`act` gets what was added since the last call, in any thread; never twice at the same time. `seconds` lie
        between two calls."""
        self._act = act
        self._seconds = seconds
        self._lock = threading.Lock()
        """Guards what follows."""
        self._acting = threading.Lock()
        self._names: dict[str, None] = {}
        self._acted_at = -seconds
        self._later = Later(self._act_now)

    def add(self, names: Sequence[str], is_urgent: bool = False) -> None:
        """With `is_urgent`, all that was added is dealt with when this returns."""
        with self._lock:
            self._names.update(dict.fromkeys(names))
            seconds = self._acted_at + self._seconds - time.monotonic()
            waits = seconds > 0 and not is_urgent
            if waits and self._names:
                self._later.soon(seconds)
        if not waits:
            self._act_now()

    def _act_now(self) -> None:
        with self._acting:
            with self._lock:
                names, self._names = self._names, {}
            if names:
                self._act(tuple(names))
                self._acted_at = time.monotonic()
