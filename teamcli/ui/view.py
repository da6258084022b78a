"""The session as text on a terminal or in a pipe: the answer as it streams, a line for each tool call, notices."""

from __future__ import annotations

import threading
from typing import TextIO

from teamcli.agent import events
from teamcli.agent.approval import Question
from teamcli.agent.events import Event, Outcome, Severity
from teamcli.plain import has_colour, neutralise, one_line
from teamcli.session import LEAD, Session

DIM, CYAN, MAGENTA, YELLOW, RED, GREEN = "2", "36", "35", "33", "31", "32"
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
        self._whole_lines = False
        self._pending = ""
        """Of an open line: what is not written yet."""
        self._is_terminal = stream.isatty()
        self._colour = has_colour(stream)

    def __call__(self, event: Event) -> None:
        match event:
            case events.TextArrived() if event.agent == LEAD:
                self.stream_text(event.text)
            case events.ToolFinished() if not self._is_terminal:
                self.say(tool_trace(event))
            case events.ToolFinished():
                self._write(*_tool_line(event), *_diff(event.display.diff))
            case events.MailSent():
                self._show_mail(event)
            case events.TurnEnded() if event.agent == LEAD:
                self._write(*([[("Interrupted", YELLOW)]] if event.outcome is Outcome.INTERRUPTED else []))
            case events.RetryScheduled():
                reason = one_line(event.reason)
                text = f"{reason}; trying again in {event.delay_seconds:.1f} s ({event.attempt} of {event.of})"
                self.say(text, YELLOW)
            case events.LimitHit():
                self.say(f"{event.text}.", YELLOW)
            case events.Notice():
                self.say(event.text, {Severity.ERROR: RED, Severity.WARNING: YELLOW}.get(event.severity, DIM))

    def _show_mail(self, mail: events.MailSent) -> None:
        """A line for each message; the whole of what answers the user's own request."""
        is_answer = mail.fields.get("by_user") or (mail.type == "error" and mail.to == LEAD)
        text = mail.content if is_answer else one_line(mail.content, 160)
        kind = "" if mail.type == "message" else f" ({mail.type})"
        self._write([(f"{mail.agent} → {mail.to}{kind}: ", MAGENTA), (text, "")])

    def say(self, text: str, colour: str = "") -> None:
        """Write whole lines."""
        self._write([(text, colour)])

    def stream_text(self, text: str) -> None:
        """Write a part of a line."""
        if not text:
            return
        with self._lock:
            shown = self._pending + neutralise(text)
            cut = shown.rfind("\n") + 1 if self._whole_lines else len(shown)
            self._pending = shown[cut:]
            self._stream.write(shown[:cut])
            self._stream.flush()
            self._in_text = not shown.endswith("\n")

    def paint(self, text: str, colour: str) -> str:
        shown = neutralise(text)
        return f"\x1b[{colour}m{shown}\x1b[0m" if self._colour and colour else shown

    def write_to(self, stream: TextIO, whole_lines: bool) -> None:
        """Go on writing there; it leads to the same terminal. `whole_lines`: a prompt stands below what is written."""
        with self._lock:
            self._stream.write(self._pending)
            self._pending = ""
            self._stream = stream
            self._whole_lines = whole_lines

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
            self._stream.write(self._pending + "\n" * self._in_text + "".join(shown))
            self._stream.flush()
            self._pending = ""
            self._in_text = False


def _tool_line(event: events.ToolFinished) -> list[list[Piece]]:
    mark = ("✗ ", RED) if event.is_error else ("✓ ", GREEN)
    who = [] if event.agent == LEAD else [(f"  [{event.agent}] ", MAGENTA)]
    line = [*who, mark, (one_line(event.display.title, 120), ""), (f" ({event.seconds:.1f} s)", DIM)]
    return [line, [("  " + one_line(event.content, 200), "")]] if event.is_error else [line]


def _diff(diff: str, whole: bool = False) -> list[list[Piece]]:
    lines = diff.splitlines()
    shown = lines if whole else lines[:PREVIEW_LINES]
    pieces = [[("  " + line, {"+": GREEN, "-": RED}.get(line[:1], DIM))] for line in shown]
    return pieces if len(shown) == len(lines) else [*pieces, [(f"  … {len(lines) - len(shown)} more lines", DIM)]]


def tool_trace(event: events.ToolFinished) -> str:
    """A call in a pipe or log: `> bash: its output`, a teammate's with its name."""
    if event.agent == LEAD:
        return f"> {event.tool}: {one_line(event.content, 200)}"
    return f"  [{event.agent}] {event.tool}: {one_line(event.content, 120)}"
