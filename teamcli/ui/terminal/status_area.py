"""The agents in the status area: each busy teammate on a line of its own if the height allows, otherwise all on one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from teamcli.team.message import is_subagent
from teamcli.text.console import shorten
from teamcli.ui.render.style import BOLD, DIM, GREEN, PLAIN, RED, YELLOW, AgentColors, Line, Piece
from teamcli.ui.terminal.fragments import clipped, width_of
from teamcli.ui.terminal.status import AgentState, joined

WATCHED = "◂"
_ACTIVITY_WIDTHS = (48, 32, 20, 10, 0)
"""How long the description of each agent's activity may be; the first that fits is used."""
_NAME_WIDTH = 18
"""The names of busy teammates and their signs form a column, unless one is longer than this."""


class Moment(NamedTuple):
    """What the lines depend on, besides the agents."""

    now: float
    asking: Sequence[str] = ()
    """The names of those that wait for an answer."""
    watched: str = ""
    colors: AgentColors = AgentColors()


def agent_lines(states: Sequence[AgentState], width: int, rows: int, moment: Moment) -> list[Line]:
    """The lead comes first. Idle teammates are next to it; sub-agents share a line."""
    lead, *others = states
    subagents = [state for state in others if is_subagent(state.name)]
    busy = [state for state in others if _is_busy(state, moment) and state not in subagents]
    groups = [*([state] for state in busy), *([subagents] if subagents else [])]
    # The lead and the count of those left out take two rows, so in three only one teammate would be shown.
    has_room = len(groups) < rows or rows >= 4
    if not busy or not has_room:
        return [one_line_of(states, width, moment)]
    idle = [state for state in others if not _is_busy(state, moment)]
    shown = groups if len(groups) < rows else _most_important(groups, rows - 2, moment)
    left_out = [state.name for group in groups if group not in shown for state in group]
    names = min(_NAME_WIDTH, max(width_of(_marked(group[0], moment)) for group in shown))
    lines = [one_line_of([lead, *idle], width, moment), *(_row(group, names, width, moment) for group in shown)]
    if left_out:
        lines.append([(shorten(f"+{len(left_out)} more: {', '.join(left_out)}", width), DIM)])
    return lines


def one_line_of(states: Sequence[AgentState], width: int, moment: Moment) -> Line:
    """All agents in at most `width` cells: with what they are doing, or less of it, or only those that fit."""
    for room in _ACTIVITY_WIDTHS:
        line = joined([_agent_pieces(state, room, moment) for state in states])
        if width_of(line) <= width:
            return line
    # The agents that ask and those that work come first. The others are only counted.
    states = sorted(states, key=lambda state: (state.name not in moment.asking, not state.is_working))
    for shown in range(len(states) - 1, 0, -1):
        more = _count_of(states[shown:])
        line = [*joined([_agent_pieces(state, 0, moment) for state in states[:shown]]), (more, DIM)]
        if width_of(line) <= width:
            return line
    # Not even one name fits next to the count.
    more = _count_of(states[1:])
    return clipped([*clipped(_agent_pieces(states[0], 0, moment), max(3, width - len(more))), (more, DIM)], width)


def _count_of(states: Sequence[AgentState]) -> str:
    busy = sum(state.is_working for state in states)
    return (f" +{len(states)}" if states else "") + (f" ({busy} busy)" if busy else "")


def _is_busy(state: AgentState, moment: Moment) -> bool:
    return state.is_working or state.name in moment.asking


def _most_important(groups: Sequence[list[AgentState]], count: int, moment: Moment) -> list[list[AgentState]]:
    """Those that wait for the user and the one that is watched, before others; in the usual order."""
    ranked = sorted(groups, key=lambda group: (group[0].name not in moment.asking, group[0].name != moment.watched))
    kept = ranked[:count]
    return [group for group in groups if group in kept]


def _row(group: Sequence[AgentState], names: int, width: int, moment: Moment) -> Line:
    """A busy teammate: what it does, for how long, and the tokens of this piece of work. Or all sub-agents."""
    if len(group) > 1 or is_subagent(group[0].name):
        return one_line_of(group, width, moment)
    (state,) = group
    asks = state.name in moment.asking
    marked = _marked(state, moment)
    gap = " " * (names - width_of(marked))
    pieces: Line = [*marked, (gap, PLAIN), (" asks" if asks else "", YELLOW)]
    tokens = "" if state.is_elsewhere else f" · {_short(state.tokens)} tokens"
    room = width - width_of(pieces) - len(tokens) - len(" 1h59m") - 1
    description = state.describe(moment.now, max(10, room))
    if asks and state.is_elsewhere:  # that it works is not news then, but where
        description = description.removeprefix(f"{state.status} ")
    return clipped([*pieces, (f" {description}{tokens}", DIM)], width)


def _agent_pieces(state: AgentState, room: int, moment: Moment) -> Line:
    if state.name in moment.asking:
        return [*_marked(state, moment), (" asks", YELLOW)]
    description = state.describe(moment.now, room) if room else ""
    return [*_marked(state, moment), (f" {description}" if description else "", DIM)]


def _marked(state: AgentState, moment: Moment) -> Line:
    """The name in its color, after a sign for what it is up to."""
    sign: Piece = ("○ ", RED if "error" in state.note else DIM)
    if state.name in moment.asking:
        sign = ("▲ ", YELLOW)
    elif state.is_working:
        sign = ("● ", YELLOW if state.is_stuck else GREEN)
    color = moment.colors.of(state.name)
    is_plain = color == BOLD and not _is_busy(state, moment)
    watched: Line = [(WATCHED, f"{BOLD} {YELLOW}")] if state.name == moment.watched else []
    return [sign, (state.name, PLAIN if is_plain else color), *watched]


def _short(tokens: int) -> str:
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if tokens >= size:
            return f"{tokens / size:.1f}{unit}" if tokens < 100 * size else f"{tokens / size:.0f}{unit}"
    return str(tokens)
