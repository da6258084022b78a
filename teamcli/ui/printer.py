"""Prints above the prompt, from any thread, in whole lines and in order."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Any

from prompt_toolkit.application import Application, in_terminal
from prompt_toolkit.patch_stdout import StdoutProxy

PAUSE_SECONDS = 0.02
"""Between two times of printing: each draws the prompt again."""


class AbovePrompt(StdoutProxy):
    """Leaves the terminal in raw mode, unlike the class it comes from: what is typed while it prints would be echoed
    where the cursor happens to be, and Enter would arrive as a line feed, which does not send a line."""

    def __init__(self) -> None:
        self._waiting: list[str] = []
        self._waiting_lock = threading.Lock()
        super().__init__(raw=True, sleep_between_writes=PAUSE_SECONDS)

    def close(self) -> None:
        super().close()
        self._write_waiting()  # what the prompt had no time for when it went

    def _write_and_flush(self, loop: asyncio.AbstractEventLoop | None, text: str) -> None:
        with self._waiting_lock:
            self._waiting.append(text)
        if loop is None:
            self._write_waiting()
            return
        with suppress(RuntimeError):  # the loop has just been closed, and `close` comes next
            loop.call_soon_threadsafe(self._begin)

    def _begin(self) -> None:
        if (app := self.app_session.app) is not None:
            app.create_background_task(self._print_above(app))

    async def _print_above(self, app: Application[Any]) -> None:
        # Where the terminal says the cursor is holds only until something is printed.
        await app.renderer.wait_for_cpr_responses()
        if app._running_in_terminal:  # an editor, say
            async with in_terminal():
                self._write_waiting()
        elif self._waiting:
            app.renderer.erase()
            self._write_waiting()
            app.renderer.reset()
            app._request_absolute_cursor_position()
            app._redraw()

    def _write_waiting(self) -> None:
        with self._waiting_lock:
            text, self._waiting = "".join(self._waiting), []
            if text:
                self._output.enable_autowrap()
                self._output.write_raw(text)
                self._output.flush()
