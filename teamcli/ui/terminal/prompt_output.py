"""Prints above the prompt, from any thread, in whole lines and in order."""

from __future__ import annotations

import asyncio
import io
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from prompt_toolkit.application import Application, get_app_session, in_terminal
from prompt_toolkit.output import Output

from teamcli.ui.render.style import Line

PAUSE_SECONDS = 0.02
"""Between two times of printing: each draws the prompt again."""
BEGIN_FRAME, END_FRAME = "\x1b[?2026h", "\x1b[?2026l"
"""Terminals that know these show what comes in between at once, the others pass over them."""


class AbovePrompt(io.TextIOBase):
    """A stream that is printed above the running prompt.

    The terminal stays in raw mode, unlike with prompt_toolkit's own `StdoutProxy`: what is typed while it prints would
    be echoed where the cursor happens to be, and Enter would arrive as a line feed, which does not send a line.
    """

    def __init__(self) -> None:
        self._session = get_app_session()
        self._output: Output = self._session.output  # before this stream takes the place of stdout
        self._lock = threading.Lock()
        self._line = ""
        """What was written of a line that is not finished."""
        self._waiting: list[str] = []
        self._growing_then: Line = []
        """What grows once that which waits is printed."""
        self._is_begun = False
        self._printed_at = -PAUSE_SECONDS
        self.growing: Line = []
        """What still grows below the lines that are printed."""

    def put(self, text: str, growing: Line) -> None:
        """Print whole lines. `growing` takes its place with them: the end of an answer must not be missing from the
        screen, nor stand there twice, while its last line waits to be printed."""
        with self._lock:
            self._waiting += [text] if text else []
            self._growing_then = growing
            has_grown = not self._waiting and growing != self.growing
            self.growing = growing if has_grown else self.growing
        if has_grown and (app := self._session.app) is not None:
            app.invalidate()
        self._print_soon()

    def write(self, text: str) -> int:
        with self._lock:
            whole, end, self._line = (self._line + text).rpartition("\n")
            self._waiting += [whole + end] if end else []
        self._print_soon()
        return len(text)

    def close(self) -> None:
        with self._lock:
            self._waiting.append(self._line)  # the last line may have no end
            self._line = ""
        self._write_waiting()  # and what the prompt had no time for when it went
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
            if self._is_begun or not self._waiting:
                return
            self._is_begun = True
        with suppress(RuntimeError):  # the loop has just been closed, and `close` comes next
            loop.call_soon_threadsafe(self._begin, app)

    def _begin(self, app: Application[Any]) -> None:
        app.create_background_task(self._print_above(app))

    async def _print_above(self, app: Application[Any]) -> None:
        await asyncio.sleep(self._printed_at + PAUSE_SECONDS - time.monotonic())
        # Where the terminal says the cursor is holds only until something is printed.
        await app.renderer.wait_for_cpr_responses()
        if app._running_in_terminal:  # an editor, say
            async with in_terminal():
                self._write_waiting()
        else:
            with self._one_frame():
                app.renderer.erase()
                self._write_waiting()
                app.renderer.reset()
                app._request_absolute_cursor_position()
                app._redraw()
        self._printed_at = time.monotonic()

    @contextmanager
    def _one_frame(self) -> Iterator[None]:
        self._output.write_raw(BEGIN_FRAME)
        try:
            yield
        finally:
            self._output.write_raw(END_FRAME)
            self._output.flush()

    def _write_waiting(self) -> None:
        with self._lock:
            self._is_begun = False
            text, self._waiting = "".join(self._waiting), []
            self.growing = self._growing_then
            if text:
                self._output.enable_autowrap()
                self._output.write_raw(text)
                self._output.flush()
