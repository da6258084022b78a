"""Ends a session of the library once, no matter which thread asks for it or how often."""

from __future__ import annotations

import threading

from teamcli.sdk.asker import Asker
from teamcli.sdk.listeners import Listeners
from teamcli.sdk.turn import LEAVING_SECONDS
from teamcli.session.session import Session as Running


class Closing:
    """Knows nothing of the library's `Session`, which may be garbage by then."""

    def __init__(self, running: Running, listeners: Listeners, asker: Asker | None) -> None:
        self._running = running
        self._listeners = listeners
        self._asker = asker
        self._lock = threading.Lock()
        self.is_closed = False

    def close(self) -> None:
        with self._lock:
            if self.is_closed:
                return
            self.is_closed = True
            self._running.close()
            self._listeners.close(LEAVING_SECONDS)
            if self._asker is not None:
                self._asker.close(LEAVING_SECONDS)

    def abandon(self) -> None:
        """Nobody has closed it. The collector may run in a thread that closing would wait for: so in one of its own."""
        thread = threading.Thread(target=self.close, name="closing", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the interpreter is about to end, and starts no more threads
            self.close()
        else:
            thread.join(LEAVING_SECONDS)
