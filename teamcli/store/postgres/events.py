"""The timeline as rows: each host numbers and signs its own, and writes what has gathered in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from psycopg import Cursor

from teamcli.errors import LeaseLost, StateError
from teamcli.store.postgres.free_numbers import free_numbers
from teamcli.store.postgres.mirrored_log import MirroredLog
from teamcli.store.postgres.newest import Newest
from teamcli.store.postgres.team_rows import Team
from teamcli.store.row_limits import LARGEST_SIGNATURE, bounded

_KEY = "team = %(team)s and host = %(host)s"
_LAST_ROWS = 100
"""How many are looked at to find the last one that is signed."""
_LARGEST = 1_000_000
"""Of these. A larger event is rare, and that it is not seen as the last one costs a query."""
_HELD = "select from host where team = %(team)s and name = %(host)s and epoch = %(epoch)s for share"
_INSERT = f"""
    with held as ({_HELD})
    insert into event (team, host, seq, entry, sig)
    select %(team)s, %(host)s, line.seq, line.entry, line.sig
    from unnest(%(seqs)s::bigint[], %(entries)s::text[], %(sigs)s::text[]) as line (seq, entry, sig)
    where (%(epoch)s::bigint is null or exists (select from held))
    and not exists (select 1 from event where {_KEY} and seq = any(%(seqs)s))
    on conflict do nothing returning seq
"""
_LAST = f"""
    select seq, {bounded("entry", _LARGEST)}, {bounded("sig", LARGEST_SIGNATURE)} from event
    where {_KEY} order by seq desc limit %(most)s
"""


class EventRows(MirroredLog):
    """A `Log`: what happened on one host. Its file is not completed with what other hosts have written."""

    def __init__(self, team: Team, newest: Newest, host: str, path: Path, epoch: int | None = None) -> None:
        """`epoch` is that of the host: a process that was replaced writes nothing. None for what is not a host.

        Raises: StateError
        """
        self._epoch = epoch
        self._team = team
        self._host = host
        self._newest = newest
        self._name = f"event/{host}"
        self._next = max(self._newest.of(self._name), team.database.run(self._after_last))
        super().__init__(path)

    def _insert(self, entries: Sequence[str]) -> None:
        values = self._values(range(self._next, self._next + len(entries)), entries)
        if len(self._team.database.fetch(_INSERT, values)) == len(entries):
            self._next += len(entries)
        else:
            self._next = self._team.database.run(lambda cursor: self._settle(cursor, entries))
        self._newest.admits(self._name, self._next)

    def _values(self, seqs: Sequence[int], entries: Sequence[str]) -> dict[str, Any]:
        sigs = [sign_event(self._team, self._host, seq, entry) for seq, entry in zip(seqs, entries, strict=True)]
        place = {"team": self._team.id, "host": self._host, "first": self._next, "epoch": self._epoch}
        return {**place, "seqs": list(seqs), "entries": list(entries), "sigs": sigs}

    def _settle(self, cursor: Cursor[Any], entries: Sequence[str]) -> int:
        """The next number is taken: by these, if the answer to a commit was lost; by an earlier process of this name in
        its last moments; or by a forged row. Returns the number after the last one.

        Raises: LeaseLost, StateError
        """
        if self._epoch is not None and not cursor.execute(_HELD.encode(), self._values([], [])).fetchone():
            raise LeaseLost(f"another process is the host '{self._host}' now")
        last = self._last(cursor, len(entries))
        following = max((seq + 1 for seq, _ in last), default=0)
        if last and [entry for seq, entry in last if seq >= self._next][-len(entries) :] == list(entries):
            return following
        free = free_numbers(
            cursor, "event", _KEY, {**self._values([], []), "first": max(self._next, following)}, len(entries)
        )
        cursor.execute(_INSERT.encode(), self._values(free, entries))
        if cursor.rowcount < len(entries):
            raise StateError(f"someone keeps adding rows to the timeline of the host '{self._host}' in the database")
        return free[-1] + 1

    def _after_last(self, cursor: Cursor[Any]) -> int:
        return max((seq + 1 for seq, _ in self._last(cursor, 1)), default=0)

    def _last(self, cursor: Cursor[Any], count: int) -> list[tuple[int, str]]:
        """The last ones that are signed."""
        place = {"team": self._team.id, "host": self._host, "most": _LAST_ROWS + count}
        rows = cursor.execute(_LAST.encode(), place).fetchall()
        return [
            (seq, entry)
            for seq, entry, sig in reversed(rows)
            if is_event_signed(self._team, self._host, seq, entry, sig)
        ]


def sign_event(team: Team, host: str, seq: int, entry: str) -> str:
    return team.sign("event", host, seq, entry)


def is_event_signed(team: Team, host: str, seq: int, entry: str | None, sig: str | None) -> bool:
    return entry is not None and team.is_signed(sig or "", "event", host, seq, entry)
