"""The thread that puts above the prompt what happens; agents only leave their events here and work on."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Protocol

from teamcli.agent.events import Event, StillArriving, TextArrived, ThinkingArrived
from teamcli.session.session import LEAD
from teamcli.ui.render.event_renderer import EventRenderer
from teamcli.ui.render.style import Line
from teamcli.ui.terminal.status import StatusBoard

logger = logging.getLogger(__name__)

TICK_SECONDS = 0.5
"""How often the times in the bar move while somebody works."""
GATHERING_SECONDS = 0.01
"""What streams in within this time is shown at once: a person sees no difference, and who types waits for less."""
LEAVING_SECONDS = 1.0

Paint = Callable[[EventRenderer], str]


class Page(Protocol):
    def put(self, text: str, growing: Line) -> None:
        """Add whole lines (or none), and show below them what still grows."""
        ...


class _Stop:
    pass


class RenderThread:
    """Consumes events. What is read from the queue in one go is written in one go."""

    def __init__(self, scroll: EventRenderer, board: StatusBoard, page: Page, redraw: Callable[[], None]) -> None:
        self._scroll = scroll
        self._board = board
        self._page = page
        self._redraw = redraw
        self._queue: queue.SimpleQueue[Event | Paint | _Stop] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="painter", daemon=True)
        self._has_changed = False
        self.before: Callable[[Event], None] = lambda event: None
        """Told of every event before it is shown."""

    def __call__(self, event: Event) -> None:
        self._queue.put(event)

    def paint(self, paint: Paint) -> None:
        """Put something above the prompt, in its turn."""
        self._queue.put(paint)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Write what has come so far."""
        self._queue.put(_Stop())
        self._thread.join(LEAVING_SECONDS)

    def _run(self) -> None:
        while True:
            batch = self._next_batch()
            self._has_changed = not batch  # it is time to move the clocks
            text = "".join(self._text(item) for item in batch if not isinstance(item, _Stop))
            self._page.put(text, self._scroll.growing())
            if any(isinstance(item, _Stop) for item in batch):
                return
            if self._has_changed and not text:  # printing draws everything again
                self._redraw()

    def _next_batch(self) -> list[Event | Paint | _Stop]:
        """All that has come; nothing when it is only time to move the clocks."""
        batch: list[Event | Paint | _Stop] = []
        try:
            batch.append(self._queue.get(timeout=TICK_SECONDS if self._board.is_busy else None))
            if _merely_streams(batch[0]):
                time.sleep(GATHERING_SECONDS)
            while True:
                batch.append(self._queue.get_nowait())
        except queue.Empty:
            return batch

    def _text(self, item: Event | Paint) -> str:
        try:
            if not isinstance(item, tuple):
                self._has_changed = True
                return item(self._scroll)
            # What teammates stream is not shown, and must not cost a drawing for each word.
            self._has_changed |= self._board.apply(item, time.monotonic()) or item.agent == LEAD
            self.before(item)
            return self._scroll.show(item)
        except Exception:  # boundary: one thing that cannot be shown must not end the showing
            logger.exception("cannot show %r", item)
            return ""


def _merely_streams(item: Event | Paint | _Stop) -> bool:
    return isinstance(item, TextArrived | ThinkingArrived | StillArriving)
