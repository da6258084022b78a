"""A finished tool call in a few lines."""

from __future__ import annotations

import re

from teamcli.agent import events
from teamcli.agent.conversation import INTERRUPTED_CALL, NOT_RUN_CALL
from teamcli.text.console import cell_width, shorten
from teamcli.text.duration import short_time
from teamcli.text.escaping import one_line
from teamcli.ui.render.layout import more_lines
from teamcli.ui.render.style import DIM, GREEN, PLAIN, RED, Line, changed_lines, diff_lines

DIFF_LINES = 24
VERBOSE_LINES = 40
_TITLE_SAYS_IT_ALL = frozenset({"spawn_teammate"})
_EXIT = re.compile(r"\[(exit code \d+|killed by signal .+)\]\Z")


def call_lines(event: events.ToolFinished, who: Line, width: int, is_verbose: bool) -> list[Line]:
    failed = event.is_error or (event.tool == "bash" and _EXIT.search(event.content) is not None)
    outcome = _short_outcome(event)
    took = f"{event.seconds:.1f}s" if event.seconds < 60 else short_time(event.seconds)
    took = took if event.seconds >= 0 else ""  # a call of the past, of which nobody knows
    ending: Line = [(f"  {took}", DIM), (f" · {outcome}" if outcome else "", RED if failed else DIM)]
    room = width - 5 - width_of(ending) - width_of(who)
    mark = ("✗ ", RED) if failed else ("✓ ", GREEN)
    title = shorten(one_line(event.display.title, 400), max(8, room))
    lines: list[Line] = [[("  ", PLAIN), *who, mark, (title, PLAIN), *ending]]
    if outcome == "failed":
        lines.append([("    " + one_line(event.content, width - 6), RED)])
    changed = diff_lines(event.display.diff, with_names=False)
    lines += [*changed[:DIFF_LINES], *more_lines(len(changed) - DIFF_LINES)]
    if is_verbose and not event.is_error and not event.display.diff:
        printed = event.content.splitlines()
        lines += [[("    " + line, DIM)] for line in printed[:VERBOSE_LINES]]
        lines += more_lines(len(printed) - VERBOSE_LINES)
    return lines


def width_of(pieces: Line) -> int:
    return sum(cell_width(text) for text, _ in pieces)


def _short_outcome(event: events.ToolFinished) -> str:
    """The outcome of a call, in a few words."""
    if event.is_error:
        return "interrupted" if event.content.startswith((INTERRUPTED_CALL, NOT_RUN_CALL)) else "failed"
    if event.tool in _TITLE_SAYS_IT_ALL:
        return ""
    if event.display.diff:
        return "+{} -{}".format(*changed_lines(event.display.diff))
    content = event.content.strip()
    if event.tool == "bash" and (ending := _EXIT.search(content)):
        return ending[1]
    lines = content.splitlines()
    if len(lines) == 1:
        return one_line(content) if len(content) <= 60 else "1 line"
    return f"{len(lines)} lines" if lines else ""
