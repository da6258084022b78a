"""Styled text at the prompt, measured as prompt_toolkit measures it."""

from __future__ import annotations

from collections.abc import Iterable

from prompt_toolkit.utils import get_cwidth

from teamcli.text.console import wrap
from teamcli.text.escaping import escape_controls
from teamcli.ui.render.style import Line, Piece

TAB = 4


def visible(line: Iterable[Piece]) -> list[Piece]:
    """The line with every control character made visible, before its width is measured."""
    return [(escape_controls(text).expandtabs(TAB), style) for text, style in line]


def width_of(pieces: Iterable[Piece]) -> int:
    return sum(get_cwidth(text) for text, _ in pieces)


def wrapped(line: Line, width: int) -> list[Line]:
    """The line in as many as it needs."""
    return [line] if width_of(line) <= width else wrap(line, width, keeps_urls=False)


def clipped(pieces: Iterable[Piece], width: int) -> list[Piece]:
    """As much as fits into `width` cells."""
    kept: list[Piece] = []
    for text, style in pieces:
        used = get_cwidth(text)
        if used > width:
            end = next(at for at in range(min(len(text), width), -1, -1) if get_cwidth(text[:at]) <= width)
            return [*kept, (text[:end], style)]
        kept.append((text, style))
        width -= used
    return kept
