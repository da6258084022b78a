"""A question at the prompt. If it is long, a part of it is shown, and keys scroll through all of it.

Only the rows on the screen are wrapped, so a diff of 100,000 lines costs no more than a short one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from teamcli.text.console import wrap
from teamcli.ui.render.style import DIM, YELLOW, Line
from teamcli.ui.terminal.fragments import clipped, visible, width_of
from teamcli.ui.terminal.questions import PromptQuestion

PART_CHARACTERS = 2000
"""A longer line is wrapped in parts of this length: a command can be a megabyte on one line."""
FIXED_ROWS = 4
"""A blank row, the position, the keys and the answer."""
CONTINUED = 2
"""How far the second row of a line is set in: it must not look like a line of its own."""
KEPT_PARTS = 500
READING_KEYS = (" · PgUp/PgDn · Ctrl-O: pager", " · PgUp/PgDn")
"""The first that fits is shown."""


class _Part(NamedTuple):
    number: int
    """Of its line, from 1."""
    line: Line
    indent: str
    """In front of its rows, so that nothing but the head of a question begins at the edge of the screen."""


class _Place(NamedTuple):
    part: int
    row: int


class QuestionView:
    def __init__(self, question: PromptQuestion) -> None:
        self.question = question
        self._parts = _parts(question.body())
        self._top = _Place(0, 0)
        self._width = self._room = 1
        self._wrapped: dict[int, list[Line]] = {}

    @property
    def is_long(self) -> bool:
        """Whether there is more than the last drawing had room for."""
        return self._last_top() > _Place(0, 0)

    def rows(self, width: int, screen_rows: int, others: int) -> list[Line]:
        """The question in rows that fit, if `others` rows of the screen are taken. The answer's own row is not one."""
        if width != self._width:
            self._wrapped.clear()
        head = [clipped(visible(line), width) for line in self.question.head(width)]
        # At most half of the screen, so that what happens meanwhile can be seen, too.
        room = min(screen_rows // 2, screen_rows - others - FIXED_ROWS - len(head))
        self._width, self._room = width, max(1, room)
        self._top = min(self._clamped(self._top), self._last_top())
        shown = self._from(self._top)
        position = [clipped(self._position(shown), width)] if self.is_long else []
        return [*head, *(row for _, row in shown), *position]

    # Scrolling

    def scroll(self, rows: int) -> None:
        part, row = self._top.part, self._top.row + rows
        while row < 0 and part > 0:
            part -= 1
            row += len(self._rows_of(part))
        while part < len(self._parts) - 1 and row >= len(self._rows_of(part)):
            row -= len(self._rows_of(part))
            part += 1
        self._top = min(_Place(part, max(0, row)), self._last_top())

    def page(self, pages: int) -> None:
        """One row stays on the screen, so that the reader does not lose the place."""
        self.scroll(pages * max(1, self._room - 1))

    def to_start(self) -> None:
        self._top = _Place(0, 0)

    def to_end(self) -> None:
        self._top = self._last_top()

    # Rows

    def _from(self, top: _Place) -> list[tuple[_Place, Line]]:
        """The rows from a place on, as many as there is room for."""
        found: list[tuple[_Place, Line]] = []
        for part in range(top.part, len(self._parts)):
            rows = self._rows_of(part)
            found += [(_Place(part, row), rows[row]) for row in range(top.row if part == top.part else 0, len(rows))]
            if len(found) >= self._room:
                break
        return found[: self._room]

    def _last_top(self) -> _Place:
        """The place from which the rest just fits."""
        room = self._room
        for part in range(len(self._parts) - 1, -1, -1):
            rows = len(self._rows_of(part))
            if rows >= room:
                return _Place(part, rows - room)
            room -= rows
        return _Place(0, 0)

    def _clamped(self, place: _Place) -> _Place:
        """After a change of the width a part may have fewer rows."""
        return _Place(place.part, min(place.row, len(self._rows_of(place.part)) - 1)) if self._parts else place

    def _rows_of(self, part: int) -> list[Line]:
        if part not in self._wrapped:
            if len(self._wrapped) >= KEPT_PARTS:
                self._wrapped.clear()
            _, line, indent = self._parts[part]
            more = indent + " " * CONTINUED
            room = max(2, self._width - len(more))
            rows = [
                row for each in wrap(visible(line), room, keeps_urls=False) or [[]] for row in _refitted(each, room)
            ]
            self._wrapped[part] = [[(more if at else indent, ""), *row] for at, row in enumerate(rows)]
        return self._wrapped[part]

    def _position(self, shown: Sequence[tuple[_Place, Line]]) -> Line:
        (first, _), (last, _) = shown[0], shown[-1]
        numbers = [self._parts[place.part].number for place in (first, last)]
        total = self._parts[-1].number
        is_whole = last.row == len(self._rows_of(last.part)) - 1 and (
            last.part + 1 == len(self._parts) or self._parts[last.part + 1].number != numbers[1]
        )
        below = total - numbers[1] + (0 if is_whole else 1)
        percent = f" ({(last.part + is_whole) * 100 // len(self._parts)}%)" if total < len(self._parts) else ""
        rest = (f" · {below:,} below", YELLOW) if below else (" · the end", DIM)
        spans = (
            f"lines {numbers[0]}–{numbers[1]} of {total:,}{percent}",
            f"{numbers[0]}–{numbers[1]}/{total:,}{percent}",
        )
        lines: list[Line] = [[(f"  {spans[0]}", DIM), rest, (keys, DIM)] for keys in READING_KEYS]
        lines.append([(f"  {spans[1]}", DIM), rest, (" · PgDn", DIM)])
        return next((line for line in lines if width_of(line) <= self._width), lines[-1])


PAGE_KEYS: Mapping[str, Callable[[QuestionView], None]] = {
    "pagedown": lambda view: view.page(1),
    "pageup": lambda view: view.page(-1),
}
EMPTY_LINE_KEYS: Mapping[str, Callable[[QuestionView], None]] = {
    " ": lambda view: view.page(1),
    "down": lambda view: view.scroll(1),
    "up": lambda view: view.scroll(-1),
    "home": QuestionView.to_start,
    "end": QuestionView.to_end,
}
"""Letters are not among them: an answer may begin with any letter."""


def fitted_keys(keys: str, count: str, width: int) -> Line:
    """The answers there are, without what is in parentheses if it does not fit."""
    if width_of([(f"  {keys}{count}", "")]) > width:
        keys = re.sub(r" \([^)]*\)", "", keys)
    return clipped([(f"  {keys}{count}", DIM)], width)


def _refitted(row: Line, width: int) -> Iterator[Line]:
    """The row in rows that fit, as the prompt measures them: for some emoji it is wider than rich says."""
    while width_of(row) > width and (start := clipped(row, width)) and any(text for text, _ in start):
        yield start
        row = _without(row, sum(len(text) for text, _ in start))
    yield row


def _without(row: Line, count: int) -> Line:
    """What follows after the first `count` characters."""
    rest: Line = []
    for text, style in row:
        rest += [(text[count:], style)] if count < len(text) else []
        count = max(0, count - len(text))
    return rest


def _parts(lines: Sequence[Line]) -> list[_Part]:
    return [part for number, line in enumerate(lines, start=1) for part in _split(number, line)]


def _split(number: int, line: Line) -> list[_Part]:
    """Take the indent off the line, to put it in front of each of its rows, and cut it if it is long."""
    (text, style), *others = line or [("", "")]
    stripped = text.lstrip(" ") if text.startswith("  ") else text
    indent = text[: min(len(text) - len(stripped), 4)]
    pieces = [(text[len(indent) :], style), *others]
    if sum(len(text) for text, _ in pieces) <= PART_CHARACTERS:
        return [_Part(number, pieces, indent)]
    cut = [
        (text[at : at + PART_CHARACTERS], style)
        for text, style in pieces
        for at in range(0, len(text), PART_CHARACTERS)
    ]
    return [_Part(number, [piece], indent) for piece in cut]
