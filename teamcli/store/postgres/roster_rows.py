"""Reading and writing the rows of the roster: members and requests, in the same way."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from psycopg import Cursor

from teamcli.errors import IllegalTransition, LeaseLost, TeamError
from teamcli.store.postgres.team_rows import Fence, Team
from teamcli.team.requests import Request, State, check_open
from teamcli.team.roster_file import Member
from teamcli.team.roster_merge import merged_member, merged_request, request_key

T = TypeVar("T")
_HELD = "with held as (select 1 from lease where team = %(team)s and name = %(holder)s and epoch = %(epoch)s for share)"


class Change(NamedTuple, Generic[T]):
    was: T | None
    """None for a new one."""
    wanted: T | None
    """None for one that was removed."""


class Found(NamedTuple, Generic[T]):
    """What a row holds now."""

    version: int
    """0 if there is no such row."""
    entry: T | None
    """None also if it is not signed with the team's key."""
    doc: str = ""


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

    def look(self, team: Team, known: Mapping[str, int], keys: Collection[str]) -> dict[str, Found[T]]:
        """Those of these rows that are not of the known versions, in their order.

        Raises: StateError
        """
        values = {"team": team.id, "keys": list(keys)}
        found = self._found(team, team.database.fetch(self._select, values) if keys else ())
        gone = {key: Found[T](0, None) for key in keys if key in known and key not in found}
        return {key: row for key, row in found.items() if known.get(key) != row.version} | gone

    def lock(self, cursor: Cursor[Any], team: Team, key: str) -> Found[T]:
        cursor.execute(f"{self._select} for update".encode(), {"team": team.id, "keys": [key]})
        return self._found(team, cursor.fetchall()).get(key) or Found(0, None)

    def replacing(
        self, team: Team, lease: tuple[str, int], key: str, version: int, wanted: T | None
    ) -> tuple[str, dict[str, Any]]:
        """A statement, with its values, that replaces this version of a row if the lease is held. Then it returns 1."""
        doc = "" if wanted is None else self.doc(wanted)
        values: dict[str, Any] = {"team": team.id, "key": key, "version": version}
        values |= {
            "holder": lease[0],
            "epoch": lease[1],
            "doc": doc,
            "sig": team.sign(self.name, key, version + 1, doc),
        }
        where = f"where t.team = %(team)s and t.{self.key} = %(key)s and t.version = %(version)s"
        if wanted is None:
            act = f"delete from {self.name} t using held {where}"
        elif version:
            act = f"update {self.name} t set version = t.version + 1, doc = %(doc)s, sig = %(sig)s from held {where}"
        else:
            act = (
                f"insert into {self.name} (team, {self.key}, doc, sig)"
                " select %(team)s, %(key)s, %(doc)s, %(sig)s from held on conflict do nothing"
            )
        return f"{_HELD} {act} returning 1", values

    @property
    def _select(self) -> str:
        return (
            f"select {self.key}, version, doc, sig from {self.name}"
            f" where team = %(team)s and {self.key} = any(%(keys)s) order by place"
        )

    def _found(self, team: Team, rows: Iterable[tuple[Any, ...]]) -> dict[str, Found[T]]:
        return {key: Found(version, self._entry(team, key, version, doc, sig), doc) for key, version, doc, sig in rows}

    def _entry(self, team: Team, key: str, version: int, doc: str, sig: str) -> T | None:
        if not team.is_signed(sig, self.name, key, version, doc):
            return None
        try:
            return self._parse(json.loads(doc))
        except (ValueError, RecursionError, TeamError):
            return None


class Saving:
    """The transaction of one change of the roster."""

    def __init__(self, cursor: Cursor[Any], team: Team, fence: Fence, must: Collection[str]) -> None:
        """`must` as of `RosterStore.save`."""
        self._cursor = cursor
        self._team = team
        self._fence = fence
        self._must = {key.casefold() for key in must}

    def write(
        self, table: RowTable[T], changes: Mapping[str, Change[T]], versions: Mapping[str, int]
    ) -> dict[str, Found[T]]:
        """What the rows hold afterwards. In order, so that two processes do not wait for each other.

        Raises: LeaseLost, TeamError
        """
        return {key: self._write(table, key, changes[key], versions.get(key, 0)) for key in sorted(changes)}

    def _write(self, table: RowTable[T], key: str, change: Change[T], version: int) -> Found[T]:
        is_must = key.casefold() in self._must
        entry = change.was if change.wanted is None else change.wanted
        assert entry is not None
        try:
            holder, epoch = self._fence.holder(table.about(entry))
            if self._try(table, key, change.wanted, version, (holder, epoch)):
                return Found(version + 1, change.wanted) if change.wanted is not None else Found(0, None)
            self._fence.check(self._cursor, holder)
        except LeaseLost:
            if is_must:
                raise
            return table.lock(self._cursor, self._team, key)
        return self._settle(table, key, change, (holder, epoch), is_must)

    def _settle(
        self, table: RowTable[T], key: str, change: Change[T], lease: tuple[str, int], is_must: bool
    ) -> Found[T]:
        """Another process has changed the row; or this one, if the answer to its commit was lost."""
        found, wanted = table.lock(self._cursor, self._team, key), change.wanted
        is_unknown = not found.version if change.was is not None else found.entry is None
        if is_unknown and (wanted is None or not is_must):
            return found
        if is_unknown:
            raise TeamError(f"another host has added or removed '{key}' meanwhile; look who is there, and try again")
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
        if wanted == found.entry:
            return found
        self._try(table, key, wanted, found.version, lease)  # which is locked
        return Found(found.version + 1, wanted) if wanted is not None else Found(0, None)

    def _try(self, table: RowTable[T], key: str, wanted: T | None, version: int, lease: tuple[str, int]) -> bool:
        sql, values = table.replacing(self._team, lease, key, version, wanted)
        self._cursor.execute(sql.encode(), values)
        return self._cursor.rowcount == 1


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
