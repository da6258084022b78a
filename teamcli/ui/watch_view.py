"""What `teamcli watch` prints: at a terminal as the REPL shows it, in a pipe as plain lines, or as JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TextIO

from teamcli.agent import events
from teamcli.agent.events import Event, Outcome
from teamcli.session.event_codec import encode_event
from teamcli.text.console import cell_width, shorten
from teamcli.text.escaping import escape_controls, one_line
from teamcli.ui.render.event_renderer import EventRenderer, Screen, is_shown_as_mail
from teamcli.ui.render.open_line import OpenLine
from teamcli.ui.render.style import DIM, YELLOW, AgentColors, Line, TerminalStyle

BEGIN_FRAME, END_FRAME = "\x1b[?2026h", "\x1b[?2026l"
"""Terminals that support these show everything in between at once; others ignore them."""


class WatchView(Protocol):
    def show(self, shown: Iterable[Event]) -> None: ...

    def say(self, text: str) -> None:
        """A remark of the program itself."""

    def finish(self) -> None:
        """Print what is incomplete."""


def question(event: events.PermissionAsked) -> str:
    return f"{event.agent} asks: {one_line(event.title, 400)}. Answer at the lead's prompt."


class TerminalWatchView:
    """Complete lines are printed. The end of an unfinished answer, and what runs, are drawn again below them."""

    def __init__(self, stream: TextIO, focus: str, names: Sequence[str], is_verbose: bool) -> None:
        self._stream = stream
        self._style = TerminalStyle.of(stream)
        self._focus = focus
        self._can_redraw = os.environ.get("TERM") != "dumb"
        self._open_line = OpenLine()
        self._renderer = EventRenderer(
            self._style, AgentColors(names), Screen(continues_lines=self._can_redraw and bool(focus)), focus
        )
        if is_verbose:
            self._renderer.set_verbose(True)
        self._tail: list[Line] = []
        self._running: dict[str, str] = {}
        """Titles of running calls, by id."""

    def show(self, shown: Iterable[Event]) -> None:
        self._put("".join(map(self._text, shown)))

    def say(self, text: str) -> None:
        self._put(self._renderer.note(text, DIM))

    def finish(self) -> None:
        self._running = {}
        self._put(self._renderer.unfinished(), is_over=True)

    def _text(self, event: Event) -> str:
        text = self._renderer.show(event)
        match event:
            case events.PermissionAsked():
                return self._renderer.note(question(event), YELLOW)
            case events.RetryScheduled():
                return self._renderer.note(event.text, YELLOW) if event.is_news else ""
            case events.StatusChanged():
                return self._renderer.note(_line(event), YELLOW) if _line(event) else ""
            case events.ToolStarted():
                name = "" if self._focus else f"{event.agent}: "
                self._running[event.call_id] = name + event.display.title
            case events.ToolFinished():
                self._running.pop(event.call_id, None)
            case events.TurnEnded():
                self._running = {}
        return text

    def _put(self, text: str, is_over: bool = False) -> None:
        tail = [] if is_over or not self._can_redraw else self._growing()
        if not text and tail == self._tail:
            return
        drawn = "\n".join(self._style.paint(line) for line in tail)
        if self._can_redraw:
            text = self._open_line.continued(text, self._style.width()) if text else ""
            text = f"{BEGIN_FRAME}{self._erase()}{text}{drawn}{END_FRAME}"
        self._stream.write(text)
        self._stream.flush()
        self._tail = tail

    def _growing(self) -> list[Line]:
        room = self._style.width() - 5
        running: list[Line] = [[("  … " + shorten(one_line(each, 400), room), DIM)] for each in self._running.values()]
        return [*self._renderer.growing(), *running[-3:]]

    def _erase(self) -> str:
        if not self._tail:
            return ""
        # The terminal may be narrower than when these lines were drawn, and has wrapped them.
        width = max(1, self._style.width())
        rows = sum(max(1, -(-sum(cell_width(text) for text, _ in line) // width)) for line in self._tail)
        # Line by line: tmux keeps what is erased from the top of its screen to the end in its scrollback.
        return "\r\x1b[2K" + "\x1b[A\x1b[2K" * (rows - 1)


class PlainWatchView:
    """Whole lines. Everything is escaped here, so no text can control a terminal."""

    def __init__(self, stream: TextIO, focus: str, is_verbose: bool) -> None:
        self._stream = stream
        self._focus = focus
        self._is_verbose = is_verbose
        self._unfinished: dict[str, str] = {}
        """The line that an agent has not finished, by agent."""
        self._thoughts: dict[str, str] = {}

    def show(self, shown: Iterable[Event]) -> None:
        for event in shown:
            self._show(event)
        self._stream.flush()

    def say(self, text: str) -> None:
        self._print(text)
        self._stream.flush()

    def finish(self) -> None:
        for agent in tuple(self._unfinished):
            self._end_text(agent)
        self._stream.flush()

    def _show(self, event: Event) -> None:
        match event:
            case events.TextArrived():
                self._add_text(event.agent, event.text)
            case events.ThinkingArrived() if self._is_verbose:
                self._thoughts[event.agent] = self._thoughts.get(event.agent, "") + event.text
            case events.RetryScheduled():
                self._unfinished.pop(event.agent, None)
                self._thoughts.pop(event.agent, None)
                self._say_of(event.agent, event.text if event.is_news else "")
            case events.Recorded() if event.message.role == "assistant":
                self._end_text(event.agent)
            case events.TurnEnded():
                self._end_text(event.agent)
                self._say_of(event.agent, "Interrupted" if event.outcome is Outcome.INTERRUPTED else "")
            case events.ToolFinished() if is_shown_as_mail(event) and not self._is_verbose:
                pass
            case events.MailSent() | events.TaskChanged() | events.PermissionAsked() | events.StatusChanged():
                self._print(_line(event))  # it names the agent anyway
            case _:
                self._say_of(event.agent, _line(event))

    def _add_text(self, agent: str, text: str) -> None:
        if thought := self._thoughts.pop(agent, "").strip():
            for line in thought.splitlines():
                self._say_of(agent, f"(thought) {line}")
        whole, newline, self._unfinished[agent] = (self._unfinished.get(agent, "") + text).rpartition("\n")
        for line in whole.split("\n") if newline else ():
            self._print(line if self._focus else f"{agent}: {line}".rstrip(), may_be_empty=True)

    def _end_text(self, agent: str) -> None:
        self._add_text(agent, "")
        self._say_of(agent, self._unfinished.pop(agent, ""))

    def _say_of(self, agent: str, text: str) -> None:
        self._print(text if self._focus or not text else f"{agent}: {text}")

    def _print(self, text: str, may_be_empty: bool = False) -> None:
        if text or may_be_empty:
            self._stream.write(escape_controls(text) + "\n")


def _line(event: Event) -> str:
    """An event in one line; empty for those that are not shown."""
    match event:
        case events.LineTaken():
            return f"team >> {one_line(event.text, 400)}"
        case events.ToolFinished():
            sign = "⊘" if event.refusal else "✗" if event.is_error else ">"
            outcome = event.refusal.text if event.refusal else event.content
            return f"{sign} {one_line(event.display.title, 200)}: {one_line(outcome, 200)}"
        case events.MailSent():
            kind = "" if event.type == "message" else f" ({event.type})"
            return f"{event.agent} → {event.to}{kind}: {one_line(event.content, 400)}"
        case events.PermissionAsked():
            return question(event)
        case events.StatusChanged(status="shutdown"):
            return f"{event.agent} was shut down."
        case events.TaskChanged():
            return f"{event.agent}: {event.text}"
        case events.Notice() | events.Compacted() | events.MergeEnded() | events.LimitHit():
            return event.text
    return ""


class JsonWatchView:
    """One JSON object per line and event."""

    def __init__(self, stream: TextIO, say: Callable[[str], None]) -> None:
        """`say` takes remarks, which are not for the program that reads this."""
        self._stream = stream
        self.say = say

    def show(self, shown: Iterable[Event]) -> None:
        for event in shown:
            self._stream.write(json.dumps(encode_event(event)) + "\n")
        self._stream.flush()

    def finish(self) -> None:
        pass
