"""One configured server: its connection, made when it is needed, and what it is known to offer."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import NamedTuple

from teamcli.cancel import CancelScope
from teamcli.errors import Cancelled, McpError, StateError
from teamcli.mcp.configured import Configured
from teamcli.mcp.kept_lists import KeptLists, Lists
from teamcli.mcp.server import Kind, PromptInfo, ResourceInfo, ServerConnection, ServerStatus, ToolInfo
from teamcli.mcp.tool_names import tool_names

logger = logging.getLogger(__name__)

Connect = Callable[[Callable[[Kind], None]], ServerConnection]
"""Makes the connection, which gets the function to call when a list has changed."""


class _KnownTools(NamedTuple):
    lists: Lists = Lists()
    tools: Mapping[str, ToolInfo] | None = None
    is_fresh: bool = False
    is_from_server: bool = False
    """In this run."""


class ManagedServer:
    """Safe for any number of threads."""

    def __init__(
        self, configured: Configured, digest: str, connect: Connect, kept: KeptLists, is_enabled: bool = True
    ) -> None:
        self.configured = configured
        self._digest = digest
        self._connect = connect
        self._kept = kept
        self._scope = CancelScope()
        self._lock = threading.Lock()
        self._is_listing = False
        self._connection: ServerConnection | None = None
        self._failure = ""
        self.is_enabled = is_enabled
        """The user can switch it off and on."""

    @property
    def name(self) -> str:
        return self.configured.name

    @property
    def is_connected(self) -> bool:
        return self._connection is not None

    @property
    def status(self) -> ServerStatus:
        connection = self._connection
        if connection is None:
            return ServerStatus("failed", self._failure) if self._failure else ServerStatus()
        return connection.status

    @property
    def connection(self) -> ServerConnection:
        """Raises: McpError, if it is switched off; Cancelled, if it is closed"""
        if not self.is_enabled:
            raise McpError(
                f"MCP server {self.name} is switched off; the user can switch it on: /mcp enable {self.name}"
            )
        with self._lock:
            if self._connection is None:
                self._scope.check()
                self._connection = self._connect(self._list_changed)
            return self._connection

    # What it offers

    @property
    def tools(self) -> Mapping[str, ToolInfo] | None:
        """By the names under which models call them; None if they are not known yet."""
        return self._known.tools

    @property
    def prompts(self) -> tuple[PromptInfo, ...]:
        """Those that are known."""
        return self._known.lists.prompts

    @property
    def resources(self) -> tuple[ResourceInfo, ...]:
        """Those that are known."""
        return self._known.lists.resources

    @property
    def has_recent_lists(self) -> bool:
        return self.tools is not None and self._known.is_fresh

    @property
    def is_settled(self) -> bool:
        """Whether nothing is gained by waiting for its tools."""
        return self.tools is not None or not self.is_enabled or (not self._is_listing and bool(self._failure))

    @cached_property
    def _known(self) -> _KnownTools:
        if (found := self._kept.read(self._digest)) is None:
            return _KnownTools()
        return _KnownTools(found.lists, tool_names(self.name, found.lists.tools), found.is_fresh)

    def list_in_background(self, notify: Callable[[], None] = lambda: None) -> None:
        """Ask the server what it offers, unless that is under way. `notify` is called when its tools are known, or when
        it has failed."""
        with self._lock:
            if self._is_listing:
                return
            self._is_listing = True
            self._failure = ""

        def work() -> None:
            try:
                self.list_tools(self._scope)
                notify()
                self._list_more(self._scope)
            except (McpError, Cancelled) as e:
                logger.warning("%s", e)
            finally:
                self._is_listing = False
                notify()

        threading.Thread(target=work, name=f"mcp list {self.name}", daemon=True).start()

    def list_tools(self, cancel: CancelScope) -> Mapping[str, ToolInfo]:
        """Ask the server for its tools, and remember them.

        Raises: McpError, Cancelled
        """
        try:
            tools = self.connection.tools(cancel)
        except McpError as e:
            self._failure = str(e)
            raise
        self._failure = ""
        named = tool_names(self.name, tools)
        self._known = _KnownTools(self._known.lists._replace(tools=tools), named, is_fresh=True, is_from_server=True)
        self._keep()
        return named

    def check_lists(self) -> None:
        """It runs now. If what is known of it is from an earlier run, ask it."""
        if not self._known.is_from_server:
            self.list_in_background()

    def find(self, name: str, cancel: CancelScope) -> ToolInfo:
        """The tool that models call by this name. The server is asked if that is not known.

        Raises: McpError, Cancelled
        """
        if tool := (self.tools or {}).get(name) or self.list_tools(cancel).get(name):
            return tool
        raise McpError(f"MCP server {self.name} has no tool {name}; find its tools with tool_search")

    # Its life

    def switch(self, is_on: bool) -> None:
        self.is_enabled = is_on
        if not is_on:
            self.disconnect()

    def close(self) -> None:
        self._scope.cancel("closed")
        self.disconnect()

    def disconnect(self) -> None:
        """The next use connects again."""
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def list_all(self, cancel: CancelScope) -> None:
        """Ask the server for its tools, prompts and resources, and remember them.

        Raises: McpError, Cancelled
        """
        self.list_tools(cancel)
        self._list_more(cancel)

    def _list_more(self, cancel: CancelScope) -> None:
        lists = self._known.lists
        lists = lists._replace(prompts=self.connection.prompts(cancel), resources=self.connection.resources(cancel))
        if lists != self._known.lists:
            self._known = self._known._replace(lists=lists)
            self._keep()

    def _keep(self) -> None:
        try:
            self._kept.write(self._digest, self._known.lists)
        except (StateError, ValueError) as e:  # only the next start is slower
            logger.warning("what the MCP server %s offers is not kept: %s", self.name, e)

    def _list_changed(self, kind: Kind) -> None:
        if self.is_enabled:
            self.list_in_background()
