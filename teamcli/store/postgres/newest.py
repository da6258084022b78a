"""The newest version of each row that this host has seen.

A signature is valid for ever, so anyone who can write to the database could put an older row back. Versions and numbers
only grow: what is older than something seen before does not count. A host remembers that in a file of its mirror.
"""

from __future__ import annotations

import json
import logging
import threading
from pathlib import Path

from teamcli.errors import StateError
from teamcli.storage.files import decode_line, read_regular, write_atomic
from teamcli.store.later import Later

WRITE_SECONDS = 0.5
MOST_REMEMBERED = 20_000
"""Rows. Those that were looked at longest ago are forgotten."""
_LARGEST_FILE = 10_000_000
logger = logging.getLogger(__name__)


class Newest:
    def __init__(self, uid: str = "", path: Path | None = None) -> None:
        """Of the team `uid`. Without a path, nothing is remembered after the end of this process.

        Raises: StateError
        """
        self._uid = uid
        self._path = path
        self._lock = threading.Lock()
        # The floor is the highest version of all rows that were forgotten.
        self._versions, self._floor = _read(path, uid) if path else ({}, 0)
        self._is_written = True
        self._later = Later(self.close)

    @property
    def remedy(self) -> str:
        """What to do if it is not an attack."""
        file = f"delete {self._path} on each host" if self._path else "start teamcli again"
        return f"if the database was restored from a backup, stop teamcli everywhere and {file}"

    def of(self, row: str) -> int:
        """0 for a row that was never seen, or forgotten."""
        with self._lock:
            return self._versions.get(row, 0)

    def next(self, row: str) -> int:
        """A version that is newer than any that this host has seen of a row, also if it has forgotten that."""
        with self._lock:
            return max(self._versions.get(row, 0), self._floor) + 1

    def known(self, beginning: str) -> list[str]:
        """The rows that begin so, without that beginning."""
        with self._lock:
            return [row.removeprefix(beginning) for row in self._versions if row.startswith(beginning)]

    def admits(self, row: str, version: int) -> bool:
        """Whether a row that is signed is not older than what was seen of it. If so, it is the newest now."""
        with self._lock:
            known = self._versions.pop(row, 0)
            if newest := max(known, version):
                self._versions[row] = newest  # as the last one
            if version > known:
                self._forget()
                if self._path is not None:
                    self._is_written = False
                    self._later.soon(WRITE_SECONDS)
        return version >= known

    def close(self) -> None:
        """Write what is not written yet."""
        with self._lock:
            self._write()

    def _forget(self) -> None:
        if len(self._versions) > MOST_REMEMBERED:
            self._floor = max(self._floor, self._versions.pop(next(iter(self._versions))))

    def _write(self) -> None:
        """The caller holds the lock. What a crash loses can only be put back by someone who knows of it at once."""
        if self._path is None or self._is_written:
            return
        self._is_written = True
        try:
            known = {"v": 1, "team": self._uid, "floor": self._floor, "versions": self._versions}
            data = json.dumps(known, indent=0)
            write_atomic(self._path, data.encode() + b"\n", durable=False)
        except StateError as e:  # it protects, and nothing else needs it
            logger.warning("the newest versions of rows were not written: %s", e)


def _read(path: Path, uid: str) -> tuple[dict[str, int], int]:
    """What was remembered for this team; nothing if the file is of another one, or damaged.

    Raises: StateError
    """
    try:
        found = decode_line(read_regular(path, _LARGEST_FILE)) or {}
    except FileNotFoundError:
        return {}, 0
    except (OSError, ValueError) as e:
        raise StateError(f"{path} cannot be read ({e}); delete it") from e
    versions, floor = found.get("versions"), found.get("floor")
    if found.get("team") != uid or not isinstance(versions, dict):
        return {}, 0
    known = {str(row): version for row, version in versions.items() if isinstance(version, int)}
    return known, floor if isinstance(floor, int) else 0
