"""Notices what other processes append: one thread looks at the size of every inbox a few times a second."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

from teamcli.team.inbox import Size
from teamcli.team.message import is_address

_SUFFIX = ".jsonl"


class Watcher:
    def __init__(
        self, directory: Path, poll_seconds: float, on_look: Callable[[], None], on_change: Callable[[str], None]
    ) -> None:
        """Before each look `on_look` is called, for each changed inbox `on_change` with its name, in our thread."""
        self._directory = str(directory)
        self._poll_seconds = poll_seconds
        self._on_look = on_look
        self._on_change = on_change
        self._known: dict[str, Size] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """From here on every change is noticed. A repeat does nothing."""
        with self._lock:
            if self._thread is not None or self._stopped.is_set():
                return
            self._known = self._sizes()
            self._thread = threading.Thread(target=self._run, name="inbox watcher", daemon=True)
            self._thread.start()

    def expect(self, name: str, size: Size) -> None:
        """We have just written it ourselves, and tell everybody."""
        with self._lock:
            self._known[name] = size

    def stop(self) -> None:
        """Only signals: a callback may be waiting for what the caller holds."""
        self._stopped.set()

    def join(self, timeout_seconds: float) -> None:
        """Wait for the thread's end; not from within a callback of its own."""
        with self._lock:  # whoever starts it holds this until it runs
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout_seconds)

    def _run(self) -> None:
        while not self._stopped.wait(self._poll_seconds):
            self._on_look()
            with self._lock:
                before = dict(self._known)
            for name in self._changed(before, self._sizes()):
                self._on_change(name)

    def _changed(self, before: dict[str, Size], now: dict[str, Size]) -> list[str]:
        """Without those that we wrote to while we looked."""
        with self._lock:
            names = [
                name
                for name in before.keys() | now.keys()
                if before.get(name) != now.get(name) and before.get(name) == self._known.get(name)
            ]
            for name in names:
                if name in now:
                    self._known[name] = now[name]
                else:
                    del self._known[name]
        return [name for name in names if name in now and is_address(name)]

    def _sizes(self) -> dict[str, Size]:
        try:
            with os.scandir(self._directory) as entries:
                return {
                    entry.name.removesuffix(_SUFFIX): Size(found.st_ino, found.st_size)
                    for entry in entries
                    if entry.name.endswith(_SUFFIX)
                    for found in (entry.stat(follow_symlinks=False),)
                }
        except OSError:  # not made yet, or an inbox was deleted while we looked: the next look tells
            return {}
