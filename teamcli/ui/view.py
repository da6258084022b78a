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


class View:
    """Consumes events and writes to a stream; whole pieces only, so that threads do not cut into each other's lines."""

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
                self._stream_text(event.text)
            case events.ToolFinished():
                self.say(self._tool_line(event) if self._is_terminal else tool_trace(event))
                if event.display.diff and self._is_terminal:
                    self.say(self._diff(event.display.diff))
            case events.RetryScheduled():
                reason = one_line(event.reason)
                text = f"{reason}; trying again in {event.delay_seconds:.1f} s ({event.attempt} of {event.of})"
                self.say(self.paint(text, YELLOW))
            case events.LimitHit():
                self.say(self.paint(f"{event.text}.", YELLOW))
            case events.Notice():
                colour = {Severity.ERROR: RED, Severity.WARNING: YELLOW}.get(event.severity, DIM)
                self.say(self.paint(neutralise(event.text), colour))

    def say(self, text: str) -> None:
        """Write whole lines."""
        with self._lock:
            self._stream.write(("\n" if self._in_text else "") + text + "\n")
            self._stream.flush()
            self._in_text = False

    def progress(self, text: str) -> None:
        self._stream_text(text)

    def paint(self, text: str, colour: str) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if self._colour else text

    def end_turn(self, ended: TurnEnded) -> None:
        with self._lock:
            if self._in_text:
                self._stream.write("\n")
                self._in_text = False
            self._stream.flush()
        if ended.outcome is Outcome.INTERRUPTED:
            self.say(self.paint("Interrupted", YELLOW))

    def show_question(self, question: Question) -> None:
        self.say(self.paint(f"{question.agent} wants to use {question.tool}:", YELLOW))
        self.say("  " + neutralise(question.display.title).replace("\n", "\n  "))
        if question.display.diff:
            self.say(self._diff(question.display.diff))

    def banner(self) -> None:
        """Three lines: what this is, what is on, what to type."""
        session = self._session
        self.say(f"{self.paint('teamcli', CYAN)} · {session.model} · {session.workspace.root}")
        for note in session.notes:
            self.say(self.paint(note, YELLOW))
        self.say(self.paint("Type a task, or /help. Ctrl-C ends a turn, q leaves.", DIM))

    def farewell(self) -> None:
        self.say(self.paint(f"{self._session.cost_line()} Go on with: teamcli --continue", DIM))

    def _stream_text(self, text: str) -> None:
        if not text:
            return
        with self._lock:
            self._stream.write(neutralise(text))
            self._stream.flush()
            self._in_text = not text.endswith("\n")

    def _tool_line(self, event: events.ToolFinished) -> str:
        outcome = one_line(event.content, 200) if event.is_error else ""
        mark = self.paint("✗", RED) if event.is_error else self.paint("✓", GREEN)
        title = one_line(event.display.title, 120)
        return f"{mark} {title} {self.paint(f'({event.seconds:.1f} s)', DIM)}" + (f"\n  {outcome}" if outcome else "")

    def _diff(self, diff: str) -> str:
        lines = neutralise(diff).splitlines()
        shown = [self.paint(line, {"+": GREEN, "-": RED}.get(line[:1], DIM)) for line in lines[:PREVIEW_LINES]]
        more = [self.paint(f"… {len(lines) - PREVIEW_LINES} more lines", DIM)] if len(lines) > PREVIEW_LINES else []
        return "\n".join("  " + line for line in shown + more)


def tool_trace(event: events.ToolFinished) -> str:
    """A call in a pipe or log: `> bash: its output`."""
    return f"> {event.tool}: {one_line(event.content, 200)}"
