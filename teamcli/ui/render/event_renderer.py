"""What scrolls by above the prompt: each event as finished lines, quiet by default. One thread calls this.

Nothing that was written is ever repainted. What is still `growing` (the end of an answer, the output of a running
command) stands at the prompt until it is finished.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from teamcli.agent import events
from teamcli.agent.conversation import INTERRUPTED_CALL, NOT_RUN_CALL
from teamcli.agent.events import Event, Outcome, Severity
from teamcli.llm.types import Message
from teamcli.session.session import LEAD
from teamcli.team.message import MessageType, is_subagent
from teamcli.text.escaping import one_line
from teamcli.text.table import cell_width, shorten
from teamcli.ui.render.cells import visible, width_of
from teamcli.ui.render.markdown import BlockSplitter, goes_on, render
from teamcli.ui.render.style import (
    BOLD,
    CYAN,
    DIM,
    GREEN,
    PLAIN,
    RED,
    YELLOW,
    AgentColours,
    Line,
    TerminalStyle,
    changed_lines,
    diff_lines,
)
from teamcli.ui.render.wrapping import wrap
from teamcli.ui.terminal.status import short_time

PROMPT = "team >> "
ECHOED_LINES = 8
DIFF_LINES = 24
VERBOSE_LINES = 40
EXPANDED_LINES = 2000
FOLDS = 200
TAIL_CHARACTERS = 8000
_MARKDOWN_MARGIN = 1
_TOLD_OTHERWISE = frozenset({"send_message", "broadcast", "wait_for_message", "read_inbox"})
"""Calls whose outcome is a line of mail anyway."""
_SAY_IT_ALL = frozenset({"spawn_teammate"})
"""Calls whose title says what came of them, where they did not fail."""
_LEFT_OUT = re.compile(r"unknown: \[[^\]]")
_EXIT = re.compile(r"\[(exit code \d+|killed by signal .+)\]\Z")


class Fold(NamedTuple):
    """Something that was shown in one line."""

    title: str
    body: str


class Talk:
    """An agent's answer as it comes in."""

    def __init__(self) -> None:
        self.splitter = BlockSplitter()
        self.thought = ""


