"""Printing above the prompt: from any thread, in whole lines and in order."""

from __future__ import annotations

import asyncio
import io
import threading
import time
from contextlib import suppress
from typing import Any

from prompt_toolkit.application import Application, get_app_session, in_terminal
from prompt_toolkit.output import Output
from prompt_toolkit.renderer import Renderer

from teamcli.text.console import rows_of
from teamcli.ui.render.open_line import OpenLine
from teamcli.ui.render.style import Line
from teamcli.ui.terminal.reflow import ReflowRenderer, is_lent

PAUSE_SECONDS = 0.02
"""The minimum time between two prints, because each redraws the prompt."""
BEGIN_FRAME, END_FRAME = "\x1b[?2026h", "\x1b[?2026l"
"""Terminals that support these show everything in between at once; others ignore them."""


class AbovePrompt(io.TextIOBase):
    """A stream that is printed above the running prompt.

    Unlike prompt_toolkit's `StdoutProxy` it keeps the terminal in raw mode. In cooked mode, keys typed while it prints
    would be echoed at the cursor, and Enter would arrive as a line feed, which does not send a line.
    """

    def __init__(self) -> None:
        self._session = get_app_session()
        self._output: Output = self._session.output  # before this stream replaces stdout
        self._lock = threading.Lock()
        self._line = ""
        """The unfinished last line of `write`."""
        self._waiting: list[str] = []
        self._growing_next: list[Line] = []
        """What `growing` becomes once the waiting lines are printed."""
        self._is_scheduled = False
        self._printed_at = -PAUSE_SECONDS
        self._open_line = OpenLine()
        self.growing: list[Line] = []
        """Unfinished output, shown below the printed lines."""

    def put(self, text: str, growing: list[Line]) -> None:
        """Print text, and show `growing` from the moment it is printed: while the last line of an answer waits to be
        printed, it must be neither missing from the screen nor shown twice. If the text does not end with a newline,
        what is printed next continues its last line."""
        with self._lock:
            self._waiting += [text] if text else []
            self._growing_next = growing
            has_grown = not self._waiting and growing != self.growing
            self.growing = growing if has_grown else self.growing
        if has_grown and (app := self._session.app) is not None:
            app.invalidate()
        self._print_soon()

    def write(self, text: str) -> int:
        with self._lock:
            whole, end, self._line = (self._line + text).rpartition("\n")
            is_open = (self._waiting[-1] if self._waiting else self._open_line.text)[-1:] not in ("", "\n")
            self._waiting += ["\n" * is_open + whole + end] if end else []
        self._print_soon()
        return len(text)

    def write_now(self) -> None:
        """Print what waits, while the prompt has left the terminal to something else."""
        self._open_line = OpenLine()  # nobody knows where the cursor is
        self._write_waiting()

    def close(self) -> None:
        with self._lock:
            self._waiting.append(self._line)  # the last line may lack a newline
            self._line = ""
        self._write_waiting()  # what the prompt did not print before it ended
        super().close()

    def isatty(self) -> bool:
        return self._output.stdout is not None and self._output.stdout.isatty()

    def fileno(self) -> int:
        return self._output.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._output.encoding()

    def _print_soon(self) -> None:
        app = self._session.app
        loop = app.loop if app else None
        if app is None or loop is None:
            self._write_waiting()
            return
        with self._lock:
            if self._is_scheduled or not self._waiting:
                return
            self._is_scheduled = True
        with suppress(RuntimeError):  # the loop has just closed, and `close` follows
            loop.call_soon_threadsafe(lambda: app.create_background_task(self._print_above(app)))

    async def _print_above(self, app: Application[Any]) -> None:
        await asyncio.sleep(self._printed_at + PAUSE_SECONDS - time.monotonic())
        if not is_lent(app):
            # The cursor position that the terminal reports is outdated once something is printed.
            await app.renderer.wait_for_cpr_responses()
            if isinstance(app.renderer, ReflowRenderer):
                await app.renderer.measure()
        if is_lent(app):  # for example to an editor
            async with in_terminal():
                self._open_line = OpenLine()  # another program has moved the cursor
                self._write_waiting()
        else:
            self._output.write_raw(BEGIN_FRAME)
            left = _rows_to_the_bottom(app.renderer)
            is_known = left > 0
            try:
                app.renderer.erase()
                left -= self._write_waiting()
                app.renderer.reset()
                # The terminal has not reported yet how many there are. Without a guess the status bar would flicker.
                app.renderer._min_available_height = max(1, left) if is_known else 0
                app._request_absolute_cursor_position()
                app._redraw()
            finally:
                self._output.write_raw(END_FRAME)
                self._output.flush()
        self._printed_at = time.monotonic()

    def _write_waiting(self) -> int:
        """Returns how many rows it takes."""
        rows = 0
        with self._lock:
            self._is_scheduled = False
            text, self._waiting = "".join(self._waiting), []
            self.growing = self._growing_next
            if text:
                self._output.enable_autowrap()
                renderer = self._session.app.renderer if self._session.app else None
                columns = renderer.columns if isinstance(renderer, ReflowRenderer) else self._output.get_size().columns
                before = self._open_line.text
                self._output.write_raw(self._open_line.continued(text, columns))
                self._output.flush()
                rows = rows_of(before + text, columns) - (rows_of(before, columns) if before else 0)
        return rows


def _rows_to_the_bottom(renderer: Renderer) -> int:
    """From the first row of the prompt; 0 if that is unknown."""
    known = renderer._min_available_height
    return max(known, renderer._last_screen.height if renderer._last_screen else 0) if known else 0
