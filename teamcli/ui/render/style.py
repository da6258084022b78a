"""How output looks on this terminal: its colors, its symbols, its width. Uses only the 16 theme colors."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TextIO

from teamcli.team.message import COMMAND, RESERVED, is_subagent
from teamcli.text.console import Line as Line
from teamcli.text.console import Piece as Piece
from teamcli.text.escaping import escape_controls, has_color

PLAIN, BOLD, DIM, REVERSE = "", "bold", "dim", "reverse"
RED, GREEN, YELLOW, BLUE, MAGENTA, CYAN = "red", "green", "yellow", "blue", "magenta", "cyan"
BRIGHT_RED = "bright_red"
_CODES = {BOLD: "1", DIM: "2", REVERSE: "7", BRIGHT_RED: "91"}
_CODES |= {RED: "31", GREEN: "32", YELLOW: "33", BLUE: "34", MAGENTA: "35", CYAN: "36"}
# Only these six differ in every theme: some show bright blue and bright magenta like the regular ones, and the other
# bright colors are illegible on white. Bright red, because red means an error.
_AGENT_COLORS = (MAGENTA, BLUE, GREEN, CYAN, BRIGHT_RED, YELLOW, f"{REVERSE} {MAGENTA}", f"{REVERSE} {CYAN}")
_ASCII_SIGNS = str.maketrans("✓✗⊘●○▲◆✉→…·│✻↳•─–◂", "+x-*o!*@>~-|*>---<") | {ord("⏎"): "Enter"}
_NO_TEAMMATES = (*RESERVED, "outside")
WIDTH_WITHOUT_TERMINAL, HEIGHT_WITHOUT_TERMINAL = 80, 24
_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")


class TerminalStyle(NamedTuple):
    has_color: bool
    is_unicode: bool
    width: Callable[[], int]
    height: Callable[[], int] = lambda: HEIGHT_WITHOUT_TERMINAL

    @classmethod
    def of(cls, stream: TextIO) -> TerminalStyle:
        encoding = (stream.encoding or "ascii").lower().replace("-", "")
        return cls(
            has_color(stream),
            encoding.startswith("utf"),
            lambda: terminal_width(stream),
            lambda: terminal_height(stream),
        )

    def paint(self, pieces: Iterable[Piece]) -> str:
        """One or more lines, in color, with every control sequence in the text escaped.

        By hand, because the banner must not load rich.
        """
        painted = ""
        for text, style in pieces:
            text = self.signs(escape_controls(text))
            codes = ";".join(_CODES[word] for word in style.split())
            painted += f"\x1b[{codes}m{text}\x1b[0m" if self.has_color and codes and text else text
        return painted

    def signs(self, text: str) -> str:
        """The text, with our symbols replaced by ASCII if the terminal has no others."""
        return text if self.is_unicode else text.translate(_ASCII_SIGNS)


def terminal_width(stream: TextIO | None = None) -> int:
    try:
        return max(20, os.get_terminal_size((stream or sys.__stdout__ or sys.stdout).fileno()).columns)
    except (OSError, ValueError):
        return WIDTH_WITHOUT_TERMINAL


def terminal_height(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).lines
    except (OSError, ValueError):
        return HEIGHT_WITHOUT_TERMINAL


class AgentColors:
    """A color for each teammate, kept while the program runs. For any thread."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self._colors: dict[str, str] = {}
        self._lock = threading.Lock()  # two threads must not give one color to two names
        for name in names:
            self.of(name)

    def of(self, name: str) -> str:
        """Those who are no teammates take no color away from them."""
        if name in _NO_TEAMMATES or name.startswith(COMMAND) or is_subagent(name):
            return BOLD
        with self._lock:
            return self._colors.setdefault(name, _AGENT_COLORS[len(self._colors) % len(_AGENT_COLORS)])

    def known(self) -> dict[str, str]:
        with self._lock:
            return dict(self._colors)


def diff_lines(diff: str, with_names: bool = True, indent: str = "    ") -> list[Line]:
    """A unified diff in color. Leave out the names of the files if the reader knows them already.

    By hand, because rich takes the removed line `-- x` for the name of a file.
    """

    def color(line: str, is_content: bool) -> str:
        if is_content:
            return {"+": GREEN, "-": RED}.get(line[:1], DIM)
        return BOLD if line.startswith(("--- ", "+++ ")) else MAGENTA if line.startswith("@@") else DIM

    shown = [(line, color(line, is_content)) for line, is_content in _in_hunks(diff)]
    return [[(indent + line, color)] for line, color in shown if with_names or color != BOLD]


def changed_lines(diff: str) -> tuple[int, int]:
    """How many lines were added and removed."""
    content = [line for line, is_content in _in_hunks(diff) if is_content]
    return sum(line.startswith("+") for line in content), sum(line.startswith("-") for line in content)


def _in_hunks(diff: str) -> Iterator[tuple[str, bool]]:
    """Each line, and whether it is content of a file. The lines of a hunk are counted: `--- x` may be content, too."""
    removed_or_kept = added_or_kept = 0
    for line in diff.removesuffix("\n").split("\n") if diff else ():
        is_content = removed_or_kept > 0 or added_or_kept > 0
        if is_content:
            removed_or_kept -= not line.startswith(("+", "\\"))
            added_or_kept -= not line.startswith(("-", "\\"))
        elif hunk := _HUNK.match(line):
            removed_or_kept, added_or_kept = (1 if count is None else int(count) for count in hunk.groups())
        yield line, is_content
