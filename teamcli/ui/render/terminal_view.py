"""The session at a terminal that has no live prompt: all lines in their colours, as they scroll by."""

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
    """Serves as `PlainView` does in a pipe."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._style = TerminalStyle.of(stream)
        self._scroll = EventRenderer(self._style, AgentColors())
        self._unfinished = ""
        """What a command of the user's own has printed of a line."""

    def __call__(self, event: Event) -> None:
        if not isinstance(event, events.LineTaken):  # whoever wrote the line shows it
            with self._lock:
                self._put(self._scroll.show(event))

    def show(self, shown: CommandOutput) -> None:
        if isinstance(shown, Table):
            self._add(lambda: self._scroll.table(shown))
        else:
            super().show(shown)

    def say(self, text: str) -> None:
        if text:  # a blank line stands wherever one thing ends and another begins
            self._add(lambda: self._scroll.note(text))

    def begin(self, title: str, text: str) -> None:
        self._add(lambda: self._scroll.prose(self._style.paint([(title, BOLD), (f"\n{text}", PLAIN)]), "part"))

    def typed(self, line: str) -> None:
        self._add(lambda: self._scroll.typed(line))

    def stream_text(self, text: str) -> None:
        with self._lock:
            whole, _, self._unfinished = (self._unfinished + text).rpartition("\n")
            self._put(self._scroll.output(whole) if whole else "")

    def _add(self, text: Callable[[], str]) -> None:
        """Below whatever stands there, also below a line that was not finished."""
        with self._lock:
            rest, self._unfinished = self._unfinished, ""
            self._put((self._scroll.output(rest) if rest else "") + text())

    def _put(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
