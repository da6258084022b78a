"""Tells listeners how sub-agents come along: of each at most ten times a second, and always how it ended."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from teamcli.subagents.snapshot import Snapshot

PAUSE_SECONDS = 0.1
logger = logging.getLogger(__name__)

Listener = Callable[[Snapshot], None]
Look = Callable[[], Snapshot]


class Updates:
    """One thread for all, which starts with the first listener. What changes while it pauses is told after the pause,
    as it is then."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        self._changed: dict[str, Look] = {}
        self._bell = threading.Condition()
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def subscribe(self, listener: Listener) -> None:
        with self._bell:
            self._listeners.append(listener)
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(target=self._run, name="sub-agent updates", daemon=True)
                self._thread.start()

    def changed(self, id: str, look: Look) -> None:
        """Something of this sub-agent is new; `look` says what, when it is asked."""
        with self._bell:
            if self._listeners:
                self._changed[id] = look
                self._bell.notify_all()

    def close(self) -> None:
        """Tell what is still to be told, and end."""
        with self._bell:
            self._is_closed = True
            self._bell.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._bell:
                self._bell.wait_for(lambda: self._changed or self._is_closed)
                changed, self._changed = self._changed, {}
                listeners = tuple(self._listeners)
            for look in changed.values():
                self._tell(listeners, look())
            with self._bell:
                if self._bell.wait_for(lambda: self._is_closed, PAUSE_SECONDS) and not self._changed:
                    return

    def _tell(self, listeners: tuple[Listener, ...], snapshot: Snapshot) -> None:
        for listener in listeners:
            try:
                listener(snapshot)
            except Exception:  # boundary: whoever only looks on must not be able to stop the others
                logger.exception("%s failed and is told nothing any more", listener)
                self._listeners = [each for each in self._listeners if each is not listener]
