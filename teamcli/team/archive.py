"""Inboxes that were read to their end and archived. A writer that still has one open may append to it at any time.

So all archived files are checked, and appended lines are copied into the inbox. The state file records how much of each
was copied. A crash between the two copies a line twice, with the same id, so that it is read once.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from teamcli.storage.files import as_state_error
from teamcli.team.inbox_file import Inbox
from teamcli.team.inbox_reading import is_valid_in, read_pieces, size_of
from teamcli.team.inbox_state import InboxState, Position

ARCHIVE = "archive"
AddId = Callable[[bytes, str], bytes]
"""Gives a line an id, unless it already has one."""


class Archives:
    """The archived files of one inbox."""

    def __init__(self, inbox: Inbox, state: InboxState) -> None:
        self._inbox = inbox
        self._state = state
        self._directory = inbox.path.parent / ARCHIVE
        self._known: dict[int, Path] | None = None
        self._lock = threading.Lock()

    def paths(self) -> list[Path]:
        """Newest first."""
        return [path for _, path in sorted(self._find().items(), reverse=True)]

    def begin(self, position: Position, limit_bytes: int) -> bool:
        """When a reader starts: archive a large inbox that is read to its end. True if it was. Also records a file that
        an earlier run archived but did not have time to record.

        Raises: StateError
        """
        with self._lock:
            archived = self._find()
            self._note_unknown(position, archived)
            number = max([self._state.last_archive, *archived]) + 1
            path = self._directory / f"{self._inbox.path.stem}.{number}.jsonl"
            is_moved = self._inbox.move_to(path, position, limit_bytes)
            if is_moved:
                self._state.begin_file({number: position.offset})
                self._known = None
            return is_moved

    def carry_over(self, add_id: AddId) -> None:
        """Copy lines into the inbox that were appended to archived files since the last check.

        Raises: StateError
        """
        with self._lock:
            if self._known is None:
                self._known = self._find()
                self._note_unknown(Position(), self._known)
            for number, path in self._known.items():
                size, read = size_of(str(path)), self._state.read_of(number)
                if size is None or read is None:
                    continue
                if size.bytes < read:  # it was emptied, so its present content is new
                    self._state.note_archives({number: 0})
                    read = 0
                if size.bytes > read:
                    self._carry(number, path, read, add_id)

    def _carry(self, number: int, path: Path, read: int, add_id: AddId) -> None:
        piece = next(read_pieces(path, read))
        lines, offset = [], read
        for line in piece.lines():
            lines.append(add_id(line, f"late-{number}-{offset}") + b"\n")
            offset += len(line) + 1
        if lines:
            self._inbox.append(b"".join(lines))
            self._state.note_archives({number: piece.end})

    def _note_unknown(self, position: Position, archived: Mapping[int, Path]) -> None:
        """A file that a killed run archived is recognized by the position at its end. A file from an earlier version of
        teamcli counts as delivered."""
        for number, path in archived.items():
            if self._state.read_of(number) is not None:
                continue
            if position.offset and is_valid_in(path, position) and not is_valid_in(self._inbox.path, position):
                self._state.begin_file({number: position.offset})
            elif size := size_of(str(path)):
                self._state.note_archives({number: size.bytes})

    def _find(self) -> dict[int, Path]:
        """Raises: StateError."""
        beginning = f"{self._inbox.path.stem}."
        with as_state_error("read", self._directory):
            try:
                names = os.listdir(self._directory)  # noqa: PTH208 - a glob would compile a pattern for each inbox
            except (FileNotFoundError, NotADirectoryError):  # nothing was archived yet
                return {}
        found = {_number(name): self._directory / name for name in names if name.startswith(beginning)}
        return {number: path for number, path in found.items() if number}


def _number(archive: str) -> int:
    """0 if this is not the name of an archived file."""
    number = archive.split(".")[1] if archive.endswith(".jsonl") else ""
    return int(number) if number.isascii() and number.isdigit() else 0
