"""The team's mail in PostgreSQL: a row per message, in the order of their positions.

A send locks the row of the inbox, so that positions become visible in their order and no reader can miss a message that
is committed late. The position of a message is the offset at which its line begins in the file that an export writes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Container, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from teamcli.cancel import CancelScope
from teamcli.errors import StateError, TeamcliError
from teamcli.store.postgres.team_rows import Fence, Team, lease_lost
from teamcli.team.collector import Collector
from teamcli.team.inbox_state import Position
from teamcli.team.message import LEAD, Message, check_name, message_id
from teamcli.team.message_bus import BEGINNING, Batch, InboxEntry
from teamcli.team.message_ids import LineIds
from teamcli.team.message_line import MAX_LINE_BYTES, BadLine, LineCodec, Origin, ParsedMessage, too_long
from teamcli.team.quarantine import Quarantine
from teamcli.team.signing import key_of

PAGE_ROWS = 200
_ORDERS = "/orders"
"""Ends the name of the inbox of a member's host. No agent can have such a name."""
_SHOWN_CHARACTERS = 1000
"""Of a row that is too large to be a message."""

# A row at or after the tail is not ours: go past it. Sends never get as far as the limit, which a forged row may have.
_SEND = """
with fence as (
    select from lease where team = %(team)s and name = %(sender)s and epoch = %(epoch)s for share
), box as (
    select tail, incarnation from inbox where team = %(team)s and name = %(to)s
    and (%(epoch)s::bigint is null or exists (select from fence)) for update
), new as (
    insert into message (team, inbox, pos, id, body)
    select %(team)s, %(to)s, coalesce((
        select pos + octet_length(body) + 1 from message
        where team = %(team)s and inbox = %(to)s and pos >= box.tail and pos < 1::bigint << 53
        order by pos desc limit 1
    ), box.tail), %(id)s, %(body)s::text
    from box where incarnation = %(incarnation)s
    on conflict do nothing returning pos
), moved as (
    update inbox set tail = new.pos + octet_length(%(body)s::text) + 1 from new where team = %(team)s and name = %(to)s
)
select (select pos from new), (select incarnation from box),
    %(epoch)s::bigint is null or exists (select from fence)
"""
_CREATE = "insert into inbox (team, name) values (%(team)s, %(to)s) on conflict do nothing returning name"
_STORED = """
select case when octet_length(body) < %(most)s then body else '' end
from message where team = %(team)s and inbox = %(to)s and id = %(id)s
"""
_PAGE = """
select b.tail, b.incarnation, m.pos, m.bytes, m.body
from inbox b left join lateral (
    select pos, octet_length(body) as bytes,
        case when octet_length(body) < %(most)s then body else left(body, %(shown)s) end as body
    from message where team = b.team and inbox = b.name and pos >= %(start)s and pos < b.tail
    order by pos limit %(rows)s
) m on true
where b.team = %(team)s and b.name = %(name)s
order by m.pos
"""
_TAILS = "select name, tail from inbox where team = %(team)s and name = any(%(names)s)"
_BEGIN_ANEW = """
insert into inbox (team, name) values (%(team)s, %(name)s)
on conflict (team, name) do update set incarnation = inbox.incarnation + 1
returning tail, incarnation
"""
logger = logging.getLogger(__name__)


