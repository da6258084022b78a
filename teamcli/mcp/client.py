"""The connection to one server: its lists, calls, prompts and resources."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from teamcli.cancel import CancelScope
from teamcli.errors import LoginNeeded, McpError
from teamcli.mcp import offers
from teamcli.mcp.conversation import McpConversation
from teamcli.mcp.messages import HEADER_MISMATCH, METHOD_NOT_FOUND, RpcError
from teamcli.mcp.param_headers import InvalidHeader, ParamHeader, find_param_headers, param_values
from teamcli.mcp.peer import AnswerBroken, Clock, ConversationLost, McpRequest, OpenTransport
from teamcli.mcp.secrets import secrets_of
from teamcli.mcp.server import (
    Ask,
    Json,
    Kind,
    OnProgress,
    PromptInfo,
    PromptResult,
    ResourceContent,
    ResourceInfo,
    ServerConfig,
    ServerConnection,
    ServerStatus,
    TemplateInfo,
    ToolInfo,
    ToolResult,
    decline,
)
from teamcli.mcp.starter import McpStarter
from teamcli.text.redaction import register_secrets

logger = logging.getLogger(__name__)

_LONGEST_DETAIL = 4_000
T = TypeVar("T")


class McpClient:
    """Implements `server.ServerConnection`."""

    def __init__(
        self,
        config: ServerConfig,
        open_transport: OpenTransport,
        root: Path,
        ask: Ask = decline,
        on_change: Callable[[Kind], None] = lambda kind: None,
        on_status: Callable[[ServerStatus], None] = lambda status: None,
    ) -> None:
        """`config` is expanded. `root` is the directory that a server may ask about.

        `on_change` and `on_status` are called in threads of the connection and must return soon; `on_change` once for
        a burst of changes, and after a restart.
        """
        register_secrets(secrets_of(config))
        self.config = config
        self._starter = McpStarter(config, open_transport, root, ask, on_change, on_status)
        self._param_headers: Mapping[str, tuple[ParamHeader, ...]] = {}

    @property
    def status(self) -> ServerStatus:
        return self._starter.status

    def start(self, cancel: CancelScope) -> None:
        self._starter.conversation(cancel)

    def reconnect(self, cancel: CancelScope) -> None:
        self._starter.start_over()
        self._starter.conversation(cancel)

    def tools(self, cancel: CancelScope) -> tuple[ToolInfo, ...]:
        tools = self._list("tools", "tools/list", "tools", offers.parse_tool, cancel)
        # Only there arguments are repeated in headers. The specification leaves a tool out whose annotation is invalid.
        return self._with_valid_headers(tools) if self.config.url and self._starter.era == "modern" else tools

    def prompts(self, cancel: CancelScope) -> tuple[PromptInfo, ...]:
        return self._list("prompts", "prompts/list", "prompts", offers.parse_prompt, cancel)

    def resources(self, cancel: CancelScope) -> tuple[ResourceInfo, ...]:
        return self._list("resources", "resources/list", "resources", offers.parse_resource, cancel)

    def templates(self, cancel: CancelScope) -> tuple[TemplateInfo, ...]:
        parse = offers.parse_template
        return self._list("resources", "resources/templates/list", "resourceTemplates", parse, cancel)

    def call(
        self, tool: str, arguments: Mapping[str, Any], cancel: CancelScope, progress: OnProgress = lambda _: None
    ) -> ToolResult:
        try:
            try:
                return self._call(tool, arguments, cancel, progress)
            except RpcError as e:
                if e.code != HEADER_MISMATCH:
                    raise
            self.tools(cancel)  # its schema has changed, and with it the headers of the call
            return self._call(tool, arguments, cancel, progress)
        except RpcError as e:
            return ToolResult(({"type": "text", "text": f"{e} (error {e.code})"},), is_error=True)

    def get_prompt(self, name: str, arguments: Mapping[str, str], cancel: CancelScope) -> PromptResult:
        return offers.parse_prompt_result(
            self._ask_for("prompts/get", {"name": name, "arguments": dict(arguments)}, cancel)
        )

    def read_resource(self, uri: str, cancel: CancelScope) -> tuple[ResourceContent, ...]:
        return offers.parse_contents(self._ask_for("resources/read", {"uri": uri}, cancel))

    def close(self) -> None:
        self._starter.close()

    def _ask_for(self, method: str, params: Json, cancel: CancelScope) -> Json:
        request = McpRequest(method, params, Clock(self.config.timeouts.list_seconds))
        try:
            return self._in_conversation(lambda each: each.request_in_rounds(request, cancel), cancel)
        except RpcError as e:
            raise self._refused(method, e) from e

    def _call(self, tool: str, arguments: Mapping[str, Any], cancel: CancelScope, progress: OnProgress) -> ToolResult:
        timeouts = self.config.timeouts
        clock = Clock(timeouts.call_seconds, timeouts.longest_call_seconds)
        params = {"name": tool, "arguments": dict(arguments)}
        headers = param_values(self._param_headers.get(tool, ()), arguments)
        request = McpRequest("tools/call", params, clock, progress, headers)
        return offers.parse_tool_result(
            self._in_conversation(lambda each: each.request_in_rounds(request, cancel), cancel, only_reads=False)
        )

    def _with_valid_headers(self, tools: tuple[ToolInfo, ...]) -> tuple[ToolInfo, ...]:
        """Remember which headers the calls of each tool need. One that cannot be called right is left out."""
        found: dict[str, tuple[ParamHeader, ...]] = {}
        for tool in tools:
            try:
                found[tool.name] = find_param_headers(tool.input_schema)
            except InvalidHeader as e:
                logger.warning("MCP server %s: the tool %r is left out: %s", self.config.name, tool.name, e)
        self._param_headers = found
        return tuple(tool for tool in tools if tool.name in found)

    def _list(
        self, kind: Kind, method: str, key: str, parse: Callable[[Json], T | None], cancel: CancelScope
    ) -> tuple[T, ...]:
        def read(conversation: McpConversation) -> tuple[T, ...]:
            capabilities = conversation.hello.capabilities
            # A server that declares nothing at all may still have lists, so it is asked.
            if capabilities and kind not in capabilities:
                return ()
            return self._pages(conversation, method, key, parse, cancel)

        try:
            return self._in_conversation(read, cancel)
        except RpcError as e:
            if e.code == METHOD_NOT_FOUND:
                return ()
            raise self._refused(method, e) from e

    def _pages(
        self,
        conversation: McpConversation,
        method: str,
        key: str,
        parse: Callable[[Json], T | None],
        cancel: CancelScope,
    ) -> tuple[T, ...]:
        found: dict[Any, T] = {}
        """By name, so that one that comes twice counts once."""
        params: Json = {}
        deadline = time.monotonic() + self.config.timeouts.list_seconds
        for _ in range(offers.MOST_PAGES):
            clock = Clock(max(0.0, deadline - time.monotonic()))
            try:
                result = conversation.request(McpRequest(method, params, clock), cancel)
            except McpError as e:
                if time.monotonic() < deadline:
                    raise
                seconds = self.config.timeouts.list_seconds
                raise McpError(f"MCP server {self.config.name} has not listed its {key} within {seconds:g} s") from e
            entries = result.get(key)
            for each in offers.parse_all(entries if isinstance(entries, list) else (), parse):
                found.setdefault(each[0], each)  # type: ignore[index]
                if len(found) >= offers.MOST_ENTRIES:
                    return tuple(found.values())
            cursor = result.get("nextCursor")
            # The same cursor again would be the same page again, for ever.
            if not isinstance(cursor, str) or cursor == params.get("cursor"):
                break
            params = {"cursor": cursor}
        return tuple(found.values())

    def _refused(self, method: str, error: RpcError) -> McpError:
        return McpError(
            f"MCP server {self.config.name} refused {method} (error {error.code})", str(error)[:_LONGEST_DETAIL]
        )

    def _in_conversation(self, ask: Callable[[McpConversation], T], cancel: CancelScope, only_reads: bool = True) -> T:
        """Over HTTP sessions expire and connections break. Only what has not been done, or only reads, is repeated.

        Raises: RpcError, McpError, Cancelled
        """
        repeatable = (ConversationLost, AnswerBroken) if only_reads else (ConversationLost,)
        try:
            try:
                return ask(self._starter.conversation(cancel))
            except repeatable:
                return ask(self._starter.conversation(cancel))
        except LoginNeeded as e:
            self._starter.fail(e)
            raise


def close_all(connections: Iterable[ServerConnection]) -> None:
    """Close all at the same time: a stubborn server takes 4 seconds."""
    threads = [threading.Thread(target=each.close, name=f"mcp close {each.config.name}") for each in connections]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
