"""The configured servers of a program, which run in one place: the workspace, or a member's own checkout."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence

from teamcli.cancel import CancelScope
from teamcli.errors import McpError
from teamcli.mcp.managed import ManagedServer
from teamcli.mcp.server import ToolInfo
from teamcli.mcp.tool_names import server_of

LISTING_SECONDS = 5.0
"""How long the first request of a conversation waits at most for servers whose tools are not known."""


class Pool:
    def __init__(self, servers: Sequence[ManagedServer]) -> None:
        self.servers: Mapping[str, ManagedServer] = {server.name: server for server in servers}
        """Replaced as a whole, so that others can iterate over it."""
        self._changed = threading.Condition()

    def add(self, server: ManagedServer) -> None:
        self.servers = {**self.servers, server.name: server}

    def get_lists(self, names: Iterable[str], cancel: CancelScope, seconds: float = LISTING_SECONDS) -> None:
        """Ask all servers whose tools are not known, at the same time, and wait a bounded time for them. Servers that
        may have changed since their tools were listed are asked, too, but not waited for.

        Raises: Cancelled
        """
        servers = [self.servers[name] for name in names]
        for server in servers:
            if server.is_enabled and not server.has_recent_lists:
                server.list_in_background(self._notify)
        deadline = time.monotonic() + seconds
        with cancel.notifying(self._changed), self._changed:
            while not all(server.is_settled for server in servers) and (left := deadline - time.monotonic()) > 0:
                cancel.check()
                self._changed.wait(left)
        cancel.check()

    def server_of(self, tool: str) -> ManagedServer:
        """Raises: McpError"""
        name = server_of(tool)
        if name not in self.servers:
            raise McpError(f"There is no MCP server {name or tool} here (there are: {', '.join(self.servers)})")
        return self.servers[name]

    def tools(self, names: Iterable[str]) -> dict[str, ToolInfo]:
        """Those of these servers that are known now."""
        found: dict[str, ToolInfo] = {}
        for name in sorted(names):
            if self.servers[name].is_enabled:
                found.update(self.servers[name].tools or {})
        return found

    def close(self, seconds: float) -> None:
        """End all servers at the same time, and wait no longer than this."""
        threads = [
            threading.Thread(target=server.close, name=f"mcp close {server.name}", daemon=True)
            for server in self.servers.values()
            if server.is_connected
        ]
        deadline = time.monotonic() + seconds
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()
