"""The session at a terminal without a live prompt, in color."""

from __future__ import annotations

from collections.abc import Callable
from typing import TextIO

from teamcli.agent import events
from teamcli.agent.events import Event
from teamcli.commands.base import CommandOutput, Table
from teamcli.ui.render.event_renderer import EventRenderer
from teamcli.ui.render.plain_view import PlainView
from teamcli.ui.render.style import BOLD, PLAIN, AgentColors, TerminalStyle


class TerminalView(PlainView):
    """The counterpart of `PlainView`, for a terminal."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._style = TerminalStyle.of(stream)
        self._renderer = EventRenderer(self._style, AgentColors())
        self._unfinished = ""
        """The line that a command of the user has not finished."""

    def __call__(self, event: Event) -> None:
        if not isinstance(event, events.LineTaken):  # `typed` shows it
            with self._lock:
                self._put(self._renderer.show(event))

    def show(self, shown: CommandOutput) -> None:
        if isinstance(shown, Table):
            self._add(lambda: self._renderer.table(shown))
        else:
            super().show(shown)

    def say(self, text: str) -> None:
        if text:  # the renderer decides on blank lines
            self._add(lambda: self._renderer.note(text))

    def begin(self, title: str, text: str) -> None:
        self._add(lambda: self._renderer.prose(self._style.paint([(title, BOLD), (f"\n{text}", PLAIN)]), "part"))

    def typed(self, line: str) -> None:
        self._add(lambda: self._renderer.typed(line))

    def stream_text(self, text: str) -> None:
        with self._lock:
            whole, _, self._unfinished = (self._unfinished + text).rpartition("\n")
            self._put(self._renderer.output(whole) if whole else "")

    def _add(self, text: Callable[[], str]) -> None:
        """Print something, after the rest of a line that was not finished."""
        with self._lock:
            rest, self._unfinished = self._unfinished, ""
            self._put((self._renderer.output(rest) if rest else "") + text())

    def _put(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
