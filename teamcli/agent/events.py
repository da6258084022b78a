"""What agents tell the world, as frozen values. Threads never print: screen, headless output and `events.jsonl` all
consume this one stream.

A turn runs from `TurnStarted` to `TurnEnded`; inside it model calls (`TextArrived` … `Recorded`) alternate with tool
calls (`ToolStarted` … `ToolFinished`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from teamcli.agent.tool import Display
from teamcli.llm.types import Message, Usage


@dataclass(frozen=True, slots=True)
class Event:
    agent: str


@dataclass(frozen=True, slots=True)
class TurnStarted(Event):
    pass


@dataclass(frozen=True, slots=True)
class TextArrived(Event):
    text: str


@dataclass(frozen=True, slots=True)
class ThinkingArrived(Event):
    text: str


@dataclass(frozen=True, slots=True)
class CallStarted(Event):
    """The model has begun to write a tool call; its input is still on the way."""

    tool: str


@dataclass(frozen=True, slots=True)
class RetryScheduled(Event):
    """A model call failed and starts again after the delay; what had streamed of its answer is void."""

    delay_seconds: float
    attempt: int
    of: int
    reason: str


@dataclass(frozen=True, slots=True)
class Answered(Event):
    """A model call is over."""

    model: str
    stop_reason: str
    usage: Usage
    cost_usd: float | None


@dataclass(frozen=True, slots=True)
class Recorded(Event):
    """A message now stands in the agent's transcript."""

    message: Message


@dataclass(frozen=True, slots=True)
class ToolStarted(Event):
    call_id: str
    tool: str
    display: Display


@dataclass(frozen=True, slots=True)
class ToolProgress(Event):
    call_id: str
    text: str


@dataclass(frozen=True, slots=True)
class ToolFinished(Event):
    call_id: str
    tool: str
    display: Display
    content: str
    is_error: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class PermissionDenied(Event):
    """A call was refused: by a rule or mode, by the user, or because nobody could be asked."""

    tool: str
    title: str
    reason: str
    rule: str = ""
    """The narrowest rule that would allow it, where there is one."""
    unanswered: bool = False
    """Nobody could be asked."""


class Severity(StrEnum):
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Notice(Event):
    """One sentence that a person should see."""

    text: str
    severity: Severity = Severity.INFO


@dataclass(frozen=True, slots=True)
class LimitHit(Event):
    """An agent stopped because it has used up what it may use."""

    text: str
    limit: str


class Outcome(StrEnum):
    """How a turn ended."""

    DONE = "done"
    INTERRUPTED = "interrupted"
    REFUSED = "refused"
    """The model would not go on."""
    CONTEXT_FULL = "context_full"
    FAILED = "failed"
    """The model could not be reached, or the transcript could not be written."""
    MAX_TURNS = "max_turns"
    MAX_BUDGET = "max_budget"


@dataclass(frozen=True, slots=True)
class TurnEnded(Event):
    outcome: Outcome
    text: str
    """The last answer."""
    seconds: float
    error: Exception | None = None
    """Why it failed, where it did."""


Emit = Callable[[Event], None]