class EventRenderer:
    def __init__(self, style: TerminalStyle, colours: AgentColours, below: str = "") -> None:
        """`below`: the kind of what stands on the screen already."""
        self._style = style
        self._colours = colours
        self._talks: dict[str, Talk] = {}
        self._folds: deque[Fold] = deque(maxlen=FOLDS)
        self._output: dict[str, str] = {}
        """By call: what the lead's running commands have printed last."""
        self._last_kind = below
        self._block_goes_on = False
        self.is_verbose = False
        self.shows_subagents = False
        """What they say, also where not everything is shown."""
        self.echoes = True
        """What the user types goes from the prompt when it is sent, so it must be shown again."""

    def show(self, event: Event) -> str:
        """The lines that this event adds, ready for the terminal; usually none."""
        shown = _SHOWN.get(type(event))
        return shown(self, event) if shown else ""

    def growing(self) -> Line:
        """The end of what is not finished yet."""
        talk = self._talks.get(LEAD)
        text, colour = talk.splitter.tail if talk else "", PLAIN
        if not text.strip():
            text, colour = next(reversed(self._output.values()), ""), DIM
        return [(text[-TAIL_CHARACTERS:].strip("\n"), colour)]

    def unfinished(self) -> str:
        """What was still growing, for the last time."""
        return "".join(self._finish(agent) for agent in tuple(self._talks))

    # What is not an event

    def note(self, text: str, colour: str = PLAIN) -> str:
        """A remark of the program's own."""
        return self._block("note", wrap([(text, colour)], self._style.width() - 1))

    def prose(self, text: str, kind: str = "note") -> str:
        """Text that is already set."""
        return self._gap(kind) + text.rstrip("\n") + "\n"

    def _gap(self, kind: str) -> str:
        gap = "\n" if self._last_kind and self._last_kind != kind else ""
        self._last_kind = kind
        return gap

    def question(self, lines: Iterable[Line]) -> str:
        return self._block("question", lines)

    def typed(self, text: str) -> str:
        """What the user has typed."""
        if not self.echoes:
            return ""
        first, *rest = text.split("\n")
        echoed = rest[: ECHOED_LINES - 1]
        if len(rest) > len(echoed):
            self._folds.append(Fold("you", text))
        more = _more(len(rest) - len(echoed), "lines")
        lines: list[Line] = [[(PROMPT, CYAN), (first, BOLD)], *([(" " * len(PROMPT) + line, BOLD)] for line in echoed)]
        self._last_kind = self._last_kind and "before it"
        return self._block("typed", [*lines, *more])

    def recap(self, messages: Sequence[Message]) -> str:
        """How an earlier conversation ended: the user's last words and the last answer."""
        asked = next((words for message in reversed(messages) if (words := _users_words(message))), "")
        answered = [str(block.get("text", "")) for message in messages[-1:] for block in message.content]
        if not asked:
            return ""
        said = "\n\n".join(answered) if messages[-1].role == "assistant" else ""
        return self.typed(asked) + (self._markdown(LEAD, said) if said.strip() else "")

    def diff(self, text: str, title: str) -> str:
        head = [[(title, BOLD)]] if title else []
        return self._block("note", [*head, *diff_lines(text)])

    def output(self, text: str) -> str:
        """Whole lines that a command of the user's own has printed."""
        return self._gap("output") + self._style.paint([(text, PLAIN)]) + "\n"

    def expand(self, which: int) -> str:
        if not self._folds:
            return self.note("Nothing is folded.", DIM)
        if which > len(self._folds):
            return self.note(f"Only {len(self._folds)} folded so far: the oldest is /expand {len(self._folds)}.", DIM)
        fold = self._folds[-which]
        lines = fold.body.splitlines()
        shown = [[("  " + line, PLAIN)] for line in lines[:EXPANDED_LINES]]
        return self._block("expanded", [[(fold.title, BOLD)], *shown, *_more(len(lines) - EXPANDED_LINES, "lines", "")])

    # Events

    def _line_taken(self, event: events.LineTaken) -> str:
        return self.typed(event.text)

    def _text(self, event: events.TextArrived) -> str:
        if not self._is_heard(event.agent):
            return ""
        return self._thought(event.agent) + self._blocks(event.agent, self._talk(event.agent).splitter.feed(event.text))

    def _is_heard(self, agent: str) -> bool:
        return agent == LEAD or self.is_verbose or (self.shows_subagents and is_subagent(agent))

    def _thinking(self, event: events.ThinkingArrived) -> str:
        if event.agent == LEAD or self.is_verbose:
            self._talk(event.agent).thought += event.text
        return ""

    def _retry(self, event: events.RetryScheduled) -> str:
        self._talks.pop(event.agent, None)  # what had streamed of that answer is void
        return self.note(f"{event.text} Esc stops.", YELLOW) if event.is_news else ""

    def _recorded(self, event: events.Recorded) -> str:
        return self._finish(event.agent) if event.message.role == "assistant" else ""

    def _turn_ended(self, event: events.TurnEnded) -> str:
        rest = self._finish(event.agent)
        self._talks.pop(event.agent, None)
        if event.agent != LEAD or event.outcome is not Outcome.INTERRUPTED:
            return rest
        return rest + self.note("Interrupted", YELLOW)

    def _progress(self, event: events.ToolProgress) -> str:
        if event.agent == LEAD:
            self._output[event.call_id] = (self._output.get(event.call_id, "") + event.text)[-TAIL_CHARACTERS:]
        return ""

    def _tool(self, event: events.ToolFinished) -> str:
        self._output.pop(event.call_id, None)
        if not self.is_verbose and _is_told_otherwise(event):
            return ""
        title, diff = event.display.title, event.display.diff
        body = "\n".join(filter(None, (event.display.text or title, diff, event.content)))
        self._folds.append(Fold(f"{event.agent}: {one_line(title, 120)}", body))
        failed = event.is_error or (event.tool == "bash" and _EXIT.search(event.content) is not None)
        outcome = short_outcome(event)
        ending: Line = [(f"  {took(event.seconds)}", DIM), (f" · {outcome}" if outcome else "", RED if failed else DIM)]
        room = self._style.width() - 5 - width_of(ending) - cell_width(self._name(event.agent))
        head: Line = [
            ("  ", PLAIN),
            *self._who(event.agent),
            ("✗ ", RED) if failed else ("✓ ", GREEN),
            (shorten(one_line(title, 400), max(8, room)), PLAIN),
            *ending,
        ]
        reason = [[("    " + one_line(event.content, self._style.width() - 6), RED)]] if outcome == "failed" else []
        return self._block("tool", [head, *reason, *_short_diff(diff), *self._verbose_output(event)])

    def _verbose_output(self, event: events.ToolFinished) -> list[Line]:
        if not self.is_verbose or event.is_error or event.display.diff:
            return []
        lines = event.content.splitlines()
        return [
            *([("    " + line, DIM)] for line in lines[:VERBOSE_LINES]),
            *_more(len(lines) - VERBOSE_LINES, "lines"),
        ]

    def _mail(self, event: events.MailSent) -> str:
        """A line for each message; the whole of what answers the user's own request, and of errors."""
        is_answer = event.fields.get("by_user") or (event.type == MessageType.ERROR and event.to == LEAD)
        kind = "" if event.type == MessageType.MESSAGE else f" {event.type.replace('_', ' ')}"
        who: Line = [("  ", PLAIN), (event.agent, self._colour(event.agent)), (f" → {event.to}{kind}: ", DIM)]
        if is_answer:
            colour = RED if event.type == MessageType.ERROR else PLAIN
            return self._block("mail", [[*who, (event.content.rstrip(), colour)]])
        room = max(20, self._style.width() - width_of(who) - 1)
        flat = shorten(one_line(event.content, 1000), room)
        if flat != event.content:
            self._folds.append(Fold(f"{event.agent} → {event.to}", event.content))
        return self._block("tool", [[*who, (flat, PLAIN)]])

    def _limit(self, event: events.LimitHit) -> str:
        return self.note(f"{event.agent}: {event.text}.", YELLOW)

    def _notice(self, event: events.Notice) -> str:
        colour = {Severity.ERROR: RED, Severity.WARNING: YELLOW}.get(event.severity, DIM)
        who = "" if event.agent == LEAD else f"{event.agent}: "
        return self.note(who + event.text, colour)

    def _compacted(self, event: events.Compacted) -> str:
        return self.note(event.text if event.agent == LEAD else f"{event.agent}: {event.text}", DIM)

    # Parts

    def _talk(self, agent: str) -> Talk:
        return self._talks.setdefault(agent, Talk())

    def _finish(self, agent: str) -> str:
        """Whatever is left of an answer that is over."""
        if (talk := self._talks.get(agent)) is None:
            return ""
        return self._thought(agent) + self._blocks(agent, talk.splitter.close())

    def _thought(self, agent: str) -> str:
        talk = self._talk(agent)
        thought, talk.thought = talk.thought, ""
        if not thought.strip():
            return ""
        self._folds.append(Fold(f"{agent}: thoughts", thought))
        shown = [[("  " + line, DIM)] for line in thought.strip().splitlines()] if self.is_verbose else []
        return self._block("tool", [[("  ", PLAIN), *self._who(agent), ("✻ thought", DIM)], *shown])

    def _blocks(self, agent: str, blocks: Iterable[str]) -> str:
        return "".join(self._markdown(agent, block) for block in blocks)

    def _markdown(self, agent: str, block: str) -> str:
        width = self._style.width() - _MARKDOWN_MARGIN
        if agent == LEAD:
            return self._set_off(block, render(block, width, self._style.colour, self._style.is_unicode))
        name = self._style.paint([(f"{agent} │ ", self._colours.of(agent))])
        lines = (
            render(block, width - len(agent) - 3, self._style.colour, self._style.is_unicode).rstrip("\n").split("\n")
        )
        return self.prose("\n".join(name + line for line in lines), f"text of {agent}")

    def _set_off(self, block: str, lines: str) -> str:
        """Blocks of one answer have a blank line between them, pieces of one block have none."""
        follows = self._last_kind == "text" and self._block_goes_on
        gap = "\n" if self._last_kind and not follows else ""
        self._last_kind, self._block_goes_on = "text", goes_on(block)
        return gap + lines

    def _name(self, agent: str) -> str:
        return "" if agent == LEAD else f"{agent} "

    def _colour(self, agent: str) -> str:
        return BOLD if agent == LEAD else self._colours.of(agent)

    def _who(self, agent: str) -> Line:
        return [(self._name(agent), self._colours.of(agent))] if agent != LEAD else []

    def _block(self, kind: str, lines: Iterable[Line]) -> str:
        """Lines that belong together; a blank line sets them off from what is of another kind."""
        return self.prose("\n".join(self._style.paint(line) for line in lines), kind)


