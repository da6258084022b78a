"""What the user has typed and the lead has not read yet."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import NamedTuple

from teamcli.agent.events import TurnEnded
from teamcli.cancel import CancelScope
from teamcli.llm.types import Block


class TypedLine(NamedTuple):
    """What the user typed, and the future for the end of the turn that reads it."""

    blocks: Sequence[Block]
    ended: Future[TurnEnded]
    closing: Sequence[Block] = ()
    """Blocks for the end of the message, after mail."""
    text: str = ""
    """The user's own words, to be shown."""
    piped: str = ""
    """What came with them on standard input; the blocks contain it."""


class TypedLines:
    """Each line is read once, or its future is cancelled."""

    def __init__(self, scope: CancelScope) -> None:
        """Once `scope` is cancelled, no line is accepted."""
        self._scope = scope
        self._lines: list[TypedLine] = []
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self._lines)

    @property
    def queued(self) -> tuple[str, ...]:
        """The user's words, oldest first."""
        with self._lock:
            return tuple(line.text for line in self._lines)

    def add(self, line: TypedLine) -> bool:
        """False, with its future cancelled, once the program is leaving."""
        with self._lock:  # so that `cancel` finds each line that was accepted
            is_accepted = not self._scope.cancelled
            if is_accepted:
                self._lines.append(line)
        if not is_accepted:
            line.ended.cancel()
        return is_accepted

    def take_next(self) -> TypedLine | None:
        with self._lock:
            return self._lines.pop(0) if self._lines else None

    def take_all(self) -> list[TypedLine]:
        with self._lock:
            lines, self._lines = self._lines, []
        return lines

    def take_back(self) -> str | None:
        """Take back the newest line; its future is cancelled."""
        with self._lock:
            if not self._lines:
                return None
            line = self._lines.pop()
        line.ended.cancel()
        return line.text

    def withdraw(self, ended: Future[TurnEnded]) -> bool:
        """Take back the line with this future; false if it was read or the lead has left."""
        with self._lock:
            mine = [line for line in self._lines if line.ended is ended]
            self._lines = [line for line in self._lines if line.ended is not ended]
        for line in mine:
            line.ended.cancel()
        return bool(mine)

    def cancel(self) -> None:
        """The lead has left and reads none of them. They stay, to be shown."""
        with self._lock:
            lines = tuple(self._lines)
        for line in lines:
            line.ended.cancel()
