"""A screen as a self-contained SVG. Each run of text is fixed to its cells, whatever the font."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple
from xml.sax.saxutils import escape

from pyte.screens import Char

from pictures.shot import Shot, is_dim

CELL_WIDTH, CELL_HEIGHT, FONT_SIZE = 8.4, 18, 14
MARGIN, TITLE_HEIGHT = 14, 32
FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', 'Liberation Mono', monospace"
INK, PAPER, FRAME = "#d8dee6", "#171b22", "#3d4551"
"""A dark window with a frame is visible on light and dark pages."""
DIMMED = 0.62
COLORS = {
    "black": "#4a525e",
    "red": "#ff7b72",
    "green": "#56d364",
    "brown": "#e3b341",  # pyte's name for yellow
    "blue": "#79b8ff",
    "magenta": "#d2a8ff",
    "cyan": "#4fd1d9",
    "white": "#d8dee6",
    "brightblack": "#7d8794",
    "brightred": "#ffa198",
    "brightgreen": "#7ee787",
    "brightbrown": "#f2cc60",
    "brightblue": "#a5d6ff",
    "brightmagenta": "#e2c5ff",
    "brightcyan": "#8ae6ec",
    "brightwhite": "#ffffff",
}
_PLAIN_RUN = re.compile(r"[!-~](?:[ -~]*[!-~])?")


class CellStyle(NamedTuple):
    ink: str
    paper: str
    classes: str


def svg(shot: Shot, title: str) -> str:
    columns, lines = len(shot.rows[0]), len(shot.rows)
    width = columns * CELL_WIDTH + 2 * MARGIN
    height = lines * CELL_HEIGHT + TITLE_HEIGHT + MARGIN
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
            f'width="{width:g}" height="{height:g}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>text {{ font: {FONT_SIZE}px {FONTS}; }} .b {{ font-weight: 700; }} "
            ".i { font-style: italic; } .u { text-decoration: underline; } .s { text-decoration: line-through; } "
            ".c { text-anchor: middle; }</style>",
            f'<rect x=".5" y=".5" width="{width - 1:g}" height="{height - 1:g}" rx="9" fill="{PAPER}" '
            f'stroke="{FRAME}"/>',
            *(f'<circle cx="{18 + 18 * n}" cy="16" r="5" fill="{FRAME}"/>' for n in range(3)),
            f'<text class="c" x="{width / 2:g}" y="21" fill="{_mixed(INK, PAPER, DIMMED)}">{escape(title)}</text>',
            f'<g transform="translate({MARGIN} {TITLE_HEIGHT})" fill="{INK}">',
            *_screen(shot),
            "</g>",
            "</svg>",
            "",
        ]
    )


def _screen(shot: Shot) -> Iterator[str]:
    for y, row in enumerate(shot.rows):
        at_cursor = shot.cursor[0] if shot.cursor and shot.cursor[1] == y else None
        styled = [(x, cell, _style(cell, x == at_cursor)) for x, cell in enumerate(row)]
        for style, run in groupby(styled, key=lambda each: each[2]):
            cells = list(run)
            yield from _run(cells[0][0], y, [cell for _, cell, _ in cells], style)


def _run(x: int, y: int, cells: list[Char], style: CellStyle) -> Iterator[str]:
    """Adjacent cells of one style."""
    if style.paper != PAPER:
        yield (
            f'<rect x="{x * CELL_WIDTH:g}" y="{y * CELL_HEIGHT}" width="{len(cells) * CELL_WIDTH:g}" '
            f'height="{CELL_HEIGHT}" fill="{style.paper}"/>'
        )
    text = "".join(cell.data[:1] or "\0" for cell in cells)
    for found in _PLAIN_RUN.finditer(text):
        yield _text(x + found.start(), y, found[0], style)
    for at, cell in enumerate(cells):
        if cell.data and not cell.data.isascii():  # may come from another font, so each gets its own position
            is_wide = text[at + 1 : at + 2] == "\0"
            yield _sign(x + at + (1 if is_wide else 0.5), y, cell.data, style)


def _text(x: int, y: int, text: str, style: CellStyle) -> str:
    """Text stretched to its cells, because fonts differ in width. No-break spaces keep SVG from folding spaces."""
    shown = escape(text).replace(" ", "\N{NO-BREAK SPACE}")
    length = f'textLength="{len(text) * CELL_WIDTH:g}" lengthAdjust="spacingAndGlyphs"' if len(text) > 1 else ""
    return _element(x * CELL_WIDTH, y, shown, style, style.classes, length)


def _sign(x: float, y: int, sign: str, style: CellStyle) -> str:
    return _element(x * CELL_WIDTH, y, escape(sign), style, f"{style.classes} c".strip(), "")


def _element(x: float, y: int, shown: str, style: CellStyle, classes: str, more: str) -> str:
    attributes = [f'x="{x:g}"', f'y="{y * CELL_HEIGHT + FONT_SIZE:g}"']
    attributes += [f'class="{classes}"'] if classes else []
    attributes += [f'fill="{style.ink}"'] if style.ink != INK else []
    attributes += [more] if more else []
    return f"<text {' '.join(attributes)}>{shown}</text>"


def _style(cell: Char, is_cursor: bool) -> CellStyle:
    ink, paper = _color(cell.fg, INK), _color(cell.bg, PAPER)
    if is_dim(cell):
        ink = _mixed(ink, paper, DIMMED)
    if cell.reverse != is_cursor:
        ink, paper = paper, ink
    marks = (("b", cell.bold), ("i", cell.italics), ("u", cell.underscore), ("s", cell.strikethrough))
    return CellStyle(ink, paper, " ".join(name for name, holds in marks if holds))


def _color(name: str, default: str) -> str:
    return default if name == "default" else COLORS.get(name) or f"#{name}"


def _mixed(one: str, other: str, share: float) -> str:
    pairs = ((int(one[at : at + 2], 16), int(other[at : at + 2], 16)) for at in (1, 3, 5))
    return "#" + "".join(f"{round(a * share + b * (1 - share)):02x}" for a, b in pairs)
