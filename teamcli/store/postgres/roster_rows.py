"""Reading and writing the rows of the roster: members and requests, in the same way.

An entry that is removed leaves a signed row without a document. So a row that is missing, or older than one that was
seen, is the work of someone without the key, and does not count.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from psycopg import Cursor

from teamcli.errors import IllegalTransition, LeaseLost, TeamError
from teamcli.store.postgres.newest import Newest
from teamcli.store.postgres.team_rows import HELD, Fence, Team
from teamcli.store.row_limits import bounded
from teamcli.team.requests import Request, State, check_open
from teamcli.team.roster_file import Member
from teamcli.team.roster_merge import merged_member, merged_request, request_key

T = TypeVar("T")
NO_ROW = -(1 << 63) - 1
"""In place of the version of a row: a number that none can have."""
_ELSEWHERE = "another host has added or removed '{}' meanwhile; look who is there, and try again"


class Change(NamedTuple, Generic[T]):
    was: T | None
    """None for a new one."""
    wanted: T | None
    """None for one that was removed."""


class Found(NamedTuple, Generic[T]):
    """What a row holds now."""

    version: int
    """As the row says."""
    entry: T | None
    """None also if it was removed, or does not count."""
    doc: str = ""
    problem: str = ""
    """Why it does not count."""

    @property
    def is_removed(self) -> bool:
        return self.entry is None and not self.problem


class RowTable(Generic[T]):
    """One table, and what its entries are."""

    def __init__(
        self,
        name: str,
        key: str,
        parse: Callable[[object], T],
        key_of: Callable[[T], str],
        encode: Callable[[T], str],
        about: Callable[[T], str],
        merge: Callable[[T, T, T], T],
        refuse: Callable[[Change[T], T | None, T | None], None],
    ) -> None:
        """`about` is the agent whose lease a change needs. `refuse` gets a change, what another process has made of the
        row and both merged, and raises TeamError if the change cannot stand."""
        self.name = name
        self.key = key
        self.key_of = key_of
        self.about = about
        self.merge = merge
        self.refuse = refuse
        self._parse = parse
        self._encode = encode

    def doc(self, entry: T) -> str:
        return self._encode(entry).encode("utf-8", "replace").decode()

    def changes(self, before: Iterable[T], after: Iterable[T]) -> dict[str, Change[T]]:
        was, wanted = {self.key_of(entry): entry for entry in before}, {self.key_of(entry): entry for entry in after}
        changed = {
            key: Change(was.get(key), entry)
            for key, entry in wanted.items()
            if was.get(key) is not entry and was.get(key) != entry
        }
        return changed | {key: Change(entry, None) for key, entry in was.items() if key not in wanted}

    def look(self, team: Team, newest: Newest, known: Mapping[str, int], keys: Collection[str]) -> dict[str, Found[T]]:
        """Those of these rows that are not of the known versions, in their order.

        Raises: StateError
        """
        values = {"team": team.id, "keys": list(keys)}
        found = self._found(team, newest, team.database.fetch(self._select, values) if keys else ())
        gone = {key: self._missing(newest, key) for key in keys if key in known and key not in found}
        return {key: row for key, row in found.items() if known.get(key) != row.version} | gone

    def lock(self, cursor: Cursor[Any], team: Team, newest: Newest, key: str) -> Found[T]:
        cursor.execute(f"{self._select} for update".encode(), {"team": team.id, "keys": [key]})
        return self._found(team, newest, cursor.fetchall()).get(key) or self._missing(newest, key)

    def replacing(
        self, team: Team, lease: tuple[str, int], key: str, there: int, version: int, wanted: T | None
    ) -> tuple[str, dict[str, Any]]:
        """A statement, with its values, that replaces the row that is there by this version of it, if the lease is held
        and the row has not changed. Then it returns 1."""
        doc = "" if wanted is None else self.doc(wanted)
        values: dict[str, Any] = {"team": team.id, "key": key, "there": there, "version": version}
        values |= {"holder": lease[0], "epoch": lease[1], "doc": doc, "sig": team.sign(self.name, key, version, doc)}
        if there != NO_ROW:
            act = (
                f"update {self.name} t set version = %(version)s, doc = %(doc)s, sig = %(sig)s from held"
                f" where t.team = %(team)s and t.{self.key} = %(key)s and t.version = %(there)s"
            )
        else:
            act = (
                f"insert into {self.name} (team, {self.key}, version, doc, sig)"
                " select %(team)s, %(key)s, %(version)s, %(doc)s, %(sig)s from held on conflict do nothing"
            )
        return f"with {HELD} {act} returning 1", values

    def row(self, key: str) -> str:
        """What a host remembers a row as."""
        return f"{self.name}/{key}"

    @property
    def _select(self) -> str:
        return (
            f"select {self.key}, version, {bounded('doc')}, {bounded('sig')} from {self.name}"
            f" where team = %(team)s and {self.key} = any(%(keys)s) order by place"
        )

    def _missing(self, newest: Newest, key: str) -> Found[T]:
        return Found(
            NO_ROW, None, problem="it was deleted by someone without the team's key" if newest.of(self.row(key)) else ""
        )

    def _found(self, team: Team, newest: Newest, rows: Iterable[tuple[Any, ...]]) -> dict[str, Found[T]]:
        return {key: self._read(team, newest, key, *row) for key, *row in rows}

    def _read(self, team: Team, newest: Newest, key: str, version: int, doc: str | None, sig: str | None) -> Found[T]:
        if doc is None or sig is None:
            return Found(version, None, problem="it is too large")
        if not team.is_signed(sig, self.name, key, version, doc):
            return Found(version, None, problem="it is not signed with the team's key")
        if not newest.admits(self.row(key), version):
            return Found(version, None, problem=f"it is older than one that was here; {newest.remedy}")
        if not doc:
            return Found(version, None)
        try:
            return Found(version, self._parse(json.loads(doc)), doc)
        except (ValueError, RecursionError, TeamError):
            return Found(version, None, problem="it is damaged")


class Saving:
    """The transaction of one change of the roster."""

    def __init__(self, cursor: Cursor[Any], team: Team, fence: Fence, newest: Newest, must: Collection[str]) -> None:
        """`must` as of `RosterStore.save`."""
        self._cursor = cursor
        self._team = team
        self._fence = fence
        self._newest = newest
        self._must = {key.casefold() for key in must}

    def write(
        self, table: RowTable[T], changes: Mapping[str, Change[T]], versions: Mapping[str, int]
    ) -> dict[str, Found[T]]:
        """What the rows hold afterwards. In order, so that two processes do not wait for each other.

        Raises: LeaseLost, TeamError
        """
        return {key: self._write(table, key, changes[key], versions.get(key, NO_ROW)) for key in sorted(changes)}

    def _write(self, table: RowTable[T], key: str, change: Change[T], version: int) -> Found[T]:
        is_must = key.casefold() in self._must
        entry = change.was if change.wanted is None else change.wanted
        assert entry is not None
        try:
            holder, epoch = self._fence.holder(table.about(entry))
            if written := self._try(table, key, change.wanted, version, (holder, epoch)):
                return written
            self._fence.check(self._cursor, holder)
        except LeaseLost:
            if is_must:
                raise
            return table.lock(self._cursor, self._team, self._newest, key)
        return self._settle(table, key, change, (holder, epoch), is_must)

    def _settle(
        self, table: RowTable[T], key: str, change: Change[T], lease: tuple[str, int], is_must: bool
    ) -> Found[T]:
        """Another process has changed the row; or this one, if the answer to its commit was lost; or someone without
        the key, and then it is written over."""
        found, wanted = table.lock(self._cursor, self._team, self._newest, key), change.wanted
        if found.is_removed and change.was is not None:
            if wanted is not None and is_must:
                raise TeamError(_ELSEWHERE.format(key))
            return found
        if wanted is not None and found.doc == table.doc(wanted):
            return Found(found.version, wanted)
        if change.was is not None and wanted is not None and found.entry is not None:
            wanted = table.merge(change.was, wanted, found.entry)
        try:
            table.refuse(change, found.entry, wanted)
        except TeamError:
            if is_must:
                raise
            return found
        if wanted is not None and wanted == found.entry:
            return found
        written = self._try(table, key, wanted, found.version, lease)  # the row is locked, if there is one
        if written is None and is_must:
            raise TeamError(_ELSEWHERE.format(key))
        return written or found

    def _try(
        self, table: RowTable[T], key: str, wanted: T | None, there: int, lease: tuple[str, int]
    ) -> Found[T] | None:
        version = self._newest.next(table.row(key))
        sql, values = table.replacing(self._team, lease, key, there, version, wanted)
        self._cursor.execute(sql.encode(), values)
        return Found(version, wanted) if self._cursor.rowcount == 1 else None


def _refuse_member(change: Change[Member], theirs: Member | None, both: Member | None) -> None:
    was, wanted = change
    if theirs is None:  # not signed: what this process knows replaces it
        return
    if was is None:
        raise TeamError(f"there is a teammate '{theirs.name}' already")
    if wanted is None or both is None:
        is_lost = theirs.is_active
    else:
        is_lost = any(getattr(both, name) != getattr(wanted, name) for name in wanted.changed_from(was))
    if is_lost:
        raise IllegalTransition(f"'{theirs.name}' is currently {theirs.status}; another host has changed it meanwhile")


def _refuse_request(change: Change[Request], theirs: Request | None, both: Request | None) -> None:
    """A request that is void because of something else gives way to an answer."""
    if theirs is not None and change.wanted is not None and change.wanted.state in (State.APPROVED, State.REJECTED):
        check_open(theirs)


def _request_doc(request: Request) -> str:
    return json.dumps(request.to_dict(), ensure_ascii=False)


MEMBERS = RowTable[Member](
    "member",
    "name",
    Member.from_dict,
    lambda member: member.name,
    lambda member: member.encoded,
    lambda member: member.name,
    merged_member,
    _refuse_member,
)
REQUESTS = RowTable[Request](
    "request",
    "id",
    Request.from_dict,
    request_key,
    _request_doc,
    lambda request: request.teammate,
    merged_request,
    _refuse_request,
)
