"""The cancel tree: program → agent → turn → tool or model call.

Cancelling goes down, never up. A child of a cancelled scope is born cancelled. A parent holds its children weakly, so
that finished ones cost nothing however many there were.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from teamcli.errors import Cancelled


class CancelScope:
    """Something that can be told to stop, from any thread, once."""

    def __init__(self, parent: CancelScope | None = None) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._children: weakref.WeakSet[CancelScope] = weakref.WeakSet()
        self._callbacks: dict[object, Callable[[], object]] = {}
        self.reason = ""
        self._parent = parent  # a child must keep its parent alive, or a cancel from above could not reach it
        if parent is not None:
            parent._adopt(self)

    def child(self) -> CancelScope:
        return CancelScope(self)

    @property
    def cancelled(self) -> bool:
        return self._event.is_set()

    def cancel(self, reason: str = "cancelled") -> None:
        """Stop this scope and all below it. Callbacks run in the calling thread; a repeat does nothing."""
        with self._lock:
            if self._event.is_set():
                return
            self.reason = reason
            self._event.set()
            children, callbacks = list(self._children), list(self._callbacks.values())
            self._callbacks.clear()
        for callback in callbacks:
            callback()
        for child in children:
            child.cancel(reason)

    def check(self) -> None:
        """Raises: Cancelled."""
        if self._event.is_set():
            raise Cancelled(self.reason)

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Sleep until cancelled or the time is up; true when cancelled."""
        return self._event.wait(timeout_seconds)

    @contextmanager
    def on_cancel(self, callback: Callable[[], object]) -> Iterator[None]:
        """Call `callback` (once; at once if already cancelled) should this scope be cancelled inside the block."""
        key = object()
        with self._lock:
            late = self._event.is_set()
            if not late:
                self._callbacks[key] = callback
        if late:
            callback()
        try:
            yield
        finally:
            with self._lock:
                self._callbacks.pop(key, None)

    def _adopt(self, child: CancelScope) -> None:
        with self._lock:
            if not self._event.is_set():
                self._children.add(child)
                return
        child.cancel(self.reason)
