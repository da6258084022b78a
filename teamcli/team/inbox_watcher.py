"""Notices what other processes do to inboxes: one thread checks the size of each a few times a second.

It reads no message: `mailbox.py` does, in the thread of the agent.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

from teamcli.team.inbox_reading import Size
from teamcli.team.message import is_address

_SUFFIX = ".jsonl"


class Watcher:
    def __init__(
        self,
        directory: Path,
        poll_seconds: float,
        on_look: Callable[[], None],
        on_change: Callable[[str], None],
        on_gone: Callable[[str], None],
    ) -> None:
        """Calls `on_look` before each check, `on_change` with the name of each changed inbox, and `on_gone` for one
        that is missing or empty at two checks in a row (an editor replaces a file faster). All in its own thread."""
        self._directory = str(directory)
        self._poll_seconds = poll_seconds
        self._on_look = on_look
        self._on_change = on_change
        self._on_gone = on_gone
        self._was_there: set[str] = set()
        """Inboxes that had content and have not been reported as gone since."""
        self._missing: frozenset[str] = frozenset()
        self._known: dict[str, Size] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """From now on every change is noticed. A second call does nothing."""
        with self._lock:
            if self._thread is not None or self._stopped.is_set():
                return
            self._known = self._sizes()
            self._thread = threading.Thread(target=self._run, name="inbox watcher", daemon=True)
            self._thread.start()

    def expect(self, name: str, size: Size) -> None:
        """We have just written this inbox and notify its readers ourselves."""
        with self._lock:
            self._known[name] = size

    def stop(self) -> None:
        """Only signals the thread: a callback may be waiting for a lock that the caller holds."""
        self._stopped.set()

    def join(self, timeout_seconds: float) -> None:
        """Wait for the end of the thread, unless called from one of its callbacks."""
        with self._lock:  # `start` holds it until the thread runs
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout_seconds)

    def _run(self) -> None:
        while not self._stopped.wait(self._poll_seconds):
            self._on_look()
            with self._lock:
                before = dict(self._known)
            now = self._sizes()
            for name in self._changed(before, now):
                self._on_change(name)
            for name in self._gone(now):
                self._on_gone(name)

    def _gone(self, now: dict[str, Size]) -> list[str]:
        there = {name for name, size in now.items() if size.bytes and is_address(name)}
        self._was_there |= there
        missing = frozenset(self._was_there - there)
        gone = missing & self._missing
        self._missing = missing - gone
        self._was_there -= gone
        return sorted(gone)

    def _changed(self, before: dict[str, Size], now: dict[str, Size]) -> list[str]:
        """The changed inboxes, except those that we wrote to during the check."""
        with self._lock:
            names = [
                name
                for name in before.keys() | now.keys()
                if _differ(before.get(name), now.get(name)) and before.get(name) == self._known.get(name)
            ]
            for name in before.keys() | now.keys():
                if before.get(name) != self._known.get(name):
                    continue
                if name in now:
                    self._known[name] = now[name]
                else:
                    del self._known[name]
        return [name for name in names if name in now and is_address(name)]

    def _sizes(self) -> dict[str, Size]:
        try:
            with os.scandir(self._directory) as entries:
                return {
                    entry.name.removesuffix(_SUFFIX): Size(found.st_ino, found.st_size, found.st_ctime_ns)
                    for entry in entries
                    if entry.name.endswith(_SUFFIX)
                    for found in (entry.stat(follow_symlinks=False),)
                }
        except OSError:  # not created yet, or an inbox was deleted during the check; the next one will tell
            return {}


def _differ(before: Size | None, now: Size | None) -> bool:
    """After our own write the time of the change is not known (0), and does not matter."""
    if before is None or now is None:
        return before is not now
    return before[:2] != now[:2] or (before.changed != now.changed and before.changed != 0)
