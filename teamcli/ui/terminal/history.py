"""The history of typed lines, in a private file of the project. Typing works even if the file cannot be used.

The file is bounded: once it is too large, the oldest lines go.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from pathlib import Path

from prompt_toolkit.history import FileHistory

from teamcli.errors import StateError
from teamcli.storage.files import open_private, write_atomic
from teamcli.text.redaction import redact
from teamcli.ui.terminal.pastes import Pastes

logger = logging.getLogger(__name__)

MAX_BYTES = 2_000_000


class LineHistory(FileHistory):
    """Keeps lines as they were at the prompt, with marks for pasted text, which is stored with them."""

    def __init__(self, path: Path, pastes: Pastes) -> None:
        super().__init__(str(path))
        self._path = path
        self._pastes = pastes

    def load_history_strings(self) -> Iterable[str]:
        try:
            self._make_private()
            self._forget_oldest()
            return [self._pastes.restored(line) for line in super().load_history_strings()]
        except (OSError, StateError) as e:
            logger.warning("cannot read the history: %s", e)
            return []

    def store_string(self, string: str) -> None:
        try:
            self._make_private()  # again: the file may have been deleted since
            super().store_string(redact(self._pastes.stored(string)))
        except (OSError, StateError) as e:
            logger.warning("cannot add a line to the history: %s", e)

    def _forget_oldest(self) -> None:
        if self._path.stat().st_size <= MAX_BYTES:
            return
        newest = self._path.read_bytes()[-MAX_BYTES // 2 :]
        write_atomic(self._path, newest[max(0, newest.find(b"\n# ")) :])  # from the beginning of an entry

    def _make_private(self) -> None:
        os.close(open_private(self._path, os.O_WRONLY | os.O_CREAT))
