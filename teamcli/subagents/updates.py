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


class Listeners:
    """Functions that take snapshots. One that raises is removed, and the others still hear."""

    def __init__(self) -> None:
        self._all: dict[object, Listener] = {}
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self._all)

    def add(self, listener: Listener) -> Callable[[], None]:
        """Returns what removes it again; safe to call twice, and from inside the listener."""
        key = object()
        with self._lock:
            self._all[key] = listener
        return lambda: self._remove(key)

    def tell(self, snapshot: Snapshot) -> None:
        with self._lock:
            listeners = tuple(self._all.items())
        for key, listener in listeners:
            if key not in self._all:  # an earlier one has removed it meanwhile
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
    """One thread for all listeners, which starts with the first. What changes while it pauses is told after the pause,
    as it is then."""

    def __init__(self) -> None:
        self._listeners = Listeners()
        self._changed: dict[str, Look] = {}
        self._bell = threading.Condition()
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Returns what removes it again."""
        with self._bell:
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(target=self._run, name="sub-agent updates", daemon=True)
                self._thread.start()
        return self._listeners.add(listener)

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
            for look in changed.values():
                self._listeners.tell(look())
            with self._bell:
                if self._bell.wait_for(lambda: self._is_closed, PAUSE_SECONDS) and not self._changed:
                    return
