"""The lines that were typed in a project, in a private file. One that cannot be used keeps nobody from typing."""

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
            logger.warning("earlier lines cannot be read: %s", e)
            return []

    def store_string(self, string: str) -> None:
        try:
            self._make_private()  # also where somebody has removed it meanwhile
            super().store_string(redact(string))
        except (OSError, StateError) as e:
            logger.warning("a line is not kept for later: %s", e)

    def _make_private(self) -> None:
        os.close(open_private(self._path, os.O_WRONLY | os.O_CREAT))
