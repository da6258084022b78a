"""Turns events into lines above the prompt, briefly by default. Used by one thread at a time.

Lines that were written are never repainted. What is still incomplete (the end of an answer, the output of a running
command) is shown at the prompt until it is complete.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from teamcli.agent import events
from teamcli.agent.conversation import INTERRUPTED_CALL, NOT_RUN_CALL
from teamcli.agent.events import Event, Outcome, Severity
from teamcli.llm.types import Message
from teamcli.team.message import LEAD, MessageType, is_subagent
from teamcli.text.console import cell_width, shorten, wrap
from teamcli.text.duration import short_time
from teamcli.text.escaping import escape_controls, one_line
from teamcli.text.table import Table
from teamcli.ui.render.blocks import Block, BlockSplitter
from teamcli.ui.render.style import (
    BOLD,
    CYAN,
    DIM,
    GREEN,
    PLAIN,
    RED,
    YELLOW,
    AgentColors,
    Line,
    TerminalStyle,
    changed_lines,
    diff_lines,
)

if TYPE_CHECKING:
    from teamcli.ui.render.markdown import MarkdownRenderer

PROMPT = "team >> "
ECHOED_LINES = 8
DIFF_LINES = 24
VERBOSE_LINES = 40
EXPANDED_LINES = 2000
FOLDS = 200
TAIL_CHARACTERS = 8000
TAIL_LINES = 12
DEFERRED_EVENTS = 100
_SHOWN_AS_MAIL = frozenset(
    {"send_message", "broadcast", "wait_for_message", "read_inbox", "task_create", "task_update"}
)
"""Calls whose outcome is shown as a line of mail, or of the board, anyway."""
_TITLE_SAYS_IT_ALL = frozenset({"spawn_teammate"})
_UNKNOWN_RECIPIENT = re.compile(r"unknown: \[[^\]]")
_EXIT = re.compile(r"\[(exit code \d+|killed by signal .+)\]\Z")


class Fold(NamedTuple):
    """Something of which only a line was shown."""

    title: str
    body: str


class _Answer:
    """An agent's answer as it streams in."""

    def __init__(self, streams_code: bool) -> None:
        self.splitter = BlockSplitter(streams_code)
        self.thought = ""

    @cached_property
    def renderer(self) -> MarkdownRenderer:
        from teamcli.ui.render.markdown import MarkdownRenderer

        return MarkdownRenderer()


