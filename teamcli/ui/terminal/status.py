"""What the status bar knows: what each agent is doing, and what the session has used. `status_area` draws agents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from teamcli.agent import events
from teamcli.agent.events import Event
from teamcli.text.counting import counted
from teamcli.text.duration import short_time
from teamcli.text.escaping import one_line
from teamcli.ui.render.style import CYAN, DIM, GREEN, PLAIN, RED, YELLOW, Piece
from teamcli.ui.terminal.fragments import clipped, width_of

SEPARATOR = " │ "
_SUBAGENT_ENDED = ("completed", "failed", "cancelled")


class CurrentWork(NamedTuple):
    what: str
    since: float


class AgentState:
    """What the status bar knows about one agent."""

    def __init__(self, name: str, status: str = "idle", note: str = "", activity: CurrentWork | None = None) -> None:
        """`activity` if another host runs it, and it works already."""
        self.name = name
        self.status = status
        self.note = note
        """Why it is not working, unless its work is simply done."""
        self.is_stuck = False
        """It is working but has made no progress for a long time."""
        self.is_elsewhere = activity is not None
        """Another host runs it: its single steps are not known."""
        self._activity = activity
        self._calls: dict[str, CurrentWork] = {}
        self._retry_at: float | None = None
        self.tokens = 0
        """Those of all model calls of the present turn."""

    @property
    def is_working(self) -> bool:
        return self._activity is not None or self.status in ("spawning", "working", "pending", "running")

    def apply(self, event: Event, now: float) -> bool:
        """Returns False if the event changes nothing that is shown."""
        self._count_tokens(event)
        match event:
            case events.TextArrived() | events.ThinkingArrived():
                return self._start("writing" if isinstance(event, events.TextArrived) else "thinking", now)
            case events.CallStarted():
                return self._start(event.tool, now)
            case events.ToolProgress():
                return False
            case events.StatusChanged():
                self._change_status(event, now)
            case events.TurnStarted():
                self._activity = CurrentWork("thinking", now)
            case events.TurnEnded():
                self._become_idle()
            case events.ToolStarted() | events.PermissionGiven() | events.ToolFinished():
                self._note_call(event, now)
            case events.RetryScheduled():
                self._retry_at = now + event.delay_seconds
        return True

    def describe(self, now: float, room: int) -> str:
        """What it is doing, in at most `room` characters, and for how long."""
        if self._retry_at is not None and self._retry_at > now:
            return f"retries in {self._retry_at - now:.0f} s"
        activity = next(reversed(list(self._calls.values())), None) or self._activity
        if activity is None:
            return one_line(self.note or ("" if self.status == "idle" else self.status), room)
        stuck = "stuck: " if self.is_stuck else ""
        return f"{stuck}{one_line(activity.what, room)} {short_time(now - activity.since)}"

    def _note_call(self, event: events.ToolStarted | events.PermissionGiven | events.ToolFinished, now: float) -> None:
        call = self._calls.pop(event.call_id, None)
        if isinstance(event, events.ToolStarted):
            self._calls[event.call_id] = CurrentWork(one_line(event.display.title, 80), now)
        elif isinstance(event, events.ToolFinished):
            self._start("thinking", now)
        elif call is not None:  # it has waited for an answer, and starts only now
            self._calls[event.call_id] = call._replace(since=now)

    def _count_tokens(self, event: Event) -> None:
        if isinstance(event, events.TurnStarted):
            self.tokens = 0
        elif isinstance(event, events.Answered):
            self.tokens += event.usage.context_tokens

    def _start(self, what: str, now: float) -> bool:
        if self._activity is not None and self._activity.what == what and self._retry_at is None:
            return False
        self._activity, self._retry_at = CurrentWork(what, now), None
        return True

    def _change_status(self, event: events.StatusChanged, now: float) -> None:
        self.status, details = event.status, event.details
        self.is_stuck = bool(details.get("stuck_since"))
        notes = [word for word in ("interrupted", "paused") if details.get(word)]
        if details.get("waiting_for") and event.status == "idle":
            notes.append(f"waits for {details['waiting_for']}")
        self.note = ", ".join([*notes, *(["error"] if details.get("error") else [])])
        self.is_elsewhere = event.is_outside
        if event.status in ("idle", "shutdown"):
            self._become_idle()
        elif event.is_outside:
            since = self._activity.since if self._activity else now
            host = details.get("runs_on")
            self._activity = CurrentWork(f"{event.status} on {host}" if host else event.status, since)

    def _become_idle(self) -> None:
        self._activity = self._retry_at = None
        self._calls.clear()


class SessionMeter(NamedTuple):
    """What the second line of the status bar shows."""

    model: str
    mode: str
    context_share: float | None
    """How much of its context window the lead's conversation fills; None if the window is unknown."""
    cost: str
    unread: int
    context_tokens: int = 0
    senders: tuple[str, ...] = ()
    """Of the unread messages."""
    jobs: int = 0
    """How many commands run in the background."""


