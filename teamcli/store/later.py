"""Doing something once, a little later, however often it is wanted until then."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable


class Later:
    def __init__(self, act: Callable[[], None]) -> None:
        """`act` is called in a thread of its own, which does not keep the process alive. It may find nothing to do."""
        self._act = act
        self._lock = threading.Lock()
        self._due_at = math.inf

    def soon(self, seconds: float) -> None:
        """Have it called within this time. The caller may hold locks that `act` needs."""
        with self._lock:
            due_at = time.monotonic() + seconds
            if due_at >= self._due_at:
                return
            self._due_at = due_at
        timer = threading.Timer(seconds, self._run)
        timer.daemon = True
        timer.start()

    def _run(self) -> None:
        with self._lock:
            self._due_at = math.inf  # before the call: what is wanted while that runs needs another one
        self._act()
