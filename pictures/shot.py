"""The screen of a terminal, cell by cell, from everything that was written to it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, repeat
from typing import Any, NamedTuple

import pyte
from pyte.screens import Char

_DIM, _NOT_BOLD_NOR_DIM, _BLINK, _NO_BLINK = 2, 22, 5, 25

Fixed = tuple[str, Sequence[str]]
"""A pattern with one group, and the texts that replace the group: the first match, the second, and so on."""


class Shot(NamedTuple):
    rows: tuple[tuple[Char, ...], ...]
    """A wide character is followed by a cell with no character."""
    cursor: tuple[int, int] | None
    """Column and row."""

    def with_fixed(self, fixed: Iterable[Fixed]) -> Shot:
        """Replace what differs from run to run with fixed texts, once in a row. Colors stay, and the rest of the row
        moves."""
        rows = self.rows
        for pattern, words in fixed:
            next_words = chain(words, repeat(words[-1]))
            rows = tuple(_with_fixed(row, re.compile(pattern), next_words) for row in rows)
        return self._replace(rows=rows)

    def cropped(self, top: str) -> Shot:
        """From the row that starts with `top`, without the empty rows above the status bar: their number depends on
        timing."""
        texts = ["".join(cell.data for cell in row).rstrip() for row in self.rows]
        first = next(y for y, text in enumerate(texts) if text.startswith(top))
        prompt = self.cursor[1] if self.cursor else first
        kept = [*range(first, prompt + 1), *(y for y in range(prompt + 1, len(texts)) if texts[y])]
        cursor = self.cursor and (self.cursor[0], self.cursor[1] - first)
        return Shot(tuple(self.rows[y] for y in kept), cursor)


def take_shot(written: str, columns: int, lines: int) -> Shot:
    """What a terminal of this size shows after `written`."""
    screen = _Emulator(columns, lines)
    pyte.Stream(screen).feed(written)
    rows = tuple(tuple(screen.buffer[y][x] for x in range(columns)) for y in range(lines))
    return Shot(rows, None if screen.cursor.hidden else (screen.cursor.x, screen.cursor.y))


def is_dim(char: Char) -> bool:
    return char.blink


class _Emulator(pyte.Screen):
    """pyte does not support dim text. Nothing here blinks, so the blink attribute marks it."""

    def select_graphic_rendition(self, *attrs: int, **_: Any) -> None:
        super().select_graphic_rendition(*_dim_as_blink(attrs))


def _dim_as_blink(attrs: Iterable[int]) -> Iterator[int]:
    rest = iter(attrs)
    for attr in rest:
        if attr in (38, 48):  # a color follows: `5;N` or `2;R;G;B`
            yield attr
            for kind in islice(rest, 1):
                yield kind
                yield from islice(rest, 1 if kind == 5 else 3)
        elif attr == _NOT_BOLD_NOR_DIM:
            yield from (attr, _NO_BLINK)
        else:
            yield _BLINK if attr == _DIM else attr


def _with_fixed(row: tuple[Char, ...], pattern: re.Pattern[str], words: Iterator[str]) -> tuple[Char, ...]:
    cells = list(row)
    if found := pattern.search("".join(cell.data[:1] or "\0" for cell in row)):
        start, end = found.span(1)
        cells[start:end] = [cells[start]._replace(data=character) for character in next(words)]
    blank = row[-1]
    return tuple([*cells, *[blank] * len(row)][: len(row)])
