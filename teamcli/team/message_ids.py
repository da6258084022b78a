"""Ids for lines without one: derived from the text of the line and the number of equal lines before it in its inbox.

They depend neither on the offset nor on the file. So a file that is edited, restored or replaced delivers nothing
twice, while a line that is appended again on purpose is another message.
"""

from __future__ import annotations

import threading
from collections import ChainMap
from collections.abc import Callable, Container, Iterator, MutableMapping

from teamcli.team.message import message_id

Counts = MutableMapping[int, int]
"""How often each line has occurred, by its hash."""


class LineIds:
    """Ids for lines that are read in order, once."""

    def __init__(
        self,
        name: str,
        generation: int,
        before: Callable[[], Counts] = dict,
        new_from: int = 0,
        seen: Container[str] = (),
    ) -> None:
        """`before` counts the lines before the first one. From `new_from` on, no line repeats one in `seen`."""
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
        """A line with both a torn beginning and a message counts once."""
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
    """Counts the lines before an offset; the next time, only those added since."""

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
