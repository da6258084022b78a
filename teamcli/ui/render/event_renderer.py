"""Turns events into lines above the prompt, briefly by default. Used by one thread at a time.

Lines that were written are never repainted. What is still incomplete (the end of an answer, the output of a running
command) is shown at the prompt until it is complete.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from teamcli.agent import events
from teamcli.agent.events import Event, Outcome, Severity
from teamcli.llm.types import Message
from teamcli.team.message import LEAD, MessageType, is_subagent
from teamcli.text.console import shorten
from teamcli.text.escaping import one_line
from teamcli.text.table import Table
from teamcli.ui.render.answers import TAIL_CHARACTERS, Answers, tail_lines
from teamcli.ui.render.call_lines import call_lines, width_of
from teamcli.ui.render.folds import Fold, Folds
from teamcli.ui.render.layout import Layout, more_lines
from teamcli.ui.render.style import (
    BOLD,
    CYAN,
    DIM,
    PLAIN,
    RED,
    YELLOW,
    AgentColors,
    Line,
    Piece,
    TerminalStyle,
    diff_lines,
)

PROMPT = "team >> "
ECHOED_LINES = 8
DEFERRED_EVENTS = 100
_SHOWN_AS_MAIL = frozenset(
    {"send_message", "broadcast", "wait_for_message", "read_inbox", "task_create", "task_update"}
)
_UNKNOWN_RECIPIENT = re.compile(r"unknown: \[[^\]]")


class Screen(NamedTuple):
    """What the lines are written to."""

    above: str = ""
    """The kind of what it shows already."""
    is_dumb: bool = False
    """It shows what the user types by itself, and its prompt is printed again below each piece of output."""
    continues_lines: bool = False
    """Text may end in the middle of a line, which the next text continues."""


NEW_SCREEN = Screen()


def prompt_label(to: str, colors: AgentColors, columns: int) -> Piece:
    """Who gets a typed line, shown in front of it. It leaves half of the screen for the line."""
    name = shorten(to, max(4, columns // 2 - len(" >> ")))
    return (PROMPT, CYAN) if to == LEAD else (f"{name} >> ", colors.of(to))


class EventRenderer:
    def __init__(
        self,
        style: TerminalStyle,
        colors: AgentColors,
        screen: Screen = NEW_SCREEN,
        focus: str = LEAD,
        shows_subagents: bool = False,
        wraps_words: bool = False,
    ) -> None:
        """The words of `focus` stream in, without its name; if it is empty, everyone's do, with their names.

        The terminal wraps the paragraphs of an answer unless `wraps_words`.
        """
        self._style = style
        self._colors = colors
        self._focus = focus
        self._shows_subagents = shows_subagents
        self._is_dumb = screen.is_dumb
        self._is_verbose = False
        self._layout = Layout(style, screen.above, screen.continues_lines)
        self._folds = Folds()
        is_live = not screen.is_dumb
        self._answers = Answers(self._layout, colors, self._folds, focus, is_live, wraps_words or not is_live)
        self._output: dict[str, str] = {}
        """The last output of each running command of the focused agent."""
        self._deferred: list[Event] = []
        """What the others did in the middle of a block of the focused agent: it must not be printed inside it."""

    def show(self, event: Event) -> str:
        """The lines that this event adds, ready for the terminal. Usually none."""
        if self._answers.is_inside_block and event.agent != self._focus and len(self._deferred) < DEFERRED_EVENTS:
            self._deferred.append(event)
            return ""
        shown = self._stream(event)
        if self._deferred and not self._answers.is_inside_block:
            deferred, self._deferred = self._deferred, []
            shown += "".join(map(self._stream, deferred))
        return shown

    @property
    def width(self) -> int:
        """How many columns the screen has."""
        return self._style.width()

    def growing(self) -> list[Line]:
        """The end of what is incomplete, in lines that fit the terminal. The first one may be blank."""
        if lines := self._answers.growing():
            return lines
        lines = tail_lines(next(reversed(self._output.values()), ""), DIM, self._style)
        return [[], *lines] if lines else []

    def unfinished(self) -> str:
        """What is incomplete or deferred, at the end of the session."""
        return self._answers.finish_all(self._is_verbose) + "".join(map(self._stream, self._deferred))

    @property
    def is_verbose(self) -> bool:
        return self._is_verbose

    def set_verbose(self, on: bool) -> None:
        self._is_verbose = on

    # Output that is not an event

    def note(self, text: str, style: str = PLAIN) -> str:
        """A remark of the program itself."""
        return self._layout.note(text, style)

    def table(self, table: Table) -> str:
        return self._layout.table(table, self._colors.known())

    def prose(self, text: str, kind: str = "note") -> str:
        """Text that is ready for the terminal. A blank line sets it off from text of another kind."""
        return self._layout.prose(text, kind)

    def heading(self, about: str, remark: str = "") -> str:
        """A line across the screen with the name of the focused agent. The text below it may be the middle of a block,
        so this has no influence on blank lines."""
        line: Line = [("── ", DIM), (self._focus, f"{BOLD} {self._colors.of(self._focus)}")]
        line.append((shorten(f" · {about} " if about else " ", max(8, self._style.width() - width_of(line) - 4)), DIM))
        line.append(("─" * (self._style.width() - 1 - width_of(line)), DIM))
        return "".join(f"\n{self._style.paint(each)}" for each in [line, *([[(remark, DIM)]] if remark else [])]) + "\n"

    def break_line(self, rest: str) -> None:
        """The screen has shown something else in the middle of a line, and now shows the `rest` of it so far."""
        self._layout.break_line(rest)

    def typed(self, text: str) -> str:
        """A line that the user has sent. The live prompt clears it, so it is shown again."""
        if self._is_dumb:
            return ""
        first, *rest = text.split("\n")
        echoed = rest[: ECHOED_LINES - 1]
        if len(rest) > len(echoed):
            self._folds.add(Fold("you", text))
        more = more_lines(len(rest) - len(echoed))
        label = prompt_label(self._focus, self._colors, self._style.width())
        lines: list[Line] = [[label, (first, BOLD)], *([(line, BOLD)] for line in echoed)]
        self._layout.set_off()  # each line is set off, also from another one
        return self._layout.block("typed", [*lines, *more])

    def recap(self, messages: Sequence[Message]) -> str:
        """How an earlier conversation ended: the last task and the last answer."""
        of_user = (message for message in reversed(messages) if message.role == "user")
        blocks = (block for message in of_user for block in reversed(message.content) if block.get("type") == "text")
        # Mail and remarks of the program are tagged, so they begin with `<`. The others are what the user typed.
        asked = next((text for block in blocks if (text := str(block["text"])) and not text.startswith("<")), "")
        if not asked:
            return ""
        shown = self.typed(asked)
        if messages[-1].role == "assistant":
            text = "\n\n".join(str(block.get("text", "")) for block in messages[-1].content)
            shown += self._answers.add_text(LEAD, text, False) + self._answers.finish(LEAD, False)
        return shown

    def diff(self, text: str, title: str) -> str:
        return self._layout.block("note", [*([[(title, BOLD)]] if title else []), *diff_lines(text)])

    def output(self, text: str) -> str:
        """Whole lines that a command of the user has printed. Blank ones at the end count."""
        return self.prose("", "output").removesuffix("\n") + self._style.paint([(text, PLAIN)]) + "\n"

    def expand(self, which: int) -> str:
        return self._folds.expand(which, self._layout)

    # Events

    def _stream(self, event: Event) -> str:
        """Show the events of an answer as it arrives, and leave the others to `_line`."""
        match event:
            case events.TextArrived():
                is_shown = self._is_verbose or self._focus in (event.agent, "")
                is_shown |= self._shows_subagents and is_subagent(event.agent)
                return self._answers.add_text(event.agent, event.text, self._is_verbose) if is_shown else ""
            case events.ThinkingArrived() if event.agent == self._focus or self._is_verbose:
                self._answers.add_thought(event.agent, event.text)
            case events.RetryScheduled():
                self._answers.drop(event.agent)
                hint = " Esc stops." if event.agent == self._focus == LEAD else ""
                return self.note(f"{event.text}{hint}", YELLOW) if event.is_news else ""
            case events.Recorded(message=Message(role="assistant")):
                return self._answers.finish(event.agent, self._is_verbose)
            case events.TurnEnded():
                rest = self._answers.finish(event.agent, self._is_verbose)
                self._answers.drop(event.agent)
                is_interrupted = event.agent == self._focus and event.outcome is Outcome.INTERRUPTED
                return rest + self.note("Interrupted", YELLOW) if is_interrupted else rest
            case _:
                return self._line(event)
        return ""

    def _line(self, event: Event) -> str:
        match event:
            case events.LineTaken():
                return self.typed(event.text)
            case events.ToolProgress() if event.agent == self._focus:
                self._output[event.call_id] = (self._output.get(event.call_id, "") + event.text)[-TAIL_CHARACTERS:]
            case events.ToolFinished():
                return self._tool(event)
            case events.MailSent():
                return self._mail(event)
            case events.TaskChanged():
                text = shorten(event.text, max(20, self._style.width() - len(event.agent) - 4))
                who = (event.agent, self._colors.of(event.agent))
                return self._layout.block("tool", [[("  ", PLAIN), who, (f" {text}", DIM)]])
            case events.LimitHit():
                return self.note(f"{event.agent}: {event.text}.", YELLOW)
            case events.MergeEnded(by_user=False):
                return self.note(event.text, PLAIN if event.outcome == "merged" else YELLOW)
            case events.Notice() | events.Compacted():
                severity = event.severity if isinstance(event, events.Notice) else None
                color = {Severity.ERROR: RED, Severity.WARNING: YELLOW}.get(severity, DIM) if severity else DIM
                return self.note(event.text if event.agent == LEAD else f"{event.agent}: {event.text}", color)
        return ""

    def _tool(self, event: events.ToolFinished) -> str:
        self._output.pop(event.call_id, None)
        if is_shown_as_mail(event) and not self._is_verbose:
            return ""
        display = event.display
        title = f"{event.agent}: {one_line(display.title, 120)}"
        self._folds.add(Fold(title, display.text or display.title, display.diff, event.content))
        who: Line = [(f"{event.agent} ", self._colors.of(event.agent))] if event.agent != self._focus else []
        return self._layout.block("tool", call_lines(event, who, self._style.width(), self._is_verbose))

    def _mail(self, event: events.MailSent) -> str:
        """One line for each message. Errors and the answer to a request of the user are shown whole. A watcher has read
        that answer already, as it was written."""
        is_answer = self._focus == LEAD and event.fields.get("by_user")
        is_whole = is_answer or (event.type == MessageType.ERROR and event.to == LEAD)
        kind = "" if event.type == MessageType.MESSAGE else f" {event.type.replace('_', ' ')}"
        sender, to = ((name, self._colors.of(name)) for name in (event.agent, event.to))
        who: Line = [("  ", PLAIN), sender, (" → ", DIM), to, (f"{kind}: ", DIM)]
        self._folds.add(Fold(f"{event.agent} → {event.to}", event.content))
        if is_whole:
            color = RED if event.type == MessageType.ERROR else PLAIN
            return self._layout.block("mail", [[*who, (event.content.rstrip(), color)]])
        flat = shorten(one_line(event.content, 1000), max(20, self._style.width() - width_of(who) - 1))
        return self._layout.block("tool", [[*who, (flat, PLAIN)]])


def is_shown_as_mail(event: events.ToolFinished) -> bool:
    """Whether a line of mail, or of the board, says what the call has done."""
    return event.tool in _SHOWN_AS_MAIL and not event.is_error and not _UNKNOWN_RECIPIENT.search(event.content)
