"""A printed line that has not ended. Something else is drawn below it, and the next text continues it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from teamcli.text.console import cell_width, column_after

_CODE = re.compile(r"\x1b\[[0-9;]*m")
_CODES_AT_END = re.compile(r"(?:\x1b\[[0-9;]*m)*\Z")
_VARIABLES = (
    "TMUX",
    "VTE_VERSION",
    "KITTY_WINDOW_ID",
    "WEZTERM_PANE",
    "ALACRITTY_WINDOW_ID",
    "KONSOLE_VERSION",
    "WT_SESSION",
    "TERM_PROGRAM",
)
"""Set by terminals that wrap again. Others, such as xterm, cut rows off or leave them as they are."""
_TERMS = ("tmux", "xterm-kitty", "alacritty", "foot", "wezterm", "xterm-ghostty")


class OpenLine:
    def __init__(self) -> None:
        self.text = ""
        """What is printed of it so far; empty if the last line has ended."""
        self._columns = 0
        """How wide the terminal was then."""

    def continued(self, text: str, columns: int) -> str:
        """What to print for a text, with the cursor in the row below the open line: that is where it is left, too."""
        line, self.text = self.text, (self.text + text).rpartition("\n")[2]
        has_same_width, self._columns = columns == self._columns, columns
        if line:
            # In a terminal that has another width now, nobody knows where the line ends, unless it was wrapped again.
            is_known = has_same_width or (wraps_again(os.environ) and line.isascii())
            text = end_of_line(line, columns) + text if is_known else text.lstrip(" ").removeprefix("\n")
            self.text = self.text if is_known else text.rpartition("\n")[2]
        return text + ("\n" if self.text else "")


def end_of_line(line: str, columns: int) -> str:
    """Moves the cursor from the row below a line that the terminal has wrapped to its end."""
    column = column_after(line, columns)
    if column:
        return f"\x1b[A\x1b[{column}C"
    # At the margin, only printing the last character again makes the terminal continue the line in the next row.
    body = line[: -len(after)] if (after := "".join(_CODES_AT_END.findall(line))) else line
    codes = "".join(_CODE.findall(body))
    return f"\x1b[A\x1b[{columns - cell_width(body[-1])}C{codes}{body[-1]}{after}"


def wraps_again(env: Mapping[str, str]) -> bool:
    """Whether the terminal wraps the rows on the screen again when it is resized. False if that is unknown: a rest of
    the prompt that stays behind is better than a line of an answer that is erased with it."""
    if env.get("STY"):  # GNU screen, which also hands on the variables of the terminal around it
        return False
    return any(env.get(name) for name in _VARIABLES) or env.get("TERM", "").startswith(_TERMS)
