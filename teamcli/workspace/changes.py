"""What agents have changed with their file tools in this run: for each file, its content before the first change.

All agents of the program share one `Changes`. It keeps digests of everything, and content within bounds.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from teamcli.workspace.file_access import Content

MAX_FILE_BYTES = 1024 * 1024
MAX_KEPT_BYTES = 32 * MAX_FILE_BYTES


class FileChange(NamedTuple):
    path: Path
    digest: str | None
    """Of the content before; None if there was no file."""
    before: bytes | None
    """None if there was no file, or if it is too large to keep."""
    agents: tuple[str, ...]
    """The agents that changed it, in order."""


class Changes:
    """Safe to use from any thread."""

    def __init__(self, max_file_bytes: int = MAX_FILE_BYTES, max_kept_bytes: int = MAX_KEPT_BYTES) -> None:
        self._max_file_bytes = max_file_bytes
        self._free_bytes = max_kept_bytes
        self._changes: dict[str, FileChange] = {}
        self._lock = threading.Lock()

    def note(self, agent: str, path: Path, before: Content | None) -> None:
        """Record that `agent` has changed the file at `path`. `before` is its old content; None for a new file."""
        with self._lock:
            # Keep the content from before the first change: that is what /diff compares with.
            change = self._changes.get(str(path)) or self._first(path, before)
            agents = tuple(dict.fromkeys((*change.agents, agent)))
            self._changes[str(path)] = change._replace(agents=agents)

    def all(self) -> tuple[FileChange, ...]:
        """In the order in which the files were first changed."""
        with self._lock:
            return tuple(self._changes.values())

    def _first(self, path: Path, before: Content | None) -> FileChange:
        if before is None:
            return FileChange(path, None, None, ())
        data = before.data
        if data is None or len(data) > min(self._max_file_bytes, self._free_bytes):
            return FileChange(path, before.digest, None, ())
        self._free_bytes -= len(data)
        return FileChange(path, before.digest, data, ())
