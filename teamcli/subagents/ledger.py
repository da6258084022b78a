"""Sub-agents on file: the background ones that run, so that a start after a crash finds whose end nobody was told, and
those that wait for the user, so that another shell can see it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import NamedTuple

from teamcli.errors import StateError
from teamcli.storage.files import VERSION, Json, as_number, read_json, write_json


class Open(NamedTuple):
    """A sub-agent whose parent was not told of its end yet."""

    id: str
    parent: str
    description: str
    began: float
    by_user: bool = False

    @classmethod
    def from_row(cls, row: Json) -> Open:
        id, parent, description = (str(row.get(name, "")) for name in ("id", "parent", "description"))
        return cls(id, parent, description, as_number(row.get("began")), row.get("by_user") is True)


class Waiting(NamedTuple):
    """A sub-agent that waits for the user."""

    id: str
    parent: str
    waiting_for: str


def read_waiting(path: Path) -> tuple[Waiting, ...]:
    """Those that wait, for a look from outside. Holds only while the program that wrote it runs."""
    try:
        rows = (read_json(path) or {}).get("waiting")
    except StateError:  # only a look: the next start tells of the damage
        return ()
    found = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    return tuple(Waiting(*(str(row.get(name, "")) for name in Waiting._fields)) for row in found)


class Ledger:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._open: dict[str, Open] = {}
        self._waiting: dict[str, Waiting] = {}
        self.problem = ""
        """Why nothing is known of an earlier run."""
        try:
            rows = (read_json(path) or {}).get("running")
        except StateError as e:
            self.problem = str(e)
            return
        found = [Open.from_row(row) for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
        self._open = {entry.id: entry for entry in found}

    def all(self) -> tuple[Open, ...]:
        with self._lock:
            return tuple(self._open.values())

    def waiting(self) -> tuple[Waiting, ...]:
        with self._lock:
            return tuple(self._waiting.values())

    def show_waiting(self, entry: Waiting) -> None:
        """Nothing to wait for means that it waits no longer.

        Raises: StateError
        """
        with self._lock:
            self._waiting.pop(entry.id, None)
            if entry.waiting_for:
                self._waiting[entry.id] = entry
            self._keep(self._open)

    def add(self, entry: Open) -> None:
        """Raises: StateError."""
        with self._lock:
            self._keep({**self._open, entry.id: entry})

    def remove(self, id: str) -> None:
        """Raises: StateError."""
        with self._lock:
            if id in self._open:
                self._keep({key: entry for key, entry in self._open.items() if key != id})

    def _keep(self, entries: dict[str, Open]) -> None:
        rows = [entry._asdict() for entry in entries.values()]
        waiting = [entry._asdict() for entry in self._waiting.values()]
        write_json(self._path, {"v": VERSION, "running": rows, "waiting": waiting})
        self._open = entries