def last_lines(growing: Line, width: int, lines: int) -> list[Line]:
    end = visible(growing)
    return wrap(end, width, keep_urls=False)[-lines:] if width_of(end) else []


def _users_words(message: Message) -> str:
    """What the user typed last; mail and remarks of the program's own are tagged.

    Lines that got no answer stand in one message.
    """
    texts = [str(block["text"]) for block in message.content if block.get("type") == "text"]
    return next((text for text in reversed(texts) if not text.startswith("<")), "") if message.role == "user" else ""


def _is_told_otherwise(event: events.ToolFinished) -> bool:
    return event.tool in _TOLD_OTHERWISE and not event.is_error and not _LEFT_OUT.search(event.content)


def short_outcome(event: events.ToolFinished) -> str:
    """What came of a call, in a few words."""
    if event.is_error:
        return "interrupted" if event.content.startswith((INTERRUPTED_CALL, NOT_RUN_CALL)) else "failed"
    if event.tool in _SAY_IT_ALL:
        return ""
    if event.display.diff:
        return "+{} -{}".format(*changed_lines(event.display.diff))
    content = event.content.strip()
    if event.tool == "bash" and (ending := _EXIT.search(content)):
        return ending[1]
    lines = content.splitlines()
    if len(lines) == 1 and len(content) <= 60:
        return one_line(content)
    return _count(len(lines), "line") if lines else ""


