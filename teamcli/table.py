"""A table as data: any UI can set it; here it becomes plain text, aligned also where characters are two cells wide."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
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
        return "\n".join("".join(cell.text for cell in line).rstrip() for line in self.lines(width))

    def lines(self, width: int | None = None) -> list[list[Cell]]:
        """The same, line by line, for whoever gives styles a colour; the cells are padded."""
        titles = tuple(Cell(column.title, "dim") for column in self.columns)
        rows = [titles, *self.rows] if any(column.title for column in self.columns) else list(self.rows)
        texts = [[text_of(cell) for cell in row] for row in rows]
        widths = self._widths(texts, width) if texts else []
        body = [self._line(row, widths) for row in rows] if self.rows else []
        head = [[Cell(neutralise(self.title), "name")]] if self.title else []
        return [*head, *body, *([Cell(neutralise(note), "dim")] for note in self.notes)]

    def _widths(self, rows: Sequence[Sequence[str]], limit: int | None) -> list[int]:
        widths = [max(map(cell_width, cells)) for cells in zip(*rows, strict=True)]
        excess = 0 if limit is None else sum(widths) + len(GAP) * (len(widths) - 1) - limit
        for at, column in enumerate(self.columns[: len(widths)]):
            if column.shrinks and excess > 0:
                narrower = max(min(widths[at], MIN_SHRUNK), widths[at] - excess)
                excess -= widths[at] - narrower
                widths[at] = narrower
        return widths

    def _line(self, row: Sequence[str | Cell], widths: Sequence[int]) -> list[Cell]:
        cells: list[Cell] = []
        for given, width, column in zip(row, widths, self.columns, strict=True):
            gap = GAP if len(cells) < len(self.columns) - 1 else ""
            style = column.style if isinstance(given, str) else given.style
            cells.append(Cell(_fitted(text_of(given), width, column) + gap, style))
        return cells


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
