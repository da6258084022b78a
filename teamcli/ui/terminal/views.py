"""What the screen shows: the lead with news of everyone, or one agent that the user watches. For the render thread.

The lead's view keeps rendering while another one is shown. What it would have printed is printed on the return, so
nothing is missing there and nothing appears twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from teamcli.agent.events import Event
from teamcli.session.steps import steps_of
from teamcli.session.watching import LAST_STEPS, Snapshot
from teamcli.team.message import LEAD
from teamcli.ui.render.event_renderer import EventRenderer
from teamcli.ui.render.style import Line

MOST_MISSED_LINES = 1_000


class Turn(NamedTuple):
    """Turning the screen to one agent."""

    snapshot: Snapshot
    about: str
    """What it is and does, for the heading."""
    most_lines: int = 0
    """Show at most so many lines of the past; 0: no limit but that of steps."""


class Views:
    def __init__(self, lead: EventRenderer, focused: Callable[[str], EventRenderer]) -> None:
        """`focused` makes the renderer for an agent that is watched."""
        self._lead = lead
        self._focused = focused
        self._watched: EventRenderer | None = None
        self._missed: deque[str] = deque(maxlen=MOST_MISSED_LINES)
        self._missed_count = 0
        self.shown = LEAD

    @property
    def current(self) -> EventRenderer:
        return self._watched or self._lead

    def show(self, event: Event) -> str:
        """The lines that an event adds to what is shown."""
        text = self._lead.show(event)
        if self._watched is None:
            return text
        self._miss(text)
        return "".join(map(self._watched.show, steps_of(event, self.shown)))

    def growing(self) -> list[Line]:
        return self.current.growing()

    def set_verbose(self, on: bool | None) -> str:
        """In all views. None switches to the other state."""
        text = self._lead.set_verbose(on)
        return self._watched.set_verbose(self._lead.is_verbose) if self._watched else text

    def turn_to(self, turn: Turn) -> str:
        """The heading, and the last steps of the agent to watch."""
        name = turn.snapshot.agent
        self._watched, self.shown = self._focused(name), name
        self._watched.set_verbose(self._lead.is_verbose)
        steps = turn.snapshot.steps(min(LAST_STEPS, turn.most_lines or LAST_STEPS))
        lines = "".join(map(self._watched.show, steps)).split("\n")[:-1]
        is_long = 0 < turn.most_lines < len(lines)
        remark = f"… /watch {name} shows more" if is_long else ""
        shown = lines[-turn.most_lines :] if is_long else lines
        return self._watched.heading(turn.about, remark) + "".join(line + "\n" for line in shown)

    def back(self, about: str) -> str:
        """To the lead: what it and the others did in the meantime."""
        if self._watched is None:
            return ""
        self._watched, self.shown = None, LEAD
        missed, dropped = "".join(self._missed), self._missed_count - len(self._missed)
        self._missed.clear()
        self._missed_count = 0
        remark = f"{dropped:,} lines are not shown; /log has every step." if dropped else ""
        return self._lead.heading(about, remark) + missed

    def unfinished(self) -> str:
        """What is missed or incomplete, at the end of the session."""
        return self.back("") + self._lead.unfinished()

    def _miss(self, text: str) -> None:
        lines = text.split("\n")[:-1]  # the text is made of whole lines
        self._missed_count += len(lines)
        self._missed.extend(line + "\n" for line in lines)
