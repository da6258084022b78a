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
from teamcli.store.row_limits import LARGEST_SIGNATURE, bounded
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


class EntryKind(NamedTuple, Generic[T]):
    """What the entries of a table are, and what may become of them."""

    table: str
    key: str
    """The column with what `key_of` gives."""
    parse: Callable[[object], T]
    key_of: Callable[[T], str]
    encode: Callable[[T], str]
    about: Callable[[T], str]
    """The agent whose lease a change needs."""
    merge: Callable[[T, T, T], T]
    refuse: Callable[[Change[T], T | None, T | None], None]
    """Gets a change, what another process has made of the row, and both merged. Raises TeamError if the change cannot
    stand."""

    def doc(self, entry: T) -> str:
        return self.encode(entry).encode("utf-8", "replace").decode()

    def changes(self, before: Iterable[T], after: Iterable[T]) -> dict[str, Change[T]]:
        was, wanted = {self.key_of(entry): entry for entry in before}, {self.key_of(entry): entry for entry in after}
        changed = {
            key: Change(was.get(key), entry)
            for key, entry in wanted.items()
            if was.get(key) is not entry and was.get(key) != entry
        }
        return changed | {key: Change(entry, None) for key, entry in was.items() if key not in wanted}


class RowTable(Generic[T]):
    """The rows of one kind of entry, as this process knows them."""

    def __init__(self, kind: EntryKind[T], team: Team, newest: Newest) -> None:
        self.kind = kind
        self.name = kind.table
        self._team = team
        self._newest = newest
        self._versions: dict[str, int] = {}
        """Of all rows that were looked at, as they say, also of those that do not count."""

    @property
    def versions(self) -> Mapping[str, int]:
        return self._versions

    def version(self, key: str) -> int:
        """The one that this process knows."""
        return self._versions.get(key, NO_ROW)

    def next_version(self, key: str) -> int:
        return self._newest.next(self._row(key))

    def forget(self, expects_known: bool) -> None:
        """Begin without knowing any row. With `expects_known`, one that was here before and is missing is looked at,
        too: someone else has deleted it."""
        known = self._newest.known(self._row("")) if expects_known else ()
        self._versions = dict.fromkeys(known, NO_ROW)

    def look(self, keys: Collection[str]) -> dict[str, Found[T]]:
        """Those of these rows that are not of the known versions, in their order.

        Raises: StateError
        """
        values = {"team": self._team.id, "keys": list(keys)}
        found = self._found(self._team.database.fetch(self._select, values) if keys else ())
        gone = {key: self._missing(key) for key in keys if key in self._versions and key not in found}
        return {key: row for key, row in found.items() if self._versions.get(key) != row.version} | gone

    def lock(self, cursor: Cursor[Any], key: str) -> Found[T]:
        # For update: what is merged with it now must still be there when the result is written.
        cursor.execute(f"{self._select} for update".encode(), {"team": self._team.id, "keys": [key]})
        return self._found(cursor.fetchall()).get(key) or self._missing(key)

    def take(self, known: Iterable[T], found: Mapping[str, Found[T]]) -> tuple[T, ...]:
        """What is known with what was found in the database. A row that is not signed changes nothing."""
        entries = {self.kind.key_of(entry): entry for entry in known}
        for key, row in found.items():
            if not row.problem and row.version != NO_ROW:
                self._newest.admits(self._row(key), row.version)  # if this process has written it
            if row.entry is not None:
                entries[key] = row.entry
            elif row.is_removed:
                entries.pop(key, None)
            if row.version != NO_ROW and not row.is_removed:
                self._versions[key] = row.version
            else:
                self._versions.pop(key, None)
        return tuple(entries.values())

    def replacing(
        self, lease: tuple[str, int], key: str, there: int, version: int, wanted: T | None
    ) -> tuple[str, dict[str, Any]]:
        """A statement, with its values, that replaces the row that is there by this version of it, if the lease is held
        and the row has not changed. Then it returns 1."""
        doc = "" if wanted is None else self.kind.doc(wanted)
        values: dict[str, Any] = {"team": self._team.id, "key": key, "there": there, "version": version}
        values |= {
            "holder": lease[0],
            "epoch": lease[1],
            "doc": doc,
            "sig": self._team.sign(self.name, key, version, doc),
        }
        if there != NO_ROW:
            act = (
                f"update {self.name} t set version = %(version)s, doc = %(doc)s, sig = %(sig)s from held"
                f" where t.team = %(team)s and t.{self.kind.key} = %(key)s and t.version = %(there)s"
            )
        else:
            act = (
                f"insert into {self.name} (team, {self.kind.key}, version, doc, sig)"
                " select %(team)s, %(key)s, %(version)s, %(doc)s, %(sig)s from held on conflict do nothing"
            )
        return f"with {HELD} {act} returning 1", values

    def _row(self, key: str) -> str:
        """What a host remembers a row as."""
        return f"{self.name}/{key}"

    @property
    def _select(self) -> str:
        return (
            f"select {self.kind.key}, version, {bounded('doc')}, {bounded('sig', LARGEST_SIGNATURE)} from {self.name}"
            f" where team = %(team)s and {self.kind.key} = any(%(keys)s) order by place"  # as `config.json` has them
        )

    def _missing(self, key: str) -> Found[T]:
        was_here = self._newest.of(self._row(key))
        return Found(NO_ROW, None, problem="it was deleted by someone without the team's key" if was_here else "")

    def _found(self, rows: Iterable[tuple[Any, ...]]) -> dict[str, Found[T]]:
        return {key: self._read(key, *row) for key, *row in rows}

    def _read(self, key: str, version: int, doc: str | None, sig: str | None) -> Found[T]:
        if doc is None or sig is None:
            return Found(version, None, problem="it is too large")
        if not self._team.is_signed(sig, self.name, key, version, doc):
            return Found(version, None, problem="it is not signed with the team's key")
        if not self._newest.admits(self._row(key), version):
            return Found(version, None, problem=f"it is older than one that was here; {self._newest.remedy}")
        if not doc:
            return Found(version, None)
        try:
            return Found(version, self.kind.parse(json.loads(doc)), doc)
        except (ValueError, RecursionError, TeamError):
            return Found(version, None, problem="it is damaged")


