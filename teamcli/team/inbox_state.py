"""What must be known about an inbox besides its lines, in `NAME.state.json`. The file exists only if it is needed.

Only the process whose agents read the inbox writes it. Senders, and programs that only show the inbox, read it.
"""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

from teamcli.storage.files import VERSION, Json, read_json, write_json

_NUMBER = re.compile(r"[1-9][0-9]{0,9}")
_CLOCK_SECONDS = 0.02
"""How far file times may lag behind the clock."""


class Position(NamedTuple):
    """How far an inbox has been read."""

    offset: int = 0
    check: str = ""
    """A digest of the content before the offset, to recognize the file that was read."""
    repeats_until: int = 0
    """The file was changed by others up to here: lines before it may have been read already."""
    generation: int = 0
    """How many files were at the path before this one."""

    def to_mark(self) -> Json:
        rare = {"repeats_until": self.repeats_until, "generation": self.generation}
        return {"offset": self.offset, "check": self.check, **{name: value for name, value in rare.items() if value}}

    @classmethod
    def from_mark(cls, raw: object) -> Position:
        if not isinstance(raw, dict):
            return cls()
        check = raw.get("check", "")
        numbers = [raw.get("offset"), raw.get("repeats_until", 0), raw.get("generation", 0)]
        if not isinstance(check, str) or not all(map(_is_count, numbers)):
            return cls()
        offset, repeats_until, generation = map(_count, numbers)
        return cls(offset, check, repeats_until, generation)


class InboxState:
    """Loaded at first use. Every change is on disk before the call returns."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.RLock()
        self._is_loaded = False
        self._generation = self._incarnation = 0
        self._archived: dict[int, int] = {}
        self._moved: tuple[Position, Position] | None = None
        self._begun = 0.0

    @property
    def generation(self) -> int:
        """How many files were at the path before the present one."""
        self._load()
        return self._generation

    @property
    def incarnation(self) -> int:
        """How often its owner was spawned again. Messages to an earlier incarnation are void."""
        self._load()
        return self._incarnation

    def read_of(self, number: int) -> int | None:
        """How much of an archived file has been delivered; None if the file is not known."""
        self._load()
        return self._archived.get(number)

    @property
    def last_archive(self) -> int:
        self._load()
        return max(self._archived, default=0)

    def continued(self, position: Position) -> Position | None:
        """Where a reader continues whose position is not valid in the present file; None if that is not known."""
        self._load()
        return self._moved[1] if self._moved is not None and self._moved[0] == position else None

    def is_older(self, written: float) -> bool:
        """Whether a file that was last written at that time existed before the previous one disappeared."""
        self._load()
        return written < self._begun - _CLOCK_SECONDS

    def note_archives(self, read: dict[int, int]) -> None:
        """Record how much of these archived files has been delivered.

        Raises: StateError
        """
        with self._lock:
            self._load()
            self._save(archived={**self._archived, **read})

    def begin_file(self, archived: dict[int, int] | None = None, when: float | None = None) -> None:
        """The file was archived, deleted or emptied. What appears next is a new file.

        Raises: StateError
        """
        with self._lock:
            self._load()
            read = {**self._archived, **(archived or {})}
            self._save(generation=self._generation + 1, begun=when or time.time(), archived=read)

    def restore_file(self) -> None:
        """The previous file is back.

        Raises: StateError
        """
        with self._lock:
            self._load()
            self._save(generation=self._generation - 1)

    def move(self, position: Position, to: Position) -> None:
        """A reader at `position` continues at `to`: the file was changed, and has nothing new before that.

        Raises: StateError
        """
        with self._lock:
            self._load()
            if self._moved != (position, to):
                self._save(moved=(position, to))

    def begin_incarnation(self) -> None:
        """Raises: StateError."""
        with self._lock:
            self._load()
            self._save(incarnation=self._incarnation + 1)

    def put_back(self) -> None:
        """Write the file again after it was deleted.

        Raises: StateError
        """
        with self._lock:
            if self._is_loaded and (self._generation or self._incarnation or self._archived or self._moved):
                self._save()

    def _load(self) -> None:
        with self._lock:
            if self._is_loaded:
                return
            raw = read_json(self._path) or {}  # anyone may have edited it: a value of the wrong type counts as missing
            self._generation = _count(raw.get("generation"))
            self._incarnation = _count(raw.get("incarnation"))
            archived = raw.get("archived")
            rows = archived.items() if isinstance(archived, dict) else ()
            self._archived = {int(number): _count(read) for number, read in rows if _NUMBER.fullmatch(number)}
            moved = raw.get("moved")
            if isinstance(moved, dict):
                self._moved = Position.from_mark(moved.get("from")), Position.from_mark(moved.get("to"))
            begun = raw.get("begun")
            self._begun = begun if isinstance(begun, float) else 0.0
            self._is_loaded = True

    def _save(self, **changed: Any) -> None:
        """Memory changes only after the disk has."""
        known = {
            "generation": self._generation,
            "incarnation": self._incarnation,
            "archived": self._archived,
            "moved": self._moved,
            "begun": self._begun,
        }
        new = {**known, **changed}
        moved = new["moved"]
        row = {**new, "moved": moved and {"from": moved[0].to_mark(), "to": moved[1].to_mark()}}
        write_json(self._path, {"v": VERSION, **row})
        self._generation, self._incarnation = new["generation"], new["incarnation"]
        self._archived, self._moved, self._begun = new["archived"], moved, new["begun"]


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _count(value: object) -> int:
    return value if isinstance(value, int) and _is_count(value) else 0
