"""Finds the prompt again after the terminal was resized.

prompt_toolkit erases the prompt relative to the cursor. Most terminals wrap the rows on the screen again when their
width changes. Then the prompt takes more rows than were drawn, and what is not erased stays behind for good.
"""

from __future__ import annotations

import os
from asyncio import Future
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from prompt_toolkit.application import Application
from prompt_toolkit.data_structures import Point
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import Layout
from prompt_toolkit.layout.screen import Screen
from prompt_toolkit.output import Output
from prompt_toolkit.renderer import CPR_Support, Renderer
from prompt_toolkit.styles import BaseStyle

from teamcli.ui.render.open_line import wraps_again

TO_THE_MARGIN, SAVE_CURSOR, RESTORE_CURSOR = "\x1b[9999C", "\x1b7", "\x1b8"
ERASE_DOWN = f"\x1b[K{SAVE_CURSOR}\x1b[B\x1b[J{RESTORE_CURSOR}"
"""In two steps, because tmux moves the whole screen into its history if all of it is erased in one."""


class _Request(NamedTuple):
    """Why the terminal was asked where the cursor is."""

    is_at_top: bool = False
    """For prompt_toolkit, with the cursor in the first row of the prompt. If not, the cursor is at the margin."""
    lengths: list[int] | None = None
    """The rows above the cursor that have just been drawn."""


class ReflowRenderer(Renderer):
    """A renderer that erases all rows of the prompt, also if the terminal has wrapped them again.

    The terminal wraps only what it has shown before it was resized, and does not say when that was. The size that the
    system reports may be late. So the terminal itself is asked how wide it is, after each drawing and before each
    erasing: the cursor goes to the margin, and its position is requested.
    """

    def __init__(self, style: BaseStyle, output: Output) -> None:
        self._requests: deque[_Request] = deque()
        self._measured: int | None = None
        super().__init__(style, output)

    def reset(self, _scroll: bool = False, leave_alternate_screen: bool = True) -> None:
        self._shown: list[int] = []
        """The lengths of the rows above the cursor that the terminal has surely shown ..."""
        self._shown_columns = 0
        """... and how wide it was."""
        self._asked: list[int] = []
        """Those about which it was asked last."""
        super().reset(_scroll, leave_alternate_screen)

    @property
    def columns(self) -> int:
        """How wide the terminal is, as far as is known."""
        return self._measured or self.output.get_size().columns

    async def measure(self) -> None:
        """Ask the terminal how wide it is."""
        self._measured = None
        if self._can_measure:
            self._ask(_Request())
            await self.wait_for_cpr_responses()

    async def wait_for_cpr_responses(self, timeout: int = 1) -> None:
        """Until none is missing, also if more are requested meanwhile: a program that gets the terminal next would take
        an answer for typed keys."""
        while self._waiting_for_cpr_futures and self.cpr_support is not CPR_Support.NOT_SUPPORTED:
            await super().wait_for_cpr_responses(timeout)

    def render(self, app: Application[Any], layout: Layout, is_done: bool = False) -> None:
        size = self.output.get_size()
        if self._last_size and self._last_size.columns != size.columns and self._can_measure and not is_done:
            return  # it will be erased first
        super().render(app, layout, is_done)
        if self._last_screen is not None and self._can_measure:
            self._note_drawing(lengths_above(self._last_screen, self._cursor_pos))

    def erase(self, leave_alternate_screen: bool = True) -> None:
        if self._shown_columns not in (0, self.columns) and self._last_screen is not None:
            self._cursor_pos = self._wrapped_cursor(lengths_above(self._last_screen, self._cursor_pos))
        super().erase(leave_alternate_screen)

    def request_absolute_cursor_position(self) -> None:
        before = len(self._waiting_for_cpr_futures)
        super().request_absolute_cursor_position()
        if len(self._waiting_for_cpr_futures) > before:
            self._requests.append(_Request(is_at_top=True))

    def report(self, row: int, column: int) -> None:
        """The terminal has answered."""
        request = self._requests.popleft() if self._requests else _Request(is_at_top=True)
        if request.is_at_top:
            self.report_absolute_cursor_row(row)
            return
        if request.lengths is None:
            self._measured = column
        elif column == self._shown_columns:
            self._shown = request.lengths
        if self._waiting_for_cpr_futures:
            self._waiting_for_cpr_futures.popleft().set_result(None)

    @property
    def _can_measure(self) -> bool:
        return self.cpr_support is CPR_Support.SUPPORTED and wraps_again(os.environ)

    def _note_drawing(self, lengths: list[int]) -> None:
        if not self._shown_columns:
            self._shown, self._shown_columns = lengths, self.columns
            self._asked = lengths
        elif lengths != self._asked:
            self._asked = lengths
            self._ask(_Request(lengths=lengths))

    def _ask(self, request: _Request) -> None:
        self._requests.append(request)
        self._waiting_for_cpr_futures.append(Future())
        self.output.write_raw(SAVE_CURSOR + TO_THE_MARGIN)
        self.output.ask_for_cpr()
        self.output.write_raw(RESTORE_CURSOR)
        self.output.flush()

    def _wrapped_cursor(self, drawn: list[int]) -> Point:
        """Where the cursor is, counted from the first row of the prompt, since the terminal has wrapped its rows."""
        columns, x = self.columns, self._cursor_pos.x
        # If the terminal may have shown the last drawing before or after it was resized, erase too little.
        rows = min(wrapped_rows(drawn, columns), wrapped_rows(self._shown, columns) + len(drawn) - len(self._shown))
        return Point(x=x % columns, y=max(0, rows) + x // columns)


def follow_resizes(app: Application[None], bindings: KeyBindings) -> None:
    """Let the application find its prompt again after the terminal was resized."""
    renderer = ReflowRenderer(app._merged_style, app.output)  # without a warning if the terminal does not report
    redraw = app._on_resize

    async def resize() -> None:
        if not is_lent(app):
            await renderer.wait_for_cpr_responses()
            await renderer.measure()
        if not is_lent(app):  # after that, all is drawn again anyway
            redraw()

    @bindings.add(Keys.CPRResponse, save_before=lambda event: False)
    def _(event: KeyPressEvent) -> None:
        row, column = map(int, event.data[2:-1].split(";"))
        renderer.report(row, column)

    app.renderer = renderer
    app.output.erase_down = lambda: app.output.write_raw(ERASE_DOWN)  # type: ignore[method-assign]
    app._on_resize = lambda: app.create_background_task(resize())  # type: ignore[method-assign, assignment]


def is_lent(app: Application[Any]) -> bool:
    """Whether another program has the terminal, or will get it as soon as the terminal has answered all requests."""
    lent = app._running_in_terminal_f
    return lent is not None and not lent.done()


def lengths_above(screen: Screen, cursor: Point) -> list[int]:
    """How many cells of each row above the cursor are in use."""
    rows = (screen.data_buffer[row].items() for row in range(cursor.y))
    return [max((column + cell.width for column, cell in row if cell.char != " "), default=0) for row in rows]


def wrapped_rows(lengths: Sequence[int], columns: int) -> int:
    """How many rows a terminal needs for rows of these lengths."""
    return sum(max(1, -(-length // columns)) for length in lengths)
