"""How messages travel: the methods that every engine must offer, and the engine that keeps messages in files.

Sending appends. Reading never consumes: a reader passes the position to read from, and records the new position in the
same durable line as the messages that it read.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Container, Iterable
from pathlib import Path
from typing import NamedTuple, Protocol

from teamcli.cancel import CancelScope
from teamcli.errors import StateError, TeamcliError
from teamcli.team.archive import Archives
from teamcli.team.collector import Collector
from teamcli.team.inbox_file import Inbox
from teamcli.team.inbox_reading import Chunk, Size, Start, look_into, read_pieces
from teamcli.team.inbox_state import InboxState, Position
from teamcli.team.inbox_watcher import Watcher
from teamcli.team.message import LEAD, Message, check_name
from teamcli.team.message_ids import Counts, LineIds, LinesBefore
from teamcli.team.message_line import BadLine, LineCodec, Origin, ParsedMessage, too_long
from teamcli.team.quarantine import Quarantine
from teamcli.team.signing import KEY_BYTES, ensure_token, key_of, read_token

BEGINNING = Position()
CLOSING_SECONDS = 1.0
"""How long to wait for the watcher if it is in the middle of a check."""
logger = logging.getLogger(__name__)


class Batch(NamedTuple):
    """The messages after a position, and the position after them."""

    messages: tuple[Message, ...]
    position: Position
    incarnation: int = 0
    """Of the inbox: how often it began anew."""


class InboxEntry(NamedTuple):
    """A message, and whether its reader has read it."""

    message: Message
    is_read: bool


class MessageBus(Protocol):
    def send(self, message: Message) -> bool:
        """Append to the recipient's inbox, durably. True once it is stored.

        Raises: TeamError (the recipient is not a valid name), MessageTooLong, StateError
        """

    def send_once(self, message: Message) -> bool:
        """The same, unless the inbox or its archive already has a signed message with that id: then false."""

    def unread(self, name: str, position: Position, seen: Container[str] = (), most: int | None = None) -> Batch:
        """All messages for `name` after `position`, in order, except those in `seen`. Consumes nothing.

        With `most`, only the first ones, up to that many characters in frames, but at least one message.

        Raises: StateError
        """

    def has_unread(self, name: str, position: Position) -> bool:
        """Whether `unread` may return something. Cheap; also true for lines that turn out not to be messages."""

    def peek(self, name: str, position: Position = BEGINNING, seen: Container[str] = ()) -> list[InboxEntry]:
        """Every message in the inbox, read or not. Changes nothing and sets no line aside.

        Raises: StateError
        """

    def wait(self, name: str, position: Position, cancel: CancelScope, timeout_seconds: float | None = None) -> bool:
        """Block until `has_unread`, without using CPU. False if the time is up, cancelled, or the bus is closed."""

    def subscribe(self, callback: Callable[[str], None]) -> None:
        """Call `callback` with the recipient's name after each send here, and after each append by another program.

        Subscribe first, then check what is already there. The callback runs in the sender's or the watcher's thread,
        must return quickly, and may be called without anything new.
        """

    def rotate(self, name: str, position: Position) -> Position:
        """Archive a large inbox that is fully read; only at start. Returns the reader's new position.

        Raises: StateError
        """

    def begin_anew(self, name: str) -> Position:
        """The position of a new reader, for whom everything in the inbox counts as read.

        Raises: StateError
        """

    def release(self, name: str) -> None:
        """Keep no file open for this inbox: it has no reader for now."""

    def close(self) -> None: ...


class FileBus:
    """One append-only file of JSON lines per name. Any program can read it and append to it."""

    def __init__(
        self,
        directory: Path,
        key: bytes,
        durable: bool = True,
        on_quarantine: Callable[[str], None] = lambda _: None,
        poll_seconds: float = 0.25,
        rotate_bytes: int = 1_000_000,
        on_look: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_look` is called a few times a second while agents wait for mail, in a thread of the bus."""
        self._directory = directory
        self._key = key
        self._token = b""
        self._known_codec: LineCodec | None = None
        self._on_look = on_look
        self._durable = durable
        self._on_quarantine = on_quarantine
        self._rotate_bytes = rotate_bytes
        self._boxes: dict[str, _FileInbox] = {}
        self._boxes_lock = threading.Lock()
        self._callbacks: list[Callable[[str], None]] = []
        self._watcher = Watcher(directory, poll_seconds, self._look, self._changed_outside, self._is_gone)
        self._is_closed = False

    def send(self, message: Message) -> bool:
        box = self._box(message.to)
        self._known_codec = codec = self._known_codec or self._codec_of(ensure_token(self._directory))
        size = box.inbox.append(codec.write(message, box.state.incarnation))
        self._watcher.expect(message.to, size)
        self._notify(box, message.to)
        return True

    def send_once(self, message: Message) -> bool:
        box = self._box(message.to)
        # The archive counts too: a restart repeats what an earlier run sent before the inbox was rotated.
        files = (box.inbox.path, *box.archives.paths())
        return not any(self._holds(path, message) for path in files) and self.send(message)

    def unread(self, name: str, position: Position, seen: Container[str] = (), most: int | None = None) -> Batch:
        box = self._box(name)
        box.archives.carry_over(self._with_id)
        size = box.inbox.size()
        start = box.locate(position, size)
        if size is None or start is None:
            return Batch((), position, box.state.incarnation)
        collector = Collector(seen, most)
        ids = box.line_ids(name, start, seen)
        offset, is_all = start.offset, False
        while not is_all and not collector.is_full and (chunk := box.inbox.read(offset)) is not None:
            found = self._read(Origin(name, chunk.seen_at, ids, box.state.incarnation), chunk)
            offset = collector.take(found, chunk.start, chunk.end)
            is_all = chunk.is_last
        box.quarantine.add(name, collector.bad)
        end = box.position(offset, start)
        if is_all and not collector.is_full:
            box.looked_at(size, offset if collector.messages else start.offset)
            if not collector.messages and start.offset != position.offset:
                box.state.move(position, end)
        return Batch(tuple(collector.messages), end, box.state.incarnation)

    def _read(self, origin: Origin, chunk: Chunk) -> Iterable[ParsedMessage | BadLine]:
        if chunk.skipped:
            return (too_long(origin, chunk.start, chunk.data),)
        return self._codec.read(origin, chunk.data, chunk.start)

    def has_unread(self, name: str, position: Position) -> bool:
        try:
            return self._box(name).may_have_unread(position)
        except StateError:  # for example not a regular file; `unread` reports the error
            return False

    def peek(self, name: str, position: Position = BEGINNING, seen: Container[str] = ()) -> list[InboxEntry]:
        box = self._box(name)
        found = look_into(box.inbox.path, position, box.state)
        if found is None:
            return []
        start, pieces = found
        ids = LineIds(name, box.state.generation, new_from=start.new_from, seen=seen)
        found_here = (one for piece in pieces for one in self._read(Origin(name, piece.seen_at, ids), piece))
        readings = (one for one in found_here if isinstance(one, ParsedMessage))
        return [InboxEntry(one.message, one.end <= start.offset or one.message.read_as in seen) for one in readings]

    def wait(self, name: str, position: Position, cancel: CancelScope, timeout_seconds: float | None = None) -> bool:
        self._watcher.start()
        box = self._box(name)

        def is_over() -> bool:
            return self._is_closed or cancel.cancelled or self.has_unread(name, position)

        with cancel.on_cancel(box.wake_all), box.changed:
            box.waiting += 1
            try:
                box.changed.wait_for(is_over, timeout_seconds)
            finally:
                box.waiting -= 1
        return not self._is_closed and not cancel.cancelled and self.has_unread(name, position)

    def subscribe(self, callback: Callable[[str], None]) -> None:
        self._callbacks.append(callback)
        self._watcher.start()

    def rotate(self, name: str, position: Position) -> Position:
        box = self._box(name)
        is_moved = box.archives.begin(position, self._rotate_bytes)
        box.archives.carry_over(self._with_id)
        if is_moved:
            return BEGINNING
        box.note_if_gone(position)  # it may have been deleted or emptied while nothing ran
        return position

    def begin_anew(self, name: str) -> Position:
        box = self._box(name)
        box.archives.carry_over(self._with_id)
        if box.inbox.size() is not None or box.state.generation or box.state.incarnation:
            box.state.begin_incarnation()  # so that messages to an earlier one cannot be repeated to it
        return box.position(box.inbox.end(), Start(0, 0))

    def release(self, name: str) -> None:
        self._box(name).inbox.release()

    def close(self) -> None:
        self._is_closed = True
        self._watcher.stop()
        for box in tuple(self._boxes.values()):
            box.wake_all()
            box.inbox.close()
        self._watcher.join(CLOSING_SECONDS)

    @property
    def _codec(self) -> LineCodec:
        """Without a token in the directory nothing there is signed, and no key may make it look signed."""
        if self._known_codec is None:
            token = read_token(self._directory)
            if token is None:
                return LineCodec(secrets.token_bytes(KEY_BYTES))
            self._known_codec = self._codec_of(token)
        return self._known_codec

    def _with_id(self, line: bytes, id: str) -> bytes:
        # The codec is found only now: between most turns there is nothing to carry over.
        return self._codec.with_id(line, id)

    def _codec_of(self, token: bytes) -> LineCodec:
        self._token = token
        return LineCodec(key_of(token, self._key))

    def _box(self, name: str) -> _FileInbox:
        """Raises: TeamError, for a name that could lead out of the directory."""
        box = self._boxes.get(name)
        if box is not None:
            return box
        if name != LEAD:
            check_name(name)
        with self._boxes_lock:
            return self._boxes.setdefault(name, self._new_box(name))

    def _new_box(self, name: str) -> _FileInbox:
        inbox = Inbox(self._directory / f"{name}.jsonl", self._durable)
        bad = Quarantine(self._directory / f"{name}.bad.jsonl", self._durable, self._on_quarantine)
        return _FileInbox(inbox, bad, InboxState(self._directory / f"{name}.state.json"))

    def _holds(self, path: Path, message: Message) -> bool:
        wanted = message.id.encode("utf-8", "replace")
        data = (chunk.data for chunk in read_pieces(path) if wanted in chunk.data)
        lines = (line for piece in data for line in piece.split(b"\n")[:-1] if wanted in line)
        return any(self._codec.holds(line, message.to, message.id) for line in lines)

    def put_back(self) -> None:
        """Write the inboxes again as far as possible after the whole directory was deleted.

        Raises: StateError
        """
        if self._token:
            ensure_token(self._directory, self._token)
        for box in tuple(self._boxes.values()):
            box.inbox.put_back()
            box.state.put_back()

    def _look(self) -> None:
        self._on_look()
        for box in tuple(self._boxes.values()):
            try:
                if box.is_read:
                    box.archives.carry_over(self._with_id)
            except StateError as e:  # the next check tries again
                logger.warning("late lines stay in the archive: %s", e)

    def _is_gone(self, name: str) -> None:
        """An inbox was deleted or emptied. What appears next is a new file, whatever its content."""
        self._box(name).gone_since = time.time()
        self._changed_outside(name)

    def _changed_outside(self, name: str) -> None:
        if self._is_closed:
            return
        try:
            self._notify(self._box(name), name)
        except TeamcliError as e:  # one unusable inbox must not stop the watcher for all others
            logger.warning("a change in the inbox of %s could not be handled: %s", name, e)

    def _notify(self, box: _FileInbox, name: str) -> None:
        if box.waiting:  # a thread that starts waiting now checks the inbox first
            box.wake_all()
        for callback in self._callbacks:
            callback(name)


