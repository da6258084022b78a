"""The MCP servers of a program, which most programs do without."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from teamcli.app.mcp import McpServers


class LazyMcp:
    def __init__(self, make: Callable[[], McpServers], is_needed: bool) -> None:
        """`is_needed` if servers are configured. Otherwise a role may still bring its own."""
        self._make = make
        self._lock = threading.Lock()
        self.existing: McpServers | None = make() if is_needed else None
        """None if there are no servers."""

    def open(self) -> McpServers:
        with self._lock:
            if self.existing is None:
                self.existing = self._make()
            return self.existing

    def close(self) -> None:
        if self.existing is not None:
            self.existing.close()
