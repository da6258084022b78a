"""A sub-agent in words, for the model that started it."""

from __future__ import annotations

from teamcli.subagents.snapshot import Snapshot, State
from teamcli.text.escaping import one_line

DOING_LIMIT = 100


def describe(snapshot: Snapshot, now: float) -> str:
    """One line: `sa-1 (find the tests): running for 12 s, 3 tool calls; bash {"command":"ls"}`."""
    calls = snapshot.activity.tool_calls
    counted = f", {calls} tool call{'s' if calls != 1 else ''}" if calls else ""
    doing = doing_now(snapshot)
    return f"{snapshot.id} ({snapshot.name}): {_standing(snapshot, now)}{counted}" + (f"; {doing}" if doing else "")


def describe_whole(snapshot: Snapshot, now: float) -> str:
    """The same, and what it has said."""
    return f"{describe(snapshot, now)}\n{_output(snapshot)}"


def doing_now(snapshot: Snapshot) -> str:
    """What it does at this moment; for one that has ended, why it came to no good end."""
    if snapshot.state.is_final:
        return one_line(snapshot.error, DOING_LIMIT)
    activity = snapshot.activity
    if activity.phase == "running tools" and activity.current_tool:
        return one_line(f"{activity.current_tool} {activity.current_args}", DOING_LIMIT)
    return one_line(activity.phase, DOING_LIMIT)


def _standing(snapshot: Snapshot, now: float) -> str:
    match snapshot.state:
        case State.PENDING:
            return "pending (waits until fewer run)"
        case State.RUNNING:
            return f"running for {now - (snapshot.started_at or now):.0f} s"
        case _:
            took = (snapshot.ended_at or now) - (snapshot.started_at or snapshot.ended_at or now)
            return f"{snapshot.state} after {took:.0f} s"


def _output(snapshot: Snapshot) -> str:
    if snapshot.state.is_final:
        return snapshot.result or "(it said nothing)"
    if snapshot.activity.progress:
        return f"[in progress] {snapshot.activity.progress}"
    return f"[{snapshot.state}, no output yet]"
