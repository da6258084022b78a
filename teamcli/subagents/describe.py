"""A sub-agent in words, for the model that started it and for reports."""

from __future__ import annotations

from teamcli.subagents.snapshot import Snapshot, State
from teamcli.text.counting import counted
from teamcli.text.escaping import one_line

DOING_LIMIT = 100


def describe(snapshot: Snapshot, now: float) -> str:
    """One line: `sa-1 (find the tests): running for 12 s, 3 tool calls; bash {"command":"ls"}`."""
    calls = snapshot.activity.tool_calls
    made = f", {counted(calls, 'tool call')}" if calls else ""
    doing = doing_now(snapshot)
    match snapshot.state:
        case State.PENDING:
            state = "pending (waits until fewer run)"
        case State.RUNNING:
            state = f"running for {now - (snapshot.started_at or now):.0f} s"
        case _:
            took = (snapshot.ended_at or now) - (snapshot.started_at or snapshot.ended_at or now)
            state = f"{snapshot.state} after {took:.0f} s"
    return f"{snapshot.id} ({snapshot.name}): {state}{made}" + (f"; {doing}" if doing else "")


def describe_whole(snapshot: Snapshot, now: float) -> str:
    """The same, and what it has said."""
    if snapshot.state.is_final:
        output = snapshot.result or "(it said nothing)"
    elif snapshot.activity.progress:
        output = f"[in progress] {snapshot.activity.progress}"
    else:
        output = f"[{snapshot.state}, no output yet]"
    return f"{describe(snapshot, now)}\n{output}"


def doing_now(snapshot: Snapshot) -> str:
    """What it is doing at the moment; if it has ended, why it failed."""
    activity = snapshot.activity
    if snapshot.state.is_final:
        doing = snapshot.error
    elif activity.phase == "running tools" and activity.current_tool:
        doing = f"{activity.current_tool} {activity.current_args}"
    else:
        doing = activity.phase
    return one_line(doing, DOING_LIMIT)
