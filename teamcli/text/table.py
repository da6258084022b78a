"""A table as data, and its lines. Reports build one; each view decides on width and color."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple

from teamcli.text.console import cell_width, render_lines
from teamcli.text.escaping import escape_controls

Style = Literal["", "name", "dim", "good", "warn", "bad"]
"""The meaning of a text. `COLORS` says how it looks."""
COLORS: dict[Style, str] = {"": "", "name": "bold", "dim": "dim", "good": "green", "warn": "yellow", "bad": "red"}
NO_COLORS: Mapping[str, str] = MappingProxyType({})
GAP = 2
MIN_SHRUNK = 8
"""A column that shrinks keeps at least this many cells."""


class Column(NamedTuple):
    title: str
    style: Style = ""
    right: bool = False
    """Aligned to the right, as numbers are."""
    shrinks: bool = False
    """Its texts are shortened when the table is too wide."""
    may_go: bool = False
    """Left out if that is not enough."""
    goes_below: bool = False
    """If the table is too wide, its text gets a line below the row."""


class Cell(NamedTuple):
    """A text with a style other than its column's."""

    text: str
    style: Style = ""


Row = tuple[str | Cell, ...]


class Table(NamedTuple):
    title: str
    """A line above, or nothing."""
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    """Lines below."""

    def to_text(
        self, width: int | None = None, has_color: bool = False, name_colors: Mapping[str, str] = NO_COLORS
    ) -> str:
        """The table in lines, without any control sequence but our colors. `None` means as wide as needed."""
        lines = [*_sentence(self.title, "name", width, has_color), *self._body(width, has_color, name_colors)]
        return "\n".join(lines + [line for note in self.notes for line in _sentence(note, "dim", width, has_color)])

    def _body(self, width: int | None, has_color: bool, name_colors: Mapping[str, str]) -> list[str]:
        from rich.table import Table as Grid
        from rich.text import Text

        if not self.rows:
            return []
        titles = tuple(Cell(column.title, "dim") for column in self.columns)
        rows = (titles, *self.rows) if any(column.title for column in self.columns) else self.rows
        widths = [max(cell_width(text_of(row[at])) for row in rows) for at in range(len(self.columns))]
        smallest = [min(w, MIN_SHRUNK) if c.shrinks else w for c, w in zip(self.columns, widths, strict=True)]
        shown = self._columns_that_fit(widths, smallest, width)
        below = [at for at, column in enumerate(self.columns) if column.goes_below and at not in shown]
        grid = Grid(box=None, pad_edge=False, show_header=False)
        for at in shown:
            # rich narrows only columns that may wrap. Their texts do not, so they are shortened: a row stays one line.
            column = self.columns[at]
            grid.add_column(
                justify="right" if column.right else "left",
                no_wrap=not column.shrinks,
                min_width=smallest[at],
                width=None if column.shrinks else widths[at],  # so that rich does not measure each cell again
            )

        def cell(row: Row, at: int, indent: str = "") -> Text:
            given = row[at]
            style = given.style if isinstance(given, Cell) else self.columns[at].style
            text = text_of(given)
            color = name_colors.get(text, COLORS[style]) if style == "name" else COLORS[style]
            return Text(indent + text, color, no_wrap=True, overflow="ellipsis")

        for row in rows:
            grid.add_row(*(cell(row, at) for at in shown))
        # A table that cannot be narrowed any further is left to the terminal to wrap.
        drawn = render_lines(grid, width and max(width, _total(smallest, shown)), has_color)
        lines: list[str] = []
        for row, line in zip(rows, drawn, strict=True):
            texts = [cell(row, at, " " * GAP) for at in below if text_of(row[at]).strip()]
            if line or not texts:  # a row may have nothing but the text that goes below it
                lines.append(line)
            for text in texts:
                lines += render_lines(text, None, has_color)
        return lines

    def _columns_that_fit(self, widths: Sequence[int], smallest: Sequence[int], limit: int | None) -> list[int]:
        shown = list(range(len(self.columns)))
        if limit is None:
            return shown
        for at in [at for at in shown if self.columns[at].goes_below]:
            if _total(widths, shown) > limit:
                shown.remove(at)
        for at in [at for at in reversed(shown) if self.columns[at].may_go]:
            if _total(smallest, shown) > limit:
                shown.remove(at)
        return shown


def _total(widths: Sequence[int], shown: Sequence[int]) -> int:
    return sum(widths[at] for at in shown) + GAP * (len(shown) - 1)


def _sentence(text: str, style: Style, width: int | None, has_color: bool) -> list[str]:
    from rich.text import Text

    return render_lines(Text(escape_controls(text), COLORS[style]), width, has_color) if text else []


def text_of(cell: str | Cell) -> str:
    """The text of a cell on one line, without control sequences."""
    return escape_controls(cell if isinstance(cell, str) else cell.text).replace("\n", " ").replace("\t", " ")
