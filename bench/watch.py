"""Watching a member in the REPL: keys and switches while eight stream, and how soon its last steps are rendered."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.prompt import PROMISED_KEY_MS, TEAMMATES, p99_of_keys, read_until, streaming_team
from teamcli.session.watching import LAST_STEPS, AgentSnapshot
from teamcli.storage.tail import file_identity
from teamcli.ui.render.event_renderer import EventRenderer, Screen
from teamcli.ui.render.style import AgentColors, TerminalStyle
from teamcli.ui.terminal.views import Turn, Views

Row = tuple[str, float, float, float, str, str]
"""The arguments of a `Figure`."""

SHIFT_DOWN = "\x1b[1;2B"
HEADING = "writer · working".encode()
"""Role and status of a teammate: nothing else on the screen says so."""
PROMISED_SWITCH_MS, PROMISED_REPLAY_MS = 100.0, 200.0
WORDS = (
    "I look at **part {n}** of `parser.py` next, because its tests fail:\n\n- a quote is not closed\n- a line is empty"
)


def rows(is_quick: bool = False) -> list[Row]:
    keys, rounds = (60, 1) if is_quick else (400, 4)
    with streaming_team() as terminal:
        switch = max(measure_switch(terminal) for _ in range(rounds * TEAMMATES))
        latency = p99_of_keys(terminal, keys)
    replay = max(measure_replay() for _ in range(5))
    return [
        (f"key to echo, {TEAMMATES} stream, one is watched, p99", latency, PROMISED_KEY_MS, 1.0, "ms", "the promise"),
        ("switching to another member, worst", switch, PROMISED_SWITCH_MS, 1.0, "ms", "the promise"),
        (f"rendering the last {LAST_STEPS} steps, worst", replay, PROMISED_REPLAY_MS, 1.0, "ms", "the promise"),
    ]


def measure_switch(terminal: Any) -> float:
    """From Shift-Down to the heading of the next teammate on the screen, in ms. The lead comes after the last one."""
    terminal.send(SHIFT_DOWN)
    started = time.monotonic()
    try:
        read_until(terminal, HEADING, seconds=1.0)
    except RuntimeError:  # that was the lead, which has another role
        return measure_switch(terminal)
    return (time.monotonic() - started) * 1000


def measure_replay() -> float:
    """The CPU time from the snapshot to the text for the terminal, in ms. The first time it loads the libraries."""
    with tempfile.TemporaryDirectory() as directory:
        transcript = Path(directory, ".team", "transcripts", "alice.jsonl")
        transcript.parent.mkdir(parents=True)
        transcript.write_text("".join(json.dumps(line) + "\n" for n in range(LAST_STEPS) for line in _round(n)))
        size, file = file_identity(transcript)
        views = Views(_renderer("lead"), _renderer)
        started = time.process_time()
        text = views.turn_to(Turn(AgentSnapshot("alice", transcript, size, file), "coder · working"))
        took = (time.process_time() - started) * 1000
    if text.count("✓") != LAST_STEPS // 2:
        raise RuntimeError(f"{text.count('✓')} calls were shown")
    return took


def _round(n: int) -> list[dict[str, Any]]:
    """Two steps: a text, and a call with its result."""
    call = {"type": "tool_use", "id": f"toolu_{n}", "name": "bash", "input": {"command": f"sed -n {n}p parser.py"}}
    result = {"type": "tool_result", "tool_use_id": f"toolu_{n}", "content": "a line\n" * 40}
    return [
        {"ts": n, "kind": "assistant", "content": [{"type": "text", "text": WORDS.format(n=n)}, call]},
        {"ts": n, "kind": "user", "content": [result]},
    ]


def _renderer(focus: str) -> EventRenderer:
    return EventRenderer(TerminalStyle(True, True, lambda: 100), AgentColors(), Screen("banner"), focus)
