"""The background sub-agents that run, on file: a start after a crash finds here whose end nobody was told."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import NamedTuple

from teamcli.errors import StateError
from teamcli.files import VERSION, Json, read_json, write_json


class Open(NamedTuple):
    """A sub-agent whose parent was not told of its end yet."""

    id: str
    parent: str
    description: str
    began: float

    @classmethod
    def from_row(cls, row: Json) -> Open:
        id, parent, description = (str(row.get(name, "")) for name in ("id", "parent", "description"))
        began = row.get("began")
        return cls(id, parent, description, float(began) if isinstance(began, int | float) else 0.0)


class Ledger:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._open: dict[str, Open] = {}
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
        write_json(self._path, {"v": VERSION, "running": rows})
        self._open = entries
