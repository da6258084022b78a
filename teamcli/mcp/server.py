"""What the rest of teamcli sees of an MCP server: its configuration, its connection, and what it offers.

Every text in these values was written by a server. It is bounded in size but otherwise raw: escape it where it is
shown, and frame it as outside text before a model reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol

from teamcli.cancel import CancelScope

Json = dict[str, Any]
Kind = Literal["tools", "prompts", "resources"]
State = Literal["stopped", "starting", "ready", "failed", "needs_login", "closed"]
Era = Literal["", "legacy", "modern"]
_EMPTY: Mapping[str, str] = MappingProxyType({})


class ServerTimeouts(NamedTuple):
    start_seconds: float = 30.0
    """Until the server is ready. `npx` may have to download it first."""
    list_seconds: float = 30.0
    """For a list, a prompt or a resource."""
    call_seconds: float = 60.0
    """The longest silence of a call. Progress restarts this clock."""
    longest_call_seconds: float = 600.0
    """A call takes no longer than this, whatever progress it reports."""


class OAuthSettings(NamedTuple):
    """For servers that know teamcli already. Without them it registers itself."""

    client_id: str = ""
    client_secret: str = ""
    callback_port: int = 0
    """Where the browser returns to; 0 for any."""


class ServerConfig(NamedTuple):
    """One server. It has either a command (stdio) or a URL (streamable HTTP)."""

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = _EMPTY
    """Variables for its process, besides those that every command sees."""
    cwd: str = ""
    """Where it runs; empty for the workspace."""
    url: str = ""
    headers: Mapping[str, str] = _EMPTY
    timeouts: ServerTimeouts = ServerTimeouts()
    oauth: OAuthSettings = OAuthSettings()


class ServerStatus(NamedTuple):
    state: State = "stopped"
    error: str = ""
    """Why it is not ready: one sentence of ours."""
    error_detail: str = ""
    """What the server said about it, such as the end of its error output."""
    era: Era = ""
    protocol_version: str = ""
    server_name: str = ""
    server_version: str = ""
    instructions: str = ""
    capabilities: Mapping[str, Any] = MappingProxyType({})


class ToolInfo(NamedTuple):
    name: str
    description: str = ""
    input_schema: Mapping[str, Any] = MappingProxyType({})
    title: str = ""
    output_schema: Mapping[str, Any] | None = None
    annotations: Mapping[str, Any] = MappingProxyType({})
    """Hints such as `readOnlyHint`. The server may lie."""


class ToolResult(NamedTuple):
    content: tuple[Json, ...]
    """Blocks of the kinds text, image, audio, resource_link and resource, as the server sent them."""
    is_error: bool = False
    structured: Any = None


class PromptArgument(NamedTuple):
    name: str
    description: str = ""
    is_required: bool = False


class PromptInfo(NamedTuple):
    name: str
    description: str = ""
    title: str = ""
    arguments: tuple[PromptArgument, ...] = ()


class PromptMessage(NamedTuple):
    role: str
    content: Json
    """One block, as in a tool result."""


class PromptResult(NamedTuple):
    messages: tuple[PromptMessage, ...]
    description: str = ""


class ResourceInfo(NamedTuple):
    uri: str
    name: str = ""
    title: str = ""
    description: str = ""
    mime_type: str = ""
    size: int | None = None


class TemplateInfo(NamedTuple):
    uri_template: str
    name: str = ""
    title: str = ""
    description: str = ""
    mime_type: str = ""


class ResourceContent(NamedTuple):
    uri: str
    mime_type: str = ""
    text: str | None = None
    blob: str | None = None
    """Base64, if it is not text."""


class CallProgress(NamedTuple):
    progress: float
    total: float | None = None
    message: str = ""


class Elicitation(NamedTuple):
    """What a server asks the user (elicitation)."""

    server: str
    message: str
    schema: Mapping[str, Any] = MappingProxyType({})
    """Of a form: a flat JSON schema."""
    url: str = ""
    """If set, the user should open this address; there is no form. Never fetch it."""


class ElicitationAnswer(NamedTuple):
    action: Literal["accept", "decline", "cancel"]
    content: Mapping[str, Any] = MappingProxyType({})
    """Of an accepted form."""


Ask = Callable[[Elicitation, CancelScope], ElicitationAnswer]
"""Asks the user and waits. Called in a thread that nothing else waits for; the scope ends when the question is void."""
OnProgress = Callable[[CallProgress], None]
"""Called in the thread that waits for the call."""


def decline(question: Elicitation, cancel: CancelScope) -> ElicitationAnswer:
    """The answer if no user is there."""
    return ElicitationAnswer("decline")


class ServerConnection(Protocol):
    """One server. Safe for any number of threads.

    Every method except `status` and `close` starts the server if it does not run, and raises Cancelled soon after its
    scope is cancelled. A server that crashed is started again by the next call, but not in a loop.
    """

    @property
    def config(self) -> ServerConfig: ...

    @property
    def status(self) -> ServerStatus: ...

    def start(self, cancel: CancelScope) -> None:
        """Wait until it is ready, within the time bound. Several threads share one start.

        Raises: McpError, Cancelled
        """
        ...

    def reconnect(self, cancel: CancelScope) -> None:
        """Start it again, even if it has crashed often.

        Raises: McpError, Cancelled
        """
        ...

    def tools(self, cancel: CancelScope) -> tuple[ToolInfo, ...]:
        """Raises: McpError, Cancelled"""
        ...

    def call(
        self, tool: str, arguments: Mapping[str, Any], cancel: CancelScope, progress: OnProgress = lambda _: None
    ) -> ToolResult:
        """An error that the server reports is a result with `is_error`.

        Raises: McpError, Cancelled
        """
        ...

    def prompts(self, cancel: CancelScope) -> tuple[PromptInfo, ...]:
        """Raises: McpError, Cancelled"""
        ...

    def get_prompt(self, name: str, arguments: Mapping[str, str], cancel: CancelScope) -> PromptResult:
        """Raises: McpError, Cancelled"""
        ...

    def resources(self, cancel: CancelScope) -> tuple[ResourceInfo, ...]:
        """Raises: McpError, Cancelled"""
        ...

    def templates(self, cancel: CancelScope) -> tuple[TemplateInfo, ...]:
        """Raises: McpError, Cancelled"""
        ...

    def read_resource(self, uri: str, cancel: CancelScope) -> tuple[ResourceContent, ...]:
        """Raises: McpError, Cancelled"""
        ...

    def close(self) -> None:
        """End the server, and wait until it is dead: 4 seconds if it is stubborn. Calls that wait fail."""
        ...
