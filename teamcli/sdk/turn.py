"""One line for the lead, and what happens until it has been dealt with."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from concurrent.futures import Future

from teamcli.agent.events import Event, LineTaken, Outcome, TurnEnded, TurnStarted
from teamcli.errors import Cancelled
from teamcli.session.session import LEAD
from teamcli.session.session import Session as Running

LEAVING_SECONDS = 2.0
"""How long an abandoned turn is waited for: one that is interrupted ends within milliseconds."""


class Turn:
    """Hands over every event from the line's submission on, the end of the lead's turn last, then None."""

    def __init__(self, running: Running, text: str, put: Callable[[Event | None], None]) -> None:
        """`put` is called in the threads of agents and must not block."""
        self._running = running
        self._put = put
        self._held: TurnEnded | None = None
        """The end of a turn of the lead's: the last word if it is that of our line."""
        running.events.subscribe(self._take)
        self.ended: Future[TurnEnded] = running.submit(text)
        self.ended.add_done_callback(self._finish)

    def abandon(self) -> bool:
        """Nobody wants it any more: take the line back, or end the turn; true where it still has to come to its end."""
        if not self.ended.done() and not self._running.withdraw(self.ended):
            self._running.interrupt()
        return not self.ended.done()

    def wait(self) -> None:
        concurrent.futures.wait([self.ended], LEAVING_SECONDS)

    def _take(self, event: Event) -> None:
        if event.agent == LEAD:
            if isinstance(event, TurnEnded):
                self._held = event
                return
            if self._held is not None and isinstance(event, LineTaken | TurnStarted):
                self._put(self._held)  # of a turn that was about to end when our line came
                self._held = None
        self._put(event)

    def _finish(self, ended: Future[TurnEnded]) -> None:
        self._running.events.unsubscribe(self._take)
        closed = Cancelled("the session was closed, or nobody wanted the answer any more")
        unread = TurnEnded(LEAD, Outcome.INTERRUPTED, "", 0.0, closed)
        self._put(unread if ended.cancelled() else ended.result())
        self._put(None)
