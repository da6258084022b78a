"""Reads a team's rows. Those that are not signed with the team's key are left out, and reported once per table.

Anyone with the right to write could insert a row of a gigabyte. No line is that long, so such rows are not even read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from teamcli.errors import TeamError
from teamcli.storage.files import encode_line
from teamcli.store.documents import Documents
from teamcli.store.line_text import Oddities, decode_object
from teamcli.store.row_limits import LARGEST_REST, LARGEST_ROW, LARGEST_SIGNATURE, LARGEST_TASK, bounded, page
from teamcli.tasks.task_file import LARGEST_ID
from teamcli.team.requests import Request
from teamcli.team.roster_file import TEAM_NAME, Member, TeamConfig

if TYPE_CHECKING:
    from psycopg import Cursor

    from teamcli.store.postgres.team_rows import Team

BATCH = 500
UNVERIFIED = "unverified"
"""Marks an event that someone without the team's key may have written."""
# As `select distinct` would, without reading all rows.
_HOSTS = """
with recursive found (host) as (
    (select min(host) from event where team = %(team)s)
    union all
    select (select min(host) from event where team = %(team)s and host > found.host) from found
    where found.host is not null
)
select host from found where host is not null
"""
_SIG = bounded("sig", LARGEST_SIGNATURE)
_NEW_LINES = page(
    f"agent, incarnation, seq, epoch, entry, {_SIG}",
    """
        select known.agent, known.incarnation, line.*
        from unnest(%(agents)s::text[], %(incarnations)s::integer[], %(nexts)s::bigint[])
            as known (agent, incarnation, next)
        cross join lateral (
            select seq, epoch, entry, sig from transcript
            where team = %(team)s and agent = known.agent and incarnation = known.incarnation and seq >= known.next
            and octet_length(entry) < %(most)s
            order by seq limit %(limit)s
        ) line
    """,
    "entry",
    "agent, incarnation, seq",
)
_MAIL = page(
    "pos, body",
    """
        select pos, body from message where team = %(team)s and inbox = %(name)s
        and pos >= %(start)s and pos < %(end)s and octet_length(body) < %(most)s order by pos limit %(limit)s
    """,
    "body",
    "pos",
)
_MARKED = page(
    f"seq, epoch, entry, {_SIG}",
    """
        select seq, epoch, entry, sig from transcript where team = %(team)s and agent = %(agent)s
        and incarnation = %(incarnation)s and seq > %(after)s and octet_length(entry) < %(most)s
        and position('"marks"' in entry) > 0 order by seq limit %(limit)s
    """,
    "entry",
    "seq",
)
_EVENTS = """
    select seq, entry, sig from event where team = %(team)s and host = %(host)s {and_after}
    and octet_length(entry) < %(most)s order by seq {way} limit %(limit)s
"""
_NEXT_EVENTS = page(f"seq, entry, {_SIG}", _EVENTS.format(and_after="and seq >= %(start)s", way=""), "entry", "seq")
_LAST_EVENTS = page(f"seq, entry, {_SIG}", _EVENTS.format(and_after="", way="desc"), "entry", "seq desc")
_TASKS = page(
    f"id, version, {bounded('doc', LARGEST_TASK)}, {_SIG}",
    "select id, version, doc, sig from task where team = %(team)s and id > %(after)s order by id limit %(limit)s",
    "doc",
    "id",
)
_BEFORE_ALL = -(1 << 63)


class InboxRow(NamedTuple):
    name: str
    tail: int
    incarnation: int


class Line(NamedTuple):
    """One line of a conversation."""

    agent: str
    incarnation: int
    seq: int
    entry: str
    is_signed: bool


class EventRow(NamedTuple):
    seq: int
    entry: str
    is_signed: bool


