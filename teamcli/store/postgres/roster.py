"""The roster as rows that several processes write.

Each row has a version. A process replaces the version that it knows; if another one was faster, it merges both changes
and tries again. A decision of the other that does not go together with its own counts.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from psycopg import Cursor

from teamcli.errors import LeaseLost, StateError
from teamcli.storage.files import decode_line, write_atomic
from teamcli.store.later import Later
from teamcli.store.postgres.database import Topic
from teamcli.store.postgres.newest import Newest
from teamcli.store.postgres.roster_rows import MEMBERS, REQUESTS, Change, Found, RowTable, Saving, T
from teamcli.store.postgres.team_rows import Fence, Team
from teamcli.store.row_limits import LARGEST_REST, bounded
from teamcli.team.message import LEAD
from teamcli.team.requests import Request
from teamcli.team.roster_file import TEAM_NAME, Member, TeamConfig
from teamcli.team.roster_merge import is_same

COPY_SECONDS = 0.2
COPY_PAUSES = 500
"""The pause between two copies of a large roster, as a multiple of the time that one takes."""
SHOWN_SECONDS = 0.2
"""How much later the screen of the lead may show what a member does."""
MOST_TOPICS = 16
"""Of one change; after more, everyone looks at all."""
ALL_MEMBERS = "member/*"
_SHOWN = frozenset(
    {"status", "since", "waiting_for", "waiting_since", "stuck_since", "error", "interrupted", "turns", "cost_usd"}
    | {"used", "limit", "runs_on", "unconfined"}
)
"""Fields that change with all that a member does. Other hosts only have to know that it is there."""
_VERSIONS = f"""
    select 'member', name, version from member where team = %(team)s and doc <> ''
    union all select 'request', id, version from request where team = %(team)s and doc <> ''
    union all select 'team', coalesce({bounded("doc", LARGEST_REST)}, ''), 0 from team where id = %(team)s
