"""Output of commands: any amount of it in little memory, passed on in few pieces."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from teamcli.text.counting import counted


class BoundedText:
    """Keeps the beginning and the end of what is added, and counts what it leaves out between them."""

    def __init__(self, limit: int) -> None:
        self._half = limit // 2
        self.clear()

    def clear(self) -> None:
        self._head = ""
        self._tail = ""
        self._dropped = 0

    def add(self, text: str) -> None:
        room = self._half - len(self._head)
        self._head += text[:room]
        self._tail += text[room:]
        excess = len(self._tail) - self._half
        if excess > 0:
            self._dropped += excess
            self._tail = self._tail[excess:]

    def __str__(self) -> str:
        if not self._dropped:
            return self._head + self._tail
        return f"{self._head}\n[... {counted(self._dropped, 'character')} left out ...]\n{self._tail}"


WATCHED_CHARACTERS = 8_000
"""How much of what a command prints in one interval is passed on."""


class PacedProgress:
    """Passes text on in bounded pieces, at most one per interval: at most a person watches it."""

    def __init__(self, progress: Callable[[str], None], limit: int, interval_seconds: float = 0.1) -> None:
        self._progress = progress
        self._interval = interval_seconds
        self._pending = BoundedText(limit)
        self._earliest = time.monotonic() + interval_seconds
        self.due_at = math.inf
        """When to pass on the next piece; never, while there is none."""

    def add(self, text: str) -> None:
        self._pending.add(text)
        self.due_at = self._earliest

    def flush_if_due(self) -> None:
        if time.monotonic() >= self.due_at:
            self.flush()

    def flush(self) -> None:
        if self.due_at == math.inf:
            return
        text = str(self._pending)
        self._pending.clear()
        self.due_at = math.inf
        self._earliest = time.monotonic() + self._interval
        self._progress(text)
