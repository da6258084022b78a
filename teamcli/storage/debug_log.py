"""teamcli's log file, for finding out what went wrong. Created with the first record; redacted; never on screen."""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

from teamcli.errors import StateError
from teamcli.storage.files import PRIVATE_DIR, open_private
from teamcli.text.redaction import redact

SIZE_LIMIT = 5_000_000


class _LazyFileHandler(logging.Handler):
    """Opens its file for each record, so that none is created without one."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(threadName)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError, StateError):  # a log that cannot be written must not become a problem itself
            self._path.parent.mkdir(mode=PRIVATE_DIR, parents=True, exist_ok=True)
            fd = open_private(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            with os.fdopen(fd, "w", encoding="utf-8", errors="replace") as file:
                file.write(redact(self.format(record)) + "\n")


def log_to(directory: Path, debug: bool) -> None:
    """Write what teamcli logs to a file in `directory`. Other libraries' records may hold secrets and are left out."""
    path = directory / "teamcli.log"
    with contextlib.suppress(OSError):  # it does not exist yet, or cannot be read
        if path.stat().st_size > SIZE_LIMIT:
            path.replace(path.with_suffix(".old.log"))
    logger = logging.getLogger("teamcli")
    logger.handlers = [_LazyFileHandler(path)]
    logger.propagate = False
    logger.setLevel(logging.DEBUG if debug else logging.WARNING)
