"""The task board of a session. What it needs is loaded when there is a board, or one is wanted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from teamcli.app.engine import Engine
from teamcli.errors import StateError

if TYPE_CHECKING:
    from teamcli.tasks.board import Gate, OnChange
    from teamcli.tasks.stored_board import StoredBoard
    from teamcli.tools.base.context import TaskPort


class LazyBoard:
    def __init__(
        self,
        engine: Engine,
        names: Callable[[], Sequence[str]],
        on_change: OnChange,
        warn: Callable[[str], None],
        gate: Gate,
        why_unread: Callable[[str], str],
    ) -> None:
        """As of `StoredBoard`; `why_unread` as of `BoardTools`."""
        self._engine = engine
        self._ports: tuple[Any, ...] = (names, on_change, gate)
        self._warn = warn
        self._why_unread = why_unread
        self._board: StoredBoard | None = None
        self._lock = threading.Lock()
        self._has_looked = False
        self._warned = ""

    @property
    def exists(self) -> bool:
        """Whether there can be a task."""
        return self._board is not None or self._engine.has_tasks()

    def open(self) -> StoredBoard:
        with self._lock:
            if self._board is None:
                from teamcli.tasks.stored_board import StoredBoard

                self._board = StoredBoard(self._engine.task_storage(self._warn), *self._ports)
        return self._board

    def tools(self) -> TaskPort:
        from teamcli.tasks.tool_port import BoardTools

        return BoardTools(self.open(), self._why_unread)

    def look(self) -> None:
        """Called a few times a second: reports what other processes have changed since the first call."""
        is_first, self._has_looked = not self._has_looked, True
        if not self.exists:
            return
        try:
            self.open().look(is_first)
        except StateError as e:
            if str(e) != self._warned:  # it is tried again at the next look
                self._warned = str(e)
                self._warn(f"The task board cannot be read: {e}")

    def look_again(self) -> None:
        """Another host has changed something."""
        self.open().notice()
        self.look()

    def put_back(self) -> None:
        """Raises: StateError"""
        if self._board is not None:
            self._board.put_back()
