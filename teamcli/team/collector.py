"""What a reader gets of an inbox at once."""

from __future__ import annotations

from collections.abc import Container, Iterable

from teamcli.team.message import Message, frame
from teamcli.team.message_line import BadLine, ParsedMessage


class Collector:
    """Collects the messages of one batch: each once, and no more than fit."""

    def __init__(self, seen: Container[str], most: int | None) -> None:
        self._seen = seen
        self._room = most
        self._known: set[str] = set()
        self.messages: list[Message] = []
        self.bad: list[BadLine] = []
        self.is_full = False
        """Whether a message was left for the next batch."""

    def take(self, found: Iterable[ParsedMessage | BadLine], start: int, end: int) -> int:
        """Take the messages of a piece that fit. Returns where the first line begins that was not taken."""
        after = start
        for one in found:
            if isinstance(one, BadLine):
                self.bad.append(one)
                continue
            key = one.message.read_as
            if key not in self._seen and key not in self._known and not self._take(one.message):
                self.is_full = True
                return after
            after = one.end
        return end

    def _take(self, message: Message) -> bool:
        if self._room is not None:
            self._room -= len(frame(message)) + 1
            if self._room < 0 and self.messages:
                return False
        self._known.add(message.read_as)
        self.messages.append(message)
        return True
