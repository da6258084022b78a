"""What agents report, as frozen values. Threads never print: the screen, headless output and `events.jsonl` all
consume this one stream.

A turn runs from `TurnStarted` to `TurnEnded`; inside it model calls (`TextArrived` … `Recorded`) alternate with tool
calls (`ToolStarted` … `ToolFinished`).

They are named tuples because those load seven times as fast as dataclasses, and every start loads all of them.
Distinguish them by class, not by `==`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from types import MappingProxyType
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
    """The model has started to write a tool call; its input is still arriving."""

    agent: str
    tool: str


class StillArriving(NamedTuple):
    """More of an answer has arrived that is not shown."""

    agent: str


class RetryScheduled(NamedTuple):
    """A model call failed and starts again after the delay. The part of its answer that has streamed is void.

    `attempt` 0: this call has not failed, but its first try waits because another agent was turned away.
    """

    agent: str
    delay_seconds: float
    attempt: int
    seconds_left: float
    """How much longer it will be tried."""
    reason: str
    is_news: bool = True
    """False if another agent has reported the same wait."""

    @property
    def text(self) -> str:
        delay = f"{self.delay_seconds:.1f} s" if self.delay_seconds < 10 else f"{self.delay_seconds:.0f} s"
        if self.delay_seconds >= 120:
            delay = f"{self.delay_seconds / 60:.0f} min"
        count, unit = (self.seconds_left / 60, "minute") if self.seconds_left >= 90 else (self.seconds_left, "second")
        left = f"{count:.0f} more {unit}{'' if round(count) == 1 else 's'}"
        return f"{one_line(self.reason)}. Retrying in {delay}, for {left}."


class Answered(NamedTuple):
    """A model call is over."""

    agent: str
    model: str
    stop_reason: str
    usage: Usage
    cost_usd: float | None


class Recorded(NamedTuple):
    """A message is in the agent's transcript."""

    agent: str
    message: Message
    end: int = 0
    """The offset in the transcript at which its line ends."""
    marks: Mapping[str, Any] = MappingProxyType({})
    """What the line records besides the message, such as which mail it holds."""


class ToolStarted(NamedTuple):
    agent: str
    call_id: str
    tool: str
    display: Display


class ToolProgress(NamedTuple):
    agent: str
    call_id: str
    text: str


class Refusal(NamedTuple):
    """Why a call did not run."""

    by: str = ""
    """Such as `you`, `the rule bash(rm:*)`, `plan mode` or `a hook`; empty if only the reason says it."""
    reason: str = ""

    @property
    def text(self) -> str:
        return ": ".join(filter(None, (f"refused by {self.by}" if self.by else "refused", self.reason)))


class ToolFinished(NamedTuple):
    agent: str
    call_id: str
    tool: str
    display: Display
    content: str
    is_error: bool
    seconds: float
    """How long it ran. Waiting for a person's answer does not count."""
    refusal: Refusal | None = None
    """Set if it was not allowed to run."""


class PermissionAsked(NamedTuple):
    """A call waits for a person's answer."""

    agent: str
    tool: str
    title: str


class PermissionGiven(NamedTuple):
    """A person has allowed the call, so it runs now."""

    agent: str
    call_id: str
    tool: str
    waited_seconds: float


class PermissionDenied(NamedTuple):
    """A call was refused: by a rule or mode, by the user, or because nobody could be asked."""

    agent: str
    tool: str
    title: str
    reason: str
    rule: str = ""
    """The narrowest rule that would allow it, if there is one."""
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
    """A message from `agent` is in the recipient's inbox."""

    agent: str
    to: str
    type: str
    content: str
    fields: dict[str, Any]
    is_outside: bool = False
    """Another process has sent and recorded it."""


class StatusChanged(NamedTuple):
    """The new status of a teammate."""

    agent: str
    status: str
    details: dict[str, Any]
    is_outside: bool = False
    """Another host runs it, and has put this on the timeline."""


class TaskChanged(NamedTuple):
    """A task on the board is new or has changed. `agent` is who changed it: an agent, or `user`."""

    agent: str
    id: int
    change: str
    """One word: created, claimed, assigned, started, released, completed, cancelled, reopened, deleted or
    changed."""
    subject: str
    status: str
    owner: str | None
    is_outside: bool = False
    """Another process made the change, and has put it on the timeline."""

    @property
    def text(self) -> str:
        given = {"created": " for", "assigned": " to"}.get(self.change, "") if self.owner else ""
        to = f"{given} {self.owner}" if given else ""
        return f"task {self.id} {self.change}{to}: {one_line(self.subject, 160)}"


class MergeEnded(NamedTuple):
    """The branch of `agent` was merged, or could not be."""

    agent: str
    target: str
    """The branch that it goes into."""
    outcome: str
    """`merged`, `conflict` or `gate_failed`."""
    text: str
    commits: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    """Those that changed, or that are in conflict."""
    by_user: bool = False
    """The user asked for it, and has seen its outcome."""


class Compacted(NamedTuple):
    """The conversation was made shorter."""

    agent: str
    tokens_before: int
    tokens_after: int
    is_summarised: bool
    """False if old results were only shortened."""

    @property
    def text(self) -> str:
        return f"Context compacted: {_thousands(self.tokens_before)} → {_thousands(self.tokens_after)} tokens"


class LimitHit(NamedTuple):
    """An agent stopped because it reached a limit."""

    agent: str
    text: str
    limit: str
    is_given: bool
    """The limit comes from the command line. If not, it is the default for a piece of work."""


class Outcome(StrEnum):
    """How a turn ended."""

    DONE = "done"
    INTERRUPTED = "interrupted"
    REFUSED = "refused"
    """The model refused to continue."""
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
    """Why it failed, if it did."""


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
    | PermissionGiven
    | PermissionDenied
    | Notice
    | MailSent
    | StatusChanged
    | TaskChanged
    | MergeEnded
    | Compacted
    | LimitHit
    | TurnEnded
)
"""All events. A new one belongs here, too: `session/event_codec.py` reads this list, and "Where do I add" in
docs/contributing.md says who shows it."""
Emit = Callable[[Event], None]


def _thousands(tokens: int) -> str:
    return f"{tokens / 1000:.0f}k" if tokens >= 10_000 else f"{tokens:,}"
