"""Deleting a team: not under a host that is joining, and also if it is large."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from teamcli.errors import StateError
from tests.store.conftest import HostMaker
from tests.support.postgres import expire
from tests.support.waiting import DEADLINE_SECONDS, wait_until

if TYPE_CHECKING:
    from teamcli.store.postgres.team_rows import Team
    from teamcli.store.postgres.teams import TeamRecord

IS_WAITING = (
    "select count(*) from pg_stat_activity"
    " where datname = current_database() and wait_event_type = 'Lock' and query like '%for key share%'"
)


def record_of(team: Team) -> TeamRecord:
    from teamcli.store.postgres.teams import records

    return team.database.run(records)[0]


def count(team: Team, table: str) -> int:
    return int(team.database.fetch(f"select count(*) from {table}", {})[0][0])


def test_no_host_joins_a_team_while_it_is_deleted(postgres_url: str, team: Team, make_host: HostMaker) -> None:
    import psycopg

    from teamcli.store.postgres.teams import delete_team

    make_host("one")
    expire(team, "one")
    ended: list[str] = []

    def join() -> None:
        try:
            make_host("one")
            ended.append("has joined")
        except StateError as e:
            ended.append(str(e))

    thread = threading.Thread(target=join)
    record = record_of(team)
    with psycopg.connect(postgres_url) as deleting, psycopg.connect(postgres_url, autocommit=True) as looking:
        deleting.execute("select 1 from team where id = %s for update", (record.id,))  # as the deletion begins
        thread.start()
        wait_until(lambda: ended or looking.execute(IS_WAITING).fetchone() == (1,))
        assert ended == []
        delete_team(deleting.cursor(), record)
    thread.join(DEADLINE_SECONDS)
    assert ended == ["the team is no longer in the database: it was deleted; start teamcli again"]


def test_a_large_team_is_deleted_in_portions_and_at_once(team: Team) -> None:
    from teamcli.store.postgres.teams import delete_team

    noting = """
        create table noted (rows bigint);
        create function note() returns trigger language plpgsql as
            $$ begin insert into noted select count(*) from gone; return null; end $$;
        create trigger note after delete on transcript referencing old table as gone execute function note();
    """
    fill = """
        insert into transcript (team, agent, incarnation, seq, epoch, entry, sig)
        select id, 'alice', 1, generate_series(1, 2500), 1, 'x', '' from team
    """
    record = record_of(team)
    for sql in (noting, fill):
        team.database.run(lambda cursor, sql=sql: cursor.execute(sql.encode()))

    def fail(cursor: object) -> None:
        delete_team(cursor, record)  # type: ignore[arg-type]
        raise KeyError("a crash")

    try:
        with pytest.raises(KeyError):
            team.database.run(fail)
        assert count(team, "transcript") == 2500
        team.database.run(lambda cursor: delete_team(cursor, record))
        portions = [rows for (rows,) in team.database.fetch("select rows from noted where rows > 0", {})]
        assert portions == [1000, 1000, 500]
        assert count(team, "transcript") == 0
        assert count(team, "team") == 0
    finally:
        team.database.run(lambda cursor: cursor.execute(b"drop trigger note on transcript; drop function note"))
        team.database.run(lambda cursor: cursor.execute(b"drop table noted"))
