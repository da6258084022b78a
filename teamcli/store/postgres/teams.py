"""The teams of a database: finding one, creating it, listing and deleting them."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any, NamedTuple

from psycopg import Cursor

from teamcli.cancel import CancelScope
from teamcli.config.trust import home_dir
from teamcli.errors import StateError, UsageError
from teamcli.store.known_teams import KnownTeams, TeamPlace, database_of
from teamcli.store.location import (
    DEFAULT_TEAM,
    find_key,
    key_path,
    load_key_of_team,
    make_key,
    missing_key,
    new_uid,
    split_team_name,
    this_host,
)
from teamcli.store.postgres.database import Database
from teamcli.store.postgres.schema import check_version
from teamcli.store.postgres.team_rows import Team
from teamcli.team.signing import KEY_BYTES

_LARGE_TABLES = ("message", "transcript", "event", "task", "request", "document")
_PORTION = 1000
ORIGIN = "origin"
"""The document that names the machine on which a team was created, because that one has its key."""


class TeamRecord(NamedTuple):
    """One team as the database lists it."""

    id: int
    uid: str
    root: str
    name: str
    created_on: str


class TeamSummary(NamedTuple):
    record: TeamRecord
    members: int
    messages: int
    active_at: float
    """When something last happened, in seconds."""
    hosts: tuple[str, ...]
    """Those that are alive."""


class ViewedTeam(NamedTuple):
    """A team to look at. It may be on a machine without its key."""

    team: Team
    record: TeamRecord
    has_key: bool
    problem: str
    """What to do to get the key; empty if it is there."""


def open_team(url: str, root: str, name: str, create: bool, database: Database | None = None) -> Team:
    """A team whose key this machine has.

    With `create`, a team that is not there yet is created, and the key with it.

    Raises: StateError, UsageError
    """
    database = database or Database(url, CancelScope(), waits=False)
    database.run(check_version)
    found = database.run(lambda cursor: records(cursor, root, name))
    known = KnownTeams(home_dir())
    if not found and create:
        known.forget(TeamPlace(database_of(url), root, name or DEFAULT_TEAM))  # it was deleted
        found = [_create(database, root, name)]
    elif not found:
        named = f"no team '{name}'" if name else "no team"
        raise UsageError(
            f"the database has {named} of the repository {root[:12]}: start teamcli with this store in a clone first,"
            " or, if this is the wrong repository, use a clone of the team's (teamcli store teams lists them)"
        )
    record = choose(found, root, name)
    place = place_of(url, record)
    known.check(record.uid, place)
    key = load_key_of_team(home_dir(), record.uid, record.created_on)
    known.remember(record.uid, place)
    return Team(database, record.id, record.uid, key, record.name)


def place_of(url: str, record: TeamRecord) -> TeamPlace:
    return TeamPlace(database_of(url), record.root, record.name)


def view_team(database: Database, url: str, root: str, name: str) -> ViewedTeam:
    """A team to look at, also without its key.

    Raises: StateError, UsageError
    """
    database.run(check_version)
    record = find_team(database, root, name)
    home, known, place = home_dir(), KnownTeams(home_dir()), place_of(url, record)
    known.check(record.uid, place)
    if key := find_key(home, record.uid):
        known.remember(record.uid, place)
    problem = "" if key else missing_key(home, record.uid, record.created_on)
    # Without the key nothing can be verified, and with a random one nothing that it signs counts anywhere.
    team = Team(database, record.id, record.uid, key or secrets.token_bytes(KEY_BYTES))
    return ViewedTeam(team, record, key is not None, problem)


def find_team(database: Database, root: str, given: str) -> TeamRecord:
    """A team of a repository; with a name, also the only one of that name anywhere; as NAME@ROOT, that of any
    repository.

    Raises: StateError, UsageError
    """
    name, start = split_team_name(given) if given else ("", "")
    found = [] if start else database.run(lambda cursor: records(cursor, root, name))
    if not found and name:
        root, everywhere = "", database.run(lambda cursor: records(cursor, "", name))
        found = [each for each in everywhere if each.root.startswith(start)]
    return choose(found, root, given)


def choose(found: list[TeamRecord], root: str, name: str) -> TeamRecord:
    """The only team that was found: of a repository, or, without a root, of all.

    Raises: UsageError, which lists the teams if there are several
    """
    if len(found) == 1:
        return found[0]
    here = f" of the repository {root[:12]}" if root else ""
    if not found:
        named = f"no team '{name}'{here}" if name else f"no team{here}"
        raise UsageError(f"the database has {named}; teamcli store teams lists what it has")
    names = ", ".join(sorted(each.name if root else f"{each.name}@{each.root[:12]}" for each in found))
    form = "NAME" if root else "NAME@ROOT"
    raise UsageError(f"the database has several teams{here}: {names}; choose one with --team {form}")


def records(cursor: Cursor[Any], root: str = "", name: str = "") -> list[TeamRecord]:
    """The teams, of one repository or of all, with one name or with any."""
    cursor.execute(
        "select t.id, left(t.uid, 100), left(t.root, 100), left(t.name, 100), left(coalesce(d.body, ''), 300)"
        " from team t"
        " left join document d on d.team = t.id and d.name = %s"
        " where (%s = '' or t.root = %s) and (%s = '' or t.name = %s) order by t.id",
        (ORIGIN, root, root, name, name),
    )
    return [TeamRecord(*row) for row in cursor.fetchall()]


def summaries(cursor: Cursor[Any]) -> list[TeamSummary]:
    found = []
    for record in records(cursor):
        cursor.execute(
            "select (select count(*) from member where team = %(team)s and doc <> ''),"
            " (select count(*) from message where team = %(team)s),"
            " extract(epoch from greatest((select created_at from team where id = %(team)s),"
            " (select max(sent_at) from message where team = %(team)s),"
            " (select max(expires_at) - interval '30 seconds' from host where team = %(team)s"
            " and isfinite(expires_at))))::float8",
            {"team": record.id},
        )
        members, messages, active_at = cursor.fetchone() or (0, 0, 0.0)
        found.append(TeamSummary(record, members, messages, active_at, live_hosts(cursor, record.id)))
    return found


def live_hosts(cursor: Cursor[Any], team: int) -> tuple[str, ...]:
    cursor.execute("select name from host where team = %s and expires_at > clock_timestamp() order by name", (team,))
    return tuple(row[0] for row in cursor.fetchall())


def delete_team(cursor: Cursor[Any], record: TeamRecord) -> None:
    """Raises: StateError, if a host works for it."""
    # A host that joins looks at this row first, so none can come between the look for hosts and the deletion.
    cursor.execute("select 1 from team where id = %s for update", (record.id,))
    refuse_running(cursor, record)
    for table in _LARGE_TABLES:
        _delete_rows(cursor, table, record.id)
    cursor.execute("delete from team where id = %s", (record.id,))


def _delete_rows(cursor: Cursor[Any], table: str, team: int) -> None:
    """In portions: of a large team, a single statement would take too long."""
    with cursor.connection.cursor(f"rows of {table}") as found:
        found.execute(f"select ctid::text from {table} where team = %s".encode(), (team,))
        while rows := found.fetchmany(_PORTION):
            ctids = [ctid for (ctid,) in rows]
            cursor.execute(f"delete from {table} where ctid = any(%s::tid[]) and team = %s".encode(), (ctids, team))


def refuse_running(cursor: Cursor[Any], record: TeamRecord) -> None:
    """Raises: StateError, if a host works for it."""
    if hosts := live_hosts(cursor, record.id):
        raise StateError(
            f"the team '{record.name}' is running on {', '.join(hosts)}: stop teamcli there; a host that died counts "
            "for 30 s"
        )


def _create(database: Database, root: str, name: str) -> TeamRecord:
    """The key comes first: a team without a key could never be used."""
    if not root:
        raise UsageError("a new team belongs to a git repository: use --cwd DIR to name a clone")
    uid, home = new_uid(), home_dir()
    make_key(home, uid)

    def insert(cursor: Cursor[Any]) -> TeamRecord:
        cursor.execute(
            "insert into team (uid, root, name) values (%s, %s, %s) on conflict do nothing",
            (uid, root, name or DEFAULT_TEAM),
        )
        (record,) = records(cursor, root, name or DEFAULT_TEAM)
        if record.uid == uid:
            cursor.execute(
                "insert into document (team, name, body) values (%s, %s, %s) on conflict do nothing",
                (record.id, ORIGIN, this_host()),
            )
        return record._replace(created_on=record.created_on or this_host())

    record = database.run(insert)
    if record.uid != uid:  # another process was first
        Path(key_path(home, uid)).unlink(missing_ok=True)
    return record
