"""The cancel tree: program → agent → turn → tool or model call.

Cancellation goes down, never up. A child of a cancelled scope starts out cancelled. A parent refers to its children
weakly, so that any number of finished ones costs nothing.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TypeVar

from teamcli.errors import Cancelled

T = TypeVar("T")

logger = logging.getLogger(__name__)


class CancelScope:
    """Something that can be stopped once, from any thread."""

    def __init__(self, parent: CancelScope | None = None) -> None:
        self.cancelled = False
        """Set only by `cancel`."""
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

    def is_within(self, other: CancelScope) -> bool:
        """Whether cancelling `other` would cancel this scope."""
        scope: CancelScope | None = self
        while scope is not None and scope is not other:
            scope = scope._parent
        return scope is not None

    def cancel(self, reason: str = "cancelled") -> None:
        """Stop this scope and all below it. Callbacks run in the calling thread. A second call does nothing.

        A callback that raises is logged, and everything else is still stopped.
        """
        with self._lock:
            if self.cancelled:
                return
            self.reason = reason
            self.cancelled = True
            self._event.set()
            children, callbacks = list(self._children), list(self._callbacks.values())
            self._callbacks.clear()
        for callback in callbacks:
            try:
                callback()
            except Exception:  # boundary: a bug in one callback must not keep the rest of the tree running
                logger.exception("%s failed while %r was cancelled", callback, reason)
        for child in children:
            child.cancel(reason)

    def check(self) -> None:
        """Raises: Cancelled."""
        if self.cancelled:
            raise Cancelled(self.reason)

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Sleep until cancelled or the time is up. True if cancelled."""
        return self._event.wait(timeout_seconds)

    def on_cancel(self, callback: Callable[[], object]) -> _Watch:
        """Call `callback` once if this scope is cancelled inside the block; immediately if it already is."""
        return _Watch(self, callback)

    def notifying(self, condition: threading.Condition) -> _Watch:
        """Wake all that wait on `condition` if this scope is cancelled inside the block. Enter it before the lock."""

        def notify() -> None:
            with condition:
                condition.notify_all()

        return _Watch(self, notify)

    def _add(self, key: object, callback: Callable[[], object]) -> None:
        with self._lock:
            late = self.cancelled
            if not late:
                self._callbacks[key] = callback
        if late:
            callback()

    def _remove(self, key: object) -> None:
        with self._lock:
            self._callbacks.pop(key, None)

    def _adopt(self, child: CancelScope) -> None:
        with self._lock:
            if not self.cancelled:
                self._children.add(child)
                return
        child.cancel(self.reason)


class _Watch:
    """The block of `on_cancel`. Not a generator, which would cost three times as much, several times per turn."""

    __slots__ = ("_callback", "_scope")

    def __init__(self, scope: CancelScope, callback: Callable[[], object]) -> None:
        self._scope = scope
        self._callback = callback

    def __enter__(self) -> None:
        self._scope._add(self, self._callback)

    def __exit__(self, *_: object) -> None:
        self._scope._remove(self)


_awaited: ContextVar[CancelScope | None] = ContextVar("awaited", default=None)
"""The scope that the caller of the function running here waits under."""


def is_awaited_within(scope: CancelScope) -> bool:
    """Whether this runs in a function whose caller waits under `scope`."""
    awaited = _awaited.get()
    return awaited is not None and awaited.is_within(scope)


@contextmanager
def awaited_in(scope: CancelScope) -> Iterator[None]:
    """Mark the code inside the block as awaited under `scope`."""
    token = _awaited.set(scope)
    try:
        yield
    finally:
        _awaited.reset(token)


class NoThreadLeft(RuntimeError):
    """Raised when the system has no thread for a function. It may have one again later."""


def run_abandonable(
    function: Callable[[], T],
    cancel: CancelScope,
    name: str,
    timeout_seconds: float | None = None,
    *,
    meanwhile: Callable[[], None] = lambda: None,
    discard: Callable[[T], object] = lambda result: None,
) -> T:
    """Call a function that may ignore cancellation in a thread with this name, and wait for its result.

    Python cannot end a thread. An abandoned function keeps running until it returns, and its result goes to `discard`.
    `meanwhile` is called in this thread while the function runs.

    Raises: Cancelled as soon as `cancel` is cancelled, TimeoutError, NoThreadLeft, and anything the functions raise
    """
    cancel.check()
    done: Future[T] = Future()
    # Daemon: an abandoned function must not delay the end of the program.
    thread = threading.Thread(target=_call_into, args=(done, function, cancel, discard), name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as e:
        raise NoThreadLeft(str(e)) from e
    with cancel.on_cancel(done.cancel):
        try:
            meanwhile()
            return done.result(timeout_seconds)
        except BaseException as e:
            if done.cancel():  # from now on `_call_into` discards the result
                if isinstance(e, CancelledError):
                    raise Cancelled(cancel.reason) from e
            elif done.exception() is None:  # it finished, but `meanwhile` failed, or a signal arrived
                discard(done.result())
            raise


def _call_into(done: Future[T], function: Callable[[], T], cancel: CancelScope, discard: Callable[[T], object]) -> None:
    _awaited.set(cancel)
    try:
        result = function()
    except BaseException as e:  # noqa: BLE001 - boundary: raised again in the thread that waits, even `sys.exit`
        with suppress(InvalidStateError):  # abandoned
            done.set_exception(e)
        return
    try:
        done.set_result(result)
    except InvalidStateError:
        discard(result)
