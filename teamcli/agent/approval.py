"""Asking a person whether a call may run: a request with a reply slot. Any number can be open; none blocks another."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from teamcli.agent.tool import Display
from teamcli.cancel import CancelScope
from teamcli.errors import Cancelled


class Consent(StrEnum):
    ONCE = "once"
    ALWAYS = "always"
    NO = "no"
    NOBODY = "nobody"
    """There is nobody to ask."""
    CHANGED = "changed"
    """Mode or rules have changed meanwhile, so that it need not be asked any more."""


class Reply(NamedTuple):
    consent: Consent
    feedback: str = ""
    """What the person wants the model to know, with a no."""


@dataclass(eq=False)
class Question:
    agent: str
    tool: str
    display: Display
    rule: str
    """The narrowest rule that would allow the call, for *always*; empty if there is none."""
    advice: str = ""
    """Why no rule covers the call, and how to write it so that one does."""
    asked_at: float = field(default_factory=time.time)
    _reply: Reply | None = None
    _answered: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def is_open(self) -> bool:
        return not self._answered.is_set()

    def answer(self, reply: Reply) -> None:
        """The first answer counts."""
        with self._lock:
            if self._reply is None:
                self._reply = reply
        self._answered.set()

    def wait(self, cancel: CancelScope) -> Reply:
        """Raises: Cancelled."""
        with cancel.on_cancel(self._answered.set):
            self._answered.wait()
        if self._reply is None:
            raise Cancelled(cancel.reason)
        return self._reply


Ask = Callable[[Question], None]
"""Brings a question before a person, at once or later; must not block."""


def nobody_to_ask(question: Question) -> None:
    question.answer(Reply(Consent.NOBODY))
