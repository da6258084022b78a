"""What agents tell the world, as frozen values. Threads never print: screen, headless output and `events.jsonl` all
consume this one stream.

A turn runs from `TurnStarted` to `TurnEnded`; inside it model calls (`TextArrived` … `Recorded`) alternate with tool
calls (`ToolStarted` … `ToolFinished`).

They are named tuples because those load seven times as fast as dataclasses, and a program that is started for one
question loads all of them. Tell them apart by class, not by `==`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, NamedTuple

from teamcli.agent.tool import Display
from teamcli.llm.types import Message, Usage
from teamcli.text.escaping import one_line


class TurnStarted(NamedTuple):
    agent: str


class LineTaken(NamedTuple):
    """A line that the user typed has reached the agent."""

    agent: str
    text: str


class TextArrived(NamedTuple):
    agent: str
    text: str


class ThinkingArrived(NamedTuple):
    agent: str
    text: str


class CallStarted(NamedTuple):
    """The model has begun to write a tool call; its input is still on the way."""

    agent: str
    tool: str


class StillArriving(NamedTuple):
    """More of an answer has come that is not shown."""

    agent: str


class RetryScheduled(NamedTuple):
    """A model call failed and starts again after the delay; what had streamed of its answer is void.

    `attempt` 0: nothing has failed, but the first try waits because another agent was turned away.
    """

    agent: str
    delay_seconds: float
    attempt: int
    seconds_left: float
    """For how much longer it will be tried."""
    reason: str
    is_news: bool = True
    """False if another agent has reported the same wait."""

    @property
    def text(self) -> str:
        return f"{one_line(self.reason)}. Retrying in {_duration(self.delay_seconds)}, for {_more(self.seconds_left)}."


def _duration(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _more(seconds: float) -> str:
    count, unit = (seconds / 60, "minute") if seconds >= 90 else (seconds, "second")
    return f"{count:.0f} more {unit}{'' if round(count) == 1 else 's'}"


class Answered(NamedTuple):
    """A model call is over."""

    agent: str
    model: str
    stop_reason: str
    usage: Usage
    cost_usd: float | None


class Recorded(NamedTuple):
    """A message now stands in the agent's transcript."""

    agent: str
    message: Message


class ToolStarted(NamedTuple):
    agent: str
    call_id: str
    tool: str
    display: Display


class ToolProgress(NamedTuple):
    agent: str
    call_id: str
    text: str


class ToolFinished(NamedTuple):
    agent: str
    call_id: str
    tool: str
    display: Display
    content: str
    is_error: bool
    seconds: float


class PermissionAsked(NamedTuple):
    """A call waits for a person's answer."""

    agent: str
    tool: str
    title: str


class PermissionDenied(NamedTuple):
    """A call was refused: by a rule or mode, by the user, or because nobody could be asked."""

    agent: str
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


class Notice(NamedTuple):
    """One sentence that a person should see."""

    agent: str
    text: str
    severity: Severity = Severity.INFO


class MailSent(NamedTuple):
    """A message of `agent` stands in somebody's inbox."""

    agent: str
    to: str
    type: str
    content: str
    fields: dict[str, Any]


class StatusChanged(NamedTuple):
    """Where a teammate stands now."""

    agent: str
    status: str
    details: dict[str, Any]


class Compacted(NamedTuple):
    """The conversation was made shorter."""

    agent: str
    tokens_before: int
    tokens_after: int
    is_summarised: bool
    """Else old results were shortened, and that was all."""

    @property
    def text(self) -> str:
        return f"Context compacted: {_thousands(self.tokens_before)} → {_thousands(self.tokens_after)} tokens"


class LimitHit(NamedTuple):
    """An agent stopped because it has used up what it may use."""

    agent: str
    text: str
    limit: str
    is_given: bool
    """By the user on the command line, for this run; else it is the usual one for a piece of work."""


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


class TurnEnded(NamedTuple):
    agent: str
    outcome: Outcome
    text: str
    """The last answer."""
    seconds: float
    error: Exception | None = None
    """Why it failed, where it did."""


Event = (
    TurnStarted
    | LineTaken
    | TextArrived
    | ThinkingArrived
    | CallStarted
    | StillArriving
    | RetryScheduled
    | Answered
    | Recorded
    | ToolStarted
    | ToolProgress
    | ToolFinished
    | PermissionAsked
    | PermissionDenied
    | Notice
    | MailSent
    | StatusChanged
    | Compacted
    | LimitHit
    | TurnEnded
)
Emit = Callable[[Event], None]


def _thousands(tokens: int) -> str:
    return f"{tokens / 1000:.0f}k" if tokens >= 10_000 else f"{tokens:,}"
