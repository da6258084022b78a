"""The files of `.team/` that are replaced as a whole, as bytes that follow from rows."""

from __future__ import annotations

from pathlib import Path

from teamcli.agent.transcript_sessions import read_marks
from teamcli.storage.files import VERSION, Json, encode_json
from teamcli.store.line_text import decode_object
from teamcli.team.inbox_state import Position
from teamcli.team.mailbox import POSITION
from teamcli.team.roster_file import TEAM_NAME, TeamConfig

_NO_STATE: Json = {"v": VERSION, "generation": 0, "incarnation": 0, "archived": {}, "moved": None, "begun": 0.0}


def config_file(roster: TeamConfig) -> bytes | None:
    """None if there is nothing to say."""
    has_any = roster.members or roster.requests or roster.unknown or roster.name != TEAM_NAME
    return roster.encode() if has_any else None


def task_file(doc: str) -> bytes:
    return encode_json(decode_object(doc))


def lock_file(last_task: int) -> bytes:
    """The counters of the board's files."""
    return f"{last_task} 0 0".ljust(63).encode() + b"\n"


def state_file(kept: Json | None, incarnation: int) -> bytes | None:
    """What is known about an inbox besides its lines, as it was imported; None if there is nothing to know."""
    if not (kept or incarnation):
        return None
    return encode_json({**(kept or _NO_STATE), "incarnation": incarnation})


def state_at(kept: Json | None, incarnation: int, position: Position) -> bytes | None:
    """The same for a file whose reader continues at that position, whatever its digest says: signatures differ."""
    if not (incarnation or position.check or position.generation):
        return None
    moved = {"from": position.to_mark(), "to": Position(position.offset, "", 0, position.generation).to_mark()}
    archived = (kept or _NO_STATE).get("archived", {})
    state = {**_NO_STATE, "generation": position.generation, "incarnation": incarnation, "archived": archived}
    return encode_json({**state, "moved": moved if position.check else None})


def read_position(transcript: Path) -> Position:
    """How far the owner of a conversation has read its mail.

    Raises: StateError
    """
    return Position.from_mark(read_marks(transcript).get(POSITION))
