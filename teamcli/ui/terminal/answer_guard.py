"""Keeps the keys of an answer from doing anything else. Users type one twice, or while its question disappears."""

from __future__ import annotations

import math
import time

TYPING_SECONDS = 0.3
"""A question takes over a half-typed line only after a pause this long."""
READING_SECONDS = 0.5


class AnswerGuard:
    def __init__(self) -> None:
        self.answered_at = -math.inf
        self.restored = ""
        """What was at the prompt right after the last answer."""
        self._last_answer = ""
        self._ignores_enter_until = 0.0
        """Enter was probably meant for a question that has just disappeared, so it must not answer the next one."""

    def answered(self, text: str) -> None:
        self._last_answer, self.answered_at, self.restored = text, time.monotonic(), ""

    def question_begins(self) -> None:
        """From now on an answer is meant for this one."""
        self._last_answer, self.answered_at = "", -math.inf

    def question_disappears(self) -> None:
        """While an answer to it is being typed."""
        self._ignores_enter_until = time.monotonic() + READING_SECONDS

    def line_returns(self, text: str) -> None:
        """No question is left, and the half-typed line is at the prompt again."""
        self.restored = text

    @property
    def has_just_answered(self) -> bool:
        return time.monotonic() < self.answered_at + TYPING_SECONDS

    @property
    def ignores_enter(self) -> bool:
        return time.monotonic() < self._ignores_enter_until

    def repeats_answer(self, text: str) -> bool:
        """Whether Enter, with this text at the prompt, belongs to an answer that was typed twice: it must not become a
        task, nor send a half-typed line that has just come back."""
        now = time.monotonic()
        if now > self.answered_at + READING_SECONDS:
            return False
        # If the answer came while the question disappeared, only its Enter is left.
        return text == self.restored + self._last_answer or (text == self.restored and now <= self._ignores_enter_until)
