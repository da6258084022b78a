"""Rich without a terminal: a renderable becomes lines of text, and the cells of a text are counted.

rich takes a while to load, so each function imports what it needs when it is called.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

from teamcli.text.escaping import escape_controls

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

Piece = tuple[str, str]
"""A text and its style, in words that rich understands: `bold red`."""

Line = list[Piece]

AS_WIDE_AS_NEEDED = 100_000
_SEQUENCE = re.compile(r"\x1b\[[0-9;]*m")


@cache
def _console() -> Console:
    """Used to render, never to print, so that threads can share it."""
    from rich.console import Console
    from rich.theme import Theme

    styles = {
        "markdown.h1": "bold underline",
        **{f"markdown.h{level}": "bold" for level in range(2, 7)},
        "markdown.strong": "bold",
        "markdown.em": "italic",
        "markdown.s": "strike",
        "markdown.code": "cyan",
        "markdown.a": "underline",
        "markdown.item.bullet": "cyan",
        "markdown.item.number": "cyan",
        "markdown.block_quote": "none",
        "markdown.hr": "dim",
        "markdown.table.border": "dim",
        "markdown.table.header": "bold",
    }
    return Console(width=80, height=25, color_system="standard", legacy_windows=False, theme=Theme(styles))


def render_lines(
    renderable: RenderableType,
    width: int | None,
    has_color: bool = False,
    is_unicode: bool = True,
    no_wrap: bool = False,
) -> list[str]:
    """The lines of a renderable, with color codes if `has_color`, without the padding that rich adds at the end.

    A line may be wider than `width` if the renderable says so. Nothing is cropped.
    """
    from rich.color import ColorSystem
    from rich.segment import Segment

    console = _console()
    options = console.options.update(width=width or AS_WIDE_AS_NEEDED, no_wrap=no_wrap)
    options.encoding = "utf-8" if is_unicode else "ascii"
    lines = []
    for segments in Segment.split_lines(console.render(renderable, options)):
        line = ""
        for text, style, _ in reversed(list(segments)):
            text = text if line else text.rstrip()
            line = (style.render(text, color_system=ColorSystem.STANDARD) if has_color and style else text) + line
        lines.append(line)
    return lines


def urls_apart(text: Text, width: int) -> Iterator[Text]:
    """The text, with each URL that is wider than a line on a line that is not wrapped: it can be clicked and copied."""
    start = 0
    for found in re.finditer(r"\S*://\S*", text.plain):
        if cell_width(found[0]) > width:
            if before := text[start : found.start()].plain.rstrip():
                yield text[start : start + len(before)]
            url = text[found.start() : found.end()]
            url.no_wrap, url.overflow = True, "ignore"
            yield url
            start = found.end() + len(text.plain[found.end() :]) - len(text.plain[found.end() :].lstrip())
    if start < len(text) or not start:
        yield text[start:]


def wrap(pieces: Sequence[Piece], width: int, keeps_urls: bool = True) -> list[Line]:
    """The text in lines of at most `width` cells, broken between words, and inside a word that is wider than a line.

    With `keeps_urls`, a long URL is left for the terminal to wrap.
    """
    plain = "".join(text for text, _ in pieces)
    if plain.isascii() and "\n" not in plain and len(plain) <= width:
        return [list(pieces)]
    from rich.text import Text

    # rich would silently drop control characters, so they are made visible first.
    text = Text.assemble(*((escape_controls(text), style) for text, style in pieces))
    parts = urls_apart(text, width) if keeps_urls else [text]
    lines = [line for part in parts for line in part.wrap(_console(), width, overflow=part.overflow or "fold")]
    return [[(part.text, str(part.style or "")) for part in line.render(_console())] for line in lines]


def cell_width(text: str) -> int:
    """How many cells of a terminal the text takes: wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def shorten(text: str, width: int) -> str:
    """The text in at most `width` cells, with an ellipsis if something was cut."""
    if cell_width(text) <= width:
        return text
    from rich.cells import set_cell_size

    return set_cell_size(text, width - 1).rstrip() + "…"


def shorten_middle(text: str, width: int) -> str:
    """The text in at most `width` cells, with an ellipsis in its middle: both ends of a path say the most."""
    if cell_width(text) <= width:
        return text
    from rich.cells import set_cell_size

    end = next(
        (at for at in range(len(text) - width // 2, len(text)) if cell_width(text[at:]) <= width // 2), len(text)
    )
    return set_cell_size(text, max(0, width - 1 - cell_width(text[end:]))).rstrip() + "…" + text[end:]


def column_after(text: str, columns: int) -> int:
    """In which column the cursor is once a terminal has printed one line of text and wrapped it. 0 at the margin."""
    text = _SEQUENCE.sub("", text)
    if text.isascii():
        return len(text) % columns
    column = 0
    for character in text:
        width = cell_width(character)
        column = width if column + width > columns else column + width
    return column % columns


def rows_of(text: str, columns: int) -> int:
    """How many rows these lines take on the screen."""
    lines = _SEQUENCE.sub("", text.removesuffix("\n")).split("\n")
    return sum(1 + max(0, cell_width(line) - 1) // columns for line in lines)
