"""A bell or desktop notification when a question waits, or when the team finishes after a long time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

Notify = Literal["off", "bell", "desktop"]

LONG_SECONDS = 10.0
"""A user who waited less than this is still watching the screen."""
BELL = "\a"


class Notifier:
    def __init__(self, how: Notify, ring: Callable[[str], None]) -> None:
        """`ring` sends an escape sequence to the terminal."""
        self._how = how
        self._ring = ring
        self._busy_since: float | None = None
        self._user_at = time.monotonic()

    def user_is_here(self) -> None:
        self._user_at = time.monotonic()

    def question_waits(self) -> None:
        self._send("teamcli: a question waits for you")

    def work_changed(self, is_busy: bool) -> None:
        now = time.monotonic()
        if is_busy:
            self._busy_since = self._busy_since or now
        elif self._busy_since is not None:
            began, self._busy_since = self._busy_since, None
            # Typing counts as watching, too.
            if now - max(began, self._user_at) >= LONG_SECONDS:
                self._send("teamcli: the team is done")

    def _send(self, text: str) -> None:
        if self._how == "bell":
            self._ring(BELL)
        elif self._how == "desktop":  # OSC 9; terminals that do not support it ignore it
            self._ring(f"\x1b]9;{text}\x07")
