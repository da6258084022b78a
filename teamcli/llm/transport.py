"""What a client needs of the way to an endpoint: open one answer, read its events, break it off."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

from teamcli.cancel import CancelScope
from teamcli.llm.types import Request


class EventStream(NamedTuple):
    """One answer that is coming in."""

    events: Iterator[dict[str, Any]]
    """The raw events as they arrive. Raises ModelError."""
    interrupt: Callable[[], None]
    """From any thread: wake the reader, who then fails."""
    close: Callable[[], None]


class Transport(Protocol):
    """Opens one answer at a time. An opening or stream that was broken off does not harm the next one."""

    def open(self, request: Request, cancel: CancelScope) -> EventStream:
        """Send the request and wait for the head of its answer; fails soon after `cancel`.

        Raises: ModelError, ConfigError
        """
        ...

    def reopen(self, request: Request, cancel: CancelScope, on_sent: Callable[[], None]) -> EventStream | None:
        """The same on a connection that stands already, in the calling thread; None, at once, where there is none.

        Looking a name up and connecting cannot be broken off, so `open` needs a thread that can be left behind; on a
        standing connection a cancel takes effect at once, and the change of threads can be saved. `on_sent` is called
        when the request has gone out, or just before that.

        Raises: ModelError, and what `on_sent` raises
        """
        ...

    def warm_up(self) -> None:
        """Load what the first request needs, without sending anything.

        Raises: ModelError, ConfigError
        """
        ...

    def close(self) -> None: ...
