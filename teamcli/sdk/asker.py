"""Puts questions of agents before a function of the host program: one at a time, in the order in which they came."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

from teamcli.agent.approval import Answer, Consent, Question

logger = logging.getLogger(__name__)

Ask = Callable[[Question], "bool | Consent | Answer"]
"""Takes a question; returns whether the call may run, and with a `Answer` what else there is to say."""


class Asker:
    """One thread, which starts with the first question. Whoever asks can be interrupted while it waits."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._questions: SimpleQueue[Question | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def __call__(self, question: Question) -> None:
        with self._lock:
            self._questions.put(question)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="questions", daemon=True)
                self._thread.start()

    def close(self, timeout_seconds: float) -> None:
        """End the thread; a function that waits for a person is left behind."""
        self._questions.put(None)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout_seconds)

    def _run(self) -> None:
        while (question := self._questions.get()) is not None:
            if question.is_open:
                question.answer(self._answer(question))

    def _answer(self, question: Question) -> Answer:
        try:
            return as_reply(self._ask(question))
        except BaseException as e:  # boundary: who cannot be asked has not said yes
            logger.exception("asking about %s failed", question.tool)
            return Answer(Consent.NO, f"asking failed: {type(e).__name__}: {e}")


def as_reply(answer: object) -> Answer:
    """Raises: TypeError."""
    match answer:
        case Answer():
            return answer
        case Consent():
            return Answer(answer)
        case bool():
            return Answer(Consent.ONCE if answer else Consent.NO)
    raise TypeError(f"ask must return a bool, a teamcli.Consent or a teamcli.Answer, not {type(answer).__name__}")
