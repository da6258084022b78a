"""Sub-agents: a table of all, and the last steps of one."""

from __future__ import annotations

from collections.abc import Sequence

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
NO_SUBAGENTS = "No sub-agents are running."
STEPS, STEP_LENGTH = 20, 110


def subagent_table(snapshots: Sequence[Snapshot], now: float) -> Table:
    """The running ones come last, next to the prompt."""
    ordered = sorted(snapshots, key=lambda snapshot: not snapshot.state.is_final)
    rows = tuple(_row(snapshot, now) for snapshot in ordered)
    return Table("", COLUMNS, rows, () if rows else (NO_SUBAGENTS,))


def steps_of(snapshot: Snapshot, now: float) -> str:
    """The state of a sub-agent and its last steps."""
    activity = snapshot.activity
    shown = activity.events[-STEPS:]
    left_out = activity.events_dropped + len(activity.events) - len(shown)
    counts = ", ".join(f"{count}×{tool}" for tool, count in activity.tool_counts)
    head = [f"Its last steps ({left_out} before them):" if left_out else "Its steps:"] if shown else []
    steps = (f"  {one_line(_describe(event), STEP_LENGTH)}" for event in shown)
    return "\n".join([describe_whole(snapshot, now), *([counts] if counts else []), *head, *steps])


def _row(snapshot: Snapshot, now: float) -> tuple[str | Cell, ...]:
    started = snapshot.started_at
    seconds = "" if started is None else f"{(snapshot.ended_at or now) - started:.0f}"
    state = Cell(snapshot.state, _STYLES.get(snapshot.state, ""))
    calls = str(snapshot.activity.tool_calls)
    return (snapshot.id, snapshot.parent, snapshot.name, state, seconds, calls, doing_now(snapshot))


def _describe(event: AgentEvent) -> str:
    match event.kind:
        case EventKind.TOOL_CALL:
            return f"→ {event.tool} {event.args}"
        case EventKind.TOOL_RESULT:
            return f"{'✗' if event.is_error else '✓'} {event.tool} {event.result}"
        case EventKind.ERROR:
            return f"✗ {event.text}"
        case EventKind.REASONING:
            return f"✻ {event.text}"
        case EventKind.TEXT:
            return event.text
