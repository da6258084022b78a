"""Sub-agents as people see them: a table, and the last steps of one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from teamcli.subagents.describe import describe_whole, doing_now
from teamcli.subagents.snapshot import AgentEvent, EventKind, Snapshot, State
from teamcli.text.escaping import one_line
from teamcli.text.table import Cell, Column, Style, Table

COLUMNS = (
    Column("ID", "name"),
    Column("OF", may_go=True),
    Column("JOB", shrinks=True),
    Column("STATE"),
    Column("SECONDS", "dim", right=True, may_go=True),
    Column("TOOLS", right=True, may_go=True),
    Column("", "dim", goes_below=True),
)
_STYLES: dict[State, Style] = {State.RUNNING: "good", State.PENDING: "warn", State.FAILED: "bad"}
NO_SUBAGENTS = "No sub-agents run."
STEPS, STEP_LENGTH = 20, 110


def subagent_table(snapshots: Sequence[Snapshot], now: float) -> Table:
    """Those that run at the end, where the eye is."""
    ordered = sorted(snapshots, key=lambda snapshot: not snapshot.state.is_final)
    rows = tuple(_row(snapshot, now) for snapshot in ordered)
    return Table("", COLUMNS, rows, () if rows else (NO_SUBAGENTS,))


def steps_of(snapshot: Snapshot, now: float) -> str:
    """How it stands, and the last things that it did."""
    activity = snapshot.activity
    shown = activity.events[-STEPS:]
    left_out = activity.events_dropped + len(activity.events) - len(shown)
    counts = ", ".join(f"{count}×{tool}" for tool, count in activity.tool_counts)
    head = [f"Its last steps ({left_out} before them):" if left_out else "Its steps:"] if shown else []
    lines = [describe_whole(snapshot, now), *([counts] if counts else []), *head, *map(_step, shown)]
    return "\n".join(lines)


def _row(snapshot: Snapshot, now: float) -> tuple[str | Cell, ...]:
    started = snapshot.started_at
    seconds = "" if started is None else f"{(snapshot.ended_at or now) - started:.0f}"
    state = Cell(snapshot.state, _STYLES.get(snapshot.state, ""))
    calls = str(snapshot.activity.tool_calls)
    return (snapshot.id, snapshot.parent, snapshot.name, state, seconds, calls, doing_now(snapshot))


def _step(event: AgentEvent) -> str:
    return "  " + one_line(" ".join(_words(event)), STEP_LENGTH)


def _words(event: AgentEvent) -> Iterable[str]:
    match event.kind:
        case EventKind.TOOL_CALL:
            return ("→", event.tool, event.args)
        case EventKind.TOOL_RESULT:
            return ("✗" if event.is_error else "✓", event.tool, event.result)
        case EventKind.ERROR:
            return ("✗", event.text)
        case EventKind.REASONING:
            return ("✻", event.text)
        case EventKind.TEXT:
            return (event.text,)
