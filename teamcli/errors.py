"""Every error that teamcli raises on purpose, in one tree.

TeamcliError
├── UsageError          the command line is wrong                  → one line on stderr, exit 2
├── ConfigError         a setting, a key, an endpoint, a directory → one line on stderr, exit 2
│   └── StateError      a file under .team/ cannot be used
├── ModelError          a model call failed for good
│   ├── AuthError           the credential was refused             → exit 2
│   ├── ModelNotFound       the endpoint does not know the model   → exit 2
│   ├── ContextTooLong      the conversation does not fit the model
│   ├── RequestRejected     the endpoint calls the request invalid
│   │   └── WrongEndpoint       there is no Messages API           → exit 2
│   └── TransientError      worth another try; final only when all tries are used up
│       ├── RateLimited
│       ├── Overloaded
│       ├── ServerFault
│       └── ConnectionLost
├── TeamError           what was asked of the team cannot be done
│   ├── UnknownRecipient    nobody there can be written to by that name
│   ├── UnknownTeammate     nobody has that name
│   ├── IllegalTransition   a teammate cannot go from its status to that one
│   └── MessageTooLong      more than an inbox takes in one message
├── PromptBlocked       a hook of the user's refused the user's line
├── ToolError           the *model* can act on it                  → an error result, never leaves the tool pipeline
└── TurnStopped         control flow: the turn ends early, with a valid history
    ├── Cancelled           by the user, or because the program leaves
    ├── StreamInterrupted   the same, in the middle of an answer; carries what had arrived
    └── LimitReached        model calls, tokens, money or time are used up

Each message says what happened, to what, and what to do next, in one sentence for the person who reads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from teamcli.llm.types import Reply


class TeamcliError(Exception):
    """The root: anything that teamcli knows how to explain."""


class UsageError(TeamcliError):
    """Raised when the command line cannot be understood."""


class ConfigError(TeamcliError):
    """Raised when something the user configured is missing or wrong."""


class StateError(ConfigError):
    """Raised when a file under `.team/` cannot be read or written."""


class ModelError(TeamcliError):
    """Raised when a model call failed and will not be tried again."""


class AuthError(ModelError):
    """Raised when the endpoint refuses the credential."""


class ModelNotFound(ModelError):
    """Raised when the endpoint does not know the model."""


class ContextTooLong(ModelError):
    """Raised when the conversation is longer than the model's context."""


class RequestRejected(ModelError):
    """Raised when the endpoint answers that the request is invalid."""


class MaxTokensRefused(RequestRejected):
    """Raised when the endpoint does not grant an answer of `max_tokens`; 0 for what it does not say."""

    def __init__(self, message: str, allowed: int = 0, window: int = 0) -> None:
        super().__init__(message)
        self.allowed = allowed
        self.window = window
        """How many tokens the model can read and write together."""


class WrongEndpoint(RequestRejected):
    """Raised when whatever answers is not the Messages API."""


class TransientError(ModelError):
    """Raised when another try may succeed."""

    def __init__(self, message: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class RateLimited(TransientError):
    """Raised on 429: the account sends too much."""


class Overloaded(TransientError):
    """Raised on 529 and on `overloaded_error`: the service has too much to do."""


class ServerFault(TransientError):
    """Raised on other 5xx answers, and on answers that make no sense."""


class ModelLoading(ServerFault):
    """Raised when a server has yet to load its model."""


class ConnectionLost(TransientError):
    """Raised when the endpoint cannot be reached, or the stream is cut or stalls."""


class Unreachable(ConnectionLost):
    """Raised when no connection to the endpoint can be made."""


class TeamError(TeamcliError):
    """Raised when what was asked of the team cannot be done."""


class UnknownRecipient(TeamError):
    """Raised when nobody can be written to by that name; lists those who can."""


class UnknownTeammate(TeamError):
    """Raised when nobody in the team has that name."""


class IllegalTransition(TeamError):
    """Raised when a teammate cannot go from its status to the one asked for."""


class MessageTooLong(TeamError):
    """Raised when a message is longer than an inbox takes."""


class PromptBlocked(TeamcliError):
    """Raised when a hook refuses what the user typed."""


class ToolError(TeamcliError):
    """Raised by a tool for what the model can mend: it becomes an error result."""


class TurnStopped(TeamcliError):
    """Control flow: the turn ends here, and the history stays valid."""


class Cancelled(TurnStopped):
    """Raised where a cancelled scope is noticed; `output` is what a stopped tool had to show so far."""

    def __init__(self, reason: str = "cancelled", output: str = "") -> None:
        super().__init__(reason)
        self.output = output


class StreamInterrupted(Cancelled):
    """Raised when a stream is cancelled; `partial` holds what may be kept of the answer."""

    def __init__(self, reason: str, partial: Reply | None) -> None:
        super().__init__(reason)
        self.partial = partial


class LimitReached(TurnStopped):
    """Raised before a model call that would exceed a limit; `limit` is `max_turns` or `max_budget`."""

    def __init__(self, message: str, limit: str, is_given: bool = True, is_of_work: bool = False) -> None:
        """`is_given`: on the command line. `is_of_work`: for one piece of work, so that the next one may begin."""
        super().__init__(message)
        self.limit = limit
        self.is_given = is_given
        self.is_of_work = is_of_work
