"""What a client needs to reach an endpoint: open an answer, read its events, interrupt it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

from teamcli.cancel import CancelScope
from teamcli.llm.types import Request


class EventStream(NamedTuple):
    """One answer as it arrives."""

    events: Iterator[dict[str, Any]]
    """The raw events. Raises ModelError."""
    interrupt: Callable[[], None]
    """Wakes the reader, which then fails. Safe to call from any thread."""
    close: Callable[[], None]


class Transport(Protocol):
    """Opens one answer at a time. Interrupting one does not affect the next."""

    def open(self, request: Request, cancel: CancelScope) -> EventStream:
        """Send the request and wait for the head of its answer. Fails soon after `cancel`.

        Raises: ModelError, ConfigError
        """
        ...

    def reopen(self, request: Request, cancel: CancelScope, on_sent: Callable[[], None]) -> EventStream | None:
        """Do the same on an open connection, in the calling thread; return None at once if there is none.

        A name lookup and a connect cannot be interrupted, so `open` needs a thread that can be abandoned. On an open
        connection a cancel takes effect at once, which saves the change of threads. `on_sent` is called when the
        request has been sent, or just before.

        Raises: ModelError, and what `on_sent` raises
        """
        ...

    def warm_up(self) -> None:
        """Load what the first request needs, without sending anything.

        Raises: ModelError, ConfigError
        """
        ...

    def close(self) -> None: ...
