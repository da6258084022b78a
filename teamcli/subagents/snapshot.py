"""What a sub-agent is at one moment, as a value that nobody can change."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class State(StrEnum):
    PENDING = "pending"
    """It waits until fewer of them run."""
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        return self not in (State.PENDING, State.RUNNING)


class EventKind(StrEnum):
    TEXT = "text"
    REASONING = "reasoning"
    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"
    ERROR = "error"


class AgentEvent(NamedTuple):
    """One thing that a sub-agent did. `call_id` ties a result to its call."""

    kind: EventKind
    text: str = ""
    tool: str = ""
    call_id: str = ""
    args: str = ""
    result: str = ""
    is_error: bool = False


class Activity(NamedTuple):
    """What it has done and does now."""

    phase: str = ""
    """In words: `thinking`, `writing`, `running tools`, `waiting for permission: …`."""
    current_tool: str = ""
    current_args: str = ""
    tool_calls: int = 0
    tool_counts: tuple[tuple[str, int], ...] = ()
    """How often it has called each tool."""
    progress: str = ""
    """Its latest words."""
    events: tuple[AgentEvent, ...] = ()
    """The newest ones."""
    events_dropped: int = 0


class Snapshot(NamedTuple):
    id: str
    name: str
    """A short label."""
    parent: str
    task: str
    display_task: str
    """The task in one line."""
    tools: tuple[str, ...]
    """Those that it may use."""
    state: State
    is_background: bool
    activity: Activity
    result: str
    """Its final text; what there was of it where it did not come to its end."""
    error: str
    created_at: float
    started_at: float | None
    ended_at: float | None
