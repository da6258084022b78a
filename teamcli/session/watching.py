"""Watching an agent: what it has under way, and the moment at which a watcher takes over from the transcript.

The transcript holds what is recorded, and the bus delivers what happens. Between the two is what an agent has done
since its last recorded message; it is kept here. A snapshot joins the three without a gap and without an overlap.

What reads transcripts is loaded with the first watcher, because most runs have none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from teamcli.agent import events
from teamcli.agent.events import Event
from teamcli.session.event_bus import EventBus
from teamcli.session.steps import steps_of
from teamcli.storage.tail import file_identity
from teamcli.storage.team_dir import TeamDir
from teamcli.team.message import is_subagent

if TYPE_CHECKING:
    from teamcli.session.replay import RecordedStep

LAST_STEPS = 200
MOST_EVENTS = 500
"""Kept for each agent. One answer makes at most 200 calls."""
MOST_STREAMED = 1_000_000
"""Characters kept of an answer that still streams in."""
MOST_OUTPUT = 8_000
"""Characters kept of the output of a running command."""


class AgentSnapshot(NamedTuple):
    """One agent at one moment. Events that the bus delivers after that moment continue it."""

    agent: str
    transcript: Path
    end: int
    """How far the transcript is recorded; what follows there has not been on the bus yet."""
    file: str
    """Which file that is: a new incarnation of a member begins a new one."""
    current: tuple[Event, ...] = ()
    """What the bus has delivered since then, and no line of the transcript before `end` says."""

    def past(self, count: int = LAST_STEPS, after: int | None = None) -> list[RecordedStep]:
        """The last recorded steps, at most `count` of them; with `after`, only those behind that offset."""
        from teamcli.session.replay import read_steps

        steps = read_steps(self.agent, self.transcript, self.end, self.file, count, after)
        # The line that records an interruption precedes the event.
        if steps and any(isinstance(event, events.TurnEnded) for event in self.current):
            steps = steps[:-1] if isinstance(steps[-1].event, events.TurnEnded) else steps
        return steps

    def steps(self, count: int = LAST_STEPS) -> list[Event]:
        """The last steps and what is under way, as the events that a watcher of this agent would have got."""
        return [*(step.event for step in self.past(count)), *self.under_way()]

    def under_way(self) -> Iterator[Event]:
        return (step for event in self.current for step in steps_of(event, self.agent))


class Watching:
    """Consumes events, and remembers for each agent those that are not in its transcript yet."""

    KINDS: ClassVar[tuple[type[Event], ...]] = (
        events.TurnStarted,
        events.LineTaken,
        events.TextArrived,
        events.ThinkingArrived,
        events.RetryScheduled,
        events.Recorded,
        events.ToolStarted,
        events.ToolProgress,
        events.ToolFinished,
        events.PermissionAsked,
        events.PermissionGiven,
        events.PermissionDenied,
        events.Notice,
        events.MailSent,
        events.TaskChanged,
        events.MergeEnded,
        events.Compacted,
        events.LimitHit,
        events.TurnEnded,
    )

    def __init__(self, bus: EventBus, state: TeamDir) -> None:
        self._bus = bus
        self._state = state
        self._agents: dict[str, _UnderWay] = {}

    def __call__(self, event: Event) -> None:
        under_way = self._agents.get(event.agent)
        if under_way is None:
            under_way = self._agents[event.agent] = _UnderWay()
        under_way.add(event)

    def opened(self, agent: str, end: int) -> None:
        """An agent has opened its transcript, which ends here, and has written nothing to it yet."""
        with self._bus.held():
            self._agents[agent] = _UnderWay(end)

    def watch(self, agent: str, begin: Callable[[AgentSnapshot], object]) -> None:
        """Call `begin` with a snapshot, at a moment at which no event is delivered.

        A consumer of the bus that queues the snapshot there finds every later event behind it and every earlier event
        before it. Not for use inside a consumer.
        """
        with self._bus.held():
            begin(self._snapshot(agent))

    def watch_all(self, names: Callable[[], list[str]], begin: Callable[[list[AgentSnapshot]], object]) -> None:
        """The same for several agents at one moment. `names` is called at that moment."""
        with self._bus.held():
            begin([self._snapshot(name) for name in names()])

    def _snapshot(self, agent: str) -> AgentSnapshot:
        state = self._state
        path = (state.subagent_transcripts if is_subagent(agent) else state.transcripts) / f"{agent}.jsonl"
        size, file = file_identity(path)
        under_way = self._agents.get(agent)
        if under_way is None:
            return AgentSnapshot(agent, path, size, file)
        # A file that is shorter is new: the agent is about to open it.
        end = size if under_way.end is None else under_way.end if under_way.end <= size else 0
        return AgentSnapshot(agent, path, end, file, tuple(under_way.all()))


class _UnderWay:
    """What one agent has done since its last recorded message."""

    def __init__(self, end: int | None = None) -> None:
        self.end = end
        """How far its transcript is recorded; None if this run has written nothing to it."""
        self._items: deque[Event | _Streamed] = deque(maxlen=MOST_EVENTS)
        self._output: dict[str, _Streamed] = {}
        """Of running commands, by the id of their call."""

    def add(self, event: Event) -> None:
        match event:
            case events.TextArrived() | events.ThinkingArrived():
                self._add_piece(event)
            case events.ToolProgress():
                output = self._output.get(event.call_id) or self._output.setdefault(
                    event.call_id, _Streamed(event, MOST_OUTPUT)
                )
                output.add(event.text)
            case events.Recorded():
                self.end = event.end or self.end
                self._items.clear()
            case events.RetryScheduled():  # the part of the answer that has arrived is void
                kept = (item for item in self._items if not isinstance(item, _Streamed | events.RetryScheduled))
                self._items = deque(kept, MOST_EVENTS)
                self._items.append(event)
            case events.PermissionGiven():
                self._forget_question(event.call_id)
            case _:
                if isinstance(event, events.ToolFinished):
                    self._output.pop(event.call_id, None)
                    self._forget_question(event.call_id)
                self._items.append(event)

    def _forget_question(self, call_id: str) -> None:
        """A question that was answered would look open to a watcher that begins now."""
        calls = [item for item in self._items if isinstance(item, events.ToolStarted) and item.call_id == call_id]
        asked = [call.display.text or call.display.title for call in calls]
        questions = [item for item in self._items if isinstance(item, events.PermissionAsked) and item.title in asked]
        for question in questions[:1]:
            self._items.remove(question)

    def all(self) -> Iterator[Event]:
        for item in (*self._items, *self._output.values()):
            yield item.event() if isinstance(item, _Streamed) else item

    def _add_piece(self, event: events.TextArrived | events.ThinkingArrived) -> None:
        last = self._items[-1] if self._items else None
        if not isinstance(last, _Streamed) or type(last.first) is not type(event):
            self._items.append(last := _Streamed(event, MOST_STREAMED))
        last.add(event.text)


class _Streamed:
    """Text that arrives in pieces. They are joined only when someone looks, since nobody does most of the time."""

    def __init__(self, first: events.TextArrived | events.ThinkingArrived | events.ToolProgress, most: int) -> None:
        self.first = first
        self._most = most
        self._pieces: list[str] = []
        self._size = 0

    def add(self, text: str) -> None:
        self._pieces.append(text)
        self._size += len(text)
        if self._size > 2 * self._most or len(self._pieces) > self._most:
            self._pieces = ["".join(self._pieces)[-self._most :]]
            self._size = len(self._pieces[0])

    def event(self) -> Event:
        return self.first._replace(text="".join(self._pieces))
