"""A table as data: any UI can set it; here it becomes plain text, aligned also where characters are two cells wide."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from teamcli.plain import neutralise

Style = Literal["", "name", "dim", "good", "warn", "bad"]
"""What a text is, not how it looks; that is for the UI to choose."""
GAP = "  "
MIN_SHRUNK = 8
"""A column that gives way keeps at least so many cells."""


class Column(NamedTuple):
    title: str
    style: Style = ""
    right: bool = False
    """Its cells stand at the right edge, as numbers do."""
    shrinks: bool = False
    """It gives way where the width is short."""


class Cell(NamedTuple):
    """A text that is styled otherwise than its column."""

    text: str
    style: Style = ""


class Table(NamedTuple):
    title: str
    """A line above, or nothing."""
    columns: tuple[Column, ...]
    rows: tuple[tuple[str | Cell, ...], ...]
    notes: tuple[str, ...] = ()
    """Lines below."""

    def to_text(self, width: int | None = None) -> str:
        """The table as plain text that drives no terminal; None is as wide as it takes."""
        titles = tuple(column.title for column in self.columns)
        rows = [tuple(text_of(cell) for cell in row) for row in self.rows]
        set_rows = [titles, *rows] if any(titles) else rows
        widths = self._widths(set_rows, width)
        lines = (self._line(row, widths) for row in set_rows) if rows else ()
        return "\n".join(filter(None, (neutralise(self.title), *lines, *map(neutralise, self.notes))))

    def _widths(self, rows: Sequence[Sequence[str]], limit: int | None) -> list[int]:
        widths = [max(map(cell_width, cells)) for cells in zip(*rows, strict=True)]
        excess = 0 if limit is None else sum(widths) + len(GAP) * (len(widths) - 1) - limit
        for at, column in enumerate(self.columns[: len(widths)]):
            if column.shrinks and excess > 0:
                narrower = max(min(widths[at], MIN_SHRUNK), widths[at] - excess)
                excess -= widths[at] - narrower
                widths[at] = narrower
        return widths

    def _line(self, row: Iterable[str], widths: Iterable[int]) -> str:
        cells = (_fitted(*each) for each in zip(row, widths, self.columns, strict=True))
        return GAP.join(cells).rstrip()


def text_of(cell: str | Cell) -> str:
    """The text of a cell on one line, without anything that drives a terminal."""
    return neutralise(cell if isinstance(cell, str) else cell.text).replace("\n", " ").replace("\t", " ")


def cell_width(text: str) -> int:
    """How many cells of a terminal the text takes."""
    return len(text) if text.isascii() else sum(map(_width, text))


def shorten(text: str, width: int) -> str:
    """The text in at most `width` cells, with an ellipsis where something was cut."""
    if cell_width(text) <= width:
        return text
    kept, used = "", 1
    for character in text:
        used += _width(character)
        if used > width:
            break
        kept += character
    return f"{kept.rstrip()}…"


def _fitted(text: str, width: int, column: Column) -> str:
    fitted = shorten(text, width)
    padding = " " * (width - cell_width(fitted))
    return padding + fitted if column.right else fitted + padding


def _width(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):  # drawn over the one before, or not at all
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
