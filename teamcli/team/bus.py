"""How messages travel: the few verbs every engine must offer, and the engine that keeps them in files.

Sending appends, reading never consumes: a reader says from which position on, and moves that position itself, in the
same durable line that records what it read.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Container, Iterable
from pathlib import Path
from typing import NamedTuple, Protocol

from teamcli.cancel import CancelScope
from teamcli.errors import StateError, TeamcliError
from teamcli.team.inbox import Chunk, Extent, Inbox, read_pieces
from teamcli.team.line import BadLine, LineCodec, Origin, Reading, too_long
from teamcli.team.message import LEAD, Message, check_name, frame
from teamcli.team.quarantine import Quarantine
from teamcli.team.signing import KEY_BYTES, have_token, key_of, read_token
from teamcli.team.watcher import Watcher

LEAVING_SECONDS = 1.0
"""How long a look at the inboxes that is under way is waited for."""
logger = logging.getLogger(__name__)


class Position(NamedTuple):
    """How far an inbox has been read."""

    offset: int = 0
    file: int = 0
    """Which file the offset belongs to: a replaced or rotated inbox is read from its beginning."""

    def covers(self, other: Position) -> bool:
        """Whether what ends at `other` has been read."""
        return self.file == other.file and self.offset >= other.offset


class Batch(NamedTuple):
    """What an inbox holds after a position, and the position after that."""

    messages: tuple[Message, ...]
    position: Position


class Entry(NamedTuple):
    """A message where it stands; `end` is the position of a reader that has read it."""

    message: Message
    end: Position


class MessageBus(Protocol):
    def send(self, message: Message) -> bool:
        """Append to the recipient's inbox, durably; true once it stands there.

        Raises: TeamError (the recipient is no name), MessageTooLong, StateError
        """

    def send_once(self, message: Message) -> bool:
        """The same, unless a message of ours with its id stands there (or in the archive) already: then false."""

    def unread(self, name: str, position: Position, seen: Container[str] = (), most: int | None = None) -> Batch:
        """Everything for `name` after `position`, in order, without what has an id in `seen`. Consumes nothing.

        With `most`, the first of it that takes no more than so many characters in frames, and one message at least.

        Raises: StateError
        """

    def has_unread(self, name: str, position: Position) -> bool:
        """Whether `unread` may bring something. Cheap; true also for lines that turn out to be no messages."""

    def peek(self, name: str) -> list[Entry]:
        """Every message in the inbox, read or not. Changes nothing, sets nothing aside.

        Raises: StateError
        """

    def wait(self, name: str, position: Position, cancel: CancelScope, timeout_seconds: float | None = None) -> bool:
        """Block at no cost until `has_unread`; false when the time is up, cancelled, or the bus is closed."""

    def subscribe(self, callback: Callable[[str], None]) -> None:
        """Have `callback` called with the recipient's name after each send here and each append noticed from outside.

        Subscribe first, then look at what is there already. It runs in the sender's or the watcher's thread, must
        return at once and may be called when there is nothing new.
        """

    def rotate(self, name: str, position: Position) -> Position:
        """Archive an inbox that is fully read and has grown large; only at start. The reader's new position.

        Raises: StateError
        """

    def close(self) -> None: ...


class FileBus:
    """One append-only file of JSON lines per name, which any program can read and append to."""

    def __init__(
        self,
        directory: Path,
        key: bytes,
        durable: bool = True,
        on_quarantine: Callable[[str], None] = lambda _: None,
        poll_seconds: float = 0.25,
        rotate_bytes: int = 1_000_000,
    ) -> None:
        self._directory = directory
        self._key = key
        self._known_codec: LineCodec | None = None
        self._durable = durable
        self._on_quarantine = on_quarantine
        self._rotate_bytes = rotate_bytes
        self._boxes: dict[str, _Box] = {}
        self._boxes_lock = threading.Lock()
        self._callbacks: list[Callable[[str], None]] = []
        self._rotated: list[Inbox] = []
        self._watcher = Watcher(directory, poll_seconds, self._carry_over, self._changed_outside)
        self._is_closed = False

    def send(self, message: Message) -> bool:
        box = self._box(message.to)
        self._known_codec = codec = self._known_codec or self._codec_of(have_token(self._directory))
        size = box.inbox.append(codec.write(message))
        self._watcher.expect(message.to, size)
        self._tell(box, message.to)
        return True

    def send_once(self, message: Message) -> bool:
        inbox = self._box(message.to).inbox
        files = (inbox.path, *inbox.archives())
        return not any(self._stands_in(path, message) for path in files) and self.send(message)

    def unread(self, name: str, position: Position, seen: Container[str] = (), most: int | None = None) -> Batch:
        box = self._box(name)
        box.inbox.carry_over()
        taking = _Taking(seen, most)
        first: int | None = None
        while (chunk := box.inbox.read(position.file, position.offset)) is not None:
            file = chunk.extent.file
            first = chunk.start if first is None else first
            end = taking.take(self._read(name, chunk), chunk)
            if taking.bad:
                box.quarantine.add(name, file, taking.bad)
                taking.bad = []
            position = Position(end, file)
            if end < chunk.end:  # there is more than may be taken at once
                return Batch(tuple(taking.messages), position)
            if chunk.is_last:
                box.empty_rest = (chunk.extent, end if taking.messages else first)
                return Batch(tuple(taking.messages), position)
        return Batch(tuple(taking.messages), Position())

    def _read(self, name: str, chunk: Chunk) -> Iterable[Reading | BadLine]:
        if chunk.skipped:
            return (too_long(chunk.start, chunk.data),)
        return self._codec.read(Origin(name, chunk.extent.file, chunk.seen_at), chunk.data, chunk.start)

    def has_unread(self, name: str, position: Position) -> bool:
        box = self._box(name)
        try:
            extent = box.inbox.extent()
        except StateError:  # it is no file, say: whoever reads it is told
            return False
        if extent is None:
            return False
        start = position.offset if position.file == extent.file and position.offset <= extent.bytes else 0
        looked_at, empty_from = box.empty_rest
        return start < extent.bytes and (looked_at != extent or start < empty_from)

    def peek(self, name: str) -> list[Entry]:
        pieces = read_pieces(self._box(name).inbox.path)
        found = ((one, chunk.extent.file) for chunk in pieces for one in self._read(name, chunk))
        return [Entry(one.message, Position(one.end, file)) for one, file in found if isinstance(one, Reading)]

    def wait(self, name: str, position: Position, cancel: CancelScope, timeout_seconds: float | None = None) -> bool:
        self._watcher.start()
        box = self._box(name)

        def is_over() -> bool:
            return self._is_closed or cancel.cancelled or self.has_unread(name, position)

        with cancel.on_cancel(box.ring), box.bell:
            box.waiting += 1
            try:
                box.bell.wait_for(is_over, timeout_seconds)
            finally:
                box.waiting -= 1
        return not self._is_closed and not cancel.cancelled and self.has_unread(name, position)

    def subscribe(self, callback: Callable[[str], None]) -> None:
        self._callbacks.append(callback)
        self._watcher.start()

    def rotate(self, name: str, position: Position) -> Position:
        inbox = self._box(name).inbox
        if not inbox.rotate(position.file, position.offset, self._rotate_bytes):
            return position
        inbox.carry_over()
        self._rotated.append(inbox)
        return Position()

    def close(self) -> None:
        self._is_closed = True
        self._watcher.stop()
        for box in tuple(self._boxes.values()):
            box.ring()
            box.inbox.close()
        self._watcher.join(LEAVING_SECONDS)

    @property
    def _codec(self) -> LineCodec:
        """As long as the directory has no token nothing in it is signed, and no key can make it so."""
        if self._known_codec is None:
            token = read_token(self._directory)
            if token is None:
                return LineCodec(secrets.token_bytes(KEY_BYTES))
            self._known_codec = self._codec_of(token)
        return self._known_codec

    def _codec_of(self, token: bytes) -> LineCodec:
        return LineCodec(key_of(token, self._key))

    def _box(self, name: str) -> _Box:
        """Raises: TeamError, so that no name can lead out of the directory."""
        box = self._boxes.get(name)
        if box is not None:
            return box
        if name != LEAD:
            check_name(name)
        with self._boxes_lock:
            return self._boxes.setdefault(name, self._new_box(name))

    def _new_box(self, name: str) -> _Box:
        inbox = Inbox(self._directory / f"{name}.jsonl", self._durable)
        bad = Quarantine(self._directory / f"{name}.bad.jsonl", self._durable, self._on_quarantine)
        return _Box(inbox, bad)

    def _stands_in(self, path: Path, message: Message) -> bool:
        wanted = message.id.encode("utf-8", "replace")
        data = (chunk.data for chunk in read_pieces(path) if wanted in chunk.data)
        lines = (line for piece in data for line in piece.split(b"\n")[:-1] if wanted in line)
        return any(self._codec.holds(line, message.to, message.id) for line in lines)

    def _carry_over(self) -> None:
        for inbox in self._rotated:
            try:
                inbox.carry_over()
            except StateError as e:  # the next look tries again
                logger.warning("late lines stay in the archive: %s", e)

    def _changed_outside(self, name: str) -> None:
        if self._is_closed:
            return
        try:
            self._tell(self._box(name), name)
        except TeamcliError as e:  # one inbox that cannot be used must not end the watch over all others
            logger.warning("a change in the inbox of %s was not followed up: %s", name, e)

    def _tell(self, box: _Box, name: str) -> None:
        if box.waiting:  # who begins to wait only now looks into the inbox first
            box.ring()
        for callback in self._callbacks:
            callback(name)


class _Box:
    """An inbox and what belongs to it."""

    def __init__(self, inbox: Inbox, quarantine: Quarantine) -> None:
        self.inbox = inbox
        self.quarantine = quarantine
        self.bell = threading.Condition()
        self.waiting = 0
        self.empty_rest: tuple[Extent | None, int] = (None, 0)
        """At that extent, from that offset on, nothing can be delivered: a torn line must not wake anybody for ever."""

    def ring(self) -> None:
        with self.bell:
            self.bell.notify_all()


class _Taking:
    """The messages that are taken at once: each id once, and no more than fit."""

    def __init__(self, seen: Container[str], most: int | None) -> None:
        self._seen = seen
        self._room = most
        self._known: set[str] = set()
        self.messages: list[Message] = []
        self.bad: list[BadLine] = []

    def take(self, found: Iterable[Reading | BadLine], chunk: Chunk) -> int:
        """Take what fits of a piece; where the first line begins that was not taken."""
        after = chunk.start
        for one in found:
            if isinstance(one, BadLine):
                self.bad.append(one)
                continue
            if self._is_new(one.message) and not self._take(one.message):
                return after
            after = one.end
        return chunk.end

    def _is_new(self, message: Message) -> bool:
        return message.id not in self._seen and message.id not in self._known

    def _take(self, message: Message) -> bool:
        if self._room is not None:
            self._room -= len(frame(message)) + 1
            if self._room < 0 and self.messages:
                return False
        self._known.add(message.id)
        self.messages.append(message)
        return True
