"""Follows agents from their transcripts to the live stream and back, so that each step is shown once.

A watcher can lose the stream: it was too slow, or the lead has left. Then it continues from the transcript. What it has
shown before that was recorded is remembered until then.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import NamedTuple

from teamcli.agent import events
from teamcli.agent.events import Event
from teamcli.session.replay import RecordedStep
from teamcli.session.steps import is_from_outside, steps_of
from teamcli.session.watching import LAST_STEPS, AgentSnapshot
from teamcli.storage.tail import ends_line

ALL_STEPS = 1_000_000
MOST_REMEMBERED = 1_000


class Follower:
    def __init__(self, agent: str = "", count: int = LAST_STEPS) -> None:
        """Of one agent, or of everyone. `count` steps are shown at the beginning."""
        self._agent = agent
        self._count = count
        self._shown: dict[str, _Shown] = {}

    def begin(self, snapshots: Iterable[AgentSnapshot]) -> list[Event]:
        """What there is to show at a new beginning: at first the last steps, later those since the last event."""
        is_first = not self._shown
        past: list[RecordedStep] = []
        current: list[Event] = []
        for snapshot in snapshots:
            shown = self._shown.setdefault(snapshot.agent, _Shown())
            taken = shown.take_over(snapshot, self._count)
            past += [step for step in taken.past if self._is_wanted(snapshot.agent, step.event)]
            current += [step for event in taken.current for step in steps_of(event, self._agent)]
        past.sort(key=lambda step: step.at)  # stable: the steps of one agent stay in order
        last = past[-self._count :] if is_first else past
        return [*(step.event for step in last), *current]

    def follow(self, event: Event) -> list[Event]:
        """What there is to show of an event of the stream."""
        self._shown.setdefault(event.agent, _Shown()).note(event)
        return list(steps_of(event, self._agent))

    def _is_wanted(self, owner: str, event: Event) -> bool:
        """A watcher of everyone sees a message between agents once: as a step of its sender."""
        if self._agent or not isinstance(event, events.MailSent):
            return True
        return event.agent == owner or is_from_outside(event)


class _Taken(NamedTuple):
    past: list[RecordedStep]
    current: list[Event]


class _Shown:
    """What was shown of one agent."""

    def __init__(self) -> None:
        self._end: int | None = None
        self._file = ""
        """Which transcript `_end` belongs to; empty if that is not known."""
        self._streamed: dict[type, list[str]] = {}
        self._unrecorded: list[Hashable] = []
        """What was shown since the last recorded message."""

    def note(self, event: Event) -> None:
        match event:
            case events.Recorded():
                if self._end is None or event.end < self._end:  # a new incarnation has a new file
                    self._file = ""
                self._end = event.end or self._end
                self._forget()
            case events.TextArrived() | events.ThinkingArrived():
                self._streamed.setdefault(type(event), []).append(event.text)
            case events.RetryScheduled():
                self._streamed = {}
            case _:
                self._unrecorded = [*self._unrecorded[-MOST_REMEMBERED:], _key(event)]

    def take_over(self, snapshot: AgentSnapshot, count: int) -> _Taken:
        past = snapshot.past(ALL_STEPS, after=self._end) if self._continues_in(snapshot) else snapshot.past(count)
        new = _Unseen(self._streamed, self._unrecorded)
        taken = _Taken(
            [RecordedStep(step.at, event) for step in past for event in new.part_of(step.event)],
            [event for each in snapshot.current for event in new.part_of(each)],
        )
        self._end, self._file = snapshot.end, snapshot.file
        self._forget()
        for event in snapshot.current:
            self.note(event)
        return taken

    def _continues_in(self, snapshot: AgentSnapshot) -> bool:
        """Whether the transcript is the one of which the beginning was shown."""
        if self._end is None or self._file:
            return self._end is not None and self._file == snapshot.file
        return self._end <= snapshot.end and ends_line(snapshot.transcript, self._end)

    def _forget(self) -> None:
        self._streamed = {}
        self._unrecorded = []


class _Unseen:
    """Leaves out of a sequence of events what was shown before, each of it once."""

    def __init__(self, streamed: dict[type, list[str]], shown: list[Hashable]) -> None:
        self._streamed = {kind: "".join(pieces) for kind, pieces in streamed.items()}
        self._shown = list(shown)

    def part_of(self, event: Event) -> Iterator[Event]:
        if isinstance(event, events.TextArrived | events.ThinkingArrived):
            if text := self._rest(type(event), event.text):
                yield event._replace(text=text)
        elif (key := _key(event)) in self._shown:
            self._shown.remove(key)
        else:
            yield event

    def _rest(self, kind: type, text: str) -> str:
        """What follows the part that was shown. Text that begins differently is another answer."""
        shown = self._streamed.get(kind, "")
        if text.startswith(shown):
            self._streamed[kind] = ""
            return text[len(shown) :]
        is_part = shown.startswith(text)
        self._streamed[kind] = shown[len(text) :] if is_part else ""
        return "" if is_part else text


def _key(event: Event) -> Hashable:
    """What identifies a step, whether it comes from the stream or from a transcript."""
    match event:
        case events.ToolFinished() | events.ToolStarted():
            return type(event), event.call_id
        case events.TaskChanged():
            return type(event), event.id, event.change
        case _:
            return type(event), *(field for field in event if isinstance(field, str | int))
