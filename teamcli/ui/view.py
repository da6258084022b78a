"""The session as text on a terminal or in a pipe: the answer as it streams, a line for each tool call, notices."""

from __future__ import annotations

import os
import threading
from typing import TextIO

from teamcli.agent import events
from teamcli.agent.approval import Question
from teamcli.agent.events import Event, Outcome, Severity, TurnEnded
from teamcli.plain import neutralise, one_line
from teamcli.session import Session

DIM, CYAN, YELLOW, RED, GREEN = "2", "36", "33", "31", "32"
PREVIEW_LINES = 40

Piece = tuple[str, str]
"""Text and the colour it is shown in; no colour is the empty text."""


class View:
    """Consumes events and writes to a stream. All text passes through here, so nothing can drive the terminal."""

    def __init__(self, stream: TextIO, session: Session) -> None:
        self._stream = stream
        self._session = session
        self._lock = threading.Lock()
        self._in_text = False
        """Whether the last thing written was a piece of an answer, its line still open."""
        self._is_terminal = stream.isatty()
        self._colour = self._is_terminal and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"

    def __call__(self, event: Event) -> None:
        match event:
            case events.TextArrived():
                self.stream_text(event.text)
            case events.ToolFinished() if not self._is_terminal:
                self.say(f"> {event.tool}: {one_line(event.content, 200)}")
            case events.ToolFinished():
                self._write(*_tool_line(event), *_diff(event.display.diff))
            case events.RetryScheduled():
                reason = one_line(event.reason)
                text = f"{reason}; trying again in {event.delay_seconds:.1f} s ({event.attempt} of {event.of})"
                self.say(text, YELLOW)
            case events.LimitHit():
                self.say(f"{event.text}.", YELLOW)
            case events.Notice():
                self.say(event.text, {Severity.ERROR: RED, Severity.WARNING: YELLOW}.get(event.severity, DIM))

    def say(self, text: str, colour: str = "") -> None:
        """Write whole lines."""
        self._write([(text, colour)])

    def stream_text(self, text: str) -> None:
        """Write a part of a line."""
        if not text:
            return
        with self._lock:
            self._stream.write(neutralise(text))
            self._stream.flush()
            self._in_text = not text.endswith("\n")

    def paint(self, text: str, colour: str) -> str:
        shown = neutralise(text)
        return f"\x1b[{colour}m{shown}\x1b[0m" if self._colour and colour else shown

    def end_turn(self, ended: TurnEnded) -> None:
        self._write()
        if ended.outcome is Outcome.INTERRUPTED:
            self.say("Interrupted", YELLOW)

    def show_question(self, question: Question) -> None:
        """Who asks, and everything that would happen."""
        what = question.display.text or question.display.title
        self._write(
            [(f"{question.agent} wants to use {question.tool}:", YELLOW)],
            *([("  " + line, "")] for line in what.splitlines()),
            *_diff(question.display.diff, whole=True),
        )

    def banner(self) -> None:
        """What this is, what is on, what to type."""
        session = self._session
        self._write(
            [("teamcli", CYAN), (f" · {session.model} · {session.workspace.root}", "")],
            *([(note, YELLOW)] for note in session.notes),
            [("Type a task, or /help. Ctrl-C ends a turn, q leaves.", DIM)],
        )

    def farewell(self) -> None:
        self.say(f"{self._session.cost_line()} Go on with: teamcli --continue", DIM)

    def _write(self, *lines: list[Piece]) -> None:
        """Finish an open line, then write these, in one step."""
        shown = ["".join(self.paint(text, colour) for text, colour in line) + "\n" for line in lines]
        with self._lock:
            self._stream.write("\n" * self._in_text + "".join(shown))
            self._stream.flush()
            self._in_text = False


def _tool_line(event: events.ToolFinished) -> list[list[Piece]]:
    mark = ("✗ ", RED) if event.is_error else ("✓ ", GREEN)
    line = [mark, (one_line(event.display.title, 120), ""), (f" ({event.seconds:.1f} s)", DIM)]
    return [line, [("  " + one_line(event.content, 200), "")]] if event.is_error else [line]


def _diff(diff: str, whole: bool = False) -> list[list[Piece]]:
    lines = diff.splitlines()
    shown = lines if whole else lines[:PREVIEW_LINES]
    pieces = [[("  " + line, {"+": GREEN, "-": RED}.get(line[:1], DIM))] for line in shown]
    return pieces if len(shown) == len(lines) else [*pieces, [(f"  … {len(lines) - len(shown)} more lines", DIM)]]
