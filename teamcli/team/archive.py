"""Inboxes that were read to their end and moved away. A writer that had one open may still append to it, at any time.

So all of them are looked at, whichever start moved them, and what was appended is brought into the inbox. How much of
each has been delivered is on disk. A crash between the two brings a line twice, with the same id: it is read once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from teamcli.errors import StateError
from teamcli.team.inbox import Inbox, is_valid_in, read_pieces, size_of
from teamcli.team.inbox_state import InboxState, Position

ARCHIVE = "archive"
AddId = Callable[[bytes, str], bytes]
"""Gives a line an id, unless it has one of its own."""


class Archives:
    """Of one inbox."""

    def __init__(self, inbox: Inbox, state: InboxState) -> None:
        self._inbox = inbox
        self._state = state
        self._directory = inbox.path.parent / ARCHIVE
        self._known: dict[int, Path] | None = None
        self._lock = threading.Lock()

    def paths(self) -> list[Path]:
        """The newest first."""
        return [path for _, path in sorted(self._find().items(), reverse=True)]

    def begin(self, position: Position, limit_bytes: int) -> bool:
        """At the start of a reader: move away an inbox that is long and read to its end; whether it was. What an
        earlier start moved away, and had no time to note, is noted too.

        Raises: StateError
        """
        with self._lock:
            self._note_unknown(position)
            number = max([self._state.last_archive, *self._find()]) + 1
            path = self._directory / f"{self._inbox.path.stem}.{number}.jsonl"
            is_moved = self._inbox.move_to(path, position, limit_bytes)
            if is_moved:
                self._state.begin_file({number: position.offset})
                self._known = None
            return is_moved

    def carry_over(self, add_id: AddId) -> None:
        """Bring into the inbox what was appended to archived files since they were last looked at.

        Raises: StateError
        """
        with self._lock:
            if self._known is None:
                self._note_unknown(Position())
                self._known = self._find()
            for number, path in self._known.items():
                size, read = size_of(str(path)), self._state.read_of(number)
                if size is None or read is None:
                    continue
                if size.bytes < read:  # somebody has emptied it: what is there now came afterwards
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

    def _note_unknown(self, position: Position) -> None:
        """A file that a killed program moved away is known by the position at its end; one of an earlier version of
        teamcli counts as delivered."""
        for number, path in self._find().items():
            if self._state.read_of(number) is not None:
                continue
            if position.offset and is_valid_in(path, position) and not is_valid_in(self._inbox.path, position):
                self._state.begin_file({number: position.offset})
            elif size := size_of(str(path)):
                self._state.note_archives({number: size.bytes})

    def _find(self) -> dict[int, Path]:
        """Raises: StateError."""
        try:
            found = {_number(path): path for path in self._directory.glob(f"{self._inbox.path.stem}.*.jsonl")}
        except OSError as e:
            raise StateError(f"cannot read {self._directory}: {e.strerror or e}") from e
        return {number: path for number, path in found.items() if number}


def _number(archive: Path) -> int:
    number = archive.name.split(".")[1]
    return int(number) if number.isascii() and number.isdigit() else 0
