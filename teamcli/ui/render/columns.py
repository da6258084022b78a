"""Sets cells of coloured text in columns that fit a width."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Literal

from teamcli.ui.render.cells import width_of
from teamcli.ui.render.style import DIM, PLAIN, Line, Piece
from teamcli.ui.render.wrapping import wrap

Cell = Sequence[Piece]
Alignment = Literal["left", "center", "right"]
GAP = 2
NARROWEST_COLUMN = 3


def set_table(
    head: Sequence[Cell], rows: Sequence[Sequence[Cell]], alignments: Sequence[Alignment], rule: str, width: int
) -> list[Line]:
    """The lines of a table with a line of `rule` below its head."""
    columns = zip(head, *rows, strict=True)
    gap, widths = _fitted([max(map(width_of, column)) for column in columns], width)
    below_head = (rule * (sum(widths) + gap * (len(widths) - 1)), DIM)
    lines = [*_row(head, widths, alignments, gap), [below_head]]
    return lines + [line for row in rows for line in _row(row, widths, alignments, gap)]


def _fitted(natural: list[int], width: int) -> tuple[int, list[int]]:
    """The space between columns, and how wide each may be: the widest give way first."""
    between = len(natural) - 1
    gap = GAP if NARROWEST_COLUMN * len(natural) + GAP * between <= width else 1
    widest = max(natural)
    while widest > NARROWEST_COLUMN and sum(min(each, widest) for each in natural) + gap * between > width:
        widest -= 1
    return gap, [min(each, widest) for each in natural]


def _row(row: Sequence[Cell], widths: Sequence[int], alignments: Sequence[Alignment], gap: int) -> list[Line]:
    cells = [wrap(cell, width, keep_urls=False) for cell, width in zip(row, widths, strict=True)]
    lines: list[Line] = []
    for parts in zip_longest(*cells, fillvalue=[]):
        line: Line = []
        for part, width, alignment in zip(parts, widths, alignments, strict=True):
            line += [*([(" " * gap, PLAIN)] if line else []), *_aligned(part, width, alignment)]
        lines.append(line)
    return lines


def _aligned(part: Sequence[Piece], width: int, alignment: Alignment) -> Line:
    room = max(0, width - width_of(part))
    left = {"left": 0, "center": room // 2, "right": room}[alignment]
    return [(" " * left, PLAIN), *part, (" " * (room - left), PLAIN)]
