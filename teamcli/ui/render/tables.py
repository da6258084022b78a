"""Tables and choices of commands, set in colour and fitted to the width of the terminal."""

from __future__ import annotations

from teamcli.commands.base import Choice
from teamcli.text.table import Table
from teamcli.ui.render.style import BOLD, CYAN, DIM, GREEN, PLAIN, RED, YELLOW, Line, Piece, TerminalStyle
from teamcli.ui.render.wrapping import wrap

STYLES = {"name": BOLD, "dim": DIM, "good": GREEN, "warn": YELLOW, "bad": RED}


def set_table(table: Table, style: TerminalStyle) -> str:
    width = style.width() - 1
    shown: list[Line] = []
    for line in table.lines(width):
        pieces = [(cell.text, STYLES.get(cell.style, PLAIN)) for cell in line]
        # A title or note is a sentence; the cells of a row are cut to the width already.
        shown += wrap(pieces, width) if len(pieces) == 1 else [pieces]
    return "".join(style.paint(line).rstrip() + "\n" for line in shown)


def choice_lines(choice: Choice) -> list[Line]:
    width = max((len(option.value) for option in choice.options), default=0)
    lines: list[Line] = [[(choice.title, BOLD)]]
    for number, option in enumerate(choice.options, start=1):
        mark: Piece = ("● ", GREEN) if option.is_current else ("  ", PLAIN)
        lines.append([(f"{number:>4} ", CYAN), mark, (f"{option.value:<{width}}  ", PLAIN), (option.label, DIM)])
    return lines
