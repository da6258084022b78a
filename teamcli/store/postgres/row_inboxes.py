"""What this process knows of inboxes in the database, and its threads that wait for mail.

An inbox is only asked for after something was heard of it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from teamcli.errors import TeamcliError
from teamcli.store.postgres.message_rows import MessageRows
from teamcli.team.inbox_state import Position
from teamcli.team.quarantine import Quarantine

logger = logging.getLogger(__name__)


class KnownInboxes:
    def __init__(self, rows: MessageRows, directory: Path, on_quarantine: Callable[[str], None]) -> None:
        """What cannot be delivered is set aside in `directory`."""
        self._rows = rows
        self._directory = directory
        self._on_quarantine = on_quarantine
        self._boxes: dict[str, RowInbox] = {}
        self._lock = threading.Lock()
        self._asking = threading.Lock()

    def of(self, name: str) -> RowInbox:
        if (box := self._boxes.get(name)) is not None:
            return box
        path = self._directory / f"{name.replace('/', '.')}.bad.jsonl"
        with self._lock:
            return self._boxes.setdefault(name, RowInbox(Quarantine(path, True, self._on_quarantine)))

    def find(self, name: str) -> RowInbox | None:
        """None if nothing in this process was interested in it."""
        return self._boxes.get(name)

    def has_unread(self, name: str, position: Position) -> bool:
        """Raises: StateError"""
        box = self.of(name)
        if box.is_stale:
            self._ask()
        return box.may_have_unread(position)

    def are_current(self, tails: Mapping[str, int]) -> bool:
        """Whether this process has heard of all messages, if the inboxes end there."""
        return all(box.is_stale or tails.get(name, 0) <= box.tail for name, box in tuple(self._boxes.items()))

    def look_again(self) -> list[str]:
        """Something may have been missed: ask for all inboxes at once. Returns those that have more."""
        boxes = {name: box for name, box in tuple(self._boxes.items()) if box.is_known}
        before = {name: box.tail for name, box in boxes.items()}
        for box in boxes.values():
            box.heard()
        try:
            self._ask()
        except TeamcliError as e:  # those who wait will ask themselves
            logger.warning("the inboxes cannot be checked: %s", e)
        for box in boxes.values():
            box.wake_all()
        return [name for name, box in boxes.items() if box.tail != before[name]]

    def wake_all(self) -> None:
        for box in tuple(self._boxes.values()):
            box.wake_all()

    def _ask(self) -> None:
        """Ask for the tails of all inboxes about which something was heard, in one query."""
        with self._asking:  # of many threads, one asks: the others find nothing stale then
            boxes = {name: (box, box.number) for name, box in tuple(self._boxes.items()) if box.is_stale}
            if boxes:
                tails = self._rows.tails(boxes)
                for name, (box, number) in boxes.items():
                    box.looked(number, tails.get(name, 0))


class RowInbox:
    """What is known about an inbox, and the threads that wait for it."""

    def __init__(self, quarantine: Quarantine) -> None:
        self.quarantine = quarantine
        self.tail = 0
        self.changed = threading.Condition()
        self.number = 1
        """Counts what was heard about it."""
        self._asked = 0
        """The number when the tail was read. If it is lower now, there may be more."""
        self._nothing = (0, 0)
        """From the first offset to the second, which is the end, nothing can be delivered. A bad row must not wake its
        reader forever."""

    @property
    def is_known(self) -> bool:
        return self._asked > 0

    @property
    def is_stale(self) -> bool:
        return self._asked < self.number

    def heard(self) -> None:
        with self.changed:
            self.number += 1

    def looked(self, number: int, tail: int, nothing_from: int | None = None) -> None:
        """The tail was read after `number` was."""
        with self.changed:
            if number >= self._asked:  # a later answer may have been faster, and has a later tail
                self._asked, self.tail = number, tail
                if nothing_from is not None:
                    self._nothing = nothing_from, tail

    def may_have_unread(self, position: Position) -> bool:
        with self.changed:
            start, end = self._nothing
            # A position after the end is not one of this inbox: what it has may be new.
            return position.offset != self.tail and not (start <= position.offset and self.tail == end)

    def wake_all(self) -> None:
        with self.changed:
            self.changed.notify_all()
