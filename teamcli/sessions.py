"""The list of earlier sessions, as text."""

from __future__ import annotations

import time
from pathlib import Path

from teamcli.agent.transcript import list_sessions
from teamcli.plain import one_line


def session_table(transcript: Path) -> str:
    """One line for each session, newest first.

    Raises: StateError
    """
    rows = [
        f"{session.id}  {_when(session.updated)}  {session.model_calls:>4} calls  {one_line(session.first_prompt, 60)}"
        for session in list_sessions(transcript)
    ]
    return "\n".join(rows) or "No sessions here yet."


def _when(timestamp: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(timestamp))
