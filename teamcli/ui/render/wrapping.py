"""Lines of coloured text, broken to a width."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

from teamcli.text.table import cell_width
from teamcli.ui.render.cells import wrapped
from teamcli.ui.render.style import Line, Piece

Span = tuple[int, int]

_WORD = re.compile(r"(\S+)(\s*)")


def wrap(pieces: Sequence[Piece], width: int, keep_urls: bool = True) -> list[Line]:
    """The text in lines of at most `width` cells, broken between words, and inside a word that is longer than a line.

    With `keep_urls` an URL is left to the terminal, so that it stays one that can be clicked and copied.
    """
    plain = "".join(text for text, _ in pieces)
    if "\n" not in plain and cell_width(plain) <= width:
        return [list(pieces)]
    ends = list(accumulate(len(text) for text, _ in pieces))
    return [_cut(pieces, ends, span) for span in _spans(plain, width, keep_urls)]


def _cut(pieces: Sequence[Piece], ends: Sequence[int], span: Span) -> Line:
    start, end = span
    at = bisect_right(ends, start)
    line: Line = []
    for (text, style), piece_end in zip(pieces[at:], ends[at:], strict=True):
        offset = piece_end - len(text)
        if offset >= end:
            break
        line.append((text[max(0, start - offset) : end - offset], style))
    return line


def _spans(plain: str, width: int, keep_urls: bool) -> Iterator[Span]:
    start = 0
    for line in plain.split("\n"):
        edges = [0, *_breaks(line, width, keep_urls), len(line)]
        for first, last in pairwise(edges):
            yield start + first, start + first + len(line[first:last].rstrip())
        start += len(line) + 1


def _breaks(line: str, width: int, keep_urls: bool) -> Iterator[int]:
    """Where lines begin, but for the first."""
    used = 0
    for word in _WORD.finditer(line) if cell_width(line) > width else ():
        length = cell_width(word[1])
        if used and used + length > width:
            yield word.start()
            used = 0
        used += length + len(word[2])
        if length > width and not (keep_urls and "://" in word[1]):
            *parts, last = wrapped(word[1], width)
            yield from list(accumulate(map(len, parts), initial=word.start()))[1:]
            used = cell_width(last) + len(word[2])
