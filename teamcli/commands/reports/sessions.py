"""The list of earlier sessions, as a table."""

from __future__ import annotations

import time
from pathlib import Path

from teamcli.agent.transcript_sessions import SessionSummary, list_sessions
from teamcli.text.counting import counted
from teamcli.text.escaping import one_line
from teamcli.text.table import Column, Table

COLUMNS = (Column("", "name"), Column("", "dim"), Column("", "dim", right=True), Column("", shrinks=True))


def session_table(transcript: Path) -> Table:
    """One row for each session, newest first.

    Raises: StateError
    """
    rows = tuple((session.id, *describe_session(session)) for session in list_sessions(transcript))
    return Table("" if rows else "No sessions here yet.", COLUMNS, rows)


def describe_session(session: SessionSummary) -> tuple[str, str, str]:
    """When it was last used, its number of model calls, and its first prompt."""
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(session.updated))
    return when, counted(session.model_calls, "call"), one_line(session.first_prompt, 60)