class EventRenderer:
    def __init__(
        self,
        style: TerminalStyle,
        colors: AgentColors,
        above: str = "",
        shows_subagents: bool = False,
        is_dumb: bool = False,
    ) -> None:
        """`above` is the kind of what the screen shows already.

        A dumb terminal shows what the user types by itself, and its prompt is printed again below each piece of output.
        """
        self._style = style
        self._colors = colors
        self._last_kind = above
        self._shows_subagents = shows_subagents
        self._is_dumb = is_dumb
        self._is_verbose = False
        self._answers: dict[str, _Answer] = defaultdict(lambda: _Answer(streams_code=not is_dumb))
        self._folds: deque[Fold] = deque(maxlen=FOLDS)
        self._output: dict[str, str] = {}
        """The last output of each running command of the lead."""
        self._deferred: list[Event] = []
        """What the others did while the lead writes code: it must not be printed between two lines of code."""

    def show(self, event: Event) -> str:
        """The lines that this event adds, ready for the terminal. Usually none."""
        if self._is_lead_in_code and event.agent != LEAD and len(self._deferred) < DEFERRED_EVENTS:
            self._deferred.append(event)
            return ""
        shown = self._stream(event)
        if self._deferred and not self._is_lead_in_code:
            deferred, self._deferred = self._deferred, []
            shown += "".join(map(self._stream, deferred))
        return shown

    def growing(self) -> list[Line]:
        """The end of what is incomplete, in lines that fit the terminal."""
        text, style = self._answers[LEAD].splitter.tail, PLAIN
        if not text.strip():
            text, style = next(reversed(self._output.values()), ""), DIM
        text = escape_controls(text[-TAIL_CHARACTERS:].strip("\n")).expandtabs(4)
        if not text.strip():
            return []
        width = self._style.width() - 1
        # Only the end is wrapped, because this is done again for every word.
        lines = wrap([(text[-(TAIL_LINES + 1) * width :], style)], width, keeps_urls=False)
        return [[("…", DIM)], *lines[1 - TAIL_LINES :]] if len(lines) > TAIL_LINES else lines

    def unfinished(self) -> str:
        """What is incomplete or deferred, at the end of the session."""
        rest = "".join(self._finish(agent) for agent in tuple(self._answers))
        return rest + "".join(map(self._stream, self._deferred))

    def set_verbose(self, on: bool | None) -> str:
        """None switches to the other state."""
        self._is_verbose = not self._is_verbose if on is None else on
        return self.note("Verbose on." if self._is_verbose else "Verbose off.", DIM)

    # Output that is not an event

    def note(self, text: str, style: str = PLAIN) -> str:
        """A remark of the program itself."""
        return self._block("note", wrap([(text, style)], self._style.width() - 1))

    def table(self, table: Table) -> str:
        return self.prose(self._style.signs(table.to_text(self._style.width() - 1, self._style.has_color)))

    def prose(self, text: str, kind: str = "note") -> str:
        """Text that is ready for the terminal. A blank line sets it off from text of another kind."""
        gap = "\n" if self._last_kind and self._last_kind != kind else ""
        self._last_kind = kind
        return gap + text.rstrip("\n") + "\n"

    def question(self, lines: Iterable[Line]) -> str:
        return self._block("question", lines)

    def typed(self, text: str) -> str:
        """A line that the user has sent. The live prompt clears it, so it is shown again."""
        if self._is_dumb:
            return ""
        first, *rest = text.split("\n")
        echoed = rest[: ECHOED_LINES - 1]
        if len(rest) > len(echoed):
            self._folds.append(Fold("you", text))
        more = _more(len(rest) - len(echoed))
        lines: list[Line] = [[(PROMPT, CYAN), (first, BOLD)], *([(" " * len(PROMPT) + line, BOLD)] for line in echoed)]
        self._last_kind = self._last_kind and "something else"  # each line is set off, also from another one
        return self._block("typed", [*lines, *more])

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
            shown += self._text(events.TextArrived(LEAD, text)) + self._finish(LEAD)
        return shown

    def diff(self, text: str, title: str) -> str:
        return self._block("note", [*([[(title, BOLD)]] if title else []), *diff_lines(text)])

    def output(self, text: str) -> str:
        """Whole lines that a command of the user has printed. Blank ones at the end count."""
        return self.prose("", "output").removesuffix("\n") + self._style.paint([(text, PLAIN)]) + "\n"

    def expand(self, which: int) -> str:
        if not self._folds:
            return self.note("Nothing is folded.", DIM)
        if which > len(self._folds):
            return self.note(f"Only {len(self._folds)} folded so far: the oldest is /expand {len(self._folds)}.", DIM)
        fold = self._folds[-which]
        lines = fold.body.splitlines()
        shown = [[("  " + line, PLAIN)] for line in lines[:EXPANDED_LINES]]
        return self._block("expanded", [[(fold.title, BOLD)], *shown, *_more(len(lines) - EXPANDED_LINES, "")])

    # Events

    def _stream(self, event: Event) -> str:
        """Show the events of an answer as it arrives, and leave the others to `_line`."""
        match event:
            case events.TextArrived():
                return self._text(event)
            case events.ThinkingArrived() if event.agent == LEAD or self._is_verbose:
                self._answers[event.agent].thought += event.text
            case events.RetryScheduled():
                self._answers.pop(event.agent, None)  # the part of the answer that has arrived is void
                return self.note(f"{event.text} Esc stops.", YELLOW) if event.is_news else ""
            case events.Recorded(message=Message(role="assistant")):
                return self._finish(event.agent)
            case events.TurnEnded():
                rest = self._finish(event.agent)
                self._answers.pop(event.agent, None)
                is_interrupted = event.agent == LEAD and event.outcome is Outcome.INTERRUPTED
                return rest + self.note("Interrupted", YELLOW) if is_interrupted else rest
            case _:
                return self._line(event)
        return ""

    def _line(self, event: Event) -> str:
        match event:
            case events.LineTaken():
                return self.typed(event.text)
            case events.ToolProgress() if event.agent == LEAD:
                self._output[event.call_id] = (self._output.get(event.call_id, "") + event.text)[-TAIL_CHARACTERS:]
            case events.ToolFinished():
                return self._tool(event)
            case events.MailSent():
                return self._mail(event)
            case events.TaskChanged():
                color = BOLD if event.agent == LEAD else self._colors.of(event.agent)
                text = shorten(event.text, max(20, self._style.width() - len(event.agent) - 4))
                return self._block("tool", [[("  ", PLAIN), (event.agent, color), (f" {text}", DIM)]])
            case events.LimitHit():
                return self.note(f"{event.agent}: {event.text}.", YELLOW)
            case events.MergeEnded(by_user=False):
                return self.note(event.text, PLAIN if event.outcome == "merged" else YELLOW)
            case events.Notice() | events.Compacted():
                severity = event.severity if isinstance(event, events.Notice) else None
                color = {Severity.ERROR: RED, Severity.WARNING: YELLOW}.get(severity, DIM) if severity else DIM
                return self.note(event.text if event.agent == LEAD else f"{event.agent}: {event.text}", color)
        return ""

    def _text(self, event: events.TextArrived) -> str:
        agent = event.agent
        if agent != LEAD and not self._is_verbose and not (self._shows_subagents and is_subagent(agent)):
            return ""
        return self._thought(agent) + self._markdown(agent, self._answers[agent].splitter.feed(event.text))

    def _tool(self, event: events.ToolFinished) -> str:
        self._output.pop(event.call_id, None)
        is_mail = event.tool in _SHOWN_AS_MAIL and not event.is_error and not _UNKNOWN_RECIPIENT.search(event.content)
        if is_mail and not self._is_verbose:
            return ""
        title, diff = event.display.title, event.display.diff
        body = "\n".join(filter(None, (event.display.text or title, diff, event.content)))
        self._folds.append(Fold(f"{event.agent}: {one_line(title, 120)}", body))
        failed = event.is_error or (event.tool == "bash" and _EXIT.search(event.content) is not None)
        outcome = short_outcome(event)
        took = f"{event.seconds:.1f}s" if event.seconds < 60 else short_time(event.seconds)
        ending: Line = [(f"  {took}", DIM), (f" · {outcome}" if outcome else "", RED if failed else DIM)]
        who = self._who(event.agent)
        room = self._style.width() - 5 - _width_of(ending) - _width_of(who)
        mark = ("✗ ", RED) if failed else ("✓ ", GREEN)
        lines: list[Line] = [[("  ", PLAIN), *who, mark, (shorten(one_line(title, 400), max(8, room)), PLAIN), *ending]]
        if outcome == "failed":
            lines.append([("    " + one_line(event.content, self._style.width() - 6), RED)])
        changed = diff_lines(diff, with_names=False)
        lines += [*changed[:DIFF_LINES], *_more(len(changed) - DIFF_LINES)]
        if self._is_verbose and not event.is_error and not diff:
            printed = event.content.splitlines()
            lines += [[("    " + line, DIM)] for line in printed[:VERBOSE_LINES]]
            lines += _more(len(printed) - VERBOSE_LINES)
        return self._block("tool", lines)

    def _mail(self, event: events.MailSent) -> str:
        """One line for each message. Errors and the answer to a request of the user are shown whole."""
        is_whole = event.fields.get("by_user") or (event.type == MessageType.ERROR and event.to == LEAD)
        kind = "" if event.type == MessageType.MESSAGE else f" {event.type.replace('_', ' ')}"
        color = BOLD if event.agent == LEAD else self._colors.of(event.agent)
        who: Line = [("  ", PLAIN), (event.agent, color), (f" → {event.to}{kind}: ", DIM)]
        if is_whole:
            color = RED if event.type == MessageType.ERROR else PLAIN
            return self._block("mail", [[*who, (event.content.rstrip(), color)]])
        flat = shorten(one_line(event.content, 1000), max(20, self._style.width() - _width_of(who) - 1))
        if flat != event.content:
            self._folds.append(Fold(f"{event.agent} → {event.to}", event.content))
        return self._block("tool", [[*who, (flat, PLAIN)]])

    # Parts

    @property
    def _is_lead_in_code(self) -> bool:
        return self._answers[LEAD].splitter.is_in_code

    def _finish(self, agent: str) -> str:
        """The rest of an answer that is over."""
        return self._thought(agent) + self._markdown(agent, self._answers[agent].splitter.close())

    def _thought(self, agent: str) -> str:
        answer = self._answers[agent]
        thought, answer.thought = answer.thought.strip(), ""
        if not thought:
            return ""
        self._folds.append(Fold(f"{agent}: thoughts", thought))
        shown = [[("  " + line, DIM)] for line in thought.splitlines()] if self._is_verbose else []
        return self._block("tool", [[("  ", PLAIN), *self._who(agent), ("✻ thought", DIM)], *shown])

    def _markdown(self, agent: str, blocks: Iterable[Block]) -> str:
        shown = ""
        name = "" if agent == LEAD else self._style.paint([(f"{agent} │ ", self._colors.of(agent))])
        width = self._style.width() - 1 - (len(agent) + 3 if name else 0)
        for block in blocks:
            lines = self._answers[agent].renderer.render(block, width, self._style.has_color, self._style.is_unicode)
            # The blocks of an answer have a blank line between them, the pieces of one block do not.
            if agent == LEAD and not block.continues:
                self._last_kind = self._last_kind and "something else"
            shown += self.prose("\n".join(name + line for line in lines.splitlines()), f"text of {agent}")
        return shown

    def _who(self, agent: str) -> Line:
        return [(f"{agent} ", self._colors.of(agent))] if agent != LEAD else []

    def _block(self, kind: str, lines: Iterable[Line]) -> str:
        """Lines that belong together."""
        return self.prose("\n".join(self._style.paint(line) for line in lines), kind)


def _width_of(pieces: Line) -> int:
    return sum(cell_width(text) for text, _ in pieces)


def short_outcome(event: events.ToolFinished) -> str:
    """The outcome of a call, in a few words."""
    if event.is_error:
        return "interrupted" if event.content.startswith((INTERRUPTED_CALL, NOT_RUN_CALL)) else "failed"
    if event.tool in _TITLE_SAYS_IT_ALL:
        return ""
    if event.display.diff:
        return "+{} -{}".format(*changed_lines(event.display.diff))
    content = event.content.strip()
    if event.tool == "bash" and (ending := _EXIT.search(content)):
        return ending[1]
    lines = content.splitlines()
    if len(lines) == 1:
        return one_line(content) if len(content) <= 60 else "1 line"
    return f"{len(lines)} lines" if lines else ""


def _more(count: int, key: str = " (Ctrl-O)") -> list[Line]:
    return [[(f"    … {count} more lines{key}", DIM)]] if count > 0 else []
