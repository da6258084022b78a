"""Calls functions of the host program: `ask` with questions, listeners with events. Each kind has its own thread.

Agents emit events while they hold locks. A function that was called right there could not spawn or shut down a teammate
without risking a deadlock, and a slow one would hold up every agent.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any

from teamcli.agent.events import Event
from teamcli.agent.permission_question import Answer, Consent, Question
from teamcli.session.event_bus import EventBus

logger = logging.getLogger(__name__)

Ask = Callable[[Question], "bool | Consent | Answer"]
"""Takes a question; returns whether the call may run, or an `Answer` with more details."""


class CallThread:
    """Makes calls one after the other, in order. They must not raise."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start the thread, unless it has been started or closed."""
        with self._lock:
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()

    def put(self, call: Callable[[], object]) -> None:
        """Never blocks."""
        self._calls.put(call)

    def flush(self, timeout_seconds: float) -> None:
        """Wait until all calls made so far have returned, but no longer than this."""
        # A function that runs in this thread would wait for itself.
        if self._thread in (None, threading.current_thread()) or self._is_closed:
            return
        done = threading.Event()
        self._calls.put(done.set)
        done.wait(timeout_seconds)

    def close(self, timeout_seconds: float) -> None:
        """Make the pending calls and end. A function that hangs is left behind."""
        with self._lock:
            self._is_closed = True
        self._calls.put(None)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout_seconds)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()


class ApprovalCallback(CallThread):
    """Passes questions of agents to the host program's `ask`, one at a time."""

    def __init__(self, ask: Ask) -> None:
        super().__init__("questions")
        self._ask = ask

    def __call__(self, question: Question) -> None:
        self.start()
        self.put(partial(self._answer, question))

    def _answer(self, question: Question) -> None:
        if not question.is_open:  # its agent was interrupted while the question was queued
            return
        try:
            answer = as_answer(self._ask(question))
        except BaseException as e:  # boundary: a failed question is not a yes
            logger.exception("asking about %s failed", question.tool)
            answer = Answer(Consent.NO, f"asking failed: {type(e).__name__}: {e}")
        question.answer(answer)


def as_answer(given: object) -> Answer:
    """Raises: TypeError."""
    match given:
        case Answer():
            return given
        case Consent():
            return Answer(given)
        case bool():
            return Answer(Consent.ONCE if given else Consent.NO)
    raise TypeError(f"ask must return a bool, a teamcli.Consent or a teamcli.Answer, not {type(given).__name__}")


class EventListeners(CallThread):
    """Calls listeners with events, in the order in which they happened."""

    def __init__(self, events: EventBus) -> None:
        super().__init__("listeners")
        self._events = events

    def add(self, listener: Callable[[Any], object], *kinds: type[Event]) -> Callable[[], None]:
        """Call `listener` with all events, or only with these kinds. Returns a function that removes it."""
        removed = threading.Event()

        def put(event: Event) -> None:
            self.put(partial(call, event))

        def call(event: Event) -> None:
            if removed.is_set():
                return
            try:
                listener(event)
            except BaseException:  # boundary: a listener must not be able to stop the others, not even by `sys.exit`
                logger.exception("%s failed and was removed", listener)
                remove()

        def remove() -> None:
            removed.set()
            self._events.unsubscribe(put)

        self.start()
        self._events.subscribe(put, *kinds)
        return remove