def _count(number: int, thing: str) -> str:
    return f"1 {thing}" if number == 1 else f"{number} {thing}s"


def took(seconds: float) -> str:
    return f"{seconds:.1f}s" if seconds < 60 else short_time(seconds)


def _short_diff(diff: str) -> list[Line]:
    lines = diff_lines(diff, with_names=False)
    return [*lines[:DIFF_LINES], *_more(len(lines) - DIFF_LINES, "lines")]


def _more(count: int, what: str, key: str = " (Ctrl-O)") -> list[Line]:
    return [[(f"    … {count} more {what}{key}", DIM)]] if count > 0 else []


_SHOWN: dict[type, Callable[[EventRenderer, Any], str]] = {
    events.LineTaken: EventRenderer._line_taken,
    events.TextArrived: EventRenderer._text,
    events.ThinkingArrived: EventRenderer._thinking,
    events.RetryScheduled: EventRenderer._retry,
    events.Recorded: EventRenderer._recorded,
    events.TurnEnded: EventRenderer._turn_ended,
    events.ToolProgress: EventRenderer._progress,
    events.ToolFinished: EventRenderer._tool,
    events.MailSent: EventRenderer._mail,
    events.LimitHit: EventRenderer._limit,
    events.Notice: EventRenderer._notice,
    events.Compacted: EventRenderer._compacted,
}
"""How each kind is shown; those that are missing are not."""
