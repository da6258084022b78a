"""The thread that renders events above the prompt. Agents only queue their events and continue."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

from teamcli.agent.events import Event, StillArriving, TextArrived, ThinkingArrived, ToolProgress
from teamcli.ui.render.event_renderer import EventRenderer
from teamcli.ui.render.style import Line
from teamcli.ui.terminal.status import StatusBoard
from teamcli.ui.terminal.views import Views

logger = logging.getLogger(__name__)

TICK_SECONDS = 0.5
"""How often the times in the status bar advance while an agent works."""
BATCH_SECONDS = 0.03
"""What streams is collected for this long: a person sees no difference, and each redraw delays the echo of keys. The
prompt itself has no minimum time between redraws, because a key would have to wait for it."""
LEAVING_SECONDS = 1.0

Render = Callable[[EventRenderer], str]
Change = Callable[[Views], str]
"""Something to print that is not an event."""


class PrintPort(Protocol):
    def put(self, text: str, growing: list[Line]) -> None:
        """Print complete lines (or none), and show the unfinished rest below them."""
        ...


class RenderThread:
    """Consumes events. Everything that is queued at one moment is printed in one go."""

    def __init__(
        self,
        views: Views,
        board: StatusBoard,
        page: PrintPort,
        redraw: Callable[[], None],
        on_event: Callable[[Event], None] = lambda event: None,
    ) -> None:
        """`on_event` is called with every event before it is shown."""
        self._views = views
        self._board = board
        self._page = page
        self._redraw = redraw
        self._on_event = on_event
        self._queue: queue.SimpleQueue[Event | Change | None] = queue.SimpleQueue()
        """None ends the thread."""
        self._thread = threading.Thread(target=self._run, name="render", daemon=True)

    def __call__(self, event: Event) -> None:
        self._queue.put(event)

    def render(self, render: Render) -> None:
        """Print something that is not an event in the view that is shown, after what is queued already."""
        self._queue.put(lambda views: views.render(render))

    def change(self, change: Change) -> None:
        """Print something that concerns all views, or switch to another, after what is queued already."""
        self._queue.put(change)

    def flush(self) -> None:
        """Wait until the page has all that is queued."""
        for _ in range(2):  # the page gets a batch as a whole; the second one comes after that
            passed = threading.Event()
            self._queue.put(partial(_pass, passed))
            passed.wait()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Print what is queued, and end."""
        self._queue.put(None)
        self._thread.join(LEAVING_SECONDS)

    def _run(self) -> None:
        while True:
            batch = self._next_batch()
            # An empty batch means that only the clocks advance.
            rendered = [self._render(item) for item in batch if item is not None] or [("", True)]
            text = "".join(text for text, _ in rendered)
            self._page.put(text, self._views.growing())
            if None in batch:
                return
            if not text and any(has_changed for _, has_changed in rendered):  # printing redraws anyway
                self._redraw()

    def _next_batch(self) -> list[Event | Change | None]:
        batch: list[Event | Change | None] = []
        try:
            # No timeout while everyone is idle: an idle team must not cost CPU.
            batch.append(self._queue.get(timeout=TICK_SECONDS if self._board.is_busy else None))
            if isinstance(batch[0], TextArrived | ThinkingArrived | StillArriving | ToolProgress):
                time.sleep(BATCH_SECONDS)
            while True:
                batch.append(self._queue.get_nowait())
        except queue.Empty:
            return _merged(batch)

    def _render(self, item: Event | Change) -> tuple[str, bool]:
        """The text to print, and whether anything on the screen changes."""
        try:
            if not isinstance(item, tuple):
                return item(self._views), True
            # What others stream is not shown, so it must not cost a redraw for each word.
            has_changed = self._board.apply(item, time.monotonic()) or item.agent == self._views.shown
            self._on_event(item)
            return self._views.show(item), has_changed
        except Exception:  # boundary: one item that cannot be shown must not end the thread
            logger.exception("cannot show %r", item)
            return "", True


def _pass(passed: threading.Event, views: Views) -> str:
    passed.set()
    return ""


def _merged(batch: list[Event | Change | None]) -> list[Event | Change | None]:
    """Join the pieces of an answer that follow each other: to render each of them alone costs more."""
    merged: list[Event | Change | None] = []
    for item in batch:
        last = merged[-1] if merged else None
        if isinstance(item, TextArrived) and isinstance(last, TextArrived) and item.agent == last.agent:
            merged[-1] = last._replace(text=last.text + item.text)
        else:
            merged.append(item)
    return merged
