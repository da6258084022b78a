"""The prompt of a terminal that can only print (`TERM=dumb`): it reads plain lines and prints questions in between."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable
from typing import TextIO

from teamcli.ui.render.event_renderer import PROMPT
from teamcli.ui.render.style import Line, TerminalStyle
from teamcli.ui.terminal.prompt import LEAVE_WITHIN_SECONDS
from teamcli.ui.terminal.prompt_port import PromptPort
from teamcli.ui.terminal.questions import PromptQuestion, QuestionQueue


def is_dumb() -> bool:
    """Whether the terminal can only print."""
    return os.environ.get("TERM", "dumb") in ("dumb", "unknown", "")


class AroundThePrompt:
    """Prints finished lines and repeats the prompt below them."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._label = PROMPT
        self.growing: list[Line] = []

    def put(self, text: str, growing: list[Line]) -> None:
        if text:
            self._stream.write(f"\n{text.strip(chr(10))}\n{self._label}")
            self._stream.flush()

    def set_label(self, label: str) -> None:
        """What is repeated from now on: while a question waits, the next line answers it."""
        self._label = label


class PlainPrompt:
    """Like `LivePrompt`, but without live parts. `exit`, `redraw` and `ring` may be called from any thread."""

    def __init__(
        self,
        host: PromptPort,
        questions: QuestionQueue,
        style: TerminalStyle,
        page: AroundThePrompt,
        flush: Callable[[], None],
    ) -> None:
        """`flush` waits until all that has happened so far is printed on `page`."""
        self._host = host
        self._page = page
        self._flush = flush
        self._questions = questions
        self._style = style
        self._question: PromptQuestion | None = None
        self._ctrl_c_at = -LEAVE_WITHIN_SECONDS
        self._has_left = False
        # Other threads wake the main thread from `select` through this pipe.
        self._woken, self._wake = os.pipe()

    def run(self, on_ready: Callable[[], object]) -> None:
        self._print(PROMPT)
        on_ready()
        while not self._has_left:
            try:
                ready = select.select([0, self._woken], [], [])[0]
                if self._woken in ready:
                    os.read(self._woken, 4096)
                    self._show_question()
                if 0 in ready:
                    self._take_line(os.read(0, 65_536))
            except KeyboardInterrupt:
                self._ctrl_c()

    def exit(self) -> None:
        self._has_left = True
        self.redraw()

    def redraw(self) -> None:
        os.write(self._wake, b".")

    def turn(self, before: str, after: str) -> None:
        """Does nothing: this terminal shows only the lead."""

    def ring(self, sequence: str) -> None:
        """Does nothing: this terminal would print the sequence."""

    def _take_line(self, data: bytes) -> None:
        if not data:  # Ctrl-D
            self._host.leave()
            return
        text = data.decode("utf-8", "replace").rstrip("\n")
        words = text.strip()
        question, self._question = self._question, None
        self._page.set_label(PROMPT)
        can_answer = words and words[0] not in "/!@"
        if question is None or not can_answer or not self._host.answer(question, words):
            self._host.enter(text)
        self._show_question()

    def _show_question(self) -> None:
        current = self._questions.current
        if current is None or current is self._question:
            return
        self._flush()  # the words that come before a question are printed before it
        self._question = current
        self._page.set_label(current.label)
        lines: list[Line] = [*current.head(), *current.body(), [("  " + current.keys, "")], [(current.label, "")]]
        self._print("\n" + "\n".join(self._style.paint(line) for line in lines))

    def _ctrl_c(self) -> None:
        if self._host.interrupt():
            return
        if time.monotonic() - self._ctrl_c_at < LEAVE_WITHIN_SECONDS:
            self._host.leave()
            return
        self._ctrl_c_at = time.monotonic()
        self._print("\nCtrl-C again to leave\n")

    def _print(self, text: str) -> None:
        stream = sys.__stdout__ or sys.stdout
        stream.write(text)
        stream.flush()
