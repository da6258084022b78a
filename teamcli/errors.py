"""Every error that teamcli raises on purpose, in one tree.

TeamcliError
├── UsageError          the command line is wrong                  → one line on stderr, exit 2
├── ConfigError         a setting, a key, an endpoint, a directory → one line on stderr, exit 2
│   └── StateError      a file under .team/ cannot be used, or the database of the team
│       └── LeaseLost       another host runs this agent now
├── ModelError          a model call failed and is not retried
│   ├── AuthError           the API key was rejected               → exit 2
│   ├── ModelNotFound       the endpoint does not know the model   → exit 2
│   ├── ContextTooLong      the conversation does not fit the model
│   ├── RequestRejected     the endpoint calls the request invalid
│   │   └── WrongEndpoint       the address has no Messages API    → exit 2
│   └── TransientError      a retry may succeed; final once all retries are used up
│       ├── RateLimited
│       ├── Overloaded
│       ├── ServerFault
│       └── ConnectionLost
├── TeamError           the team cannot do what was asked
│   ├── UnknownRecipient    no agent that can receive messages has that name
│   ├── UnknownTeammate     no teammate has that name
│   ├── IllegalTransition   a teammate cannot go from its status to that one
│   ├── MessageTooLong      more than one message to an inbox may hold
│   ├── TaskError           the task board refuses a change
│   └── MergeRefused        a member's work is not merged, and the target is as it was
├── PromptBlocked       a hook refused what the user typed
├── ToolError           the *model* can act on it                  → an error result, never leaves the tool pipeline
│   ├── CallRefused         the call may not run
│   ├── GitError            git failed
│   │   └── BranchTaken         a branch of that name is there already, and someone else has made it
│   └── McpError            an MCP server failed or cannot be reached
│       └── LoginNeeded         it wants the user to log in
└── TurnStopped         control flow: the turn ends early, with a valid history
    ├── Cancelled           by the user, or because the program exits
    ├── StreamInterrupted   in the middle of an answer; carries what had arrived
    └── LimitReached        model calls, tokens, money or time are used up

Each message tells its reader in one sentence what happened, to what, and what to do next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from teamcli.llm.types import Reply


class TeamcliError(Exception):
    """The base of all errors that teamcli can explain."""


class UsageError(TeamcliError):
    """Raised when the command line cannot be understood."""


class ConfigError(TeamcliError):
    """Raised when something the user configured is missing or wrong."""


class StateError(ConfigError):
    """Raised when a file under `.team/` cannot be read or written."""


class LeaseLost(StateError):
    """Raised when another host has taken an agent over: nothing may be written for it here."""


class ModelError(TeamcliError):
    """Raised when a model call failed and will not be retried."""


class AuthError(ModelError):
    """Raised when the endpoint rejects the API key."""


class ModelNotFound(ModelError):
    """Raised when the endpoint does not know the model."""


class ContextTooLong(ModelError):
    """Raised when the conversation is longer than the model's context."""


class RequestRejected(ModelError):
    """Raised when the endpoint answers that the request is invalid."""


class MaxTokensRefused(RequestRejected):
    """Raised when the endpoint rejects `max_tokens`. A field is 0 if the endpoint does not say."""

    def __init__(self, message: str, allowed: int = 0, window: int = 0) -> None:
        super().__init__(message)
        self.allowed = allowed
        self.window = window
        """How many tokens the model can read and write in total."""


class WrongEndpoint(RequestRejected):
    """Raised when the server that answers is not a Messages API."""


class TransientError(ModelError):
    """Raised when a retry may succeed."""

    def __init__(self, message: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class RateLimited(TransientError):
    """Raised on 429: the account sends too much."""


class Overloaded(TransientError):
    """Raised on 529 and on `overloaded_error`: the service is overloaded."""


class ServerFault(TransientError):
    """Raised on other 5xx responses, and on responses that make no sense."""


class ModelLoading(ServerFault):
    """Raised when a server is still loading its model."""


class ConnectionLost(TransientError):
    """Raised when the endpoint cannot be reached, or the stream is cut or stalls."""


class Unreachable(ConnectionLost):
    """Raised when a connection to the endpoint cannot be established."""


class TeamError(TeamcliError):
    """Raised when the team cannot do what was asked."""


class UnknownRecipient(TeamError):
    """Raised when no agent that can receive messages has that name. Lists those that do."""


class UnknownTeammate(TeamError):
    """Raised when no teammate has that name."""


class IllegalTransition(TeamError):
    """Raised when a teammate cannot go from its status to the one asked for."""


class MessageTooLong(TeamError):
    """Raised when a message is longer than an inbox accepts."""


class TaskError(TeamError):
    """Raised when the task board refuses a change; names the reason."""


class MergeRefused(TeamError):
    """Raised when a member's work is not merged; names the reason. The target branch and its files are as they were."""


class MergeBlocked(MergeRefused):
    """Raised when the member has to do something first: resolve a conflict, or make the gate pass."""

    def __init__(self, message: str, outcome: str, target: str, advice: str, files: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.outcome = outcome
        """`conflict` or `gate_failed`."""
        self.target = target
        self.advice = advice
        """What the member should read."""
        self.files = files
        """Those in conflict."""


class PromptBlocked(TeamcliError):
    """Raised when a hook refuses what the user typed."""


class ToolError(TeamcliError):
    """Raised by a tool for a problem that the model can fix: it becomes an error result."""


class CallRefused(ToolError):
    """Raised when a call may not run. `by` and `reason` say so to the user in a few words; one of them may be empty."""

    def __init__(self, message: str, by: str = "", reason: str = "") -> None:
        super().__init__(message)
        self.by = by
        self.reason = reason


class GitError(ToolError):
    """Raised when git fails; says what git said."""

    def __init__(self, message: str, exit_code: int | None = None, errors: str = "", has_run: bool = True) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        """None if git has not run to its end."""
        self.errors = errors
        """All that it printed about it."""
        self.has_run = has_run


class BranchTaken(GitError):
    """Raised when the remote has a branch of that name that is not this member's."""


class McpError(ToolError):
    """Raised when an MCP server fails, hangs, or cannot be started. The message names the server."""

    def __init__(self, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.detail = detail
        """What the server said, bounded but otherwise raw: outside text that must be framed and escaped."""


class LoginNeeded(McpError):
    """Raised when an MCP server answers 401 and no stored token helps."""


class TurnStopped(TeamcliError):
    """Control flow: the turn ends here, with a valid history."""


class Cancelled(TurnStopped):
    """Raised where a cancelled scope is noticed. `output` is what a stopped tool had produced so far."""

    def __init__(self, reason: str = "cancelled", output: str = "") -> None:
        super().__init__(reason)
        self.output = output


class StreamInterrupted(Cancelled):
    """Raised when a stream is cancelled. `partial` holds the part of the answer that may be kept."""

    def __init__(self, reason: str, partial: Reply | None) -> None:
        super().__init__(reason)
        self.partial = partial


class LimitReached(TurnStopped):
    """Raised before a model call that would exceed a limit. `limit` is `max_turns` or `max_budget`."""

    def __init__(self, message: str, limit: str, is_given: bool = True, is_of_work: bool = False) -> None:
        """`is_given`: set on the command line. `is_of_work`: for one piece of work, so that the next one may begin."""
        super().__init__(message)
        self.limit = limit
        self.is_given = is_given
        self.is_of_work = is_of_work
