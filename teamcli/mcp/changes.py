"""Passes on that a server's lists have changed: few times, however often the server says so."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from teamcli.mcp.server import Kind

_FIRST_DELAY_SECONDS = 0.2
_LONGEST_DELAY_SECONDS = 30.0
_CALM_AFTER_SECONDS = 60.0


class ChangeNotifier:
    """Waits for the end of a burst. A server that keeps changing waits longer and longer."""

    def __init__(self, on_change: Callable[[Kind], None]) -> None:
        self._on_change = on_change
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._kinds: set[Kind] = set()
        self._delay_seconds = _FIRST_DELAY_SECONDS
        self._last_at = -_CALM_AFTER_SECONDS
        self._is_closed = False

    def note(self, *kinds: Kind) -> None:
        with self._lock:
            self._kinds.update(kinds)
            if self._timer is not None or self._is_closed:
                return
            is_calm = time.monotonic() - self._last_at > _CALM_AFTER_SECONDS
            self._delay_seconds = (
                _FIRST_DELAY_SECONDS if is_calm else min(2 * self._delay_seconds, _LONGEST_DELAY_SECONDS)
            )
            self._timer = threading.Timer(self._delay_seconds, self._pass_on)
            self._timer.daemon = True
            self._timer.start()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            if self._timer is not None:
                self._timer.cancel()

    def _pass_on(self) -> None:
        with self._lock:
            kinds, self._kinds = sorted(self._kinds), set()
            self._timer = None
            self._last_at = time.monotonic()
        for kind in kinds:
            self._on_change(kind)
