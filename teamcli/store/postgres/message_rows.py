"""The rows of the team's mail: how messages are stored and read. `bus.py` is what the team sees of them.

A send locks the row of the inbox, so that positions become visible in their order and no reader can miss a message that
is committed late. The position of a message is the offset at which its line begins in the file that an export writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from teamcli.errors import StateError
from teamcli.store.postgres.team_rows import Fence, Team, lease_lost
from teamcli.team.message import Message
from teamcli.team.message_line import MAX_LINE_BYTES, LineCodec
from teamcli.team.signing import key_of

PAGE_ROWS = 200
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
_BEGIN = """
insert into inbox (team, name) values (%(team)s, %(name)s)
on conflict (team, name) do update set incarnation = inbox.incarnation + 1
returning tail, incarnation
"""


class Row(NamedTuple):
    pos: int
    bytes: int
    body: str
    """Only its beginning, if it is too large for a message."""


class Page(NamedTuple):
    tail: int
    incarnation: int
    rows: tuple[Row, ...]


class MessageRows:
    def __init__(self, team: Team, fence: Fence) -> None:
        self._team = team
        self._fence = fence
        self._incarnations: dict[str, int] = {}
        """Of the inboxes, as far as they are known: a message is signed for one of them."""
        self.codec = LineCodec(key_of(team.uid.encode(), team.key))

    def store(self, message: Message) -> bool:
        """Append to the inbox of the recipient. False if this message is there already.

        Raises: LeaseLost, MessageTooLong, StateError
        """
        to = message.to
        epoch = self._fence.epoch(message.sender)
        values = {"team": self._team.id, "to": to, "sender": message.sender, "epoch": epoch, "id": message.id}
        is_new: bool | None = None
        while is_new is None:
            incarnation = self._incarnations.get(to, 0)
            body = self.codec.write(message, incarnation)[:-1].decode()
            given = {**values, "incarnation": incarnation, "body": body}
            (row,) = self._team.database.fetch(_SEND, given, self._team.topic(f"inbox/{to}"))
            is_new = self._outcome(message, values, *row)
        return is_new

    def _outcome(
        self, message: Message, values: dict[str, Any], pos: int | None, incarnation: int | None, is_fenced: bool
    ) -> bool | None:
        """Whether the message is new; None to try again with what is known now."""
        if pos is not None:
            return True
        if not is_fenced:
            raise lease_lost(message.sender)
        if incarnation is None:
            self._team.database.fetch(_CREATE, values)
        elif incarnation != self._incarnations.get(message.to, 0):
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
        other = self._team.sign("message", message.to, message.id)
        if values["id"] == other:
            raise StateError(f"delete the forged row in the inbox of '{message.to}' with the id {other}")
        values["id"] = other

    def pages(self, name: str, start: int) -> Iterator[Page]:
        """The inbox from a position on; nothing if there is no inbox. The tail is read together with the rows, and all
        rows before it are committed.

        Raises: StateError
        """
        values = {"team": self._team.id, "name": name, "rows": PAGE_ROWS}
        limits = {"most": MAX_LINE_BYTES, "shown": _SHOWN_CHARACTERS}
        is_all = False
        while not is_all:
            found = self._team.database.fetch(_PAGE, {**values, **limits, "start": start})
            rows = tuple(Row(*row[2:]) for row in found if row[2] is not None)
            if found:
                yield Page(found[0][0], found[0][1], rows)
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
        return dict(
            self._team.database.fetch("select name, tail from inbox where team = %(team)s", {"team": self._team.id})
        )

    def begin_anew(self, name: str) -> int:
        """Where the inbox ends for a new incarnation of its reader. Messages to earlier ones are void.

        Raises: StateError
        """
        ((tail, self._incarnations[name]),) = self._team.database.fetch(_BEGIN, {"team": self._team.id, "name": name})
        return int(tail)
