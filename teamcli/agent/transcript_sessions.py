"""Transcripts on disk: one append-only file holds all sessions in order, each begun by a `session` line."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from teamcli.agent.conversation import Marks, add_marks
from teamcli.errors import UsageError
from teamcli.storage.files import VERSION, Json, as_number, read_lines, refuse_newer

if TYPE_CHECKING:
    from teamcli.storage.log import Log

_LAST_TS = 1e11
"""A few thousand years ahead: dates cannot represent times such as 1e400."""


class SessionSummary(NamedTuple):
    id: str
    started: float
    updated: float
    model: str
    first_prompt: str = ""
    model_calls: int = 0


def begin_session(log: Log, model: str, session_id: str | None = None) -> str:
    """Write the line that begins a session, or that resumes an earlier one.

    Raises: StateError
    """
    session = session_id or f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
    log.append({"v": VERSION, "kind": "session", "id": session, "ts": time.time(), "model": model})
    return session


def fork_session(log: Log, model: str, rows: Iterable[Json], session_id: str | None = None) -> str:
    """Begin a session with these lines of another one, which stays as it is.

    Raises: StateError
    """
    copied = list(rows)  # before anything is written: they are in the same file
    session = begin_session(log, model, session_id)
    for row in copied:
        # Without marks: how far mail is read does not go back.
        log.append({name: value for name, value in row.items() if name != "marks"})
    return session


def session_rows(path: Path, session_id: str) -> Iterator[Json]:
    """The lines of one session. It may have been resumed several times.

    Raises: StateError
    """
    current = ""
    for row in _rows(path):
        if row.get("kind") == "session":
            current = str(row.get("id"))
        elif current == session_id:
            yield row


def read_marks(path: Path) -> Marks:
    """The marks of all lines, joined: how far mail is read belongs to the agent, not to one session.

    Raises: StateError
    """
    marks: Marks = {}
    for row in _rows(path, (b'"marks"', b'"v"')):  # every start does this, and most lines have no marks
        if isinstance(noted := row.get("marks"), dict):
            add_marks(marks, noted)
    return marks


def list_sessions(path: Path) -> list[SessionSummary]:
    """All sessions of a transcript, the most recently used first.

    Raises: StateError
    """
    sessions: dict[str, SessionSummary] = {}
    current: SessionSummary | None = None
    for row in _rows(path):
        when = min(max(0.0, as_number(row.get("ts"))), _LAST_TS)
        if row.get("kind") == "session":  # ordered by position: the clock may have been set back
            id = str(row.get("id"))
            current = sessions.pop(id, None) or SessionSummary(id, when, when, str(row.get("model", "")))
        if current is not None:
            current = _updated(current, row, when)
            sessions[current.id] = current
    used = [
        session for session in sessions.values() if session.first_prompt
    ]  # not those that were only opened and closed
    return used[::-1]


def find_session(sessions: list[SessionSummary], wanted: str) -> SessionSummary:
    """The session with this id, or the only one whose id begins with it.

    Raises: UsageError
    """
    found = [s for s in sessions if s.id == wanted] or [s for s in sessions if s.id.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    problem = f"{len(found)} sessions begin with '{wanted}'" if found else f"there is no session '{wanted}'"
    raise UsageError(f"{problem} here; `teamcli sessions` lists them")


def _updated(session: SessionSummary, row: Json, when: float) -> SessionSummary:
    prompt = session.first_prompt
    if not prompt and row.get("kind") == "user":
        prompt = _first_text(row)
    calls = session.model_calls + (row.get("kind") == "assistant")
    return session._replace(updated=when or session.updated, first_prompt=prompt, model_calls=calls)


def _first_text(row: Json) -> str:
    content = row.get("content")
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("type") == "text":
            return str(block.get("text", ""))
    return ""


def _rows(path: Path, holding: tuple[bytes, ...] = ()) -> Iterator[Json]:
    for _, row in read_lines(path, holding):
        if row is None:
            continue
        refuse_newer(path, row)
        yield row