class PostgresBus:
    """A `MessageBus`. A `Listener` reports what other processes send, by `changed` and `look_again`."""

    def __init__(
        self,
        team: Team,
        fence: Fence,
        directory: Path,
        durable: bool = True,
        on_quarantine: Callable[[str], None] = lambda _: None,
    ) -> None:
        """What cannot be delivered is set aside in `directory`."""
        self._team = team
        self._fence = fence
        self._directory = directory
        self._durable = durable
        self._on_quarantine = on_quarantine
        self._codec = LineCodec(key_of(team.uid.encode(), team.key))
        self._boxes: dict[str, _Box] = {}
        self._boxes_lock = threading.Lock()
        self._asking = threading.Lock()
        self._callbacks: list[Callable[[str], None]] = []
        self._order_callbacks: list[Callable[[str], None]] = []
        self._is_closed = False

    def send(self, message: Message) -> bool:
        self._check_address(message.to)
        self._store(message)
        return True

    def send_once(self, message: Message) -> bool:
        self._check_address(message.to)
        return self._store(message)

    def unread(self, name: str, position: Position, seen: Container[str] = (), most: int | None = None) -> Batch:
        self._check_address(name)
        return self._unread(name, position, seen, most)

    def has_unread(self, name: str, position: Position) -> bool:
        self._check_address(name)
        try:
            return self._has_unread(name, position)
        except StateError as e:  # `unread` reports the error
            logger.warning("the inbox of %s cannot be checked: %s", name, e)
            return False

    def peek(self, name: str, position: Position = BEGINNING, seen: Container[str] = ()) -> list[InboxEntry]:
        self._check_address(name)
        return [
            InboxEntry(one.message, row.pos < position.offset or one.message.read_as in seen)
            for page in self._pages(name, 0)
            for row in page.rows
            for one in self._parse(name, 0, row)
            if isinstance(one, ParsedMessage)
        ]

    def wait(self, name: str, position: Position, cancel: CancelScope, timeout_seconds: float | None = None) -> bool:
        self._check_address(name)
        box = self._box(name)
        end = None if timeout_seconds is None else time.monotonic() + timeout_seconds

        def is_over() -> bool:
            return self._is_closed or cancel.cancelled or box.is_stale or box.may_have_unread(position)

        with cancel.on_cancel(box.wake_all):
            while not self._has_unread(name, position):
                with box.changed:
                    left = None if end is None else end - time.monotonic()
                    if not box.changed.wait_for(is_over, left) or self._is_closed or cancel.cancelled:
                        return False
        return not self._is_closed and not cancel.cancelled

    def subscribe(self, callback: Callable[[str], None]) -> None:
        self._callbacks.append(callback)

    def rotate(self, name: str, position: Position) -> Position:
        """A table needs no rotation."""
        self._check_address(name)
        return position

    def begin_anew(self, name: str) -> Position:
        self._check_address(name)
        values = {"team": self._team.id, "name": name}
        ((tail, self._box(name).incarnation),) = self._team.database.fetch(_BEGIN_ANEW, values)
        return Position(tail)

    def release(self, name: str) -> None:
        """Nothing is open for a single inbox."""

    def close(self) -> None:
        """The database stays open: it is not only for mail."""
        self._is_closed = True
        for box in tuple(self._boxes.values()):
            box.wake_all()

    def send_order(self, order: Message) -> bool:
        """An order to the host of the member `order.to`; no agent reads it. False if it has that order already.

        Raises: TeamError, MessageTooLong, StateError
        """
        self._check_address(order.to)
        return self._store(order._replace(to=order.to + _ORDERS))

    def orders_after(self, name: str, position: Position) -> Batch:
        """The orders to the host of a member, in order. What nobody of this team has signed is left out.

        Raises: StateError
        """
        self._check_address(name)
        batch = self._unread(name + _ORDERS, position)
        orders = (order._replace(to=name) for order in batch.messages if not order.is_foreign)
        return batch._replace(messages=tuple(orders))

    def skip_orders(self, name: str) -> Position:
        """The position after all orders to the host of a member.

        Raises: StateError
        """
        self._check_address(name)
        rows = self._team.database.fetch(_TAILS, {"team": self._team.id, "names": [name + _ORDERS]})
        return Position(rows[0][1]) if rows else BEGINNING

    def subscribe_orders(self, callback: Callable[[str], None]) -> None:
        """Call `callback` with the member's name after each order to its host, as `subscribe` does for mail."""
        self._order_callbacks.append(callback)

    def changed(self, name: str) -> None:
        """The listener has heard of a message to `name`."""
        if self._is_closed:
            return
        if (box := self._boxes.get(name)) is not None:
            box.heard()
        self._call(name)

    def look_again(self) -> None:
        """The listener may have missed something: ask for all inboxes at once, and report those that have more."""
        boxes = dict(self._boxes)
        before = {name: box.tail for name, box in boxes.items()}
        for box in boxes.values():
            box.heard(is_sure=False)
        try:
            self._ask()
        except TeamcliError as e:  # those who wait will ask themselves
            logger.warning("the inboxes cannot be checked: %s", e)
        for name, box in boxes.items():
            box.wake_all()
            if box.tail != before[name]:
                self._call(name)

    def _call(self, name: str) -> None:
        is_order = name.endswith(_ORDERS)
        for callback in self._order_callbacks if is_order else self._callbacks:
            callback(name.removesuffix(_ORDERS))

    def _store(self, message: Message) -> bool:
        """Whether it was stored now; false if it had been before."""
        box = self._box(message.to)
        epoch = self._fence.epoch(message.sender)
        values = {"team": self._team.id, "to": message.to, "sender": message.sender, "epoch": epoch, "id": message.id}
        values["most"] = MAX_LINE_BYTES
        is_new: bool | None = None
        while is_new is None:
            incarnation = box.incarnation
            body = self._codec.write(message, incarnation)[:-1].decode()
            row = self._team.database.fetch(
                _SEND, {**values, "incarnation": incarnation, "body": body}, self._topic(message.to)
            )[0]
            is_new = self._outcome(box, message, values, row)
        box.heard()
        self._call(message.to)
        return is_new

    def _outcome(self, box: _Box, message: Message, values: dict[str, Any], row: tuple[Any, ...]) -> bool | None:
        """Whether the message is new; None to try again with what is known now."""
        pos, incarnation, is_fenced = row
        if pos is not None:
            return True
        if not is_fenced:
            raise lease_lost(message.sender)
        if incarnation is None:
            self._team.database.fetch(_CREATE, values)
        elif incarnation != box.incarnation:
            box.incarnation = incarnation
        else:
            found = self._team.database.fetch(_STORED, values)
            if any(self._codec.holds(body.encode(), message.to, message.id) for (body,) in found):
                return False
            if found:  # a forged row has this id: use one that nobody can know before it is stored
                other = self._team.sign("message", message.to, message.id)
                if values["id"] == other:
                    raise StateError(f"the inbox of '{message.to}' has a forged row, which must be deleted: {other}")
                values["id"] = other
        return None

    def _unread(self, name: str, position: Position, seen: Container[str] = (), most: int | None = None) -> Batch:
        box = self._box(name)
        number = box.number
        collector = Collector(seen, most)
        offset, tail = position.offset, position.offset
        for page in self._pages(name, offset):
            offset = tail = max(tail, page.tail)
            box.incarnation = page.incarnation
            left = next((row for row in page.rows if not self._take(collector, name, page.incarnation, row)), None)
            if left is not None:
                offset = left.pos
                break
        box.quarantine.add(name, collector.bad)
        if not collector.is_full:
            box.looked(number, tail, tail if collector.messages else position.offset)
        return Batch(tuple(collector.messages), position if offset == position.offset else Position(offset))

    def _take(self, collector: Collector, name: str, incarnation: int, row: _Row) -> bool:
        collector.take(self._parse(name, incarnation, row), row.pos, row.pos)
        return not collector.is_full

    def _pages(self, name: str, start: int) -> Iterator[_Page]:
        """The inbox from an offset on. Its tail is read together with the rows, and all before it are committed."""
        values = {"team": self._team.id, "name": name, "rows": PAGE_ROWS}
        limits = {"most": MAX_LINE_BYTES, "shown": _SHOWN_CHARACTERS}
        is_all = False
        while not is_all:
            found = self._team.database.fetch(_PAGE, {**values, **limits, "start": start})
            rows = tuple(_Row(*row[2:]) for row in found if row[2] is not None)
            if found:
                yield _Page(found[0][0], found[0][1], rows)
            is_all = len(rows) < PAGE_ROWS
            start = rows[-1].pos + 1 if rows else start

    def _parse(self, name: str, incarnation: int, row: _Row) -> Iterator[ParsedMessage | BadLine]:
        origin = Origin(name, time.time(), _RowIds(name, 0), incarnation)
        data = row.body.encode()
        if row.bytes >= MAX_LINE_BYTES:
            return iter((too_long(origin, row.pos, data),))
        return self._codec.read(origin, data + b"\n", row.pos)

    def _has_unread(self, name: str, position: Position) -> bool:
        box = self._box(name)
        if box.is_stale:
            self._ask()
        return box.may_have_unread(position)

    def _ask(self) -> None:
        """Ask for the tails of all inboxes about which something was heard, in one query."""
        with self._asking:
            boxes = {name: (box, box.number) for name, box in tuple(self._boxes.items()) if box.is_stale}
            if boxes:
                values = {"team": self._team.id, "names": list(boxes)}
                tails = dict(self._team.database.fetch(_TAILS, values))
                for name, (box, number) in boxes.items():
                    box.looked(number, tails.get(name, 0))

    def _topic(self, name: str) -> str:
        return self._team.topic(f"inbox/{name}")

    def _check_address(self, name: str) -> None:
        if name not in self._boxes and name != LEAD:
            check_name(name)

    def _box(self, name: str) -> _Box:
        box = self._boxes.get(name)
        if box is not None:
            return box
        path = self._directory / f"{name.replace('/', '.')}.bad.jsonl"
        with self._boxes_lock:
            return self._boxes.setdefault(name, _Box(Quarantine(path, self._durable, self._on_quarantine)))


