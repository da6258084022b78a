"""A finished tool call in a few lines."""

from __future__ import annotations

from teamcli.agent import events
from teamcli.agent.conversation import INTERRUPTED_CALL, NOT_RUN_CALL
from teamcli.text.console import cell_width, shorten
from teamcli.text.duration import short_time
from teamcli.text.escaping import one_line
from teamcli.text.failures import failed_exit, first_error_line
from teamcli.ui.render.layout import more_lines
from teamcli.ui.render.style import DIM, GREEN, PLAIN, RED, YELLOW, Line, Piece, changed_lines, diff_lines

DIFF_LINES = 24
VERBOSE_LINES = 40
_TITLE_SAYS_IT_ALL = frozenset({"spawn_teammate"})
_LONGEST_LINE = 300
"""Of a diff. Ctrl-O shows all of it."""


def call_lines(event: events.ToolFinished, who: Line, width: int, is_verbose: bool) -> list[Line]:
    if event.refusal:
        return _refused_lines(event, event.refusal, who, width)
    failed = event.is_error or bool(_exit_of(event))
    outcome = _short_outcome(event)
    took = f"  {event.seconds:.1f}s" if event.seconds < 60 else f"  {short_time(event.seconds)}"
    took = took if event.seconds >= 0 else ""  # a call of the past, of which nobody knows
    gap = " · " if took else "  "
    ending: Line = [(took, DIM), (f"{gap}{outcome}" if outcome else "", RED if failed else DIM)]
    lines = [_first_line(event, ("✗ ", RED) if failed else ("✓ ", GREEN), ending, who, width)]
    if failed and (why := _what_went_wrong(event)):
        lines.append([("    " + shorten(one_line(why, 1000), width - 6), RED)])
    if event.is_error:
        return lines  # its diff is of a change that was not made
    changed = diff_lines(event.display.diff, with_names=False)
    lines += [[(_cut(text), style) for text, style in line] for line in changed[:DIFF_LINES]]
    lines += more_lines(len(changed) - DIFF_LINES)
    if is_verbose and not event.display.diff:
        printed = event.content.splitlines()
        lines += [[("    " + line, DIM)] for line in printed[:VERBOSE_LINES]]
        lines += more_lines(len(printed) - VERBOSE_LINES)
    return lines


def _refused_lines(event: events.ToolFinished, refusal: events.Refusal, who: Line, width: int) -> list[Line]:
    """It did not run, so it neither failed nor took any time."""
    # What refused it fits next to the title; a person's or a hook's reason can be long.
    short, reason = (refusal._replace(reason=""), refusal.reason) if refusal.by else (refusal, "")
    ending: Line = [("  " + shorten(one_line(short.text), max(10, width - 30)), YELLOW)]
    lines = [_first_line(event, ("⊘ ", YELLOW), ending, who, width)]
    if reason:
        lines.append([("    " + shorten(one_line(reason, 1000), width - 6), YELLOW)])
    return lines


def _first_line(event: events.ToolFinished, mark: Piece, ending: Line, who: Line, width: int) -> Line:
    room = width - 5 - width_of(ending) - width_of(who)
    title = shorten(one_line(event.display.title, 400), max(8, room))
    return [("  ", PLAIN), *who, mark, (title, PLAIN), *ending]


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
    if ending := _exit_of(event):
        return ending
    lines = content.splitlines()
    if len(lines) == 1:
        return one_line(content) if len(content) <= 60 else "1 line"
    return f"{len(lines)} lines" if lines else ""


def _exit_of(event: events.ToolFinished) -> str:
    """How a command ended that failed; empty for everything else."""
    return failed_exit(event.content) if event.tool == "bash" else ""


def _what_went_wrong(event: events.ToolFinished) -> str:
    """The line that a person looks for first; empty if the outcome says it already."""
    if not event.is_error:
        return first_error_line(event.content)
    return event.content if _short_outcome(event) == "failed" else ""


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_LINE else text[:_LONGEST_LINE] + "…"
