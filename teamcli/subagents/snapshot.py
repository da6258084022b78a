"""The state of a sub-agent at one moment, as an immutable value."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class State(StrEnum):
    PENDING = "pending"
    """It waits for a free slot."""
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
    """One step of a sub-agent. `call_id` links a tool result to its call."""

    kind: EventKind
    text: str = ""
    tool: str = ""
    call_id: str = ""
    args: str = ""
    result: str = ""
    is_error: bool = False


class Activity(NamedTuple):
    """What it has done and is doing now."""

    phase: str = ""
    """`thinking`, `writing`, `running tools`, `waiting for permission: …`."""
    current_tool: str = ""
    current_args: str = ""
    tool_calls: int = 0
    tool_counts: tuple[tuple[str, int], ...] = ()
    """The number of calls of each tool."""
    progress: str = ""
    """Its latest answer, in one line."""
    events: tuple[AgentEvent, ...] = ()
    """The newest ones, oldest first."""
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
    """The names of the tools that it may use."""
    state: State
    is_background: bool
    activity: Activity
    result: str
    """Its final text, or what it had said when it was stopped."""
    error: str
    created_at: float
    started_at: float | None
    ended_at: float | None
