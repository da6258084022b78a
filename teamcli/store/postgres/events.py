"""The timeline as rows: each host numbers its own, and writes what has gathered in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from psycopg import Cursor

from teamcli.store.postgres.mirrored_log import MirroredLog
from teamcli.store.postgres.team_rows import Team

_INSERT = """
    insert into event (team, host, seq, entry)
    select %(team)s, %(host)s, %(first)s + line.number - 1, line.entry
    from unnest(%(entries)s::text[]) with ordinality as line (entry, number)
    where not exists (select 1 from event where team = %(team)s and host = %(host)s and seq >= %(first)s)
    returning seq
"""


class EventRows(MirroredLog):
    """A `Log`: what happened on one host. Its file is not completed with what other hosts have written."""

    def __init__(self, team: Team, host: str, path: Path) -> None:
        """Raises: StateError"""
        self._team = team
        self._host = host
        self._next = team.database.run(self._after_last)
        super().__init__(path)

    def _insert(self, entries: Sequence[str]) -> None:
        values = {"team": self._team.id, "host": self._host, "first": self._next, "entries": list(entries)}
        if self._team.database.fetch(_INSERT, values):
            self._next += len(entries)
        else:
            self._next = self._team.database.run(lambda cursor: self._settle(cursor, entries))

    def _settle(self, cursor: Cursor[Any], entries: Sequence[str]) -> int:
        """The next number is taken: by these, if the answer to a commit was lost, or by an earlier process of this name
        in its last moments. Returns the number after the last one."""
        place = {"team": self._team.id, "host": self._host, "first": self._next, "entries": list(entries)}
        cursor.execute(
            "select entry from event where team = %(team)s and host = %(host)s and seq >= %(first)s order by seq", place
        )
        there = [entry for (entry,) in cursor.fetchall()]
        following = self._after_last(cursor)
        if there[-len(entries) :] == list(entries):
            return following
        cursor.execute(_INSERT, {**place, "first": following})
        return following + len(entries)

    def _after_last(self, cursor: Cursor[Any]) -> int:
        cursor.execute(
            "select coalesce(max(seq) + 1, 0) from event where team = %s and host = %s", (self._team.id, self._host)
        )
        row = cursor.fetchone()
        return int(row[0]) if row else 0
