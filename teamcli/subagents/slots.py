"""A counting semaphore that serves waiters in order and whose waiters can be cancelled."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from teamcli.cancel import CancelScope
from teamcli.errors import Cancelled


class Slots:
    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: deque[object] = deque()
        self._changed = threading.Condition()

    @contextmanager
    def taken(self, cancel: CancelScope) -> Iterator[None]:
        """Hold a slot inside the block.

        Raises: Cancelled, while waiting
        """
        self._take(cancel)
        try:
            yield
        finally:
            self.give()

    def give(self) -> None:
        """Free a slot: at the end, or while its owner only waits."""
        with self._changed:
            self._free += 1
            self._changed.notify_all()

    def take_back(self, cancel: CancelScope) -> None:
        """Wait for a slot again. A cancelled owner does not wait, so that it can finish."""
        try:
            self._take(cancel)
        except Cancelled:
            with self._changed:
                self._free -= 1  # below zero for a moment; the next slot that is freed restores the balance

    def _take(self, cancel: CancelScope) -> None:
        ticket = object()
        with cancel.notifying(self._changed), self._changed:
            self._waiting.append(ticket)
            try:
                while not cancel.cancelled and (self._waiting[0] is not ticket or self._free <= 0):
                    self._changed.wait()
                cancel.check()
                self._free -= 1
            finally:
                self._waiting.remove(ticket)
                self._changed.notify_all()  # the next in line may have waited only for this one
