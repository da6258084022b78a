"""Ids for lines that bring none: from what a line says, and how many equal lines come before it in its inbox.

Neither the place in the file nor the file itself counts. So a file that is edited, copied back or replaced brings
nothing twice, and a line that somebody appends again on purpose is another message.
"""

from __future__ import annotations

import threading
from collections import ChainMap
from collections.abc import Callable, Container, Iterator, MutableMapping

from teamcli.team.message import message_id

Counts = MutableMapping[int, int]
"""How often lines have occurred, by their hashes."""


class LineIds:
    """The ids of lines that are read in order, once."""

    def __init__(
        self,
        name: str,
        generation: int,
        before: Callable[[], Counts] = dict,
        new_from: int = 0,
        seen: Container[str] = (),
    ) -> None:
        """`before` counts the lines in front of the first; from `new_from` on none is a repeat of what is in `seen`."""
        self._parts = name, str(generation)
        self._before = before
        self._counts: Counts | None = None
        self._new_from = new_from
        self._seen = seen
        self._last = -1, 0

    def of_message(self, line: bytes, offset: int) -> str:
        number = self._number(line, offset)
        while (own_id := self._id("outside", line, number)) in self._seen and offset >= self._new_from:
            number += 1
            self._count(line, number)
        return own_id

    def of_bad_line(self, line: bytes, offset: int) -> str:
        return self._id("bad", line, self._number(line, offset))

    def _id(self, kind: str, line: bytes, number: int) -> str:
        return message_id(kind, *self._parts, line.decode("latin-1"), str(number))

    def _number(self, line: bytes, offset: int) -> int:
        """A line may hold both what a killed writer left and a message: it counts once."""
        if self._last[0] == offset:
            return self._last[1]
        if self._counts is None:
            self._counts = ChainMap({}, self._before())
        number = self._counts.get(hash(line), 0)
        self._count(line, number)
        self._last = offset, number
        return number

    def _count(self, line: bytes, number: int) -> None:
        assert self._counts is not None
        self._counts[hash(line)] = number + 1


class LinesBefore:
    """Counts the lines in front of a place; the next time, only those that have come since."""

    def __init__(self) -> None:
        self._counts: Counts = {}
        self._offset, self._check = 0, ""
        self._lock = threading.Lock()

    def __call__(
        self, offset: int, check_at: Callable[[int], str], lines: Callable[[int, int], Iterator[bytes]]
    ) -> Counts:
        with self._lock:
            if offset < self._offset or (self._offset and check_at(self._offset) != self._check):
                self._counts, self._offset = {}, 0
            counts = dict(self._counts) if self._offset < offset else self._counts
            for line in lines(self._offset, offset):
                counts[hash(line)] = counts.get(hash(line), 0) + 1
            self._counts, self._offset, self._check = counts, offset, check_at(offset)
            return counts
