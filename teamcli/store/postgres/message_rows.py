"""The rows of the team's mail: how messages are stored and read. `bus.py` is what the team sees of them.

A send locks the row of the inbox, so that positions become visible in their order and no reader can miss a message that
is committed late. The position of a message is the offset at which its line begins in the file that an export writes.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from teamcli.errors import StateError
from teamcli.store.postgres.newest import Newest
from teamcli.store.postgres.team_rows import HELD, Fence, Team, lease_lost
from teamcli.store.row_limits import LARGEST_NUMBER
from teamcli.team.message import LEAD, Message, message_id
from teamcli.team.message_ids import LineIds
from teamcli.team.message_line import MAX_LINE_BYTES, BadLine, LineCodec, Origin, ParsedMessage, too_long
from teamcli.team.signing import key_of

PAGE_ROWS = 200
LEAD_SECONDS = 0.02
"""How long it may take until the host of the lead hears of mail. A result and the end of the work travel together."""
_MOST_POSITION = 1 << 62
_MOST_ATTEMPTS = 20
_MOST_INCARNATIONS = 1_000_000_000
_SHOWN_CHARACTERS = 1000
"""Of a row that is too large to be a message."""

# After all rows, whatever the tail says, which anyone with the right to write can change. A row that another sender has
# just committed is not seen here, but then the tail is after it. Sends never get as far as the limits, which forged
# numbers may. Without an epoch there is no lease to check: the sender never ran here; the user, for example.
_SEND = f"""
with {HELD}, box as (
    select tail, incarnation, left(sig, 100) as sig from inbox where team = %(team)s and name = %(to)s
    and (%(epoch)s::bigint is null or exists (select from held)) for update
), new as (
    insert into message (team, inbox, pos, id, body)
    select %(team)s, %(to)s, greatest(least(box.tail, {_MOST_POSITION}), (
        select pos + octet_length(body) + 1 from message
        where team = %(team)s and inbox = %(to)s and pos < {LARGEST_NUMBER} order by pos desc limit 1
    )), %(id)s, %(body)s::text
    from box where incarnation = %(there)s
    on conflict do nothing returning pos
), moved as (
    update inbox set tail = new.pos + octet_length(%(body)s::text) + 1 from new where team = %(team)s and name = %(to)s
)
select (select pos from new), (select incarnation from box), (select sig from box),
    %(epoch)s::bigint is null or exists (select from held)
