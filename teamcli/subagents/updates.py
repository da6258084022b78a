"""Calls listeners with snapshots of sub-agents: each at most ten times a second, and always at its end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from teamcli.subagents.snapshot import Snapshot

PAUSE_SECONDS = 0.1
logger = logging.getLogger(__name__)

Listener = Callable[[Snapshot], None]


class SnapshotListeners:
    """Functions that take snapshots. One that raises is removed; the others are still called."""

    def __init__(self) -> None:
        self._all: dict[object, Listener] = {}
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self._all)

    def add(self, listener: Listener) -> Callable[[], None]:
        """Return a function that removes it; safe to call twice, and from inside the listener."""
        key = object()
        with self._lock:
            self._all[key] = listener
        return lambda: self._remove(key)

    def notify(self, snapshot: Snapshot) -> None:
        with self._lock:
            listeners = tuple(self._all.items())
        for key, listener in listeners:
            if key not in self._all:  # an earlier listener has removed it
                continue
            try:
                listener(snapshot)
            except Exception:  # boundary: a listener must not be able to stop anything
                logger.exception("%s failed and was removed", listener)
                self._remove(key)

    def _remove(self, key: object) -> None:
        with self._lock:
            self._all.pop(key, None)


class Updates:
    """One thread for all listeners, started with the first. Changes during a pause are delivered after it, as one."""

    def __init__(self) -> None:
        self._listeners = SnapshotListeners()
        self._changed: dict[str, Callable[[], Snapshot]] = {}
        self._wake = threading.Condition()
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Return a function that removes it."""
        with self._wake:
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(target=self._run, name="sub-agent updates", daemon=True)
                self._thread.start()
        return self._listeners.add(listener)

    def changed(self, id: str, take_snapshot: Callable[[], Snapshot]) -> None:
        """Schedule an update. The snapshot is taken when it is delivered."""
        with self._wake:
            if self._listeners:
                self._changed[id] = take_snapshot
                self._wake.notify_all()

    def close(self) -> None:
        """Deliver what is pending, and stop."""
        with self._wake:
            self._is_closed = True
            self._wake.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._changed or self._is_closed)
                changed, self._changed = self._changed, {}
            for take_snapshot in changed.values():
                self._listeners.notify(take_snapshot())
            with self._wake:
                # Changes that came since are still delivered: a listener gets every end.
                if self._wake.wait_for(lambda: self._is_closed, PAUSE_SECONDS) and not self._changed:
                    return
