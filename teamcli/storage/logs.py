"""teamcli's own log, for the person who wonders what went wrong. Never on the terminal; made with its first record.

No key gets into it, whatever an exception says.
"""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

from teamcli.errors import StateError
from teamcli.storage.files import PRIVATE_DIR, open_private
from teamcli.text.redaction import redact

SIZE_LIMIT = 5_000_000


class _LateFile(logging.Handler):
    """Opens its file with the first record."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(threadName)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError, StateError):  # a log that cannot be written must not become the problem
            self._path.parent.mkdir(mode=PRIVATE_DIR, parents=True, exist_ok=True)
            fd = open_private(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            with os.fdopen(fd, "w", encoding="utf-8", errors="replace") as file:
                file.write(redact(self.format(record)) + "\n")


def log_to(directory: Path, debug: bool) -> None:
    """Send what teamcli logs to a file there. Other libraries' records are left alone: they may hold secrets."""
    path = directory / "teamcli.log"
    with contextlib.suppress(OSError):  # not there yet, or not ours to look at: `_LateFile` copes
        if path.stat().st_size > SIZE_LIMIT:
            path.replace(path.with_suffix(".old.log"))
    logger = logging.getLogger("teamcli")
    logger.handlers = [_LateFile(path)]
    logger.propagate = False
    logger.setLevel(logging.DEBUG if debug else logging.WARNING)
