"""What the screen shows: the lead with news of everyone, or one agent that the user watches. For the render thread.

The lead's view keeps rendering while another one is shown. What it would have printed is printed on the return, so
nothing is missing there and nothing appears twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from teamcli.agent.events import Event, MailSent
from teamcli.session.steps import steps_of
from teamcli.session.watching import LAST_STEPS, AgentSnapshot
from teamcli.team.message import LEAD, USER
from teamcli.text.console import rows_of
from teamcli.ui.render.event_renderer import EventRenderer
from teamcli.ui.render.style import DIM, Line

MOST_MISSED_LINES = 1_000
RECORDED = "It runs on another host: each step is shown once it is recorded, not as it streams."


class Missed:
    """Text that is printed later: its last lines."""

    def __init__(self) -> None:
        self.lines: deque[str] = deque(maxlen=MOST_MISSED_LINES)
        self.count = 0
        """Of all lines, those that are not kept among them."""
        self.open_line = ""

    def add(self, text: str) -> None:
        *lines, self.open_line = (self.open_line + text).split("\n")
        self.count += len(lines)
        self.lines.extend(lines)

    @property
    def text(self) -> str:
        return "".join(line + "\n" for line in self.lines) + self.open_line


class Turn(NamedTuple):
    """Turning the screen to one agent."""

    snapshot: AgentSnapshot
    about: str
    """What it is and does, for the heading."""
    most_rows: int = 0
    """Show at most so many rows of the past; 0: no limit but that of steps."""
    is_recorded: bool = False
    """It runs on another host: events that happen here do not continue it."""


class Views:
    def __init__(self, lead: EventRenderer, focused: Callable[[str], EventRenderer]) -> None:
        """`focused` makes the renderer for an agent that is watched."""
        self._lead = lead
        self._focused = focused
        self._watched: EventRenderer | None = None
        self._echoed: list[str] = []
        """Lines to the watched agent that it has not read yet. They are on the screen."""
        self._missed = Missed()
        self._has_open_line = False
        """Whether what was printed last ends in the middle of a line."""
        self._is_recorded = False
        """Whether the watched agent runs on another host."""
        self.shown = LEAD

    @property
    def current(self) -> EventRenderer:
        return self._watched or self._lead

    def show(self, event: Event) -> str:
        """The lines that an event adds to what is shown."""
        text = self._lead.show(event)
        if self._watched is None:
            return self._printed(text)
        self._missed.add(text)
        if self._is_recorded:
            return ""
        steps = [step for step in steps_of(event, self.shown) if not self._is_echoed(step)]
        return self._printed("".join(map(self._watched.show, steps)))

    def add(self, name: str, steps: Sequence[Event]) -> str:
        """What an agent on another host has recorded since it was shown."""
        if name != self.shown or self._watched is None:
            return ""
        return self._printed("".join(self._watched.show(step) for step in steps if not self._is_echoed(step)))

    def render(self, render: Callable[[EventRenderer], str]) -> str:
        """Something that is not an event, in the view that is shown."""
        return self._printed(render(self.current))

    def typed(self, name: str, line: str) -> str:
        """A line that the user has sent to the agent that was shown. The lead's view shows it as mail."""
        if name != self.shown:
            return ""
        self._echoed.append(line)
        return self.render(lambda renderer: renderer.typed(line))

    def growing(self) -> list[Line]:
        return self.current.growing()

    def set_verbose(self, on: bool | None) -> str:
        """In all views. None switches to the other state."""
        on = not self._lead.is_verbose if on is None else on
        for renderer in {self._lead, self.current}:
            renderer.set_verbose(on)
        return self._printed(self.current.note("Verbose on." if on else "Verbose off.", DIM))

    def turn_to(self, turn: Turn) -> str:
        """The heading, and the last steps of the agent to watch."""
        name = turn.snapshot.agent
        self._watched, self.shown, self._echoed = self._focused(name), name, []
        self._is_recorded = turn.is_recorded
        self._watched.set_verbose(self._lead.is_verbose)
        steps = turn.snapshot.steps(min(LAST_STEPS, turn.most_rows or LAST_STEPS))
        past = "".join(map(self._watched.show, steps))
        remark = ""
        if turn.most_rows and (shown := _last_rows(past, turn.most_rows, self._watched.width)) != past:
            past, remark = shown, f"… /watch {name} shows more"
        if turn.is_recorded:
            remark = " ".join(filter(None, [RECORDED, remark]))
        return self._printed(self._heading(turn.about, remark) + past)

    def back(self, about: str) -> str:
        """To the lead: what it and the others did in the meantime."""
        if self._watched is None:
            return ""
        self._watched, self.shown = None, LEAD
        missed, self._missed = self._missed, Missed()
        self._lead.break_line(missed.open_line)
        dropped = missed.count - len(missed.lines)
        remark = f"{dropped:,} lines are not shown; /log has every step." if dropped else ""
        return self._printed(self._heading(about, remark) + missed.text)

    def unfinished(self) -> str:
        """What is missed or incomplete, at the end of the session."""
        return self.back("") + self._lead.unfinished()

    def _is_echoed(self, step: Event) -> bool:
        if not isinstance(step, MailSent) or step.agent != USER or step.content not in self._echoed:
            return False
        self._echoed.remove(step.content)
        return True

    def _printed(self, text: str) -> str:
        self._has_open_line = not text.endswith("\n") if text else self._has_open_line
        return text

    def _heading(self, about: str, remark: str) -> str:
        """Below the last line, also if that has not ended."""
        return "\n" * self._has_open_line + self.current.heading(about, remark)


def _last_rows(text: str, most: int, columns: int) -> str:
    """The last lines of a text that fit into so many rows of the screen; at least one."""
    lines = text.splitlines(keepends=True)
    rows, first = 0, len(lines)
    while first and (rows := rows + rows_of(lines[first - 1], columns)) <= most:
        first -= 1
    return "".join(lines[min(first, len(lines) - 1) :]) if lines else ""
