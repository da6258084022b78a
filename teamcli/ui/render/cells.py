"""Text in terminal cells: wide characters take two, combining ones none."""

from __future__ import annotations

from collections.abc import Iterable

from teamcli.text.escaping import escape_controls
from teamcli.text.table import cell_width
from teamcli.ui.render.style import Piece

TAB = 4


def visible(line: Iterable[Piece]) -> list[Piece]:
    """The same with everything drawn that would drive a terminal, before its width is measured."""
    return [(escape_controls(text).expandtabs(TAB), colour) for text, colour in line]


def width_of(pieces: Iterable[Piece]) -> int:
    return sum(cell_width(text) for text, _ in pieces)


def clipped(pieces: Iterable[Piece], width: int) -> list[Piece]:
    """As much as fits into `width` cells."""
    kept: list[Piece] = []
    for text, colour in pieces:
        fitting = fit(text, width)
        kept.append((fitting, colour))
        width -= cell_width(fitting)
        if fitting != text:
            break
    return kept


def fit(text: str, width: int) -> str:
    """The beginning of the text that takes at most `width` cells."""
    if cell_width(text) <= width:
        return text
    used = 0
    for position, character in enumerate(text):
        used += cell_width(character)
        if used > width:
            return text[:position]
    return text


def wrapped(text: str, width: int) -> list[str]:
    """The text in lines of at most `width` cells, broken anywhere."""
    lines = []
    for line in text.split("\n"):
        while cell_width(line) > width:
            head = fit(line, width) or line[:1]
            lines.append(head)
            line = line[len(head) :]
        lines.append(line)
    return lines
