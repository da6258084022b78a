"""Where a line that is still growing can be cut, so that its beginning can be printed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import takewhile
from typing import NamedTuple

from teamcli.text.console import cell_width, wrap

SPAN_ROWS = 2
"""A phrase that is marked, perhaps, may be this long. Then it is printed without waiting for the other mark."""
LONGEST_SEARCHED = 4000
"""Only this much of the end of a line is searched for unfinished markup."""
_SPAN = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)|!?\[[^\]]*\]\([^)]*\)|(\*{1,3}|_{1,3}|~~)(?=\S).*?\S\2")
_OPENER = re.compile(r"`|\[|<|\*+(?=\S)|(?<!\w)_+(?=\S)|~~(?=\S)")
# The rest must not look like the beginning of another block, so it begins with a letter, perhaps a marked one.
_BETWEEN_WORDS = re.compile(r"\s+(?=[*_`(\[\"']{0,2}[^\W\d_])")


class LineCut(NamedTuple):
    """The line is cut into `[:end]` and `[start:]`; the space in between is left out."""

    end: int
    start: int


def find_cut(line: str, width: int, column: int | None) -> LineCut | None:
    """The last place between two words that leaves about a row, or a few if they are one bold phrase or link.

    `column` is where the line begins on the screen if the terminal wraps it, None if it is wrapped between words.
    """
    room = _rows_end(line, width) if column is None else _cells_end(line, width, column)
    if room <= 0:
        return None
    start = max(0, len(line) - LONGEST_SEARCHED)
    masked = line[:start] + _SPAN.sub(lambda found: "x" * len(found[0]), line[start:])
    opener = _OPENER.search(masked, start)
    settled = opener.start() if opener else len(line)
    best = max(_places(masked, min(room, settled)), default=None)
    if best and room - best.end < SPAN_ROWS * width:
        return best
    return max(_places(line, room), default=None)


def _rows_end(line: str, width: int) -> int:
    """Where the last row begins if the line is wrapped between words."""
    rows = wrap([(line, "")], width, keeps_urls=False)
    last = "".join(text for text, _ in rows[-1])
    return len(line.rstrip()) - len(last.strip()) if len(rows) > 1 else 0


def _cells_end(line: str, width: int, column: int) -> int:
    """Where the last row begins if the terminal wraps the line."""
    whole_rows = (column + cell_width(line)) // width
    room = whole_rows * width - column
    if line.isascii():
        return room
    end, used = 0, 0
    while end < len(line) and used < room:
        used += cell_width(line[end])
        end += 1
    return end


def _places(line: str, room: int) -> Iterator[LineCut]:
    begin = len(line) - len(line.lstrip())
    words = takewhile(lambda found: found.start() <= room, _BETWEEN_WORDS.finditer(line, begin + 1))
    yield from (LineCut(found.start(), found.end()) for found in words)
    if not line[:room].isascii():  # scripts without spaces
        yield from (
            LineCut(at, at) for at in range(begin + 1, room) if line[at - 1 : at + 1].isalpha() and line[at] > "\u2e80"
        )
