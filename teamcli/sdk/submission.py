"""One line for the lead, with every event until the end of its turn."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from concurrent.futures import Future

from teamcli.agent.events import Event, LineTaken, Outcome, TurnEnded, TurnStarted
from teamcli.errors import Cancelled
from teamcli.session.session import Session as RunningSession
from teamcli.team.message import LEAD

LEAVING_SECONDS = 2.0
"""How long to wait for an abandoned turn. One that is interrupted ends within milliseconds."""


class Submission:
    """Passes on every event from the submission of the line, then the end of the lead's turn, then None."""

    def __init__(self, session: RunningSession, text: str, put: Callable[[Event | None], None]) -> None:
        """`put` is called in the threads of agents and must not block."""
        self._session = session
        self._put = put
        self._held: TurnEnded | None = None
        """The end of a turn of the lead. It is passed on last if it is the turn of our line."""
        session.events.subscribe(self._take)  # before the line is sent, so that no event of its turn is missed
        self.ended: Future[TurnEnded] = session.submit(text)
        self.ended.add_done_callback(self._finish)

    def abandon(self) -> bool:
        """Take the line back, or interrupt its turn; true if the turn has not ended yet."""
        if not self.ended.done() and not self._session.withdraw(self.ended):
            self._session.interrupt()
        return not self.ended.done()

    def wait(self) -> None:
        concurrent.futures.wait([self.ended], LEAVING_SECONDS)

    def _take(self, event: Event) -> None:
        if event.agent == LEAD:
            if isinstance(event, TurnEnded):
                self._held = event
                return
            if self._held is not None and isinstance(event, LineTaken | TurnStarted):
                self._put(self._held)  # of a turn that was about to end when our line arrived
                self._held = None
        self._put(event)

    def _finish(self, ended: Future[TurnEnded]) -> None:
        self._session.events.unsubscribe(self._take)
        closed = Cancelled("the session was closed, or the answer was no longer wanted")
        unread = TurnEnded(LEAD, Outcome.INTERRUPTED, "", 0.0, closed)
        self._put(unread if ended.cancelled() else ended.result())
        self._put(None)
