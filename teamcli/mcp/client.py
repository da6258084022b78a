"""The connection to one server: starts it when it is needed, and again after a crash."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from teamcli.cancel import CancelScope
from teamcli.errors import Cancelled, LoginNeeded, McpError
from teamcli.mcp import offers
from teamcli.mcp.changes import ChangeNotifier
from teamcli.mcp.conversation import McpConversation
from teamcli.mcp.messages import HEADER_MISMATCH, METHOD_NOT_FOUND, RpcError
from teamcli.mcp.param_headers import InvalidHeader, ParamHeader, find_param_headers, param_values
from teamcli.mcp.peer import AnswerBroken, Clock, ConversationLost, McpRequest, OpenTransport
from teamcli.mcp.secrets import secrets_of
from teamcli.mcp.server import (
    Ask,
    Era,
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
from teamcli.text.redaction import register_secrets

logger = logging.getLogger(__name__)

_MOST_STARTS, _STARTS_WITHIN_SECONDS = 3, 60.0
"""A server that crashes more often waits, so that it is not started in a loop."""
_LONGEST_DETAIL = 4_000
_MARGIN_SECONDS = 1.0
"""For those who wait for a start, so that they read why it failed and not only that it took too long."""
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
        self._open_transport = open_transport
        self._root = root
        self._ask = ask
        self._on_status = on_status
        self._changes = ChangeNotifier(on_change)
        self._lock = threading.Lock()
        self._scope = CancelScope()
        self._status = ServerStatus()
        self._conversation: McpConversation | None = None
        self._was_ready = False
        self._starting: Future[McpConversation] | None = None
        self._param_headers: Mapping[str, tuple[ParamHeader, ...]] = {}
        self._started_at: deque[float] = deque(maxlen=_MOST_STARTS)
        self._era: Era = "modern" if config.url else "legacy"

    @property
    def status(self) -> ServerStatus:
        return self._status

    def start(self, cancel: CancelScope) -> None:
        self._connected(cancel)

    def reconnect(self, cancel: CancelScope) -> None:
        with self._lock:
            self._started_at.clear()
            conversation, self._conversation = self._conversation, None
        if conversation is not None:
            conversation.close()
        self._connected(cancel)

    def tools(self, cancel: CancelScope) -> tuple[ToolInfo, ...]:
        tools = self._list("tools", "tools/list", "tools", offers.parse_tool, cancel)
        return self._with_valid_headers(tools) if self.config.url and self._era == "modern" else tools

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
        with self._lock:
            self._status = ServerStatus("closed")
            conversation, self._conversation = self._conversation, None
        self._on_status(self._status)
        self._scope.cancel("closed")
        self._changes.close()
        if conversation is not None:
            conversation.close()

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
                return ask(self._connected(cancel))
            except repeatable:
                return ask(self._connected(cancel))
        except LoginNeeded as e:
            self._fail(e)
            raise

    def _connected(self, cancel: CancelScope) -> McpConversation:
        """Raises: McpError, Cancelled"""
        cancel.check()
        with self._lock:
            if self._status.state == "closed":
                raise McpError(f"MCP server {self.config.name}: the connection is closed")
            if self._conversation is not None and not self._conversation.is_lost:
                return self._conversation
            starting, is_new = self._starting, self._starting is None
            if starting is None:
                starting = self._begin()
        if is_new:
            self._on_status(self._status)
            threading.Thread(
                target=self._start_into, args=(starting,), name=f"mcp start {self.config.name}", daemon=True
            ).start()
        return self._wait_for(starting, cancel)

    def _wait_for(self, starting: Future[McpConversation], cancel: CancelScope) -> McpConversation:
        """A waiter that is cancelled does not stop the start, for which others may wait."""
        ready: queue.SimpleQueue[bool] = queue.SimpleQueue()
        starting.add_done_callback(lambda _: ready.put(True))
        with cancel.on_cancel(lambda: ready.put(False)):
            try:
                is_ready = ready.get(timeout=self.config.timeouts.start_seconds + _MARGIN_SECONDS)
            except queue.Empty:
                raise McpError(f"MCP server {self.config.name} has not started in time") from None
        if not is_ready:
            raise Cancelled(cancel.reason)
        error = starting.exception()
        if isinstance(error, McpError):  # each waiter raises its own
            kind = McpError if isinstance(error, AnswerBroken) else type(error)  # a start is not repeated
            raise kind(str(error), error.detail) from error
        return starting.result()

    def _begin(self) -> Future[McpConversation]:
        """With the lock held. Raises: McpError"""
        now = time.monotonic()
        if len(self._started_at) == _MOST_STARTS and now - self._started_at[0] < _STARTS_WITHIN_SECONDS:
            raise McpError(
                f"MCP server {self.config.name} failed {_MOST_STARTS} times within a minute and is not started again "
                f"yet; fix it, or reconnect it with /mcp ({self._status.error})",
                self._status.error_detail,
            )
        self._started_at.append(now)
        self._status = ServerStatus("starting")
        starting = self._starting = Future()
        return starting

    def _start_into(self, starting: Future[McpConversation]) -> None:
        conversation = None
        try:
            conversation = self._open()
            conversation.begin(self._era, self.config.timeouts.start_seconds, self._scope)
            self._become_ready(conversation)
            starting.set_result(conversation)
            return
        except McpError as e:
            error = e
        except Cancelled:
            error = McpError(f"MCP server {self.config.name}: the connection is closed")
        except Exception as e:  # boundary: a bug must not leave the others waiting
            logger.exception("MCP server %s cannot be started", self.config.name)
            error = McpError(f"MCP server {self.config.name} cannot be started: {e}")
        self._fail(error)
        starting.set_exception(error)
        if conversation is not None:
            conversation.close()

    def _open(self) -> McpConversation:
        made: list[McpConversation] = []

        def on_lost(error: McpError) -> None:
            with self._lock:
                if not made or self._conversation is not made[0]:
                    return
                self._conversation = None
                self._status = _failed(error)
                if isinstance(error, ConversationLost):  # not a crash
                    self._started_at.clear()
            self._on_status(self._status)

        conversation = McpConversation(
            self.config, self._root, self._ask, self._changes.note, on_lost, self._open_transport
        )
        made.append(conversation)
        return conversation

    def _become_ready(self, conversation: McpConversation) -> None:
        """Raises: McpError, Cancelled"""
        with self._lock:
            if self._status.state == "closed":
                raise Cancelled
            if conversation.is_lost:
                raise McpError(f"MCP server {self.config.name} ended as soon as it had started")
            self._starting = None
            self._conversation = conversation
            self._era = conversation.hello.era
            self._status = conversation.hello.status
            is_restart, self._was_ready = self._was_ready, True
        self._on_status(self._status)
        if is_restart:
            self._changes.note("tools", "prompts", "resources")

    def _fail(self, error: McpError) -> None:
        with self._lock:
            self._starting = None
            if self._status.state == "closed":
                return
            self._status = _failed(error)
        self._on_status(self._status)


def close_all(connections: Iterable[ServerConnection]) -> None:
    """Close all at the same time: a stubborn server takes 4 seconds."""
    threads = [threading.Thread(target=each.close, name=f"mcp close {each.config.name}") for each in connections]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _failed(error: McpError) -> ServerStatus:
    return ServerStatus("needs_login" if isinstance(error, LoginNeeded) else "failed", str(error), error.detail)
