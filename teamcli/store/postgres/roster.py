"""The roster as rows that several processes write.

Each row has a version. A process replaces the version that it knows; if another one was faster, it merges both changes
and tries again. A decision of the other that does not go together with its own counts.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from psycopg import Cursor

from teamcli.errors import StateError
from teamcli.storage.files import write_atomic
from teamcli.store.postgres.roster_rows import MEMBERS, REQUESTS, Found, RowTable, Saving, T
from teamcli.store.postgres.team_rows import Fence, Team
from teamcli.team.requests import Request
from teamcli.team.roster_file import TEAM_NAME, Member, TeamConfig
from teamcli.team.roster_merge import merged

COPY_SECONDS = 0.2
"""The least time between two copies of what only others have changed."""
MOST_TOPICS = 16
"""Of one change; after more, everyone looks at all."""
ALL = "member/*"
logger = logging.getLogger(__name__)


class RosterRows:
    """A `RosterStore`."""

    name = "the roster in the database"
    problem = ""

    def __init__(self, team: Team, fence: Fence, path: Path) -> None:
        """`path` is that of a `config.json` that is kept as a copy."""
        self._team = team
        self._fence = fence
        self._path = path
        self._versions: dict[RowTable[Any], dict[str, int]] = {MEMBERS: {}, REQUESTS: {}}
        """Of all rows that were looked at, also of those that do not count."""
        self._doc = "{}"
        self._copied_at = 0.0

    def load(self) -> TeamConfig:
        self._versions = {MEMBERS: {}, REQUESTS: {}}
        self._doc = "{}"
        team = self.fresh(TeamConfig()) or TeamConfig()
        if team.members or team.requests or self._path.exists():
            self._copy(team)
        return team

    def fresh(self, known: TeamConfig, topics: Collection[str] = ()) -> TeamConfig | None:
        keys = None if not topics or ALL in topics else topics
        members, requests, doc = self._team.database.run(lambda cursor: self._look(cursor, keys))
        if not members and not requests and doc == self._doc:
            return None
        team = known._replace(
            members=self._taken(MEMBERS, known.members, members),
            requests=self._taken(REQUESTS, known.requests, requests),
        )
        if doc != self._doc:
            self._doc = doc
            rest = json.loads(doc)
            team = team._replace(name=rest.pop("team_name", TEAM_NAME), unknown=rest)
        if time.monotonic() > self._copied_at + COPY_SECONDS:
            self._copy(team)
        return team

    def save(self, before: TeamConfig, after: TeamConfig, must: Collection[str]) -> TeamConfig:
        members = MEMBERS.changes(before.members, after.members)
        requests = REQUESTS.changes(before.requests, after.requests)
        rest = {"team_name": after.name, **after.unknown} if _rest(before) != _rest(after) else None
        topics = [f"member/{key}" for key in members] + [f"request/{key}" for key in requests]
        if members or requests or rest is not None:

            def act(cursor: Cursor[Any]) -> tuple[dict[str, Found[Member]], dict[str, Found[Request]]]:
                if rest is not None:
                    self._save_rest(cursor, json.dumps(rest, ensure_ascii=False))
                saving = Saving(cursor, self._team, self._fence, must)
                return (
                    saving.write(MEMBERS, members, self._versions[MEMBERS]),
                    saving.write(REQUESTS, requests, self._versions[REQUESTS]),
                )

            shown = topics if len(topics) <= MOST_TOPICS else [ALL]
            found = self._team.database.run(act, *map(self._team.topic, shown))
            after = self._merged_after(after, *found)
        self._copy(after)
        return after

    def merged(self, base: TeamConfig, ours: TeamConfig, theirs: TeamConfig) -> TeamConfig:
        return merged(base, ours, theirs)

    def _merged_after(
        self,
        after: TeamConfig,
        found_members: Mapping[str, Found[Member]],
        found_requests: Mapping[str, Found[Request]],
    ) -> TeamConfig:
        """The same object, if what was written is what was wanted."""
        members = self._taken(MEMBERS, after.members, found_members)
        requests = self._taken(REQUESTS, after.requests, found_requests)
        if _is_same(members, after.members) and _is_same(requests, after.requests):
            return after
        return after._replace(members=members, requests=requests)

    def _look(self, cursor: Cursor[Any], topics: Collection[str] | None) -> tuple[Any, Any, str]:
        members = MEMBERS.look(cursor, self._team, self._versions[MEMBERS], topics)
        requests = REQUESTS.look(cursor, self._team, self._versions[REQUESTS], topics)
        if topics is not None:
            return members, requests, self._doc
        cursor.execute("select doc from team where id = %s", (self._team.id,))
        row = cursor.fetchone()
        return members, requests, str(row[0]) if row else self._doc

    def _taken(self, table: RowTable[T], known: Iterable[T], found: Mapping[str, Found[T]]) -> tuple[T, ...]:
        """What is known with what was found in the database. A row that is not signed changes nothing."""
        entries = {table.key_of(entry): entry for entry in known}
        versions = self._versions[table]
        for key, (version, entry, _) in found.items():
            if version:
                versions[key] = version
            else:
                versions.pop(key, None)
                entries.pop(key, None)
            if entry is not None:
                entries[key] = entry
        return tuple(entries.values())

    def _save_rest(self, cursor: Cursor[Any], doc: str) -> None:
        self._fence.check(cursor, self._fence.holder("lead")[0])
        cursor.execute("update team set doc = %s where id = %s", (doc, self._team.id))

    def _copy(self, team: TeamConfig) -> None:
        self._copied_at = time.monotonic()
        try:
            write_atomic(self._path, team.encode(), durable=False)
        except StateError as e:  # the rows are there, so this cannot fail the caller
            logger.warning("the copy of the roster lags behind: %s", e)


def _rest(team: TeamConfig) -> tuple[Any, ...]:
    return team.name, team.unknown


def _is_same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    return len(one) == len(other) and all(mine is theirs for mine, theirs in zip(one, other, strict=True))
