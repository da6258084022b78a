"""Calls a function of somebody else's, which may never look at a cancel scope: nobody waits for it longer than needed.

Python cannot end a thread. A function that is left behind goes on in its own until it returns, and what it returns is
dropped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TypeVar

from teamcli.cancel import CancelScope
from teamcli.errors import Cancelled

T = TypeVar("T")

_awaited: ContextVar[CancelScope | None] = ContextVar("awaited", default=None)
"""What would end the waiting for the function that runs here."""


def is_awaited_within(scope: CancelScope) -> bool:
    """Whether this runs in a function that somebody below `scope` waits for."""
    awaited = _awaited.get()
    return awaited is not None and awaited.is_within(scope)


@contextmanager
def awaited_in(scope: CancelScope) -> Iterator[None]:
    """Mark what runs inside the block: somebody below `scope` waits for it."""
    token = _awaited.set(scope)
    try:
        yield
    finally:
        _awaited.reset(token)


def call_aside(function: Callable[[], T], cancel: CancelScope, name: str, timeout_seconds: float | None = None) -> T:
    """What `function` returns or raises, called in a thread of that name.

    Raises: Cancelled as soon as `cancel` is cancelled, TimeoutError, and whatever the function raises
    """
    cancel.check()
    done: Future[T] = Future()
    threading.Thread(target=_call_into, args=(done, function, cancel), name=name, daemon=True).start()
    with cancel.on_cancel(done.cancel):
        try:
            return done.result(timeout_seconds)
        except CancelledError as e:
            if not done.cancelled():
                raise
            raise Cancelled(cancel.reason) from e


def _call_into(done: Future[T], function: Callable[[], T], cancel: CancelScope) -> None:
    _awaited.set(cancel)
    with suppress(InvalidStateError):  # nobody waits for it any more
        try:
            result = function()
        except BaseException as e:  # noqa: BLE001 - boundary: handed over to whoever waits, `sys.exit` as well
            done.set_exception(e)
        else:
            done.set_result(result)
