"""The commands that run while nobody waits for them, of all agents, so that the user can see and stop them."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from teamcli.errors import UsageError
from teamcli.text.escaping import one_line

BACKGROUND, OWN = "bg", "sh"
"""How the id of an agent's background command begins, and that of a command of the user."""
_RECENT_CHARACTERS = 8_000
_MAX_KEPT_ENDED = 20
_TITLE_LENGTH = 60


class JobEntry:
    """A command on the list."""

    def __init__(self, id: str, owner: str, command: str, stop: Callable[[], None]) -> None:
        """`stop` ends it for the user."""
        self.id = id
        self.owner = owner
        self.command = command
        self.stop = stop
        self.recent = ""
        """The end of its output."""
        self._started_at = time.monotonic()
        self._ended_at: float | None = None

    @property
    def whose(self) -> str:
        """Its owner, in a word for the user."""
        return "you" if self.id.startswith(OWN) else self.owner

    @property
    def title(self) -> str:
        """In one line, without its output."""
        return f"{self.whose}: {one_line(self.command, _TITLE_LENGTH)}"

    @property
    def seconds(self) -> float:
        """How long it has been running, or ran."""
        return (self._ended_at or time.monotonic()) - self._started_at

    @property
    def is_over(self) -> bool:
        return self._ended_at is not None

    @property
    def last_line(self) -> str:
        return next((line for line in reversed(self.recent.splitlines()) if line.strip()), "").strip()

    def add(self, text: str) -> None:
        """Called by one thread, which reads its output."""
        self.recent = (self.recent + text)[-_RECENT_CHARACTERS:]

    def end(self) -> None:
        self._ended_at = self._ended_at or time.monotonic()


class JobList:
    """Safe for any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = {kind: itertools.count(1) for kind in (BACKGROUND, OWN)}
        self._entries: dict[str, JobEntry] = {}

    def add(self, owner: str, command: str, stop: Callable[[], None], kind: str = BACKGROUND) -> JobEntry:
        """List a command that has started, under an id that is unique in this program."""
        with self._lock:
            ended = [id for id, entry in self._entries.items() if entry.is_over]
            for id in ended[: max(0, len(ended) - _MAX_KEPT_ENDED)]:
                del self._entries[id]
            entry = JobEntry(f"{kind}-{next(self._numbers[kind])}", owner, command, stop)
            self._entries[entry.id] = entry
        return entry

    @contextmanager
    def listed(self, owner: str, command: str, stop: Callable[[], None], kind: str) -> Iterator[JobEntry]:
        """List a command for as long as the block runs."""
        entry = self.add(owner, command, stop, kind)
        try:
            yield entry
        finally:
            entry.end()

    def running(self) -> list[JobEntry]:
        with self._lock:
            return [entry for entry in self._entries.values() if not entry.is_over]

    def background(self) -> list[JobEntry]:
        """Those of agents that run."""
        return [entry for entry in self.running() if entry.id.startswith(BACKGROUND)]

    def find(self, id: str) -> JobEntry:
        """One that runs, or has ended lately.

        Raises: UsageError
        """
        with self._lock:
            if id in self._entries:
                return self._entries[id]
        known = ", ".join(entry.id for entry in self.running()) or "none"
        raise UsageError(f"there is no job '{id}' (running: {known})")
