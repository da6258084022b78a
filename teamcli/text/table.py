"""A table as data: any UI can set it; here it becomes plain text, aligned also where characters are two cells wide."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Literal, NamedTuple

from teamcli.text.escaping import escape_controls

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
    may_go: bool = False
    """It is left out where even that is not enough."""
    goes_below: bool = False
    """Where it does not fit it stands whole on a line of its own, below its row."""


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
        widths = self._widths([[text_of(cell) for cell in row] for row in rows], width) if rows else []
        body = [line for row in rows for line in self._row_lines(row, widths)] if self.rows else []
        head = [[Cell(escape_controls(self.title), "name")]] if self.title else []
        return [*head, *body, *([Cell(escape_controls(note), "dim")] for note in self.notes)]

    def _widths(self, rows: Sequence[Sequence[str]], limit: int | None) -> list[int | None]:
        """Of each column; None for one that is left out of the rows."""
        widths: list[int | None] = [max(map(cell_width, cells)) for cells in zip(*rows, strict=True)]
        if limit is None:
            return widths
        self._leave_out(widths, limit, [at for at, column in enumerate(self.columns) if column.goes_below])
        for at, column in enumerate(self.columns):
            width, excess = widths[at], _total(widths) - limit
            if column.shrinks and width is not None and excess > 0:
                widths[at] = max(min(width, MIN_SHRUNK), width - excess)
        self._leave_out(widths, limit, [at for at, column in reversed(list(enumerate(self.columns))) if column.may_go])
        return widths

    def _leave_out(self, widths: list[int | None], limit: int, candidates: Sequence[int]) -> None:
        for at in candidates:
            if _total(widths) > limit:
                widths[at] = None

    def _row_lines(self, row: Sequence[str | Cell], widths: Sequence[int | None]) -> list[list[Cell]]:
        cells: list[Cell] = []
        below: list[list[Cell]] = []
        for given, width, column in zip(row, widths, self.columns, strict=True):
            style = column.style if isinstance(given, str) else given.style
            if width is not None:
                cells.append(Cell(_fitted(text_of(given), width, column) + GAP, style))
            elif column.goes_below and text_of(given).strip():
                below.append([Cell(GAP + text_of(given), style)])
        cells[-1] = cells[-1]._replace(text=cells[-1].text.removesuffix(GAP))
        return [cells, *below]


def _total(widths: Sequence[int | None]) -> int:
    shown = [width for width in widths if width is not None]
    return sum(shown) + len(GAP) * (len(shown) - 1)


def text_of(cell: str | Cell) -> str:
    """The text of a cell on one line, without anything that drives a terminal."""
    return escape_controls(cell if isinstance(cell, str) else cell.text).replace("\n", " ").replace("\t", " ")


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