"""
_CREATE = "insert into inbox (team, name, sig) values (%(team)s, %(to)s, %(sig)s) on conflict do nothing returning name"
_STORED = """
select case when octet_length(body) < %(most)s then body else '' end
from message where team = %(team)s and inbox = %(to)s and id = %(id)s
"""
# Whatever the row of the inbox says, it ends after the last message that is there.
_END = f"""greatest(tail, coalesce((
    select pos + octet_length(body) + 1 from message where team = b.team and inbox = b.name and pos < {LARGEST_NUMBER}
    order by pos desc limit 1
), 0))"""
_PAGE = f"""
select {_END}, b.incarnation, left(b.sig, 100), m.pos, m.id, m.bytes, m.body
from inbox b left join lateral (
    select pos, id, octet_length(body) as bytes,
        case when octet_length(body) < %(most)s then body else left(body, %(shown)s) end as body
    from message where team = b.team and inbox = b.name and pos >= %(start)s
    and pos < greatest(b.tail, {LARGEST_NUMBER}) order by pos limit %(rows)s
) m on true
where b.team = %(team)s and b.name = %(name)s
order by m.pos
"""
_TAILS = f"select name, {_END} from inbox b where team = %(team)s and name = any(%(names)s)"
_ALL_TAILS = f"select name, {_END} from inbox b where team = %(team)s"
_BEGIN = f"""
with {HELD}, begun as (
    update inbox b set incarnation = %(incarnation)s, sig = %(sig)s
    where team = %(team)s and name = %(name)s and incarnation = %(there)s
    and (%(epoch)s::bigint is null or exists (select from held))
    returning {_END} as tail
)
select (select tail from begun), %(epoch)s::bigint is null or exists (select from held)
"""
_INCARNATION = "select incarnation, left(sig, 100) from inbox where team = %(team)s and name = %(name)s"


class Row(NamedTuple):
    pos: int
    id: str
    bytes: int
    body: str
    """Only its beginning, if it is too large for a message."""

    @property
    def end(self) -> int:
        return self.pos + self.bytes + 1


class Page(NamedTuple):
    end: int
    """Of the inbox."""
    incarnation: int
    rows: tuple[Row, ...]


class MessageRows:
    def __init__(self, team: Team, fence: Fence, newest: Newest) -> None:
        self._team = team
        self._fence = fence
        self._newest = newest
        self._incarnations: dict[str, int] = {}
        """Of the inboxes, as their rows say."""
        self.codec = LineCodec(key_of(team.uid.encode(), team.key))

    def store(self, message: Message) -> bool:
        """Append to the inbox of the recipient. False if this message is there already.

        Raises: LeaseLost, MessageTooLong, StateError
        """
        to = message.to
        epoch = self._fence.epoch(message.sender)
        values = {"team": self._team.id, "to": to, "holder": message.sender, "epoch": epoch, "id": message.id}
        topic = self._team.topic(f"inbox/{to}")
        if to == LEAD:
            topic = self._team.lead_topic(topic.name, LEAD_SECONDS)
        for _ in range(_MOST_ATTEMPTS):
            there = self._incarnations.get(to, 0)
            # A row that was put back, or forged, must not make the message void.
            body = self.codec.write(message, max(there, self._newest.of(_name(to))))[:-1].decode()
            given = {**values, "there": there, "body": body}
            (row,) = self._team.database.fetch(_SEND, given, topic)
            if (is_new := self._outcome(message, values, *row)) is not None:
                return is_new
        raise StateError(f"someone keeps changing the inbox of '{to}' in the database; see who writes to it")

    def _outcome(
        self,
        message: Message,
        values: dict[str, Any],
        pos: int | None,
        incarnation: int | None,
        sig: str | None,
        is_fenced: bool,
    ) -> bool | None:
        """Whether the message is new; None to try again with what is known now."""
        if pos is not None:
            return True
        if not is_fenced:
            raise lease_lost(message.sender)
        if incarnation is None:
            self._create(message.to)
        elif incarnation != self._incarnations.get(message.to, 0):
            self._known(message.to, incarnation, sig)
            self._incarnations[message.to] = incarnation
        else:
            found = self._team.database.fetch(_STORED, {**values, "most": MAX_LINE_BYTES})
            if any(self.codec.holds(body.encode(), message.to, message.id) for (body,) in found):
                return False
            if found:
                self._avoid_forged(message, values)
        return None

    def _avoid_forged(self, message: Message, values: dict[str, Any]) -> None:
        """A forged row has the id of a message: store that under one that nobody can know before."""
        other = self._other_id(message)
        if values["id"] == other:
            raise StateError(f"delete the forged row in the inbox of '{message.to}' with the id {other}")
        values["id"] = other

    def _other_id(self, message: Message) -> str:
        return self._team.sign("message", message.to, message.id)

    def parse(self, name: str, incarnation: int, row: Row) -> Iterator[ParsedMessage | BadLine]:
        """What the body of a row holds, as a line of a file would."""
        origin = Origin(name, time.time(), _RowIds(name, 0), incarnation)
        data = row.body.encode()
        if row.bytes >= MAX_LINE_BYTES:
            return iter((too_long(origin, row.pos, data),))
        return self.codec.read(origin, data + b"\n", row.pos)

    def parse_once(self, name: str, incarnation: int, row: Row) -> Iterator[ParsedMessage | BadLine]:
        """The same, without copies of messages."""
        for one in self.parse(name, incarnation, row):
            if isinstance(one, ParsedMessage) and self._is_copy(one.message, row):
                data = row.body.encode()
                yield BadLine(row.pos, data, "a copy of a message", _RowIds(name, 0).of_bad_line(data, row.pos))
            else:
                yield one

    def _is_copy(self, message: Message, row: Row) -> bool:
        """Whether somebody has put a message of the team there again. The ids of rows are unique, so a copy has another
        one than its message."""
        return not message.is_foreign and row.id not in (message.id, self._other_id(message))

    def pages(self, name: str, start: int) -> Iterator[Page]:
        """The inbox from a position on; nothing if there is no inbox. The end is read together with the rows, and all
        rows before it are committed. If the inbox ends before that position, it is not what was read: then all of it.

        Raises: StateError
        """
        values = {"team": self._team.id, "name": name, "rows": PAGE_ROWS}
        limits = {"most": MAX_LINE_BYTES, "shown": _SHOWN_CHARACTERS}
        first, is_all = start, False
        while not is_all:
            found = self._team.database.fetch(_PAGE, {**values, **limits, "start": start})
            if found and found[0][0] < first:
                first = start = 0
                continue
            rows = tuple(Row(*row[3:]) for row in found if row[3] is not None)
            if found:
                end, incarnation, sig = found[0][:3]
                yield Page(end, self._known(name, incarnation, sig), rows)
            is_all = len(rows) < PAGE_ROWS
            start = rows[-1].pos + 1 if rows else start

    def tails(self, names: Iterable[str]) -> dict[str, int]:
        """Where these inboxes end, as far as they exist.

        Raises: StateError
        """
        return dict(self._team.database.fetch(_TAILS, {"team": self._team.id, "names": list(names)}))

    def all_tails(self) -> dict[str, int]:
        """Where each inbox ends.

        Raises: StateError
        """
        return dict(self._team.database.fetch(_ALL_TAILS, {"team": self._team.id}))

    def begin_anew(self, name: str) -> int:
        """Where the inbox ends for a new incarnation of its reader. Messages to earlier ones are void.

        Raises: LeaseLost, StateError
        """
        values = {"team": self._team.id, "name": name, "holder": name, "epoch": self._fence.epoch(name)}
        while True:  # until nobody changes the row between the look and the update
            found = self._team.database.fetch(_INCARNATION, values)
            if not found and self._create(name):
                return 0
            for there, sig in found:
                known = self._known(name, there, sig)
                # One that is not signed counts if it may be from an earlier version of teamcli.
                incarnation = max(known, there if there < _MOST_INCARNATIONS else 0) + 1
                signed = self._team.sign("inbox", name, incarnation)
                given = {**values, "there": there, "incarnation": incarnation, "sig": signed}
                ((end, is_fenced),) = self._team.database.fetch(_BEGIN, given)
                if not is_fenced:
                    raise lease_lost(name)
                if end is not None:
                    self._incarnations[name] = self._known(name, incarnation, signed)
                    return int(end)

    def _create(self, name: str) -> bool:
        values = {"team": self._team.id, "to": name, "sig": self._team.sign("inbox", name, 0)}
        return bool(self._team.database.fetch(_CREATE, values))

    def _known(self, name: str, incarnation: int, sig: str | None) -> int:
        """The incarnation of an inbox, which only grows, after a look at its row."""
        if self._team.is_signed(sig or "", "inbox", name, incarnation):
            self._newest.admits(_name(name), incarnation)
        return self._newest.of(_name(name))


class _RowIds(LineIds):
    """Ids for rows without one. A row stays where it is."""

    def of_message(self, line: bytes, offset: int) -> str:
        return message_id("outside", *self._parts, line.decode("latin-1"), str(offset))

    def of_bad_line(self, line: bytes, offset: int) -> str:
        return message_id("bad", *self._parts, line.decode("latin-1"), str(offset))


def _name(inbox: str) -> str:
    """What a host remembers the row of an inbox as."""
    return f"inbox/{inbox}"
