"""The team's mail in PostgreSQL.

A process knows the ends of the inboxes that it reads. It asks for them only after it has heard of something, by its own
sends or from its listener, so that waiting costs nothing.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Container
from pathlib import Path

from teamcli.cancel import CancelScope
from teamcli.errors import StateError
from teamcli.store.postgres.message_rows import MessageRows
from teamcli.store.postgres.newest import Newest
from teamcli.store.postgres.row_inboxes import KnownInboxes
from teamcli.store.postgres.team_rows import Fence, Team
from teamcli.team.collector import Collector
from teamcli.team.inbox_state import Position
from teamcli.team.message import LEAD, Message, check_name
from teamcli.team.message_bus import BEGINNING, Batch, InboxEntry
from teamcli.team.message_line import ParsedMessage

_ORDERS = "/orders"
"""Ends the name of the inbox of a member's host. No agent can have such a name."""
_REMEMBERED = 2_000
"""Ids of messages that this process has sent."""
logger = logging.getLogger(__name__)


class PostgresBus:
    """A `MessageBus`. A `Listener` reports what other processes send, by `changed` and `look_again`."""

    def __init__(
        self,
        team: Team,
        fence: Fence,
        newest: Newest,
        directory: Path,
        on_quarantine: Callable[[str], None] = lambda _: None,
    ) -> None:
        """What cannot be delivered is set aside in `directory`."""
        self._database = team.database
        self._rows = MessageRows(team, fence, newest)
        self._inboxes = KnownInboxes(self._rows, directory, on_quarantine)
        self._callbacks: list[Callable[[str], None]] = []
        self._order_callbacks: list[Callable[[str], None]] = []
        self._sent_here: deque[str] = deque(maxlen=_REMEMBERED)
        self._is_closed = False

    def send(self, message: Message) -> bool:
        self.send_once(message)
        return True

    def send_once(self, message: Message) -> bool:
        _check_address(message.to)
        return self._store(message)

    def unread(self, name: str, position: Position, seen: Container[str] = (), most: int | None = None) -> Batch:
        _check_address(name)
        return self._unread(name, position, seen, most)

    def has_unread(self, name: str, position: Position) -> bool:
        _check_address(name)
        if self._database.is_away:  # not even a screen waits for this; when it is back, the listener looks again
            return self._inboxes.of(name).may_have_unread(position)
        try:
            return self._inboxes.has_unread(name, position)
        except StateError as e:  # `unread` reports the error
            logger.warning("the inbox of %s cannot be checked: %s", name, e)
            return False

    def peek(self, name: str, position: Position = BEGINNING, seen: Container[str] = ()) -> list[InboxEntry]:
        _check_address(name)
        return [
            InboxEntry(one.message, row.pos < position.offset or one.message.read_as in seen)
            for page in self._rows.pages(name, 0)
            for row in page.rows
            for one in self._rows.parse(name, 0, row)
            if isinstance(one, ParsedMessage)
        ]

    def wait(self, name: str, position: Position, cancel: CancelScope, timeout_seconds: float | None = None) -> bool:
        _check_address(name)
        box = self._inboxes.of(name)
        end = None if timeout_seconds is None else time.monotonic() + timeout_seconds

        def is_ended() -> bool:
            return self._is_closed or cancel.cancelled

        def is_over() -> bool:
            return is_ended() or box.is_stale or box.may_have_unread(position)

        with cancel.on_cancel(box.wake_all):
            # The database is asked without the lock: it may take long, and a cancel must not wait for it.
            while not is_ended() and not self._inboxes.has_unread(name, position):
                with box.changed:
                    if not box.changed.wait_for(is_over, None if end is None else end - time.monotonic()):
                        return False
        return not is_ended()

    def subscribe(self, callback: Callable[[str], None]) -> None:
        self._callbacks.append(callback)

    def rotate(self, name: str, position: Position) -> Position:
        """A table needs no rotation."""
        _check_address(name)
        return position

    def begin_anew(self, name: str) -> Position:
        _check_address(name)
        return Position(self._rows.begin_anew(name))

    def release(self, name: str) -> None:
        """Nothing is open for a single inbox."""

    def close(self) -> None:
        """The database stays open: it is not only for mail."""
        self._is_closed = True
        self._inboxes.wake_all()

    def send_order(self, order: Message) -> bool:
        """An order to the host of the member `order.to`; no agent reads it. False if it has that order already.

        Raises: TeamError, MessageTooLong, StateError
        """
        _check_address(order.to)
        return self._store(order._replace(to=order.to + _ORDERS))

    def orders_after(self, name: str, position: Position) -> Batch:
        """The orders to the host of a member, in order. What nobody of this team has signed is left out.

        Raises: StateError
        """
        _check_address(name)
        batch = self._unread(name + _ORDERS, position)
        orders = (order._replace(to=name) for order in batch.messages if not order.is_foreign)
        return batch._replace(messages=tuple(orders))

    def skip_orders(self, name: str) -> Position:
        """The position after all orders to the host of a member. Later ones are noticed from now on.

        Raises: StateError
        """
        _check_address(name)
        inbox = name + _ORDERS
        box = self._inboxes.of(inbox)
        number = box.number
        tail = self._rows.tails([inbox]).get(inbox, 0)
        box.looked(number, tail)
        return Position(tail)

    def subscribe_orders(self, callback: Callable[[str], None]) -> None:
        """Call `callback` with the member's name after each order to its host, as `subscribe` does for mail."""
        self._order_callbacks.append(callback)

    def ends(self) -> dict[str, int]:
        """Where each inbox of the team ends, except those for orders.

        Raises: StateError
        """
        return {name: tail for name, tail in self._rows.all_tails().items() if not name.endswith(_ORDERS)}

    def is_current(self) -> bool:
        """Whether this process has heard of all messages to the inboxes that it knows.

        Raises: StateError
        """
        return self._inboxes.are_current(self._rows.all_tails())

    def sent_elsewhere(self, name: str, start: int) -> tuple[list[Message], int]:
        """The signed messages of an inbox from a position on that another process has sent, and where the inbox ends.
        This is for showing them: nobody has read them by that.

        Raises: StateError
        """
        found: list[Message] = []
        box = self._inboxes.find(name)
        number = box.number if box is not None else 0
        for page in self._rows.pages(name, start):
            start = page.end
            for one in (one for row in page.rows for one in self._rows.parse_once(name, page.incarnation, row)):
                if isinstance(one, ParsedMessage) and not one.message.is_foreign:
                    found.append(one.message)
        if box is not None:
            box.looked(number, start)
        return [message for message in found if message.id not in self._sent_here], start

    def knows(self, name: str) -> bool:
        """Whether anything in this process was interested in this inbox."""
        return self._inboxes.find(name) is not None

    def changed(self, name: str, look: Callable[[], None] = lambda: None) -> None:
        """The listener has heard of a message to `name`. `look` is called before those who wait for it look
        themselves, and may spare them that."""
        box = self._inboxes.find(name)
        if box is not None:
            box.heard()
        try:
            look()
        finally:
            if box is not None:
                box.wake_all()
            self._call(name)

    def look_again(self) -> None:
        """The listener may have missed something: ask for all inboxes at once, and report those that have more."""
        for name in self._inboxes.look_again():
            self._call(name)

    def _call(self, name: str) -> None:
        is_order = name.endswith(_ORDERS)
        for callback in self._order_callbacks if is_order else self._callbacks:
            callback(name.removesuffix(_ORDERS))

    def _store(self, message: Message) -> bool:
        self._sent_here.append(message.id)  # before others can hear of it
        is_new = self._rows.store(message)
        self.changed(message.to)
        return is_new

    def _unread(self, name: str, position: Position, seen: Container[str] = (), most: int | None = None) -> Batch:
        box = self._inboxes.of(name)
        number = box.number
        collector = Collector(seen, most)
        offset, tail, incarnation = position.offset, position.offset, 0
        for page in self._rows.pages(name, offset):
            # Not to the end that the row of the inbox names, since anyone with the right to write can change that.
            offset, tail, incarnation = min(offset, page.end), page.end, page.incarnation
            for row in page.rows:
                collector.take(self._rows.parse_once(name, page.incarnation, row), row.pos, row.pos)
                offset = row.pos if collector.is_full else row.end
                if collector.is_full:
                    break
            if collector.is_full:
                break
        box.quarantine.add(name, collector.bad)
        if not collector.is_full:
            box.looked(number, tail, offset if collector.messages else position.offset)
        after = position if offset == position.offset else Position(offset)
        return Batch(tuple(collector.messages), after, incarnation)


def _check_address(name: str) -> None:
    """Raises: TeamError"""
    if name != LEAD:
        check_name(name)
