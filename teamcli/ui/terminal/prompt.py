"""The prompt that is always there: editing, keys, questions in the same place, the bar below. Main thread only.

It never ends between two lines: Enter hands the line over and the prompt stays, so nothing can be typed into the void.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from prompt_toolkit import PromptSession
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.filters import (
    Condition,
    FilterOrBool,
    has_completions,
    is_searching,
    to_filter,
    vi_insert_mode,
    vi_mode,
)
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout.controls import FormattedTextControl
from prompt_toolkit.styles import Style

from teamcli.session.session import LEAD
from teamcli.text.escaping import escape_controls
from teamcli.ui.lines import QUIT_WORDS
from teamcli.ui.render.cells import clipped
from teamcli.ui.render.style import CYAN, DIM, YELLOW, Line, TerminalStyle
from teamcli.ui.render.wrapping import wrap
from teamcli.ui.terminal.completion import may_be_completed
from teamcli.ui.terminal.history import LineHistory
from teamcli.ui.terminal.pastes import Pastes
from teamcli.ui.terminal.questions import Asked, QuestionQueue

LEAVE_WITHIN_SECONDS = 2.0
QUIET_SECONDS = 0.3
"""A question waits for this long a pause in typing before it takes the prompt."""
READING_SECONDS = 0.5
ESCAPE_SECONDS = 0.05
"""What a terminal may take for the rest of a key that begins with Esc, and a person for the one behind Esc ..."""
CHORD_SECONDS = 1.0
"""... but Ctrl-X Ctrl-E is typed in peace."""
REDRAW_SECONDS = 0.03
_STYLES = {"1": "bold", "2": "dim", "31": "ansired", "32": "ansigreen", "33": "ansiyellow", "34": "ansiblue"}
_STYLES |= {"35": "ansimagenta", "36": "ansicyan"}
_STYLE = Style.from_dict(
    {
        "bottom-toolbar": "noreverse",
        "completion-menu": "bg:default fg:default",
        "completion-menu.completion": "bg:default fg:default",
        "completion-menu.completion.current": "bg:default fg:default reverse",
        "completion-menu.meta.completion": "bg:default fg:default dim",
        "completion-menu.meta.completion.current": "bg:default fg:default",
        "scrollbar.background": "bg:default",
        "scrollbar.button": "bg:ansibrightblack",
    }
)


class Host(Protocol):
    """What stands behind the prompt. Everything is called in the main thread and must not block."""

    def enter(self, text: str) -> None:
        """A line, typed in full."""
        ...

    def interrupt(self) -> bool:
        """End what runs in the foreground; false where nothing does."""
        ...

    def take_back(self) -> str | None:
        """The newest line that nobody has read."""
        ...

    def next_mode(self) -> None: ...

    def expand(self) -> None: ...

    def leave(self) -> None: ...

    def show_question(self, asked: Asked) -> list[Line]:
        """Show it; returns what of it stands at the prompt until it is answered."""
        ...

    def answer(self, asked: Asked, text: str) -> bool:
        """False: that was no answer."""
        ...

    def above(self) -> list[Line]:
        """What still grows, right above the prompt."""
        ...

    def bar(self, width: int, hint: str) -> list[Line]: ...


class LivePrompt:
    def __init__(
        self,
        host: Host,
        questions: QuestionQueue,
        style: TerminalStyle,
        history: Path,
        completer: Completer | None,
        use_vi: bool,
    ) -> None:
        self._host = host
        self._questions = questions
        self._style = style
        self._completer = completer
        self._pastes = Pastes()
        self._question: Asked | None = None
        self._question_lines: list[Line] = []
        self._half_typed = Document()
        """What stood at the prompt when a question took it."""
        self._is_editing = False
        self._typed_at = -QUIET_SECONDS
        self._deaf_until = 0.0
        """Until then Enter answers nothing: it was pressed for a question that has just gone."""
        self._ctrl_c_at = -LEAVE_WITHIN_SECONDS
        self._keys_at_once = 0
        """How many have come together, so far."""
        self._session: PromptSession[None] = PromptSession(
            message=self._message,
            bottom_toolbar=self._toolbar,
            history=LineHistory(history),
            completer=completer,
            complete_while_typing=Condition(self._wants_completion),
            complete_in_thread=True,
            key_bindings=self._keys(),
            multiline=True,
            prompt_continuation=lambda width, number, wrapped: " " * width,
            editing_mode=EditingMode.VI if use_vi else EditingMode.EMACS,
            enable_suspend=True,
            tempfile_suffix=".md",
            erase_when_done=True,
            style=_STYLE,
            reserve_space_for_menu=6,
        )
        app = self._app = self._session.app
        for window in app.layout.find_all_windows():
            # Cells are not counted alike everywhere; what is asked must be seen whole.
            if isinstance(window.content, FormattedTextControl):
                window.wrap_lines = to_filter(True)
        app.renderer.cpr_not_supported_callback = None  # a warning across the prompt that helps nobody
        app.ttimeoutlen = ESCAPE_SECONDS
        app.key_processor.before_key_press += lambda _: self._count_key()
        app.key_processor.after_key_press += lambda _: self._wait_for_chord()
        app.min_redraw_interval = REDRAW_SECONDS
        app.before_render += lambda _: self._take_turns()
        self._buffer.on_text_changed += lambda _: self._note_typing()

    def run(self, on_ready: Callable[[], object]) -> None:
        """Until `exit`. `on_ready` is called once the prompt stands on the screen."""
        is_ready = False

        def rendered(_: object) -> None:
            nonlocal is_ready
            if not is_ready:
                is_ready = True
                on_ready()

        self._app.after_render += rendered
        with suppress(EOFError):  # the terminal is gone
            self._session.prompt()

    def exit(self) -> None:
        """From any thread."""
        self._in_loop(lambda: self._app.exit() if self._app.is_running else None)

    def redraw(self) -> None:
        """From any thread; many calls cost one drawing."""
        self._app.invalidate()

    def ring(self, sequence: str) -> None:
        """From any thread: send the terminal a sound or a notification."""

        def send() -> None:
            self._app.output.write_raw(sequence)
            self._app.output.flush()

        self._in_loop(send)

    def _in_loop(self, call: Callable[[], object]) -> None:
        if (loop := self._app.loop) is not None:
            loop.call_soon_threadsafe(call)

    @property
    def _buffer(self) -> Buffer:
        return self._session.default_buffer

    # Questions

    def _take_turns(self) -> None:
        """Give the prompt to a question, or back to the line that was being typed."""
        current = self._questions.current
        if current is self._question or self._is_editing or self._app.layout.is_searching:
            return
        if self._question is not None:
            self._end_question(current)
        elif self._may_take_the_prompt():
            self._half_typed = self._buffer.document
            self._begin_question(current)

    def _may_take_the_prompt(self) -> bool:
        pause = self._typed_at + QUIET_SECONDS - time.monotonic()
        if not self._buffer.text or pause <= 0 or self._app.loop is None:
            return True
        self._app.loop.call_later(pause, self._app.invalidate)
        return False

    def _begin_question(self, asked: Asked | None) -> None:
        self._question = asked
        self._question_lines = self._host.show_question(asked) if asked else []
        self._empty_line()

    def _end_question(self, following: Asked | None) -> None:
        """The question that stood here was answered, or its agent was stopped."""
        if (typed := self._buffer.text) and self._question is not None:
            self._deaf_until = time.monotonic() + READING_SECONDS
            # Whatever was being typed for a question that is gone was meant for it only if it reads like an answer.
            if not self._question.fits(typed):
                self._half_typed = Document(self._half_typed.text + typed)
        self._begin_question(following)
        if following is None:
            self._buffer.set_document(self._half_typed, bypass_readonly=True)
            self._half_typed = Document()

    def _answer(self, asked: Asked, text: str) -> None:
        words = self._pastes.unfolded(text).strip()
        if not words or time.monotonic() < self._deaf_until:
            return
        if words[0] in "/!@" or words in QUIT_WORDS:
            self._enter_line(text)
        elif self._half_typed.text and not asked.fits(words):
            # Typed on in the middle of a line: it was meant as one.
            typed, self._half_typed = self._half_typed.text, Document()
            self._enter_line(typed + text)
        elif self._host.answer(asked, words):
            self._empty_line()
        else:
            self._enter_line(text)

    def _put_off(self, asked: Asked) -> None:
        if self._buffer.text:
            self._buffer.reset()
        elif asked.agent == LEAD:
            self._interrupt()
        else:
            self._questions.put_aside(asked)

    # Lines

    def _enter_line(self, text: str) -> None:
        whole = self._pastes.unfolded(text)
        self._buffer.set_document(Document(whole), bypass_readonly=True)
        if whole.strip():
            self._buffer.append_to_history()
        self._empty_line()
        if not whole.strip():
            self._questions.bring_back()
        self._host.enter(whole)

    def _empty_line(self) -> None:
        self._buffer.reset()
        self._app.vi_state.reset()  # a new line begins in insert mode

    def _interrupt(self) -> bool:
        """End the turn; what was queued behind it comes back to be edited, or it would start the next one."""
        waiting: list[str] = []
        while (text := self._host.take_back()) is not None:
            waiting.insert(0, text)
        if not self._host.interrupt() and not waiting:
            return False
        if waiting:
            self._put_before_the_line("\n".join(waiting))
        return True

    def _put_before_the_line(self, text: str) -> None:
        is_asked = self._question is not None
        line = self._half_typed if is_asked else self._buffer.document
        whole = Document(f"{text}\n{line.text}" if line.text else text)
        if is_asked:
            self._half_typed = whole
        else:
            self._buffer.set_document(whole, bypass_readonly=True)

    def _ctrl_c(self) -> None:
        if self._question is not None:
            self._put_off(self._question)
        elif self._interrupt():
            pass
        elif self._buffer.text:
            self._buffer.reset()
        elif self._may_leave:
            self._host.leave()
        else:
            self._ctrl_c_at = time.monotonic()
            if self._app.loop is not None:
                self._app.loop.call_later(LEAVE_WITHIN_SECONDS, self._app.invalidate)

    @property
    def _may_leave(self) -> bool:
        return time.monotonic() - self._ctrl_c_at < LEAVE_WITHIN_SECONDS

    def _note_typing(self) -> None:
        self._typed_at = time.monotonic()

    def _wants_completion(self) -> bool:
        """Only where there is something to complete: else the menu would keep lines free below the prompt."""
        return self._question is None and may_be_completed(self._buffer.document.text_before_cursor)

    # What is drawn

    def _message(self) -> StyleAndTextTuples:
        width = self._style.width() - 1
        lines = [[], *(clipped(line, width) for line in self._host.above())]
        if self._question is None:
            return [*self._drawn(lines, newline=True), *self._drawn([[("team >> ", CYAN)]])]
        lines += [[]] if len(lines) > 1 else []
        waiting = len(self._questions.open)
        keys: Line = [("  " + self._question.keys, DIM), (f" · 1 of {waiting}" if waiting > 1 else "", DIM)]
        for line in self._question_lines:
            lines += wrap(line, width, keep_urls=False)
        lines.append(clipped(keys, width))
        return [*self._drawn(lines, newline=True), *self._drawn([[(self._question.label, YELLOW)]])]

    def _toolbar(self) -> StyleAndTextTuples:
        hint = "Ctrl-C again leaves" if self._may_leave else ""
        lines = self._host.bar(self._style.width() - 1, hint)
        drawn = self._drawn(lines, newline=True)
        return drawn[:-1] if drawn else drawn

    def _drawn(self, lines: Sequence[Line], newline: bool = False) -> StyleAndTextTuples:
        drawn: StyleAndTextTuples = []
        for line in lines:
            drawn += [(self._style_of(code), self._style.signs(escape_controls(text))) for text, code in line]
            drawn += [("", "\n")] if newline else []
        return drawn

    def _style_of(self, code: str) -> str:
        return " ".join(_STYLES.get(each, "") for each in code.split(";")) if self._style.colour and code else ""

    # Keys

    def _keys(self) -> KeyBindings:
        buffer_is_empty = Condition(lambda: not self._buffer.text)
        is_asked = Condition(lambda: self._question is not None)
        is_line = ~is_searching  # a search through the history has keys of its own
        esc_is_free = is_line & ~(vi_mode & vi_insert_mode)  # there it leaves the insert mode
        table: tuple[tuple[tuple[str, ...], FilterOrBool, Callable[[KeyPressEvent], None]], ...] = (
            (("enter",), is_line, lambda event: self._on_enter()),
            (("escape", "enter"), is_line, lambda event: event.current_buffer.insert_text("\n")),
            (("c-j",), is_line, lambda event: self._on_newline()),
            (("escape",), esc_is_free & ~has_completions, lambda event: self._escape()),
            (("escape",), esc_is_free & has_completions, lambda event: event.current_buffer.cancel_completion()),
            (("c-c",), is_line, lambda event: self._ctrl_c()),
            ((Keys.SIGINT,), True, lambda event: self._ctrl_c()),
            (("c-d",), is_line & buffer_is_empty, lambda event: self._host.leave()),
            (("up",), is_line & buffer_is_empty & ~is_asked, lambda event: self._up()),
            (("tab",), is_line, lambda event: self._tab()),
            (("s-tab",), ~has_completions, lambda event: self._host.next_mode()),
            (("c-o",), True, lambda event: self._host.expand()),
            (("c-x", "c-e"), True, self._edit),
            ((Keys.BracketedPaste,), is_line, lambda event: self._paste(event.data)),
        )
        bindings = KeyBindings()
        for keys, when, handler in table:
            bindings.add(*keys, filter=when)(handler)
        return bindings

    def _escape(self) -> None:
        if self._question is not None:
            self._put_off(self._question)
        else:
            self._interrupt()

    def _up(self) -> None:
        if (text := self._host.take_back()) is not None:
            self._buffer.insert_text(text)
        else:
            self._buffer.auto_up()

    def _tab(self) -> None:
        """Take the first offer, or the next one. Offers that are still looked for in another thread are not waited for:
        a Tab right behind the text would be lost, and what is typed behind it would overtake it."""
        buffer = self._buffer
        if buffer.complete_state is not None and buffer.complete_state.completions:
            buffer.complete_next()
        elif offers := self._offers(buffer.document):
            buffer._set_completions(offers)
            buffer.go_to_completion(0)
        if buffer.complete_state is not None and len(buffer.complete_state.completions) == 1:
            buffer.complete_state = None  # there is no choice left: Enter sends the line

    def _offers(self, document: Document) -> list[Completion]:
        """All that would change something."""
        if self._completer is None:
            return []
        found = self._completer.get_completions(document, CompleteEvent(completion_requested=True))
        return [offer for offer in found if not document.text_before_cursor.endswith(offer.text)]

    def _wait_for_chord(self) -> None:
        """Esc alone interrupts, so it must not wait long for a key that may follow."""
        begun = self._app.key_processor.key_buffer
        self._app.timeoutlen = ESCAPE_SECONDS if begun and begun[0].key == Keys.Escape else CHORD_SECONDS

    def _edit(self, event: KeyPressEvent) -> None:
        whole = self._pastes.unfolded(event.current_buffer.text)
        if whole != event.current_buffer.text:
            event.current_buffer.set_document(Document(whole), bypass_readonly=True)
        self._is_editing = True
        event.current_buffer.open_in_editor(validate_and_handle=False).add_done_callback(lambda _: self._edited())

    def _edited(self) -> None:
        self._is_editing = False
        self.redraw()

    def _paste(self, text: str) -> None:
        self._buffer.insert_text(self._pastes.folded(text))

    def _count_key(self) -> None:
        """A program, and a terminal that was not ours yet, hand over a whole line at once, in one turn of the loop."""
        if not self._keys_at_once and self._app.loop is not None:
            self._app.loop.call_soon(self._forget_keys)
        self._keys_at_once += 1

    def _forget_keys(self) -> None:
        self._keys_at_once = 0

    def _on_newline(self) -> None:
        """Ctrl-J, or the end of a line that a program wrote, or that was typed before the prompt stood here."""
        queue = self._app.key_processor.input_queue
        following = [press.key for press in queue if press.key != Keys.CPRResponse]  # that is the terminal's own
        is_alone = self._keys_at_once == 1 and not following
        ends_lines = not following or following[-1] == Keys.ControlJ
        if not self._buffer.text or (ends_lines and not is_alone):
            self._on_enter()
        else:
            self._buffer.insert_text("\n")

    def _on_enter(self) -> None:
        buffer = self._buffer
        if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
            buffer.complete_state = None  # Enter takes the completion; the next one sends the line
        elif self._question is not None:
            self._answer(self._question, buffer.text)
        else:
            self._enter_line(buffer.text)
