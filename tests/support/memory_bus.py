"""The smallest MessageBus: the suite for message buses runs against this one too."""

from __future__ import annotations

import threading
from collections.abc import Callable, Container

from teamcli.cancel import CancelScope
from teamcli.errors import MessageTooLong
from teamcli.team.message import LEAD, Message, check_name, frame
from teamcli.team.message_bus import BEGINNING, Batch, InboxEntry, Position
from teamcli.team.message_line import MAX_LINE_BYTES


class MemoryBus:
    def __init__(self) -> None:
        self._inboxes: dict[str, list[Message]] = {}
        self._changed = threading.Condition()
        self._callbacks: list[Callable[[str], None]] = []
        self._is_closed = False

    def send(self, message: Message) -> bool:
        if len(message.content.encode("utf-8", "replace")) >= MAX_LINE_BYTES:
            raise MessageTooLong(f"the message to '{message.to}' is longer than 256 KB")
        with self._changed:
            self._inbox(message.to).append(message)
            self._changed.notify_all()
        for callback in self._callbacks:
            callback(message.to)
        return True

    def send_once(self, message: Message) -> bool:
        return all(other.id != message.id for other in self._inbox(message.to)) and self.send(message)

    def unread(self, name: str, position: Position, seen: Container[str] = (), most: int | None = None) -> Batch:
        inbox = tuple(self._inbox(name))
        new: dict[str, Message] = {}
        for offset, message in enumerate(inbox[position.offset :], position.offset):
            room = (most or 0) - sum(len(frame(other)) + 1 for other in new.values())
            if message.id not in seen and message.id not in new:
                if most is not None and new and len(frame(message)) + 1 > room:
                    return Batch(tuple(new.values()), Position(offset))
                new[message.id] = message
        return Batch(tuple(new.values()), Position(len(inbox)))

    def has_unread(self, name: str, position: Position) -> bool:
        return len(self._inbox(name)) > position.offset

    def peek(self, name: str, position: Position = BEGINNING, seen: Container[str] = ()) -> list[InboxEntry]:
        inbox = enumerate(self._inbox(name))
        return [InboxEntry(message, n < position.offset or message.read_as in seen) for n, message in inbox]

    def wait(self, name: str, position: Position, cancel: CancelScope, timeout_seconds: float | None = None) -> bool:
        def is_over() -> bool:
            return self._is_closed or cancel.cancelled or self.has_unread(name, position)

        with cancel.on_cancel(self._wake), self._changed:
            self._changed.wait_for(is_over, timeout_seconds)
        return not self._is_closed and not cancel.cancelled and self.has_unread(name, position)

    def subscribe(self, callback: Callable[[str], None]) -> None:
        self._callbacks.append(callback)

    def rotate(self, name: str, position: Position) -> Position:
        return position

    def begin_anew(self, name: str) -> Position:
        return Position(len(self._inbox(name)))

    def release(self, name: str) -> None:
        pass

    def close(self) -> None:
        self._is_closed = True
        self._wake()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _inbox(self, name: str) -> list[Message]:
        if name != LEAD:
            check_name(name)
        return self._inboxes.setdefault(name, [])
