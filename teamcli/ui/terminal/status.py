"""The status bar: what each agent does at this moment, and what the session has used. Pure: events in, pieces out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from teamcli.agent import events
from teamcli.agent.events import Event
from teamcli.text.escaping import one_line
from teamcli.ui.render.cells import clipped, width_of
from teamcli.ui.render.style import BOLD, CYAN, DIM, GREEN, PLAIN, RED, YELLOW, Piece

SEPARATOR = " │ "
_GONE = ("completed", "failed", "cancelled")
"""How sub-agents end."""
_ROOM_FOR_DOING = (48, 32, 20, 10, 0)
"""How much is said of what an agent does, from plenty of room to none."""


class Doing(NamedTuple):
    what: str
    since: float


class AgentState:
    """What is known of one agent."""

    def __init__(self, name: str, status: str = "idle", note: str = "") -> None:
        self.name = name
        self.status = status
        self.note = note
        """Why it does nothing, where that is not simply because it has done its work."""
        self.doing: Doing | None = None
        self.calls: dict[str, Doing] = {}
        self.retry_at: float | None = None
        self.is_stuck = False
        """It works, and has shown no progress for long."""

    def rest(self) -> None:
        self.doing, self.retry_at = None, None
        self.calls.clear()

    @property
    def is_working(self) -> bool:
        return self.doing is not None or self.status in ("spawning", "working", "pending", "running")

    def describe(self, now: float, room: int) -> str:
        """What it does, in at most `room` characters, and for how long."""
        if self.retry_at is not None and self.retry_at > now:
            return f"tries again in {self.retry_at - now:.0f} s"
        doing = next(reversed(list(self.calls.values())), None) or self.doing
        if doing is None:
            return one_line(self.note or ("" if self.status == "idle" else self.status), room)
        stuck = "stuck: " if self.is_stuck else ""
        return f"{stuck}{one_line(doing.what, room)} {short_time(now - doing.since)}"


class Meter(NamedTuple):
    """What the right half of the bar says."""

    model: str
    mode: str
    context_share: float | None
    """Of what the lead's model can read: how much its conversation takes. None if that is not known."""
    cost: str
    unread: int
    context_tokens: int = 0
    """How much it takes in tokens."""


class StatusBoard:
    """Follows the events of all agents. Not locked: one thread applies, another may draw a moment that is half past."""

    def __init__(self, lead: str, members: Iterable[AgentState] = ()) -> None:
        self._agents = {state.name: state for state in (AgentState(lead), *members)}
        self._lead = lead

    @property
    def is_busy(self) -> bool:
        return any(state.is_working for state in list(self._agents.values()))

    @property
    def lead_is_working(self) -> bool:
        return self._agents[self._lead].is_working

    def apply(self, event: Event, now: float) -> bool:
        """Take note of an event; false where it changes nothing that is shown."""
        if isinstance(event, events.StatusChanged) and event.status in _GONE:
            return self._agents.pop(event.agent, None) is not None
        if event.agent not in self._agents and not isinstance(event, events.StatusChanged | events.TurnStarted):
            return False  # mail of the user's, or of somebody outside
        return self._take(self._agents.setdefault(event.agent, AgentState(event.agent)), event, now)

    def _take(self, state: AgentState, event: Event, now: float) -> bool:
        match event:
            case events.TextArrived() | events.ThinkingArrived() | events.CallStarted():
                return self._does(state, _what_streams(event), now)
            case events.ToolProgress():
                return False
            case events.StatusChanged():
                self._status_changed(state, event)
            case events.TurnStarted():
                state.doing = Doing("thinking", now)
            case events.TurnEnded():
                state.rest()
            case events.ToolStarted():
                state.calls[event.call_id] = Doing(one_line(event.display.title, 80), now)
            case events.ToolFinished():
                state.calls.pop(event.call_id, None)
                self._does(state, "thinking", now)
            case events.RetryScheduled():
                state.retry_at = now + event.delay_seconds
        return True

    def agent_line(self, width: int, now: float, asking: Sequence[str] = ()) -> list[Piece]:
        """Everybody on one line of at most `width` cells: all of what they do, or less, or only who works."""
        states = [state for state in list(self._agents.values()) if state.status != "shutdown"]
        for room in _ROOM_FOR_DOING:
            line = _joined([_agent_pieces(state, room, now, asking) for state in states])
            if width_of(line) <= width:
                return line
        # Who asks and who works first: of the others it is enough to know how many they are.
        states.sort(key=lambda state: (state.name not in asking, not state.is_working))
        for shown in range(len(states) - 1, 0, -1):
            more = _and_more(states[shown:])
            line = [*_joined([_agent_pieces(state, 0, now, asking) for state in states[:shown]]), (more, DIM)]
            if width_of(line) <= width:
                return line
        return clipped(_agent_pieces(states[0], 0, now, asking), width)

    def _status_changed(self, state: AgentState, event: events.StatusChanged) -> None:
        state.status = event.status
        details = event.details
        notes = [word for word in ("interrupted", "paused") if details.get(word)]
        state.is_stuck = bool(details.get("stuck_since"))
        if details.get("waiting_for") and event.status == "idle":
            notes.append(f"waits for {details['waiting_for']}")
        if details.get("error"):
            notes.append("error")
        state.note = ", ".join(notes)
        if event.status in ("idle", "shutdown"):
            state.rest()

    def _does(self, state: AgentState, what: str, now: float) -> bool:
        if state.doing is not None and state.doing.what == what and state.retry_at is None:
            return False
        state.doing, state.retry_at = Doing(what, now), None
        return True


