"""The prompt that is always on the screen: lines, questions in the same place, the status bar below.

It does not end between two lines: Enter hands the line over and the prompt stays, so no key is lost.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, has_completions, is_searching, vi_insert_mode, vi_mode
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.keys import Keys

from teamcli.team.message import LEAD
from teamcli.ui.lines import QUIT_WORDS
from teamcli.ui.render.style import TerminalStyle
from teamcli.ui.terminal.answer_guard import TYPING_SECONDS, AnswerGuard
from teamcli.ui.terminal.completion import LineCompleter
from teamcli.ui.terminal.line_editor import KeyBinding, LineEditor
from teamcli.ui.terminal.prompt_picture import PromptPicture
from teamcli.ui.terminal.prompt_port import PromptPort
from teamcli.ui.terminal.question_view import EMPTY_LINE_KEYS, PAGE_KEYS, QuestionView
from teamcli.ui.terminal.questions import PromptQuestion, QuestionQueue

LEAVE_WITHIN_SECONDS = 2.0


class LivePrompt:
    def __init__(
        self,
        port: PromptPort,
        questions: QuestionQueue,
        style: TerminalStyle,
        history: Path,
        completer: LineCompleter | None,
        use_vi: bool,
    ) -> None:
        self._port = port
        self._questions = questions
        self._picture = PromptPicture(port, questions, style)
        self._question: PromptQuestion | None = None
        self._view: QuestionView | None = None
        """How the question is shown."""
        self._half_typed = Document()
        """The line that was being typed when a question took the prompt."""
        self._drafts: dict[str, Document] = {}
        """Lines that were being typed to agents that are not shown."""
        self._typed_at = -TYPING_SECONDS
        self._guard = AnswerGuard()
        self._ctrl_c_at = -LEAVE_WITHIN_SECONDS
        self.editor = LineEditor(
            lambda: self._picture.message(self._view, self.editor),
            self._toolbar,
            self._keys(),
            lambda: self._question is None,
            history,
            completer,
            use_vi,
        )
        self.editor.app.before_render += lambda _: self._before_drawing()
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

    def turn(self, before: str, after: str) -> None:
        """From any thread: another agent is shown. A half-typed line stays with the one that it was meant for."""
        if threading.current_thread() is threading.main_thread():
            self._swap_drafts(before, after)
        else:
            self.editor.call_soon(lambda: self._swap_drafts(before, after))

    def _swap_drafts(self, before: str, after: str) -> None:
        if before != after:
            self._drafts[before] = self._draft
            self._keep_draft(self._drafts.pop(after, Document()))
        self.redraw()

    @property
    def _draft(self) -> Document:
        return self.editor.buffer.document if self._question is None else self._half_typed

    def _keep_draft(self, draft: Document) -> None:
        if self._question is None:
            self.editor.replace(draft)
        else:
            self._half_typed = draft

    # Questions

    def _switch_question(self) -> None:
        """Give the prompt to the next question, or back to the half-typed line."""
        current = self._questions.current
        if current is self._question or self.editor.is_borrowed:
            return
        if self._question is not None:
            # A pause after an answer keeps one that was typed twice from answering the next question, too.
            is_answered = self._guard.has_just_answered
            self._end_question(None if is_answered else current)
            if not is_answered or current is None:
                return
        pause = max(self._typed_at if self.editor.buffer.text else 0.0, self._guard.answered_at) + TYPING_SECONDS
        if (pause := pause - time.monotonic()) > 0 and self.editor.redraw_in(pause):
            return  # the user is typing
        self._half_typed = self.editor.buffer.document
        self._begin_question(current)

    def _begin_question(self, question: PromptQuestion | None) -> None:
        self._question = question
        self._view = QuestionView(question) if question else None
        if question:
            self._guard.question_begins()
        self.editor.clear()

    def _end_question(self, following: PromptQuestion | None) -> None:
        """The question was answered, or its agent was stopped."""
        if (typed := self.editor.buffer.text) and self._question is not None:
            self._guard.question_disappears()
            # The text was meant for the question only if it looks like an answer. Otherwise it belongs to the line.
            if not self._question.fits(typed):
                self._half_typed = Document(self._half_typed.text + typed)
        self._begin_question(following)
        if following is None:
            self.editor.replace(self._half_typed)
            self._guard.line_returns(self._half_typed.text)
            self._half_typed = Document()

    def _answer(self, question: PromptQuestion, text: str) -> None:
        words = self.editor.unfold(text).strip()
        if set(words.lower()) == {"y"} and question.fits(words[0]):  # a doubled key
            words = words[0]
        if not words or self._guard.ignores_enter:
            return
        # Commands work at a question, too: the user may want to look something up before answering.
        if words[0] in "/!@" or words in QUIT_WORDS:
            self._enter_line(text)
        elif self._half_typed.text and not question.fits(words):
            # The user did not notice the question and kept typing: this is the rest of the line.
            typed, self._half_typed = self._half_typed.text, Document()
            self._enter_line(typed + text)
        elif self._port.answer(question, words):
            self.editor.clear()
            if question.is_open:  # it asks for something else now
                self._view = QuestionView(question)
            else:
                self._guard.answered(text)
        else:
            self._enter_line(text)

    # Lines

    def _enter_line(self, text: str) -> None:
        self.editor.replace(Document(text))
        if text.strip():
            self.editor.buffer.append_to_history()
        self.editor.clear()
        if not text.strip():  # Enter at an empty prompt
            self._questions.bring_back()
        self._port.enter(self.editor.unfold(text))

    def _interrupt(self) -> bool:
        """End the turn. Queued lines come back to be edited; otherwise they would start the next turn."""
        queued: list[str] = []
        while (text := self._port.take_back()) is not None:
            queued.insert(0, self.editor.fold(text))
        if not self._port.interrupt() and not queued:
            return False
        if queued:
            line = self._drafts.get(LEAD, Document()) if self._port.is_watching else self._draft
            whole = Document("\n".join([*queued, *([line.text] if line.text else [])]))
            if self._port.is_watching:
                self._drafts[LEAD] = whole
            else:
                self._keep_draft(whole)
        return True

    @property
    def _may_leave(self) -> bool:
        return time.monotonic() - self._ctrl_c_at < LEAVE_WITHIN_SECONDS

    def _note_typing(self) -> None:
        self._typed_at = time.monotonic()

    # Drawing

    def _before_drawing(self) -> None:
        self._switch_question()
        self._picture.begin()

    def _toolbar(self) -> StyleAndTextTuples:
        return self._picture.toolbar(self._view, self.editor, "Ctrl-C again to leave" if self._may_leave else "")

    # Keys

    def _keys(self) -> tuple[KeyBinding, ...]:
        is_empty = Condition(lambda: not self.editor.buffer.text)
        is_asked = Condition(lambda: self._question is not None)
        # A line of the answer is being typed otherwise: then these keys move in it.
        is_reading = is_asked & is_empty & Condition(lambda: self._view is not None and self._view.is_long)
        is_line = ~is_searching  # a search through the history has its own keys
        esc_is_free = is_line & ~(vi_mode & vi_insert_mode)  # there it leaves insert mode
        return (
            (("enter",), is_line, self._on_enter),
            # Terminals send Alt-Enter as Esc and Enter.
            (("escape", "enter"), is_line, lambda: self.editor.buffer.insert_text("\n")),
            (("c-j",), is_line, self._on_line_feed),
            (("escape",), esc_is_free & ~has_completions, self._on_escape),
            (("escape",), esc_is_free & has_completions, lambda: self.editor.buffer.cancel_completion()),
            (("c-c",), is_line, self._on_ctrl_c),
            ((Keys.SIGINT,), True, self._on_ctrl_c),  # the signal; Ctrl-C at the terminal is only a key
            (("c-d",), is_line & is_empty, self._port.leave),
            (("up",), is_line & is_empty & ~is_asked, self._on_up),
            (("tab",), is_line, lambda: self.editor.complete()),
            (("s-tab",), ~has_completions, self._port.next_mode),
            (("s-down",), is_line, lambda: self._port.turn(1)),
            (("s-up",), is_line, lambda: self._port.turn(-1)),
            (("c-o",), True, self._on_ctrl_o),
            *(((key,), is_line & is_asked, partial(self._scroll, scroll)) for key, scroll in PAGE_KEYS.items()),
            *(((key,), is_line & is_reading, partial(self._scroll, scroll)) for key, scroll in EMPTY_LINE_KEYS.items()),
            (("c-t",), True, self._port.toggle_tasks),
            (("c-x", "c-e"), True, lambda: self.editor.open_editor()),
        )

    def _on_enter(self) -> None:
        if self.editor.accept_completion():
            pass  # the next Enter sends the line
        elif self._guard.repeats_answer(self.editor.buffer.text):
            self.editor.replace(Document(self._guard.restored))
        elif self._question is not None:
            self._answer(self._question, self.editor.buffer.text)
        elif not self.editor.complete_for_enter():
            self._enter_line(self.editor.buffer.text)

    def _on_line_feed(self) -> None:
        if self.editor.is_end_of_line():
            self._on_enter()
        else:
            self.editor.buffer.insert_text("\n")

    def _on_escape(self) -> bool:
        """Postpone a question, return to the lead, or end its turn. Returns False if there is none of these."""
        if self._question is None and self._port.is_watching:
            self._port.return_to_lead(after_jobs=False)
            return True
        if self._question is None:
            return self._interrupt()
        if self.editor.buffer.text:
            self.editor.buffer.reset()
        elif self._question.back():
            self._view = QuestionView(self._question)
        elif self._question.agent == LEAD:  # its question holds up the turn that the user waits for
            self._interrupt()
        else:
            self._questions.postpone(self._question)
        return True

    def _on_ctrl_o(self) -> None:
        if self._view is None:
            self._port.expand()
        elif not self.editor.is_borrowed:
            self.editor.lend_terminal(partial(self._port.read, self._view.question))

    def _scroll(self, scroll: Callable[[QuestionView], None]) -> None:
        if self._view is not None:
            scroll(self._view)

    def _on_ctrl_c(self) -> None:
        """Like Esc. If there is nothing to end, clear the line; if that is empty, a second Ctrl-C soon after leaves.
        While a member is watched, clear the line, or return to the lead."""
        if self.editor.is_away:  # the other program has received it as well
            return
        is_watched_line = self._question is None and self._port.is_watching
        if not is_watched_line and self._on_escape():
            return
        if self.editor.buffer.text:
            self.editor.buffer.reset()
        elif is_watched_line:
            self._port.return_to_lead(after_jobs=True)
        elif self._may_leave:
            self._port.leave()
        else:
            self._ctrl_c_at = time.monotonic()
            self.editor.redraw_in(LEAVE_WITHIN_SECONDS)

    def _on_up(self) -> None:
        if not self._port.is_watching and (text := self._port.take_back()) is not None:
            self.editor.buffer.insert_text(self.editor.fold(text))
        else:
            self.editor.buffer.auto_up()
