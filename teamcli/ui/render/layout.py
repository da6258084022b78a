"""Sets the blocks of the screen apart: a blank line between those of different kinds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from teamcli.text.console import wrap
from teamcli.text.counting import counted
from teamcli.text.table import Table
from teamcli.ui.render.style import DIM, PLAIN, Line, TerminalStyle


class Layout:
    def __init__(self, style: TerminalStyle, above: str = "") -> None:
        """`above` is the kind of what the screen shows already."""
        self.style = style
        self._last_kind = above

    def prose(self, text: str, kind: str = "note") -> str:
        """Text that is ready for the terminal."""
        gap = "\n" if self._last_kind and self._last_kind != kind else ""
        self._last_kind = kind
        return gap + text.rstrip("\n") + "\n"

    def block(self, kind: str, lines: Iterable[Line]) -> str:
        """Lines that belong together."""
        return self.prose("\n".join(self.style.paint(line) for line in lines), kind)

    def note(self, text: str, style: str = PLAIN) -> str:
        """A remark of the program itself."""
        return self.block("note", wrap([(text, style)], self.style.width() - 1))

    def table(self, table: Table, name_colors: Mapping[str, str]) -> str:
        text = table.to_text(self.style.width() - 1, self.style.has_color, name_colors)
        return self.prose(self.style.signs(text))

    def set_off(self) -> None:
        """A blank line precedes the next block, whatever its kind."""
        self._last_kind = self._last_kind and "something else"


def more_lines(count: int, key: str = " (Ctrl-O)") -> list[Line]:
    """Says how many lines are not shown."""
    return [[(f"    … {counted(count, 'more line')}{key}", DIM)]] if count > 0 else []