class TeamReader:
    """Each method is one transaction. All raise StateError."""

    def __init__(self, team: Team, has_key: bool = True, warn: Callable[[str], None] = lambda text: None) -> None:
        """Without the team's key, nothing can be verified, and all rows count."""
        self._team = team
        self._has_key = has_key
        self._warn = warn
        self._documents = Documents(team, has_key)
        self._warned: set[str] = set()

    def roster(self) -> TeamConfig:
        return self._team.database.run(self.read_roster)

    def read_roster(self, cursor: Cursor[Any]) -> TeamConfig:
        """In a transaction of the caller."""
        cursor.execute(f"select {bounded('doc', LARGEST_REST)} from team where id = %s".encode(), (self._team.id,))
        row = cursor.fetchone()
        rest = decode_object(row[0] or "") if row else {}
        members = self._parsed(cursor, "member", "name", Member.from_dict)
        requests = self._parsed(cursor, "request", "id", Request.from_dict)
        name = rest.pop("team_name", TEAM_NAME)
        return TeamConfig(name, members, requests, rest)

    def _parsed(self, cursor: Cursor[Any], table: str, key: str, parse: Callable[[object], Any]) -> tuple[Any, ...]:
        # Of what was removed, a row without a document is left.
        rows = f"select {key}, place, version, doc, sig from {table} where team = %(team)s and doc <> ''"
        rows += " and place > %(after)s order by place limit %(limit)s"
        query = page(f"place, {key}, version, {bounded('doc')}, {_SIG}", rows, "doc", "place").encode()
        found, values = [], {"team": self._team.id, "after": _BEFORE_ALL, "limit": BATCH}
        while there := cursor.execute(query, values).fetchall():
            values["after"] = there[-1][0]
            for _, name, version, doc, sig in there:
                try:
                    if self._is_signed(table, sig, name, version, doc):
                        found.append(parse(decode_object(doc)))
                except (ValueError, TeamError):
                    self.note_bad(table)
        return tuple(found)

    def tasks(self) -> tuple[list[tuple[int, int, str]], int]:
        """Number, version and document of each, and the highest number ever used."""
        good = [
            (id, version, doc)
            for id, version, doc, sig in self._pages(_TASKS)
            if 0 < id <= LARGEST_ID and self._is_signed("task", sig, id, version, doc)
        ]
        return good, self._fetch("select last_task from team where id = %(team)s")[0][0]

    def inboxes(self) -> list[InboxRow]:
        rows = self._fetch("select name, tail, incarnation from inbox where team = %(team)s order by name")
        return [InboxRow(*row) for row in rows]

    def mail(self, name: str, start: int, end: int) -> list[tuple[int, str]]:
        """The next lines of an inbox with their positions, between two of them."""
        return self._fetch(
            _MAIL,
            most=LARGEST_ROW,
            name=name,
            start=start,
            end=end,
            limit=BATCH,
        )

    def conversations(self) -> list[tuple[str, int]]:
        """Agents with their incarnations, in their order."""
        return self._fetch("select distinct agent, incarnation from transcript where team = %(team)s order by 1, 2")

    def lines(self, after: Sequence[tuple[str, int, int]]) -> list[Line]:
        """The next lines of conversations: of each agent and incarnation, those from a number on."""
        agents, incarnations, nexts = (list(column) for column in zip(*after, strict=True)) if after else ([], [], [])
        limit = max(20, BATCH // (len(after) or 1))
        values = {"agents": agents, "incarnations": incarnations, "nexts": nexts}
        rows = self._fetch(_NEW_LINES, **values, limit=limit, most=LARGEST_ROW)
        return [self._line(*row) for row in rows]

    def marked_lines(self, agent: str, incarnation: int) -> list[str]:
        """The lines of a conversation that may have marks."""
        rows = self._pages(_MARKED, most=LARGEST_ROW, agent=agent, incarnation=incarnation)
        lines = (self._line(agent, incarnation, *row) for row in rows)
        return [line.entry for line in lines if line.is_signed]

    def event_hosts(self) -> list[str]:
        """The hosts that have written to the timeline."""
        return [host for (host,) in self._fetch(_HOSTS)]

    def events(self, host: str, start: int) -> list[EventRow]:
        """The next ones of a host. What is not signed is marked: it must not look like what a host has written."""
        rows = self._fetch(
            _NEXT_EVENTS,
            most=LARGEST_ROW,
            host=host,
            start=start,
            limit=BATCH,
        )
        return [self._event(host, *row) for row in rows]

    def last_events(self, host: str) -> list[str]:
        """The newest ones that are signed, the last one first."""
        rows = self._fetch(
            _LAST_EVENTS,
            most=LARGEST_ROW,
            host=host,
            limit=BATCH,
        )
        return [event.entry for event in (self._event(host, *row) for row in rows) if event.is_signed]

    def _event(self, host: str, seq: int, entry: str, sig: str | None) -> EventRow:
        if not self._has_key or self._team.is_signed(sig or "", "event", host, seq, entry):
            return EventRow(seq, entry, True)
        self._note("event", "events that are not signed with the team's key are marked as unverified")
        marked = {**decode_object(entry), UNVERIFIED: True}
        return EventRow(seq, encode_line(marked)[:-1].decode(), False)

    def oddities(self) -> dict[str, Oddities]:
        return self._team.database.run(self._documents.oddities)

    def objects(self, kind: str) -> dict[str, Any]:
        """The documents of a kind."""
        return self._team.database.run(lambda cursor: self._documents.objects(cursor, kind))

    def files(self) -> list[tuple[str, bytes]]:
        return self._team.database.run(lambda cursor: list(self._documents.files(cursor)))

    def note_bad(self, table: str) -> None:
        self._note(
            table, f"rows of the table '{table}' are left out: they are damaged, or not signed with the team's key"
        )

    def _note(self, table: str, problem: str) -> None:
        if table not in self._warned:
            self._warned.add(table)
            self._warn(problem)

    def _fetch(self, query: str, **values: Any) -> list[Any]:
        def read(cursor: Cursor[Any]) -> list[Any]:
            cursor.execute(query, {"team": self._team.id, **values})
            return cursor.fetchall()

        return self._team.database.run(read)

    def _pages(self, query: str, **values: Any) -> Iterator[tuple[Any, ...]]:
        """All rows of a query for a page, by their first column. What does not count is gone before the next page."""
        after = _BEFORE_ALL
        while rows := self._fetch(query, **values, after=after, limit=BATCH):
            yield from rows
            after = rows[-1][0]

    def _line(self, agent: str, incarnation: int, seq: int, epoch: int, entry: str, sig: str | None) -> Line:
        is_signed = self._is_signed("transcript", sig, agent, incarnation, seq, epoch, entry)
        return Line(agent, incarnation, seq, entry, is_signed)

    def _is_signed(self, table: str, signature: str | None, *parts: str | int | None) -> bool:
        """A part that is None was too large to be fetched."""
        known = [part for part in parts if part is not None]
        is_signed = len(known) == len(parts) and (
            not self._has_key or self._team.is_signed(signature or "", table, *known)
        )
        if not is_signed:
            self.note_bad(table)
        return is_signed
