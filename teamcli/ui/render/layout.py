"""Sets the blocks of the screen apart: a blank line between those of different kinds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from teamcli.text.console import wrap
from teamcli.text.counting import counted
from teamcli.text.table import Table
from teamcli.ui.render.style import DIM, PLAIN, Line, TerminalStyle


class Layout:
    def __init__(self, style: TerminalStyle, above: str = "", continues_lines: bool = False) -> None:
        """`above` is the kind of what the screen shows already. If not `continues_lines`, all lines have an end."""
        self.style = style
        self._continues_lines = continues_lines
        self.open_line = ""
        """A line of an answer that has no end yet: its beginning is on the screen."""
        self._last_kind = above

    def prose(self, text: str, kind: str = "note", joins: bool = False, is_open: bool = False) -> str:
        """Text that is ready for the terminal. It `joins` the open line, and leaves one if it `is_open`."""
        if not (joins and self.open_line):
            gap = "\n" if self._last_kind and self._last_kind != kind else ""
            text = ("\n" if self.open_line else "") + gap + (text.lstrip(" ") if joins else text)
        self._last_kind = kind
        shown = text.rstrip("\n") + ("" if is_open and self._continues_lines else "\n")
        self.open_line = (self.open_line + shown).rpartition("\n")[2]
        return shown

    def block(self, kind: str, lines: Iterable[Line]) -> str:
        """Lines that belong together."""
        return self.prose("\n".join(self.style.paint(line) for line in lines), kind)

    def note(self, text: str, style: str = PLAIN) -> str:
        """A remark of the program itself."""
        return self.block("note", wrap([(text, style)], self.style.width() - 1))

    def table(self, table: Table, name_colors: Mapping[str, str]) -> str:
        text = table.to_text(self.style.width() - 1, self.style.has_color, name_colors)
        return self.prose(self.style.signs(text))

    def break_line(self, rest: str) -> None:
        """Something was printed inside the open line. Below it is the `rest` of that line so far."""
        self.open_line = rest

    def set_off(self) -> None:
        """A blank line precedes the next block, whatever its kind."""
        self._last_kind = self._last_kind and "something else"


def more_lines(count: int, key: str = " (Ctrl-O)") -> list[Line]:
    """Says how many lines are not shown."""
    return [[(f"    … {counted(count, 'more line')}{key}", DIM)]] if count > 0 else []
