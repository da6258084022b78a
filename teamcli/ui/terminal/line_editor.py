"""Editing a line at the prompt: completion, pastes, the external editor, and the details of terminal keys."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from prompt_toolkit import PromptSession
from prompt_toolkit.application import Application, in_terminal, run_in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.filters import Condition, FilterOrBool, is_searching, to_filter
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout.controls import FormattedTextControl
from prompt_toolkit.styles import Style

from teamcli.ui.terminal.completion import LineCompleter, may_be_completed
from teamcli.ui.terminal.history import LineHistory
from teamcli.ui.terminal.pastes import Pastes
from teamcli.ui.terminal.reflow import follow_resizes

ESCAPE_SECONDS = 0.05
"""How long a key sequence that starts with Esc may take. Esc alone interrupts, so it must not wait long ..."""
CHORD_SECONDS = 1.0
"""... but a person needs time to type Ctrl-X Ctrl-E."""
MENU_ROWS = 6
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

T = TypeVar("T")
Draw = Callable[[], StyleAndTextTuples]
KeyBinding = tuple[tuple[str, ...], FilterOrBool, Callable[[], object]]
"""The keys, when they apply, and what they do."""


class LineEditor:
    """A prompt that stays on the screen while lines are entered. Use it in the main thread, except where noted."""

    def __init__(
        self,
        message: Draw,
        toolbar: Draw,
        keys: Sequence[KeyBinding],
        can_complete: Callable[[], bool],
        history: Path,
        completer: LineCompleter | None,
        use_vi: bool,
    ) -> None:
        self._completer = completer
        self._pastes = Pastes()
        self._is_in_editor = False
        self._completed_from = ""
        """The line that Enter has completed last."""
        self._keys_at_once = 0
        """How many keys the event loop has received together so far."""
        bindings = KeyBindings()
        for names, when, act in keys:
            bindings.add(*names, filter=when)(lambda event, act=act: act())
        bindings.add(Keys.BracketedPaste, filter=~is_searching)(
            lambda event: self.buffer.insert_text(self._pastes.folded(event.data))
        )
        self._session: PromptSession[None] = PromptSession(
            message=message,
            bottom_toolbar=toolbar,
            history=LineHistory(history, self._pastes),
            completer=completer,
            # Only if there is something to complete: otherwise the menu would reserve empty rows below the prompt.
            complete_while_typing=Condition(
                lambda: can_complete() and may_be_completed(self.buffer.document.text_before_cursor)
            ),
            complete_in_thread=True,
            key_bindings=bindings,
            multiline=True,
            prompt_continuation=lambda width, number, wrapped: " " * width,
            editing_mode=EditingMode.VI if use_vi else EditingMode.EMACS,
            enable_suspend=True,
            tempfile_suffix=".md",
            erase_when_done=True,
            style=_STYLE,
            reserve_space_for_menu=MENU_ROWS,
        )
        app = self.app
        for window in app.layout.find_all_windows():
            # Terminals disagree on the width of some characters, and a question must be visible in full.
            if isinstance(window.content, FormattedTextControl):
                window.wrap_lines = to_filter(True)
            elif window.content is app.layout.current_control:
                # The status bar follows the line. At the bottom of the screen, the menu or a long line would leave
                # blank rows between the two when it is gone. A question fills the screen, so that no remains of it
                # stay in view when the terminal is resized.
                window.dont_extend_height = Condition(can_complete)
        follow_resizes(app, bindings)
        app.ttimeoutlen = ESCAPE_SECONDS
        app.key_processor.before_key_press += lambda _: self._count_key()
        app.key_processor.after_key_press += lambda _: self._set_chord_timeout()

    @property
    def app(self) -> Application[None]:
        return self._session.app

    @property
    def buffer(self) -> Buffer:
        return self._session.default_buffer

    @property
    def is_away(self) -> bool:
        """The user is in another program, such as an editor."""
        return self._is_in_editor

    @property
    def is_borrowed(self) -> bool:
        """The user is in an external editor or searches the history, so the line must not change."""
        return self._is_in_editor or self.app.layout.is_searching

    def run(self, on_ready: Callable[[], object]) -> None:
        """Edit lines until `exit`. `on_ready` is called once the prompt is on the screen."""
        is_ready = False

        def rendered(_: object) -> None:
            nonlocal is_ready
            if not is_ready:
                is_ready = True
                on_ready()

        self.app.after_render += rendered
        with suppress(EOFError):  # the terminal is gone
            self._session.prompt()

    def exit(self) -> None:
        """From any thread."""
        self.call_soon(lambda: self.app.exit() if self.app.is_running else None)

    def call_soon(self, call: Callable[[], object]) -> None:
        """From any thread."""
        if (loop := self.app.loop) is not None:
            loop.call_soon_threadsafe(call)

    def hand_over(self, run: Callable[[], T]) -> T:
        """From another thread: leave the terminal to `run` until it returns. What is printed meanwhile waits."""
        is_free, is_over = threading.Event(), asyncio.Event()

        async def wait() -> None:
            async with in_terminal():
                is_free.set()
                await is_over.wait()

        self.call_soon(lambda: self.app.create_background_task(wait()))
        is_free.wait()
        try:
            return run()
        finally:
            self.call_soon(is_over.set)

    def redraw_in(self, seconds: float) -> bool:
        """Returns False if the prompt is not running yet."""
        if self.app.loop is None:
            return False
        self.app.loop.call_later(seconds, self.app.invalidate)
        return True

    def replace(self, document: Document) -> None:
        self.buffer.set_document(document, bypass_readonly=True)

    def clear(self) -> None:
        self.buffer.reset()
        self.app.vi_state.reset()  # a new line starts in insert mode

    def unfold(self, text: str) -> str:
        """The text with its folded pastes in full."""
        return self._pastes.unfolded(text)

    def fold(self, text: str) -> str:
        """A line that was sent and comes back, with its pastes folded again."""
        return self._pastes.folded_again(text)

    def accept_completion(self) -> bool:
        """Keep the completion that is selected in the menu, if any."""
        state = self.buffer.complete_state
        if state is None or state.current_completion is None:
            return False
        self.buffer.complete_state = None
        return True

    def complete(self) -> None:
        """Tab: insert the first completion, or the next one.

        Finds completions here instead of waiting for the thread that looks for them: a Tab right after the text would
        be lost, or overtaken by what is typed next.
        """
        buffer = self.buffer
        if buffer.complete_state is not None and buffer.complete_state.completions:
            buffer.complete_next()
        elif self._completer is not None:
            before = buffer.document.text_before_cursor
            found = self._completer.get_completions(buffer.document, CompleteEvent(completion_requested=True))
            if useful := [each for each in found if not before.endswith(each.text)]:
                buffer._set_completions(useful)
                buffer.go_to_completion(0)
        if buffer.complete_state is not None and len(buffer.complete_state.completions) == 1:
            buffer.complete_state = None  # no choice is left, so the next Enter sends the line

    def complete_for_enter(self) -> bool:
        """Enter: complete an unfinished command or mention if there is only one way. Returns True if the line should
        not be sent yet."""
        text = self.buffer.text
        # Someone who restores the line means it as it is.
        if self._completer is None or not self.buffer.document.is_cursor_at_the_end or text == self._completed_from:
            return False
        completed = self._completer.only(text)
        if completed is None:
            return False
        self._completed_from = text
        self.replace(Document(completed.text))
        return not completed.can_be_sent

    @property
    def hint(self) -> str:
        """What is wrong with the line so far; usually empty."""
        return self._completer.hint(self.buffer.text) if self._completer else ""

    def open_editor(self) -> None:
        """Edit the line in $EDITOR."""

        def back(_: object) -> None:
            self._is_in_editor = False
            self.app.invalidate()

        buffer = self.app.current_buffer
        whole = self.unfold(buffer.text)
        if whole != buffer.text:
            buffer.set_document(Document(whole), bypass_readonly=True)
        self._is_in_editor = True
        buffer.open_in_editor(validate_and_handle=False).add_done_callback(back)

    def lend_terminal(self, use: Callable[[], None]) -> None:
        """Give the terminal to another program until `use` returns. It runs in a thread."""

        def back(_: object) -> None:
            self._is_in_editor = False
            self.app.invalidate()

        async def lend() -> None:
            await run_in_terminal(use, in_executor=True)

        self._is_in_editor = True
        self.app.create_background_task(lend()).add_done_callback(back)

    def is_end_of_line(self) -> bool:
        """Whether a line feed means Enter: a program wrote the line, or it was typed before the prompt appeared. A
        person who presses Ctrl-J sends the key alone, and wants a line break."""
        queue = self.app.key_processor.input_queue
        following = [press.key for press in queue if press.key != Keys.CPRResponse]  # which the terminal sends
        is_alone = self._keys_at_once == 1 and not following
        ends_lines = not following or following[-1] == Keys.ControlJ
        return not self.buffer.text or (ends_lines and not is_alone)

    def _count_key(self) -> None:
        def forget() -> None:
            self._keys_at_once = 0

        if not self._keys_at_once and self.app.loop is not None:
            self.app.loop.call_soon(forget)
        self._keys_at_once += 1

    def _set_chord_timeout(self) -> None:
        pressed = self.app.key_processor.key_buffer
        self.app.timeoutlen = ESCAPE_SECONDS if pressed and pressed[0].key == Keys.Escape else CHORD_SECONDS