class _FileInbox:
    """An inbox with its archive, its state and the threads that wait for it."""

    def __init__(self, inbox: Inbox, quarantine: Quarantine, state: InboxState) -> None:
        self.inbox = inbox
        self.quarantine = quarantine
        self.state = state
        self.archives = Archives(inbox, state)
        self.changed = threading.Condition()
        self.waiting = 0
        self.gone_since = 0.0
        """When the watcher missed it at two checks in a row, so that no editor is just replacing it; else 0."""
        self.is_read = False
        """Whether an agent of this program reads it."""
        self._lines_before = LinesBefore()
        self._located: tuple[Size | None, Position, int] = (None, BEGINNING, 0)
        self._nothing_at: tuple[Size | None, int] = (None, 0)
        """At that size, nothing from that offset on can be delivered. A torn line must not wake its reader forever."""

    def locate(self, position: Position, size: Size | None) -> Start | None:
        """Where a reader at that position continues; None without a file, which is what most teammates have."""
        self.is_read = True
        if self.gone_since:
            self._note_gone(position, self.gone_since)
        if size is None:
            return None
        if position.generation == self.state.generation - 1 and self.inbox.is_put_back(position, self.state):
            self.state.restore_file()
        return self.inbox.locate(position, self.state)

    def note_if_gone(self, position: Position) -> None:
        size = self.inbox.size()
        if size is None or not size.bytes:
            self._note_gone(position)

    def _note_gone(self, position: Position, when: float | None = None) -> None:
        if position.offset and position.generation == self.state.generation:
            self.state.begin_file(when=when)
        self.gone_since = 0.0

    def may_have_unread(self, position: Position) -> bool:
        size = self.inbox.size()
        if size is None or not size.bytes:
            if self.gone_since:
                self._note_gone(position, self.gone_since)
            return False
        if self._located[:2] != (size, position):
            start = self.locate(position, size)
            self._located = size, position, start.offset if start else size.bytes
        start_offset = self._located[2]
        looked_at, nothing_from = self._nothing_at
        return start_offset < size.bytes and (looked_at != size or start_offset < nothing_from)

    def looked_at(self, size: Size, nothing_from: int) -> None:
        self._nothing_at = size, nothing_from

    def line_ids(self, name: str, start: Start, seen: Container[str]) -> LineIds:
        def before() -> Counts:
            return self._lines_before(start.offset, self.inbox.check_at, self.inbox.lines)

        return LineIds(name, self.state.generation, before, start.new_from, seen)

    def position(self, offset: int, start: Start) -> Position:
        check = self.inbox.check_at(offset) if offset else ""
        repeats_until = start.new_from if start.new_from > offset else 0
        return Position(offset, check, repeats_until, self.state.generation) if check else BEGINNING

    def wake_all(self) -> None:
        with self.changed:
            self.changed.notify_all()
