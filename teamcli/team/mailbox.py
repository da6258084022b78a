"""One agent's unread mail. The transcript line that records a message also records how far mail is read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from teamcli.agent.conversation import Marks, text_block
from teamcli.agent.loop import Delivery
from teamcli.llm.types import Block
from teamcli.team.inbox_state import Position
from teamcli.team.message import USER, Message, frame
from teamcli.team.message_bus import InboxEntry, MessageBus

MOST_AT_ONCE = 90_000
"""Characters of mail in one delivery: a tool result takes 100,000, and thousands of messages would fill any context.
The rest comes with the next delivery."""
POSITION, IDS = "inbox", "mail"
"""The marks by which a transcript line says how far mail is read, and which messages it holds."""


class Taken(NamedTuple):
    messages: tuple[Message, ...] = ()
    marks: Marks = {}  # noqa: RUF012 - never changed

    def delivery(self, attach: Callable[[str], Delivery] | None = None) -> Delivery:
        """The messages as blocks. `attach` returns what goes with the user's words: the files that they mention."""
        blocks: list[Block] = []
        seen_files: dict[str, str] = {}
        for message in self.messages:
            blocks.append(text_block(frame(message)))
            if attach and message.sender == USER and not message.is_foreign:
                attached = attach(message.content)
                blocks += attached.blocks
                seen_files.update(attached.seen_files)
        return Delivery(blocks, self.marks, seen_files)


class LateMail:
    """Mail that waits while its reader is in the middle of a step, because that step may make it needless."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_held = False
        self._waits = 0
        """Calls in progress that wait for mail."""
        self._sends: list[Callable[[], None]] = []

    def add(self, send: Callable[[], None]) -> None:
        """Call `send`, from any thread: now, or when nothing holds it back."""
        with self._lock:
            self._sends.append(send)
            is_held = self._is_held and not self._waits
        if not is_held:
            self.flush()

    def hold(self) -> None:
        with self._lock:
            self._is_held = True

    def release(self) -> None:
        with self._lock:
            self._is_held = False
        self.flush()

    @contextmanager
    def wanted(self) -> Iterator[None]:
        """Inside the block its reader waits for mail, so nothing is held back."""
        with self._lock:
            self._waits += 1
        self.flush()
        try:
            yield
        finally:
            with self._lock:
                self._waits -= 1

    def flush(self) -> None:
        """Send what waits. Not with a lock that a recipient of mail may take."""
        with self._lock:
            sends, self._sends = self._sends, []
        for send in sends:
            send()


class Mailbox:
    """Used by the agent's own thread; others may look."""

    def __init__(
        self,
        bus: MessageBus,
        name: str,
        marks: Mapping[str, Any],
        as_current: Callable[[Message], Message] = lambda message: message,
    ) -> None:
        """`as_current` turns a message into what is true when it is read."""
        self._as_current = as_current
        self._bus = bus
        self._name = name
        self._committed = _position(marks)
        self._reading = self._committed
        """Ahead of `_committed` while a tool has read messages whose result is not recorded yet."""
        self._seen: set[str] = _ids(marks)
        self._answered = self._committed
        """Behind `_committed` while messages are recorded that the model has not answered yet."""
        self._unanswered: set[str] = set()
        self._left: int | None = None
        """The incarnation of the inbox that its reader has left."""
        self.late = LateMail()

    @property
    def has_unread(self) -> bool:
        return self._bus.has_unread(self._name, self._committed)

    @property
    def position(self) -> Position:
        return self._committed

    def peek(self) -> list[InboxEntry]:
        """Every message in the inbox, read or not."""
        return self._bus.peek(self._name, self._committed, self._seen)

    def look(self) -> tuple[Message, ...]:
        """What is unread, without taking it."""
        return self._bus.unread(self._name, self._committed, self._seen).messages

    def has_read(self, id: str) -> bool:
        """Whether that message is in the conversation."""
        return id in self._seen

    def take(self) -> Taken:
        """What is unread, for a tool's result or for `take_after`. Only `recorded` makes it count as read."""
        batch = self._bus.unread(self._name, self._reading, self._seen, MOST_AT_ONCE)
        self._reading = batch.position  # a second call in the same answer must not return the same messages
        if not batch.messages:
            return Taken()
        ids = [message.read_as for message in batch.messages]
        return Taken(tuple(map(self._as_current, batch.messages)), {POSITION: batch.position.to_mark(), IDS: ids})

    def take_after(self, noted: Mapping[str, Any]) -> Taken:
        """What is unread after the tool results with these marks."""
        # Mail that an interrupted call had read is unread again: only the marks of finished calls count.
        self._reading = _position(noted) if POSITION in noted else self._committed
        return self.take()

    def recorded(self, marks: Mapping[str, Any]) -> None:
        """A line with these marks is on disk."""
        if POSITION in marks:
            self._committed = self._reading = _position(marks)
            self._seen |= _ids(marks)
            self._unanswered |= _ids(marks)
            if IDS not in marks:  # a new incarnation: earlier mail is not for it
                self.answered()

    def answered(self) -> None:
        """The model has answered: it has seen everything that is recorded."""
        self._answered = self._committed
        self._unanswered.clear()

    def replay(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Restore what the lines of a transcript say: what was recorded, and what was answered."""
        for row in rows:
            if row.get("kind") == "assistant":
                self.answered()
            elif isinstance(marks := row.get("marks"), dict):
                self.recorded(marks)

    def take_unseen(self) -> tuple[Message, ...]:
        """For a teammate that leaves: what no model has seen, recorded or not. Returns each message once; it
        stays unread in the inbox. Nothing once the inbox has begun anew: that mail is for the next reader."""
        batch = self._bus.unread(self._name, self._answered, self._seen - self._unanswered)
        self._left = batch.incarnation if self._left is None else self._left
        if batch.incarnation != self._left:
            return ()
        self._answered = batch.position
        self._unanswered.clear()
        self._seen.update(message.read_as for message in batch.messages)
        return batch.messages

    def rotate(self) -> None:
        """Archive a long inbox that is fully read. Only at the start, before any agent runs."""
        if not self._unanswered:  # `take_unseen` must still find those in the inbox
            self._committed = self._reading = self._answered = self._bus.rotate(self._name, self._committed)

    def release(self) -> None:
        """Its reader has left: close the file."""
        self._bus.release(self._name)

    def skip_all(self) -> Marks:
        """The mark that counts everything as read: mail for an earlier incarnation is not for this one."""
        return {POSITION: self._bus.begin_anew(self._name).to_mark()}


def _ids(marks: Mapping[str, Any]) -> set[str]:
    ids = marks.get(IDS)
    return {id for id in ids if isinstance(id, str)} if isinstance(ids, list) else set()


def _position(marks: Mapping[str, Any]) -> Position:
    return Position.from_mark(marks.get(POSITION))