"""
"""Of what was removed, a row without a document is left."""
_Changes = dict[RowTable[Any], dict[str, Change[Any]]]
_Saved = tuple[dict[str, Found[Member]], dict[str, Found[Request]]]
logger = logging.getLogger(__name__)


class RosterRows:
    """A `RosterStore`."""

    name = "the roster in the database"
    is_by_row = True
    problem = ""

    def __init__(
        self,
        team: Team,
        fence: Fence,
        newest: Newest,
        path: Path,
        warn: Callable[[str], None] = lambda text: None,
        copy_seconds: float = COPY_SECONDS,
    ) -> None:
        """`path` is that of a `config.json` that is kept as a copy. `warn` reports a row that does not count, once."""
        self._team = team
        self._fence = fence
        self._copy = _Copy(path, copy_seconds)
        self._warn = warn
        self._warned: set[str] = set()
        self._members, self._requests = RowTable(MEMBERS, team, newest), RowTable(REQUESTS, team, newest)
        self._doc = "{}"

    def load(self) -> TeamConfig:
        self._members.forget(expects_known=True)
        self._requests.forget(expects_known=False)
        self._doc = "{}"
        team = self.fresh(TeamConfig()) or TeamConfig()
        self._copy.put(team, at_once=True)
        return team

    def fresh(self, known: TeamConfig, topics: Collection[str] = ()) -> TeamConfig | None:
        names, doc = self._changed() if not topics or ALL_MEMBERS in topics else (topics, self._doc)
        members = self._members.look(_keys(self._members, names))
        requests = self._requests.look(_keys(self._requests, names))
        if not members and not requests and doc == self._doc:
            return None
        team = known._replace(
            members=self._taken(self._members, known.members, members),
            requests=self._taken(self._requests, known.requests, requests),
        )
        if doc != self._doc:
            self._doc = doc
            rest = decode_line(doc.encode()) or {}
            team = team._replace(name=str(rest.pop("team_name", TEAM_NAME)), unknown=rest)
        self._copy.put(team)
        return team

    def is_current(self) -> bool:
        names, doc = self._changed()
        return not names and doc == self._doc

    def save(self, before: TeamConfig, after: TeamConfig, must: Collection[str]) -> TeamConfig:
        changes: _Changes = {
            self._members: MEMBERS.changes(before.members, after.members),
            self._requests: REQUESTS.changes(before.requests, after.requests),
        }
        doc = json.dumps({"team_name": after.name, **after.unknown}) if _rest(before) != _rest(after) else self._doc
        if any(changes.values()) or doc != self._doc:
            topics = self._topics(changes)
            found = self._save_one(changes, doc, topics)
            if found is None:
                found = self._team.database.run(lambda cursor: self._save_all(cursor, changes, doc, must), *topics)
            self._doc = doc
            after = self._merged_after(after, *found)
        self._copy.put(after)
        return after

    def _topics(self, changes: _Changes) -> list[Topic]:
        """Whom these changes concern. The host of the lead shows everything; a moment later will do for that."""
        topics: list[Topic] = []
        for table, changed in changes.items():
            for key, change in changed.items():
                if not self._is_shown(change):
                    topics.append(self._team.topic(f"{table.name}/{key}"))
                elif not self._fence.holds(LEAD):
                    topics.append(self._team.lead_topic(f"{table.name}/{key}", SHOWN_SECONDS))
        return topics if len(topics) <= MOST_TOPICS else [self._team.topic(ALL_MEMBERS)]

    def _is_shown(self, change: Change[Any]) -> bool:
        """Whether the host that runs a member has changed only what others need to show."""
        was, wanted = change
        if not isinstance(was, Member) or not isinstance(wanted, Member) or was.is_active != wanted.is_active:
            return False
        is_own = self._fence.holds(was.name) or (self._fence.holds(LEAD) and not was.host)
        return is_own and wanted.changed_from(was) <= _SHOWN

    def _save_one(self, changes: _Changes, doc: str, topics: list[Topic]) -> _Saved | None:
        """The usual case, in one statement: a single row changes, which nobody else has changed. None if it is not."""
        items = [(table, item) for table, changed in changes.items() for item in changed.items()]
        if len(items) != 1 or doc != self._doc:
            return None
        [(table, (key, change))] = items
        wanted, version = change.wanted, table.next_version(key)
        if wanted is None:
            return None
        try:
            lease = self._fence.holder(table.kind.about(wanted))
        except LeaseLost:
            return None
        replacing = table.replacing(lease, key, table.version(key), version, wanted)
        if not self._team.database.fetch(*replacing, *topics):
            return None
        found = {key: Found(version, wanted)}
        return (found, {}) if table is self._members else ({}, found)

    def _save_all(self, cursor: Cursor[Any], changes: _Changes, doc: str, must: Collection[str]) -> _Saved:
        if doc != self._doc:
            self._fence.check(cursor, self._fence.holder(LEAD)[0])
            cursor.execute("update team set doc = %s where id = %s", (doc, self._team.id))
        saving = Saving(cursor, self._fence, must)
        return (
            saving.write(self._members, changes[self._members]),
            saving.write(self._requests, changes[self._requests]),
        )

    def _merged_after(
        self,
        after: TeamConfig,
        found_members: Mapping[str, Found[Member]],
        found_requests: Mapping[str, Found[Request]],
    ) -> TeamConfig:
        """The same object, if what was written is what was wanted."""
        members = self._taken(self._members, after.members, found_members)
        requests = self._taken(self._requests, after.requests, found_requests)
        if is_same(members, after.members) and is_same(requests, after.requests):
            return after
        return after._replace(members=members, requests=requests)

    def _changed(self) -> tuple[list[str], str]:
        """The topics of all rows of which this process does not know the version, and the rest of the document."""
        rows = self._team.database.fetch(_VERSIONS, {"team": self._team.id})
        there = {(table, key): version for table, key, version in rows}
        doc = next((str(key) for table, key, _ in rows if table == "team"), self._doc)
        tables = (self._members, self._requests)
        known = {(table.name, key): version for table in tables for key, version in table.versions.items()}
        differing = [each for each in there.keys() | known.keys() if there.get(each) != known.get(each)]
        return [f"{table}/{key}" for table, key in differing if table != "team"], doc

    def _taken(self, table: RowTable[T], known: Iterable[T], found: Mapping[str, Found[T]]) -> tuple[T, ...]:
        for key, row in found.items():
            if row.problem:
                self._report(f"the row of the {table.name} '{key:.40}' in the database does not count: {row.problem}")
        return table.take(known, found)

    def _report(self, problem: str) -> None:
        if problem not in self._warned:
            self._warned.add(problem)
            self._warn(problem)


class _Copy:
    """A file with what the rows hold, for everything that only reads. It may be a moment behind: replacing a file takes
    longer than changing a row."""

    def __init__(self, path: Path, seconds: float) -> None:
        """One write in this time; 0 for each at once."""
        self._path = path
        self._seconds = seconds
        self._busy_seconds = 0.0
        """How much of a processor the last write took."""
        self._lock = threading.Lock()
        self._wanted: TeamConfig | None = None
        self._later = Later(self._write)

    def put(self, team: TeamConfig, at_once: bool = False) -> None:
        with self._lock:
            self._wanted = team
        if at_once or not self._seconds:
            self._write()
        else:
            self._later.soon(max(self._seconds, COPY_PAUSES * self._busy_seconds))

    def _write(self) -> None:
        with self._lock:
            team = self._wanted
            began = time.thread_time()
            try:
                if team is not None and (team.members or team.requests or self._path.exists()):
                    write_atomic(self._path, team.encode(), durable=False)
            except StateError as e:  # the rows are there, so this cannot fail the caller
                logger.warning("the copy of the roster lags behind: %s", e)
            self._busy_seconds = time.thread_time() - began


def _rest(team: TeamConfig) -> tuple[Any, ...]:
    return team.name, team.unknown


def _keys(table: RowTable[Any], topics: Iterable[str]) -> set[str]:
    beginning = f"{table.name}/"
    return {topic.removeprefix(beginning) for topic in topics if topic.startswith(beginning)}
