"""The roles that `teamcli store roles` makes: each can do its work, and no more."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from teamcli.cancel import CancelScope
from teamcli.errors import StateError
from teamcli.store.postgres.database import Database
from teamcli.store.postgres.newest import Newest
from teamcli.store.postgres.roles import role_script
from teamcli.store.postgres.roster import RosterRows
from teamcli.store.postgres.team_rows import Fence, Team
from teamcli.store.postgres.teams import summaries
from teamcli.team.message import Message, MessageType, new_id
from teamcli.team.roster import Member, Roster, Status
from tests.support.postgres import Server, hold_lease, open_test_team

Act = Callable[[Any], Any]


def sql(statement: str) -> Act:
    return lambda cursor: cursor.execute(statement)


@pytest.fixture(scope="module")
def roles(postgres_server: Server) -> Iterator[dict[str, Database]]:
    """A connection of the owner, of a worker and of a viewer to a database with one team."""
    name = f"roles_{secrets.token_hex(4)}"
    admin = Database(postgres_server.url(), CancelScope(), waits=False)
    owner, worker, viewer = (
        Database(postgres_server.url(name, user), CancelScope(), waits=False)
        for user in ("postgres", f"{name}_worker", f"{name}_viewer")
    )
    _alone(postgres_server, f"create database {name} template migrated")
    for _ in range(2):  # it may be run again after a migration
        owner.run(lambda cursor: cursor.execute(role_script().encode()))
    for kind in ("worker", "viewer"):
        admin.run(sql(f"create role {name}_{kind} login in role teamcli_{kind}"))
    open_test_team(postgres_server.url(name), "first").database.close()
    yield {"owner": owner, "teamcli_worker": worker, "teamcli_viewer": viewer}
    for database in (owner, worker, viewer):
        database.close()
    admin.run(sql(f"drop role {name}_worker, {name}_viewer"))
    admin.close()


def _alone(server: Server, statement: str) -> None:
    """Outside of a transaction."""
    import psycopg

    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(statement.encode())


def test_a_viewer_sees_the_teams(roles: dict[str, Database]) -> None:
    (found,) = roles["teamcli_viewer"].run(summaries)
    assert found.record.name == "first"


@pytest.mark.parametrize("table", ["message", "member", "transcript", "task", "lease", "host", "document", "meta"])
def test_a_viewer_changes_nothing(roles: dict[str, Database], table: str) -> None:
    with pytest.raises(StateError, match="permission denied"):
        roles["teamcli_viewer"].run(sql(f"delete from {table}"))


def test_a_worker_creates_a_team_and_hosts_it(roles: dict[str, Database]) -> None:
    from teamcli.store.postgres.bus import PostgresBus
    from teamcli.store.postgres.leases import Host

    def create(cursor: Any) -> tuple[int, str]:
        cursor.execute("insert into team (uid, root, name) values (%s, 'r', 'second') returning id, uid", ("0" * 32,))
        row = cursor.fetchone()
        return row[0], row[1]

    database = roles["teamcli_worker"]
    team = Team(database, *database.run(create), b"k" * 32)
    host = Host(team, "h", 1, Fence(team))
    host.join()
    assert host.take("alice")
    bus = PostgresBus(team, Fence(team), Newest(), None)  # type: ignore[arg-type]
    assert bus.send(Message(MessageType.MESSAGE, "user", "alice", "x", 1.0, new_id()))


def test_a_worker_deletes_what_a_team_removes_in_its_work(roles: dict[str, Database]) -> None:
    roles["teamcli_worker"].run(sql("delete from question"))
    assert roles["teamcli_worker"].run(lambda cursor: cursor.execute("select 1 from question").fetchall()) == []


def test_a_worker_forgets_a_member(roles: dict[str, Database], tmp_path: Path) -> None:
    database = roles["teamcli_worker"]

    def create(cursor: Any) -> int:
        cursor.execute("insert into team (uid, root, name) values (%s, 'r', 'third') returning id", ("1" * 32,))
        return int(cursor.fetchone()[0])

    team = Team(database, database.run(create), "1" * 32, b"k" * 32)
    store = RosterRows(team, hold_lease(team, "lead"), Newest(), tmp_path / "config.json", copy_seconds=0)
    roster = Roster(store)
    roster.add(Member("alice", "coder", Status.SHUTDOWN))
    roster.forget("alice")
    assert store.load().members == ()


@pytest.mark.parametrize(
    "table", ["message", "transcript", "lease", "team", "inbox", "event", "host", "member", "request", "task"]
)
def test_a_worker_deletes_nothing_that_a_team_must_not_lose(roles: dict[str, Database], table: str) -> None:
    with pytest.raises(StateError, match="permission denied"):
        roles["teamcli_worker"].run(sql(f"delete from {table}"))


@pytest.mark.parametrize("statement", ["update meta set version = 9", "create table x (y int)", "drop table message"])
def test_a_worker_does_not_change_the_tables(roles: dict[str, Database], statement: str) -> None:
    with pytest.raises(StateError):
        roles["teamcli_worker"].run(sql(statement))


@pytest.mark.parametrize("table", ["message", "transcript", "event"])
def test_a_worker_does_not_change_what_was_said_and_done(roles: dict[str, Database], table: str) -> None:
    with pytest.raises(StateError, match="permission denied"):
        roles["teamcli_worker"].run(sql(f"update {table} set team = team"))


def test_rights_that_an_earlier_script_gave_are_taken_back(roles: dict[str, Database]) -> None:
    roles["owner"].run(sql("grant update, delete on message to teamcli_worker"))
    roles["owner"].run(lambda cursor: cursor.execute(role_script().encode()))
    with pytest.raises(StateError, match="permission denied"):
        roles["teamcli_worker"].run(sql("update message set body = ''"))
