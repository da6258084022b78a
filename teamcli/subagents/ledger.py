"""Sub-agents on disk: background ones that have not been reported, for the start after a crash, and those that wait for
the user, for `teamcli team` in another shell."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from teamcli.errors import StateError
from teamcli.storage.files import VERSION, Json, as_number, read_json, write_json


class LedgerEntry(NamedTuple):
    """A background sub-agent whose end has not been reported to its parent."""

    id: str
    parent: str
    description: str
    began: float
    by_user: bool = False

    @classmethod
    def from_row(cls, row: Json) -> LedgerEntry:
        id, parent, description = (str(row.get(name, "")) for name in ("id", "parent", "description"))
        return cls(id, parent, description, as_number(row.get("began")), row.get("by_user") is True)


class SharedLedger(Protocol):
    """Where other hosts find what this one has not reported, if it dies. All methods raise StateError."""

    def keep(self, rows: Sequence[Json]) -> None:
        """All that this host has not reported."""

    def take_left(self, parents: Collection[str], report: Callable[[Iterable[Json]], None]) -> None:
        """Report what earlier hosts have left of these parents, which run here now. What was reported is removed."""


class Waiting(NamedTuple):
    """A sub-agent that waits for the user."""

    id: str
    parent: str
    waiting_for: str


def read_waiting(path: Path) -> tuple[Waiting, ...]:
    """Those that wait, read by another process. Only true while the program that wrote the file is running."""
    try:
        rows = _rows(path, "waiting")
    except StateError:  # this only reads: the next start reports the damage
        return ()
    return tuple(Waiting(*(str(row.get(name, "")) for name in Waiting._fields)) for row in rows)


class Ledger:
    def __init__(self, path: Path, shared: SharedLedger | None = None) -> None:
        """`shared` if other hosts may continue the work of the parents."""
        self._path = path
        self._shared = shared
        self._lock = threading.Lock()
        self._entries: dict[str, LedgerEntry] = {}
        self._waiting: dict[str, Waiting] = {}
        self.problem = ""
        """Why nothing is known about an earlier run."""
        try:
            # Not those that were waiting for the user: they have ended with the program.
            for entry in map(LedgerEntry.from_row, _rows(path, "running")):
                self._entries[entry.id] = entry
        except StateError as e:
            self.problem = str(e)

    def all(self) -> tuple[LedgerEntry, ...]:
        with self._lock:
            return tuple(self._entries.values())

    def waiting(self) -> tuple[Waiting, ...]:
        with self._lock:
            return tuple(self._waiting.values())

    def show_waiting(self, entry: Waiting) -> None:
        """An empty `waiting_for` means that it no longer waits.

        Raises: StateError
        """
        with self._lock:
            self._waiting.pop(entry.id, None)
            if entry.waiting_for:
                self._waiting[entry.id] = entry
            self._write(self._entries)

    def add(self, entry: LedgerEntry) -> None:
        """Raises: StateError."""
        with self._lock:
            self._write({**self._entries, entry.id: entry})

    def remove(self, id: str) -> None:
        """Raises: StateError."""
        with self._lock:
            if id in self._entries:
                self._write({key: entry for key, entry in self._entries.items() if key != id})

    def _write(self, entries: dict[str, LedgerEntry]) -> None:
        rows = [entry._asdict() for entry in entries.values()]
        waiting = [entry._asdict() for entry in self._waiting.values()]
        write_json(self._path, {"v": VERSION, "running": rows, "waiting": waiting})
        if self._shared is not None and entries != self._entries:
            self._shared.keep(rows)
        self._entries = entries  # only now: what is not on disk does not count


def _rows(path: Path, key: str) -> list[Json]:
    """Raises: StateError."""
    rows = (read_json(path) or {}).get(key)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
