"""How output looks on this terminal: its colors, its symbols, its width. Uses only the 16 theme colors."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TextIO

from teamcli.text.escaping import escape_controls, has_color

PLAIN, BOLD, DIM = "", "1", "2"
RED, GREEN, YELLOW, BLUE, MAGENTA, CYAN = "31", "32", "33", "34", "35", "36"

Piece = tuple[str, str]
"""Text and the SGR code it is shown in."""

Line = list[Piece]

_FOUR_COLOURS = (MAGENTA, BLUE, GREEN, CYAN)
_AGENT_COLOURS = (*_FOUR_COLOURS, *(f"{BOLD};{colour}" for colour in _FOUR_COLOURS))  # bright: unreadable on white
_ASCII_SIGNS = str.maketrans(
    {
        "✓": "+",
        "✗": "x",
        "●": "*",
        "○": "o",
        "▲": "!",
        "◆": "*",
        "✉": "@",
        "→": ">",
        "…": "~",
        "·": "-",
        "│": "|",
        "✻": "*",
        "↳": ">",
        "⏎": "Enter",
        "•": "-",
        "─": "-",
    }
)
WIDTH_WITHOUT_TERMINAL = 80
_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")


class TerminalStyle(NamedTuple):
    colour: str | None
    """As rich names it: `standard`, `256`, `truecolor`; None for no colour at all."""
    is_unicode: bool
    width: Callable[[], int]

    @classmethod
    def of(cls, stream: TextIO) -> TerminalStyle:
        encoding = (stream.encoding or "ascii").lower().replace("-", "")
        return cls(_colour_system(stream), encoding.startswith("utf"), lambda: terminal_width(stream))

    def paint(self, pieces: Iterable[Piece]) -> str:
        """One line or several, coloured; whatever the text holds, it drives nothing."""
        return "".join(self._paint(escape_controls(text), colour) for text, colour in pieces)

    def signs(self, text: str) -> str:
        """Our own signs, in letters where the terminal has no others."""
        return text if self.is_unicode else text.translate(_ASCII_SIGNS)

    def _paint(self, text: str, colour: str) -> str:
        shown = self.signs(text)
        return f"\x1b[{colour}m{shown}\x1b[0m" if self.colour and colour and shown else shown


def terminal_width(stream: TextIO | None = None) -> int:
    try:
        return max(20, os.get_terminal_size((stream or sys.__stdout__ or sys.stdout).fileno()).columns)
    except (OSError, ValueError):
        return WIDTH_WITHOUT_TERMINAL


def _colour_system(stream: TextIO) -> str | None:
    if not has_color(stream):
        return None
    if os.environ.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return "truecolor"
    return "256" if "256color" in os.environ.get("TERM", "") else "standard"


class AgentColours:
    """A colour for each teammate, kept while the program runs; the lead speaks in the terminal's own."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self._colours: dict[str, str] = {}
        for name in names:
            self.of(name)

    def of(self, name: str) -> str:
        return self._colours.setdefault(name, _AGENT_COLOURS[len(self._colours) % len(_AGENT_COLOURS)])


def diff_lines(diff: str, with_names: bool = True) -> list[Line]:
    """A unified diff, in its colours; without the names of the files where they are told already."""
    shown = [(line, _colour_in_diff(line, is_content)) for line, is_content in _in_hunks(diff)]
    return [[("    " + line, colour)] for line, colour in shown if with_names or colour != BOLD]


def _colour_in_diff(line: str, is_content: bool) -> str:
    """Bold for the name of a file, and for nothing else."""
    if is_content:
        return {"+": GREEN, "-": RED}.get(line[:1], DIM)
    return BOLD if line.startswith(("--- ", "+++ ")) else MAGENTA if line.startswith("@@") else DIM


def changed_lines(diff: str) -> tuple[int, int]:
    """How many are added and removed."""
    content = [line for line, is_content in _in_hunks(diff) if is_content]
    return sum(line.startswith("+") for line in content), sum(line.startswith("-") for line in content)


def _in_hunks(diff: str) -> Iterator[tuple[str, bool]]:
    """Each line, and whether it is one of a file. Counted: `--- x` may be the removed line `-- x`."""
    removed_or_kept = added_or_kept = 0
    for line in diff.removesuffix("\n").split("\n") if diff else ():
        is_content = removed_or_kept > 0 or added_or_kept > 0
        if is_content:
            removed_or_kept -= not line.startswith(("+", "\\"))
            added_or_kept -= not line.startswith(("-", "\\"))
        elif hunk := _HUNK.match(line):
            removed_or_kept, added_or_kept = (1 if count is None else int(count) for count in hunk.groups())
        yield line, is_content