def _what_streams(event: events.TextArrived | events.ThinkingArrived | events.CallStarted) -> str:
    if isinstance(event, events.CallStarted):
        return event.tool
    return "thinking" if isinstance(event, events.ThinkingArrived) else "writing"


def meter_line(meter: Meter, hint: str, width: int) -> list[Piece]:
    """Model, mode, context, cost, mail on the left; what a key does on the right, where there is room."""
    mode_colour = {"default": DIM, "plan": CYAN, "acceptEdits": GREEN}.get(meter.mode, RED)
    share = meter.context_share
    left: list[list[Piece]] = [[(meter.model, DIM)], [(meter.mode, mode_colour)]]
    if meter.unread:
        left.append([(f"✉ {meter.unread} unread", YELLOW)])
    left.append([(meter.cost, DIM)])
    if share is not None:
        left.append([(f"context {share:.0%}", YELLOW if share >= 0.8 else DIM)])
    elif meter.context_tokens:
        left.append([(f"context {meter.context_tokens:,} tokens", DIM)])
    while width_of(line := _joined(left, " · ")) > width and len(left) > 1:
        left.pop()
    room = width - width_of(line) - width_of([(hint, DIM)])
    if room >= 2 and hint:
        return [*line, (" " * room, PLAIN), (hint, DIM)]
    return clipped(line, width)


def short_time(seconds: float) -> str:
    minutes, rest = divmod(int(max(0.0, seconds)), 60)
    if minutes >= 60:
        return f"{minutes // 60}h{minutes % 60:02d}m"
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"


def _agent_pieces(state: AgentState, room: int, now: float, asking: Sequence[str]) -> list[Piece]:
    if state.name in asking:
        return [("▲ ", YELLOW), (state.name, BOLD), (" asks", YELLOW)]
    sign = (
        ("● ", YELLOW if state.is_stuck else GREEN)
        if state.is_working
        else ("○ ", RED if "error" in state.note else DIM)
    )
    said = state.describe(now, room) if room else ""
    return [sign, (state.name, BOLD if state.is_working else PLAIN), (f" {said}" if said else "", DIM)]


def _and_more(states: Sequence[AgentState]) -> str:
    busy = sum(state.is_working for state in states)
    return f" +{len(states)}" + (f" ({busy} busy)" if busy else "")


def _joined(parts: Sequence[list[Piece]], separator: str = SEPARATOR) -> list[Piece]:
    line: list[Piece] = []
    for part in parts:
        line += [(separator, DIM), *part] if line else part
    return line