class StatusBoard:
    """Follows the events of all agents. One thread applies them while another draws, without a lock: a drawing that is
    half a step behind does no harm."""

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
        """Returns False if the event changes nothing that is shown."""
        if isinstance(event, events.StatusChanged) and event.status in _SUBAGENT_ENDED:
            return self._agents.pop(event.agent, None) is not None
        if event.agent not in self._agents and not isinstance(event, events.StatusChanged | events.TurnStarted):
            return False  # mail from the user or from outside
        return self._agents.setdefault(event.agent, AgentState(event.agent)).apply(event, now)

    def states(self) -> list[AgentState]:
        """The lead first. Those that are shut down are left out."""
        return [state for state in list(self._agents.values()) if state.status != "shutdown"]


def meter_line(meter: SessionMeter, hint: str, width: int, is_urgent: bool = False) -> list[Piece]:
    """Model, mode, mail, cost and context on the left; on the right, if there is room, what a key does.

    An urgent hint takes the room of what is on the left.
    """
    mode_color = {"default": DIM, "plan": CYAN, "acceptEdits": GREEN}.get(meter.mode, RED)
    share = meter.context_share
    left: list[list[Piece]] = [[(meter.model, DIM)], [(meter.mode, mode_color)]]
    if meter.jobs:
        left.append([(counted(meter.jobs, "job"), GREEN)])
    if meter.unread:
        # Names give way to the cost, and the context to names.
        room = width - width_of(joined([*left, [(meter.cost, DIM)]], " · ")) - len(" · ")
        left.append([(_mail_words(meter, room), YELLOW)])
    left.append([(meter.cost, DIM)])
    if share is not None:
        left.append([(f"context {share:.0%}", YELLOW if share >= 0.8 else DIM)])
    elif meter.context_tokens:
        left.append([(f"context {meter.context_tokens:,} tokens", DIM)])
    wanted = width - width_of([(hint, DIM)]) - 2 if is_urgent else width
    while width_of(line := joined(left, " · ")) > wanted and len(left) > 1:
        left.pop()
    room = width - width_of(line) - width_of([(hint, DIM)])
    if room >= 2 and hint:
        return [*line, (" " * room, PLAIN), (hint, DIM)]
    return clipped([(hint, DIM)] if is_urgent else line, width)


def _mail_words(meter: SessionMeter, room: int) -> str:
    """How much is unread, and from whom as far as there is room."""
    names = meter.senders
    for shown in range(len(names), 0, -1):
        more = f" +{len(names) - shown}" if shown < len(names) else ""
        for unread in (" unread", ""):
            words = f"✉ {meter.unread}{unread} from {', '.join(names[:shown])}{more}"
            if width_of([(words, PLAIN)]) <= room:
                return words
    return f"✉ {meter.unread} unread"


def joined(parts: Sequence[list[Piece]], separator: str = SEPARATOR) -> list[Piece]:
    line: list[Piece] = []
    for part in parts:
        line += [(separator, DIM), *part] if line else part
    return line
