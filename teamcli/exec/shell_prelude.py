"""Lines of shell that run before each command of an agent, such as exports. Hooks write them when a session starts."""

from __future__ import annotations

import threading
from pathlib import Path

from teamcli.storage.files import make_private_dir, read_regular, write_atomic

_LARGEST = 64 * 1024


class SessionLines:
    """Safe for threads. The lines are kept in memory, so that nobody can change them in a file."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._files = 0
        self._texts: dict[str, None] = {}

    @property
    def text(self) -> str:
        return "".join(self._texts)

    def new_file(self) -> Path:
        """An empty file for one hook.

        Raises: StateError
        """
        with self._lock:
            self._files += 1
            path = self._directory / f"env-{self._files}.sh"
        make_private_dir(self._directory)
        write_atomic(path, b"")
        return path

    def read(self, path: Path) -> None:
        """Take over what a hook has written.

        Raises: OSError, ValueError
        """
        text = read_regular(path, _LARGEST).decode("utf-8", "replace").strip()
        path.unlink()
        if "\0" in text:
            raise ValueError("what it wrote to CLAUDE_ENV_FILE is not text")
        if text:
            with self._lock:  # replaced, not changed: commands read it at any time
                self._texts = {**self._texts, f"{text}\n": None}
