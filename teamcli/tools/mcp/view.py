"""What one agent sees of the servers: those of its role, and of their tools those that it may use."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from teamcli.cancel import CancelScope
from teamcli.mcp.pool import Pool
from teamcli.mcp.server import ToolInfo
from teamcli.mcp.tool_names import is_named, server_of


class View(NamedTuple):
    pool: Pool
    servers: Collection[str]
    wanted: tuple[str, ...] | None = None
    """Names or patterns of the tools that it may use; None for all."""
    denied: tuple[str, ...] = ()
    parent: View | None = None
    """What the agent that started this one sees. It cannot give more than that."""

    @property
    def is_empty(self) -> bool:
        enabled = [name for name in self.servers if self.pool.servers[name].is_enabled]
        return not enabled or (self.wanted is not None and not any(map(self._may_use_some, enabled)))

    def may_use(self, tool: str) -> bool:
        is_wanted = self.wanted is None or is_named(tool, self.wanted)
        is_mine = server_of(tool) in self.servers and is_wanted and not is_named(tool, self.denied)
        return is_mine and (
            self.parent is None or server_of(tool) not in self.parent.servers or self.parent.may_use(tool)
        )

    def tools(self) -> dict[str, ToolInfo]:
        """Those that are known now."""
        return {name: tool for name, tool in self.pool.tools(self.servers).items() if self.may_use(name)}

    def get_lists(self, cancel: CancelScope) -> None:
        """Raises: Cancelled"""
        self.pool.get_lists(self.servers, cancel)

    def not_listed(self) -> list[str]:
        """A line for each server whose tools are not known."""
        servers = (self.pool.servers[name] for name in self.servers)
        missing = [server for server in servers if server.is_enabled and server.tools is None]
        return [f"{server.name}: {server.status.error or 'not ready yet'}" for server in missing]

    def _may_use_some(self, server: str) -> bool:
        return any(pattern.startswith(f"mcp__{server}") or "*" in pattern for pattern in self.wanted or ())
