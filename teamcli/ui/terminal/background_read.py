"""Reads something for the screen.

No thread of the screen may wait for it: a database that cannot be reached would freeze what is shown, including the
sentence that says so.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

logger = logging.getLogger(__name__)


class BackgroundRead:
    def __init__(self, read: Callable[[], None], redraw: Callable[[], None]) -> None:
        """`read` is called in a thread of its own, and `redraw` after it."""
        self._read = read
        self._redraw = redraw
        self._wanted = threading.Event()
        self._thread: threading.Thread | None = None

    def again(self) -> None:
        """Something may have changed. All that changes during one read takes one more."""
        self._wanted.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="background read", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while self._wanted.wait():
            self._wanted.clear()
            try:
                self._read()
            except Exception:  # boundary: the next read may succeed
                logger.exception("%s failed", self._read)
            self._redraw()
