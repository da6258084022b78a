"""Closes a session of the library exactly once, from any thread."""

from __future__ import annotations

import threading

from teamcli.sdk.callbacks import CallThread
from teamcli.sdk.submission import LEAVING_SECONDS
from teamcli.session.session import Session as RunningSession


class SessionCloser:
    """Holds no reference to the library's `Session`: a forgotten one can be garbage-collected, which closes it."""

    def __init__(self, session: RunningSession, *threads: CallThread) -> None:
        self._session = session
        self._threads = threads
        self._lock = threading.Lock()
        self.is_closed = False

    def close(self) -> None:
        with self._lock:  # held to the end, so that a second caller returns only when everything is closed
            if self.is_closed:
                return
            self.is_closed = True
            self._session.close()
            for thread in self._threads:
                thread.close(LEAVING_SECONDS)

    def abandon(self) -> None:
        """Called by the garbage collector, possibly in a thread that `close` waits for. So close in a new one."""
        thread = threading.Thread(target=self.close, name="closing", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the interpreter is shutting down and starts no more threads
            self.close()
        else:
            thread.join(LEAVING_SECONDS)
