"""What `teamcli doctor` finds out about the store: whether it answers, encryption, the team and its key."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from teamcli.agent.transcript_sessions import list_sessions
from teamcli.cancel import CancelScope
from teamcli.cli.stored_team import StoredTeam
from teamcli.errors import ConfigError, StateError
from teamcli.storage.team_dir import TeamDir
from teamcli.store.location import check_team_name, root_commit, shown_url
from teamcli.store.postgres.database import Database
from teamcli.store.postgres.schema import check_version
from teamcli.store.postgres.teams import records, view_team
from teamcli.text.counting import counted

if TYPE_CHECKING:
    from psycopg import Cursor

# A connection without an address is one on this machine.
_IS_OPEN = """
select not coalesce(s.ssl, false) and inet_client_addr() is not null and not inet_client_addr() <<= '127.0.0.0/8'
from (select 1) as one left join pg_stat_ssl s on s.pid = pg_backend_pid()
"""


class StoreFinding(NamedTuple):
    fine: str
    problem: str
    """What may be a problem; empty if nothing is."""
    members: tuple[str, ...] | None
    """Of the team; None if there is none yet."""


def check_store(url: str, name: str) -> StoreFinding:
    """Raises: ConfigError, StateError, UsageError"""
    database = Database(url, CancelScope(), waits=False)
    try:
        began = time.monotonic()
        database.run(check_version)
        milliseconds = 1000 * (time.monotonic() - began)
        team, members = _check_team(database, url, name)
        is_open = database.run(_is_open)
    finally:
        database.close()
    problem = "the connection is not encrypted: add ?sslmode=verify-full&sslrootcert=system to the URL"
    fine = f"{shown_url(url)} answers after {milliseconds:.0f} ms; {team}"
    return StoreFinding(fine, problem if is_open else "", members)


def _is_open(cursor: Cursor[Any]) -> bool:
    cursor.execute(_IS_OPEN)
    row = cursor.fetchone()
    return bool(row and row[0])


def _check_team(database: Database, url: str, name: str) -> tuple[str, tuple[str, ...] | None]:
    """What is to be said about the team of this repository, and its members."""
    try:
        root = root_commit(Path.cwd())
    except ConfigError as e:
        return f"no team belongs to this directory ({e})", None
    name = check_team_name(name) if name else ""
    if not database.run(lambda cursor: records(cursor, root, name)):
        return "the team of this repository is created at the first start", None
    viewed = view_team(database, url, root, name)
    if not viewed.has_key:
        raise StateError(viewed.problem)
    directory = TeamDir.temporary()
    try:
        team = StoredTeam(viewed, url, directory)
        sessions = counted(len(list_sessions(team.lead_transcript())), "session")
        members = tuple(member.name for member in team.team.members)
    finally:
        directory.discard()
    return f"the team '{viewed.record.name}' and its key are there, with {sessions}", members
