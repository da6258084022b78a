"""The timeline as rows: each host numbers its own, and writes what has gathered in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from psycopg import Cursor

from teamcli.store.postgres.mirrored_log import MirroredLog
from teamcli.store.postgres.team_rows import Team


class EventRows(MirroredLog):
    """A `Log`: what happened on one host. Its file is not completed with what other hosts have written."""

    def __init__(self, team: Team, host: str, path: Path) -> None:
        """Raises: StateError"""
        self._team = team
        self._host = host
        self._next = team.database.run(self._after_last)
        super().__init__(path)

    def _insert(self, entries: Sequence[str]) -> None:
        self._next = self._team.database.run(lambda cursor: self._insert_from(cursor, self._next, entries))

    def _insert_from(self, cursor: Cursor[Any], first: int, entries: Sequence[str]) -> int:
        """Returns the number after the last one."""
        place = (self._team.id, self._host, first)
        cursor.execute(
            "insert into event (team, host, seq, entry)"
            " select %s, %s, %s + line.number - 1, line.entry"
            " from unnest(%s::text[]) with ordinality as line (entry, number)"
            " where not exists (select 1 from event where team = %s and host = %s and seq >= %s)",
            (*place, list(entries), *place),
        )
        if cursor.rowcount:
            return first + len(entries)
        cursor.execute("select entry from event where team = %s and host = %s and seq >= %s order by seq", place)
        if [entry for (entry,) in cursor.fetchall()] == list(entries):  # the answer to a commit was lost
            return first + len(entries)
        # An earlier process of this name has written in its last moments.
        return self._insert_from(cursor, self._after_last(cursor), entries)

    def _after_last(self, cursor: Cursor[Any]) -> int:
        cursor.execute(
            "select coalesce(max(seq) + 1, 0) from event where team = %s and host = %s", (self._team.id, self._host)
        )
        row = cursor.fetchone()
        return int(row[0]) if row else 0
