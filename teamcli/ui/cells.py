"""Text in terminal cells: wide characters take two, combining ones none."""

from __future__ import annotations

from collections.abc import Iterable

from teamcli.table import cell_width
from teamcli.ui.look import Piece


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


def wrapped_pieces(lines: Iterable[Iterable[Piece]], width: int) -> list[list[Piece]]:
    """Lines of at most `width` cells, with nothing left out."""
    done: list[list[Piece]] = []
    for line in lines:
        current: list[Piece] = []
        room = width
        for text, colour in line:
            while cell_width(text) > room:
                head = fit(text, room)
                done.append([*current, (head, colour)])
                current, room, text = [], width, text[len(head) :]
            current.append((text, colour))
            room -= cell_width(text)
        done.append(current)
    return done


def word_wrapped(text: str, width: int) -> str:
    """The text with line breaks between words, so that no line is longer than it must be."""
    lines: list[str] = []
    for paragraph in text.split("\n"):
        line = ""
        for word in paragraph.split(" "):
            if line and cell_width(line) + 1 + cell_width(word) > width:
                lines.append(line)
                line = word
            else:
                line = f"{line} {word}" if line else word
        lines.append(line)
    return "\n".join(lines)


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