class Saving:
    """The transaction of one change of the roster."""

    def __init__(self, cursor: Cursor[Any], fence: Fence, must: Collection[str]) -> None:
        """`must` as of `RosterStore.save`."""
        self._cursor = cursor
        self._fence = fence
        self._must = {key.casefold() for key in must}

    def write(self, table: RowTable[T], changes: Mapping[str, Change[T]]) -> dict[str, Found[T]]:
        """What the rows hold afterwards. In order, so that two processes do not wait for each other.

        Raises: LeaseLost, TeamError
        """
        return {key: self._write(table, key, changes[key]) for key in sorted(changes)}

    def _write(self, table: RowTable[T], key: str, change: Change[T]) -> Found[T]:
        is_must = key.casefold() in self._must
        entry = change.was if change.wanted is None else change.wanted
        assert entry is not None
        try:
            holder, epoch = self._fence.holder(table.kind.about(entry))
            if written := self._try(table, key, change.wanted, table.version(key), (holder, epoch)):
                return written
            self._fence.check(self._cursor, holder)
        except LeaseLost:
            if is_must:
                raise
            return table.lock(self._cursor, key)
        return self._settle(table, key, change, (holder, epoch), is_must)

    def _settle(
        self, table: RowTable[T], key: str, change: Change[T], lease: tuple[str, int], is_must: bool
    ) -> Found[T]:
        """Another process has changed the row; or this one, if the answer to its commit was lost; or someone without
        the key, and then it is written over."""
        found, wanted = table.lock(self._cursor, key), change.wanted
        if found.is_removed and change.was is not None:
            if wanted is not None and is_must:
                raise TeamError(_ELSEWHERE.format(key))
            return found
        if wanted is not None and found.doc == table.kind.doc(wanted):
            return Found(found.version, wanted)
        if change.was is not None and wanted is not None and found.entry is not None:
            wanted = table.kind.merge(change.was, wanted, found.entry)
        try:
            table.kind.refuse(change, found.entry, wanted)
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
        version = table.next_version(key)
        sql, values = table.replacing(lease, key, there, version, wanted)
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


MEMBERS = EntryKind[Member](
    "member",
    "name",
    Member.from_dict,
    lambda member: member.name,
    lambda member: member.encoded,
    lambda member: member.name,
    merged_member,
    _refuse_member,
)
REQUESTS = EntryKind[Request](
    "request",
    "id",
    Request.from_dict,
    request_key,
    _request_doc,
    lambda request: request.teammate,
    merged_request,
    _refuse_request,
)
