"""The history of typed lines, in a private file of the project. Typing works even if the file cannot be used."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from pathlib import Path

from prompt_toolkit.history import FileHistory

from teamcli.errors import StateError
from teamcli.storage.files import open_private
from teamcli.text.redaction import redact

logger = logging.getLogger(__name__)


class LineHistory(FileHistory):
    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self._path = path

    def load_history_strings(self) -> Iterable[str]:
        try:
            self._make_private()
            return list(super().load_history_strings())
        except (OSError, StateError) as e:
            logger.warning("cannot read the history: %s", e)
            return []

    def store_string(self, string: str) -> None:
        try:
            self._make_private()  # again: the file may have been deleted since
            super().store_string(redact(string))
        except (OSError, StateError) as e:
            logger.warning("cannot add a line to the history: %s", e)

    def _make_private(self) -> None:
        os.close(open_private(self._path, os.O_WRONLY | os.O_CREAT))
