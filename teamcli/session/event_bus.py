"""Hands the events of all agents to those who subscribe."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from teamcli.agent.events import Event
from teamcli.text.redaction import redact_value

Consumer = Callable[[Any], object]
"""Takes events of the kinds that it has subscribed to."""

logger = logging.getLogger(__name__)


class EventBus:
    """Delivers each event to every consumer, in the thread in which it happened, one event at a time."""

    def __init__(self) -> None:
        self._consumers: list[tuple[Consumer, tuple[type[Event], ...]]] = []
        self._by_kind: dict[type[Event], list[Consumer]] = {}
        self._first: list[tuple[Consumer, tuple[type[Event], ...]]] = []
        self._lock = threading.RLock()  # no consumer sees two events at once; re-entrant, since a consumer may emit

    def subscribe(self, consumer: Consumer, *kinds: type[Event]) -> None:
        """Deliver every event to `consumer`, or only events of these kinds."""
        with self._lock:
            self._consumers.append((consumer, kinds))
            self._by_kind = {}

    def subscribe_first(self, consumer: Consumer, *kinds: type[Event]) -> None:
        """Call `consumer` before an event of these kinds is delivered. It may wait for something, such as a database:
        other threads deliver their events meanwhile, and may call it, too."""
        self._first.append((consumer, kinds))

    def unsubscribe(self, consumer: Consumer) -> None:
        """Stop delivering events. Safe to call from inside the consumer."""
        with self._lock:
            self._consumers = [each for each in self._consumers if each[0] != consumer]
            self._by_kind = {}

    def held(self) -> AbstractContextManager[Any]:
        """Inside the block no event is delivered: what two consumers know belongs to the same moment.

        Not for use inside a consumer, where the others may not have seen the event yet.
        """
        return self._lock

    def __call__(self, event: Event) -> None:
        event = redact_value(event)
        kind = type(event)
        for consumer, kinds in self._first:
            if kind in kinds:
                try:
                    consumer(event)
                except Exception:  # boundary: a consumer must not be able to stop an agent
                    logger.exception("%s failed", consumer)
        with self._lock:
            if kind not in self._by_kind:
                self._by_kind[kind] = [consumer for consumer, kinds in self._consumers if not kinds or kind in kinds]
            for consumer in self._by_kind[kind]:
                try:
                    consumer(event)
                except Exception:  # boundary: a consumer must not be able to stop an agent
                    logger.exception("%s failed and gets no more events", consumer)
                    self.unsubscribe(consumer)
