"""A log whose lines are rows, with a copy in a file for everything that only reads."""

from __future__ import annotations

import logging
import os
import threading
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from teamcli.errors import StateError
from teamcli.storage.append_log import AppendLog
from teamcli.storage.files import LARGEST_LINE, Json, encode_line, read_regular, write_atomic

LARGEST_COPY = 16 * LARGEST_LINE
logger = logging.getLogger(__name__)


class MirroredLog:
    """A `Log`. What is in the database counts: a copy that cannot be written is reported, and completed later."""

    torn = b""

    def __init__(self, path: Path, lines: bytes | None = None) -> None:
        """With `lines`, these are all there are, and the copy is made the same.

        Raises: StateError
        """
        if lines is not None:
            _bring_up_to_date(path, lines)
        self._file = AppendLog(path, durable=False, is_shared=False)
        self._lock = threading.RLock()
        self._is_closed = False
        self._unsynced: Json | None = None
        self._uncopied: list[Json] = []

    @property
    def end(self) -> int:
        return self._file.end

    def append(self, *values: Json) -> None:
        with self._lock:
            self.sync()
            self._keep(values)

    def write(self, value: Json) -> None:
        """The row is inserted by `sync`, while the request travels. Until then, nobody acts on it."""
        with self._lock:
            self.sync()
            self._unsynced = value

    def sync(self) -> None:
        with self._lock:
            value, self._unsynced = self._unsynced, None
            if value is not None:
                self._keep([value])

    def put_back(self) -> None:
        self._file.put_back()

    def close(self) -> None:
        """Keep what was written, if possible."""
        with self._lock:
            with suppress(StateError):  # then it was never written
                self.sync()
            self._is_closed = True
            self._file.close()

    @abstractmethod
    def _insert(self, entries: Sequence[str]) -> None:
        """Insert the rows in one transaction.

        Raises: StateError
        """

    def _keep(self, values: Sequence[Json]) -> None:
        if self._is_closed:
            raise StateError(f"{self._file.path} is closed: teamcli is exiting")
        if values:  # the row first: nothing may act on a line that only the copy has
            self._insert([encode_line(value)[:-1].decode() for value in values])
            self._copy(values)

    def _copy(self, values: Sequence[Json]) -> None:
        self._uncopied += values
        try:
            self._file.append(*self._uncopied)
        except StateError as e:  # the rows are there, so this cannot fail the caller
            logger.warning("the copy of a log lags behind: %s", e)
        else:
            self._uncopied = []


def _bring_up_to_date(path: Path, lines: bytes) -> None:
    try:
        known: bytes | None = read_regular(path, LARGEST_COPY, os.O_NOFOLLOW)
    except (OSError, ValueError):  # there is none, or not one of ours
        known = None
    if known != lines:
        write_atomic(path, lines, durable=False)