class _Row(NamedTuple):
    pos: int
    bytes: int
    body: str
    """Only its beginning, if it is too large for a message."""


class _Page(NamedTuple):
    tail: int
    incarnation: int
    rows: tuple[_Row, ...]


class _RowIds(LineIds):
    """Ids for rows without one. A row stays where it is."""

    def of_message(self, line: bytes, offset: int) -> str:
        return message_id("outside", *self._parts, line.decode("latin-1"), str(offset))

    def of_bad_line(self, line: bytes, offset: int) -> str:
        return message_id("bad", *self._parts, line.decode("latin-1"), str(offset))


class _Box:
    """What is known about an inbox, and the threads that wait for it."""

    def __init__(self, quarantine: Quarantine) -> None:
        self.quarantine = quarantine
        self.incarnation = 0
        self.tail = 0
        self.changed = threading.Condition()
        self.number = 1
        """Counts what was heard about it."""
        self._asked = 0
        """The number when the tail was read. If it is lower now, there may be more."""
        self._nothing = (0, 0)
        """From the first offset to the second, nothing can be delivered. A bad row must not wake its reader forever."""

    @property
    def is_stale(self) -> bool:
        return self._asked < self.number

    def heard(self, is_sure: bool = True) -> None:
        with self.changed:
            self.number += 1
            if is_sure:
                self.changed.notify_all()

    def looked(self, number: int, tail: int, nothing_from: int | None = None) -> None:
        """The tail was read after `number` was."""
        with self.changed:
            if number >= self._asked:
                self._asked, self.tail = number, tail
                if nothing_from is not None:
                    self._nothing = nothing_from, tail

    def may_have_unread(self, position: Position) -> bool:
        with self.changed:
            start, end = self._nothing
            return position.offset < self.tail and not (start <= position.offset and self.tail <= end)

    def wake_all(self) -> None:
        with self.changed:
            self.changed.notify_all()
