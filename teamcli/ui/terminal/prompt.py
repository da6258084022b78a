"""The prompt that is always on the screen: lines, questions in the same place, the status bar below.

It does not end between two lines: Enter hands the line over and the prompt stays, so no key is lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from prompt_toolkit.completion import Completer
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, has_completions, is_searching, vi_insert_mode, vi_mode
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.keys import Keys

from teamcli.team.message import LEAD
from teamcli.text.console import wrap
from teamcli.text.escaping import escape_controls
from teamcli.ui.lines import QUIT_WORDS
from teamcli.ui.render.style import BOLD, CYAN, DIM, YELLOW, Line, TerminalStyle
from teamcli.ui.terminal.fragments import clipped
from teamcli.ui.terminal.line_editor import KeyBinding, LineEditor
from teamcli.ui.terminal.questions import PromptQuestion, QuestionQueue

LEAVE_WITHIN_SECONDS = 2.0
TYPING_SECONDS = 0.3
"""A question takes over a half-typed line only after a pause this long."""
READING_SECONDS = 0.5


class PromptHost(Protocol):
    """What the prompt acts on. All methods are called in the main thread and must not block."""

    def enter(self, text: str) -> None:
        """Take a complete line."""
        ...

    def interrupt(self) -> bool:
        """End what runs in the foreground. Returns False if nothing does."""
        ...

    def take_back(self) -> str | None:
        """Remove and return the newest queued line."""
        ...

    def next_mode(self) -> None: ...

    def expand(self) -> None: ...

    def toggle_tasks(self) -> None: ...

    def leave(self) -> None: ...

    def show_question(self, question: PromptQuestion) -> list[Line]:
        """Returns the lines to keep at the prompt until it is answered; a long question is printed above instead."""
        ...

    def answer(self, question: PromptQuestion, text: str) -> bool:
        """Returns False if the text is not an answer."""
        ...

    def above(self) -> list[Line]:
        """Unfinished output, shown right above the prompt."""
        ...

    def bar(self, width: int, hint: str) -> list[Line]:
        """The status bar. `hint` replaces its own."""
        ...


class LivePrompt:
    def __init__(
        self,
        host: PromptHost,
        questions: QuestionQueue,
        style: TerminalStyle,
        history: Path,
        completer: Completer | None,
        use_vi: bool,
    ) -> None:
        self._host = host
        self._questions = questions
        self._style = style
        self._question: PromptQuestion | None = None
        self._question_lines: list[Line] = []
        self._half_typed = Document()
        """The line that was being typed when a question took the prompt."""
        self._typed_at = -TYPING_SECONDS
        self._ignores_enter_until = 0.0
        """Enter was probably meant for a question that has just disappeared, so it must not answer the next one."""
        self._ctrl_c_at = -LEAVE_WITHIN_SECONDS
        self.editor = LineEditor(
            self._message, self._toolbar, self._keys(), lambda: self._question is None, history, completer, use_vi
        )
        self.editor.app.before_render += lambda _: self._switch_question()
        self.editor.buffer.on_text_changed += lambda _: self._note_typing()

    def run(self, on_ready: Callable[[], object]) -> None:
        """Until `exit`. `on_ready` is called once the prompt is on the screen."""
        self.editor.run(on_ready)

    def exit(self) -> None:
        """From any thread."""
        self.editor.exit()

    def redraw(self) -> None:
        """From any thread. Many calls cost one redraw."""
        self.editor.app.invalidate()

    def ring(self, sequence: str) -> None:
        """From any thread: send a bell or notification sequence to the terminal."""

        def send() -> None:
            self.editor.app.output.write_raw(sequence)
            self.editor.app.output.flush()

        self.editor.call_soon(send)

    # Questions

    def _switch_question(self) -> None:
        """Give the prompt to the next question, or back to the half-typed line."""
        current = self._questions.current
        if current is self._question or self.editor.is_borrowed:
            return
        if self._question is not None:
            self._end_question(current)
            return
        pause = self._typed_at + TYPING_SECONDS - time.monotonic()
        if self.editor.buffer.text and pause > 0 and self.editor.redraw_in(pause):
            return  # the user is typing
        self._half_typed = self.editor.buffer.document
        self._begin_question(current)

    def _begin_question(self, question: PromptQuestion | None) -> None:
        self._question = question
        self._question_lines = self._host.show_question(question) if question else []
        self.editor.clear()

    def _end_question(self, following: PromptQuestion | None) -> None:
        """The question was answered, or its agent was stopped."""
        if (typed := self.editor.buffer.text) and self._question is not None:
            self._ignores_enter_until = time.monotonic() + READING_SECONDS
            # The text was meant for the question only if it looks like an answer. Otherwise it belongs to the line.
            if not self._question.fits(typed):
                self._half_typed = Document(self._half_typed.text + typed)
        self._begin_question(following)
        if following is None:
            self.editor.replace(self._half_typed)
            self._half_typed = Document()

    def _answer(self, question: PromptQuestion, text: str) -> None:
        words = self.editor.unfold(text).strip()
        if not words or time.monotonic() < self._ignores_enter_until:
            return
        # Commands work at a question, too: the user may want to look something up before answering.
        if words[0] in "/!@" or words in QUIT_WORDS:
            self._enter_line(text)
        elif self._half_typed.text and not question.fits(words):
            # The user did not notice the question and kept typing: this is the rest of the line.
            typed, self._half_typed = self._half_typed.text, Document()
            self._enter_line(typed + text)
        elif self._host.answer(question, words):
            self.editor.clear()
        else:
            self._enter_line(text)

    # Lines

    def _enter_line(self, text: str) -> None:
        whole = self.editor.unfold(text)
        self.editor.replace(Document(whole))
        if whole.strip():
            self.editor.buffer.append_to_history()
        self.editor.clear()
        if not whole.strip():  # Enter at an empty prompt
            self._questions.bring_back()
        self._host.enter(whole)

    def _interrupt(self) -> bool:
        """End the turn. Queued lines come back to be edited; otherwise they would start the next turn."""
        queued: list[str] = []
        while (text := self._host.take_back()) is not None:
            queued.insert(0, text)
        if not self._host.interrupt() and not queued:
            return False
        if queued:
            line = self._half_typed if self._question else self.editor.buffer.document
            whole = Document("\n".join([*queued, *([line.text] if line.text else [])]))
            if self._question:
                self._half_typed = whole
            else:
                self.editor.replace(whole)
        return True

    @property
    def _may_leave(self) -> bool:
        return time.monotonic() - self._ctrl_c_at < LEAVE_WITHIN_SECONDS

    def _note_typing(self) -> None:
        self._typed_at = time.monotonic()

    # Drawing

    def _message(self) -> StyleAndTextTuples:
        width = self._style.width() - 1
        lines = [clipped(line, width) for line in self._host.above()]
        if self._question is None:
            return [*self._format(lines, newline=True), *self._format([[("team >> ", CYAN)]])]
        lines += [[]] if len(lines) > 1 else []
        for line in self._question_lines:
            lines += wrap(line, width, keeps_urls=False)
        waiting = len(self._questions.open)
        keys: Line = [("  " + self._question.keys, DIM), (f" · 1 of {waiting}" if waiting > 1 else "", DIM)]
        lines.append(clipped(keys, width))
        return [*self._format(lines, newline=True), *self._format([[(self._question.label, YELLOW)]])]

    def _toolbar(self) -> StyleAndTextTuples:
        hint = "Ctrl-C again to leave" if self._may_leave else ""
        return self._format(self._host.bar(self._style.width() - 1, hint), newline=True)[:-1]

    def _format(self, lines: Sequence[Line], newline: bool = False) -> StyleAndTextTuples:
        """Lines as prompt_toolkit wants them."""
        formatted: StyleAndTextTuples = []
        for line in lines:
            for text, style in line:
                words = style.split() if self._style.has_color else ()
                names = (word if word in (BOLD, DIM) else f"ansi{word}" for word in words)
                formatted.append((" ".join(names), self._style.signs(escape_controls(text))))
            formatted += [("", "\n")] if newline else []
        return formatted

    # Keys

    def _keys(self) -> tuple[KeyBinding, ...]:
        is_empty = Condition(lambda: not self.editor.buffer.text)
        is_asked = Condition(lambda: self._question is not None)
        is_line = ~is_searching  # a search through the history has its own keys
        esc_is_free = is_line & ~(vi_mode & vi_insert_mode)  # there it leaves insert mode
        return (
            (("enter",), is_line, self._on_enter),
            (("escape", "enter"), is_line, lambda: self.editor.buffer.insert_text("\n")),
            (("c-j",), is_line, self._on_line_feed),
            (("escape",), esc_is_free & ~has_completions, self._on_escape),
            (("escape",), esc_is_free & has_completions, lambda: self.editor.buffer.cancel_completion()),
            (("c-c",), is_line, self._on_ctrl_c),
            ((Keys.SIGINT,), True, self._on_ctrl_c),
            (("c-d",), is_line & is_empty, self._host.leave),
            (("up",), is_line & is_empty & ~is_asked, self._on_up),
            (("tab",), is_line, lambda: self.editor.complete()),
            (("s-tab",), ~has_completions, self._host.next_mode),
            (("c-o",), True, self._host.expand),
            (("c-t",), True, self._host.toggle_tasks),
            (("c-x", "c-e"), True, lambda: self.editor.open_editor()),
        )

    def _on_enter(self) -> None:
        if self.editor.accept_completion():
            pass  # the next Enter sends the line
        elif self._question is not None:
            self._answer(self._question, self.editor.buffer.text)
        else:
            self._enter_line(self.editor.buffer.text)

    def _on_line_feed(self) -> None:
        if self.editor.is_end_of_line():
            self._on_enter()
        else:
            self.editor.buffer.insert_text("\n")

    def _on_escape(self) -> bool:
        """Postpone a question, or end the turn. Returns False if there is neither."""
        if self._question is None:
            return self._interrupt()
        if self.editor.buffer.text:
            self.editor.buffer.reset()
        elif self._question.agent == LEAD:  # its question holds up the turn that the user waits for
            self._interrupt()
        else:
            self._questions.postpone(self._question)
        return True

    def _on_ctrl_c(self) -> None:
        if self._on_escape():
            return
        if self.editor.buffer.text:
            self.editor.buffer.reset()
        elif self._may_leave:
            self._host.leave()
        else:
            self._ctrl_c_at = time.monotonic()
            self.editor.redraw_in(LEAVE_WITHIN_SECONDS)

    def _on_up(self) -> None:
        if (text := self._host.take_back()) is not None:
            self.editor.buffer.insert_text(text)
        else:
            self.editor.buffer.auto_up()
