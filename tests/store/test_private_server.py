"""The private PostgreSQL server of the tests themselves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psycopg

from tests.support.postgres import ROOT, Server, open_test_team
from tests.support.waiting import wait_until

USER_OF_A_SERVER = """
import sys
from pathlib import Path
from tests.support.postgres import _joined
with _joined(Path(sys.argv[1])) as server:
    print(server.url(), flush=True)
    sys.stdin.read()
"""


def user_of_a_server(place: Path) -> subprocess.Popen[str]:
    line = [sys.executable, "-c", USER_OF_A_SERVER, str(place)]
    return subprocess.Popen(line, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def test_a_test_has_a_database_with_the_tables_and_no_team(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("select count(*) from team").fetchone() == (0,)


def test_the_server_does_not_run_as_root(postgres_server: Server) -> None:
    socket = postgres_server.directory / "pg" / ".s.PGSQL.5432"
    assert socket.stat().st_uid != 0


def test_a_team_is_found_again_by_its_name(postgres_url: str) -> None:
    teams = [open_test_team(postgres_url, name) for name in ("a", "a", "b")]
    for team in teams:
        team.database.close()
    assert teams[0].uid == teams[1].uid
    assert teams[0].uid != teams[2].uid


def test_the_server_ends_with_the_last_of_its_users_also_if_they_are_killed(postgres_server: Server) -> None:
    place = postgres_server.directory.with_name(f"{postgres_server.directory.name}-own")
    first, second = user_of_a_server(place), user_of_a_server(place)
    with first, second:
        assert first.stdout
        assert second.stdout
        urls = {first.stdout.readline(), second.stdout.readline()}
        assert len(urls) == 1
        first.kill()
        first.wait()
        with psycopg.connect(urls.pop().strip()) as connection:
            assert connection.execute("select 1").fetchone() == (1,)
        second.kill()
    wait_until(lambda: not place.exists())


def test_a_server_of_its_own_can_crash_and_keeps_what_was_committed(own_postgres: Server) -> None:
    team = open_test_team(own_postgres.url("migrated"), "a")
    team.database.close()
    own_postgres.restart()
    again = open_test_team(own_postgres.url("migrated"), "a")
    again.database.close()
    assert again.uid == team.uid
