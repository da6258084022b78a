"""The background sub-agents of each host whose end has not been reported. If the host dies, the next one reports it."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any

from psycopg import Cursor

from teamcli.storage.files import Json
from teamcli.store.documents import Documents
from teamcli.store.line_text import decode_object
from teamcli.store.postgres.leases import Host
from teamcli.store.postgres.team_rows import Team

_KIND = "subagents:"
_RUNNING = "running"
_NONE = json.dumps({_RUNNING: []})


class SubAgentRows:
    """A `SharedLedger`: a document for each host process."""

    def __init__(self, team: Team, host: Host) -> None:
        self._team = team
        self._documents = Documents(team)
        self._host = host
        self._beginning = f"{_KIND}{host.name}:"
        self._own = f"{self._beginning}{host.epoch}"

    def keep(self, rows: Sequence[Json]) -> None:
        self._team.database.run(partial(self._keep, rows))

    def take_left(self, parents: Collection[str], report: Callable[[Iterable[Json]], None]) -> None:
        """A sub-agent runs where its parent does. So what any other process has kept for these is over."""
        for name in self._team.database.run(self._others):
            over = [row for row in self._team.database.run(partial(self._rows, name)) if row.get("parent") in parents]
            report(over)  # first: if this host dies in between, the next one still finds them
            if over:
                self._team.database.run(partial(self._remove, name, over))

    def _keep(self, rows: Sequence[Json], cursor: Cursor[Any]) -> None:
        """Not those of parents that another host has taken: it has reported them."""
        cursor.execute(
            "select name from lease where team = %s and host = %s and host_epoch = %s for share",
            (self._team.id, self._host.name, self._host.epoch),
        )
        here = {name for (name,) in cursor}
        # Hosts delete no documents, so one of an earlier process that is empty is used again.
        cursor.execute(
            "update document set name = %(own)s where team = %(team)s and name = ("
            " select min(name) from document where team = %(team)s and starts_with(name, %(beginning)s)"
            " and body = %(none)s"
            ") and not exists (select from document where team = %(team)s and name = %(own)s)",
            {"team": self._team.id, "own": self._own, "beginning": self._beginning, "none": _NONE},
        )
        self._put(self._own, [row for row in rows if row.get("parent") in here], cursor)

    def _others(self, cursor: Cursor[Any]) -> list[str]:
        cursor.execute(
            "select name from document where team = %s and starts_with(name, %s) and body <> %s order by name",
            (self._team.id, _KIND, _NONE),
        )
        return [name for (name,) in cursor if name != self._own]

    def _rows(self, name: str, cursor: Cursor[Any]) -> list[Json]:
        rows = decode_object(self._documents.read_one(cursor, name) or "{}").get(_RUNNING)
        return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []

    def _remove(self, name: str, over: Sequence[Json], cursor: Cursor[Any]) -> None:
        """What is there now, less what is over: several hosts may take members of one that has died."""
        self._documents.lock(cursor, name)
        self._put(name, [row for row in self._rows(name, cursor) if row not in over], cursor)

    def _put(self, name: str, rows: Sequence[Json], cursor: Cursor[Any]) -> None:
        self._documents.put(cursor, name, json.dumps({_RUNNING: list(rows)}))
