"""Looks something up for the screen.

No thread of the screen may wait for it: a database that is away would freeze what is shown, including the sentence that
says so.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

logger = logging.getLogger(__name__)


class BackgroundLook:
    def __init__(self, look: Callable[[], None], redraw: Callable[[], None]) -> None:
        """`look` is called in a thread of its own, and `redraw` after it."""
        self._look = look
        self._redraw = redraw
        self._wanted = threading.Event()
        self._thread: threading.Thread | None = None

    def again(self) -> None:
        """Something may have changed. All that changes during one look takes one more."""
        self._wanted.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="look", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while self._wanted.wait():
            self._wanted.clear()
            try:
                self._look()
            except Exception:  # boundary: the next look may succeed
                logger.exception("%s failed", self._look)
            self._redraw()
