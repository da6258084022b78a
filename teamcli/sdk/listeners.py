"""Calls functions of the host program with events, in one thread of their own.

Agents emit events while they hold locks. A function that was called right there could neither spawn nor shut down a
teammate without the danger of a deadlock, and a slow one would hold up every agent.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any

from teamcli.agent.events import Event
from teamcli.session.session import EventBus

logger = logging.getLogger(__name__)

Function = Callable[[Any], object]


class Listeners:
    """One event after the other, in the order in which they happened. The thread starts with the first listener."""

    def __init__(self, events: EventBus) -> None:
        self._events = events
        self._calls: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._lock = threading.Lock()

    def add(self, function: Function, *kinds: type[Event]) -> Callable[[], None]:
        """Call `function` with all events, or only with these kinds. Returns what removes it again."""
        removed = threading.Event()

        def put(event: Event) -> None:
            self._calls.put(partial(call, event))

        def call(event: Event) -> None:
            if removed.is_set():
                return
            try:
                function(event)
            except BaseException:  # boundary: a listener must not be able to stop the others, `sys.exit` included
                logger.exception("%s failed and was removed", function)
                remove()

        def remove() -> None:
            removed.set()
            self._events.unsubscribe(put)

        with self._lock:
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(target=self._run, name="listeners", daemon=True)
                self._thread.start()
        self._events.subscribe(put, *kinds)
        return remove

    def flush(self, timeout_seconds: float) -> None:
        """Wait until everything that has happened so far was told, but no longer than this."""
        if self._thread is None or self._is_closed or self._is_here:
            return
        done = threading.Event()
        self._calls.put(done.set)
        done.wait(timeout_seconds)

    def close(self, timeout_seconds: float) -> None:
        """Tell what is left, and end; a function that hangs is left behind."""
        with self._lock:
            self._is_closed = True
        self._calls.put(None)
        if self._thread is not None and not self._is_here:
            self._thread.join(timeout_seconds)

    @property
    def _is_here(self) -> bool:
        return self._thread is threading.current_thread()

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
