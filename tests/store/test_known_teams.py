"""Someone who can write to the database does not choose the key of a team."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from teamcli.errors import StateError
from teamcli.store.location import key_path, load_key_of_team, make_key
from tests.store.intruder import Intruder, as_hand

if TYPE_CHECKING:
    from teamcli.store.postgres.team_rows import Team

ROOT = "r" * 40
UID = "0123456789abcdef0123456789abcdef"
PEM = b"-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7\n-----END RSA PRIVATE KEY-----\n"
Open = Callable[..., "Team"]


@pytest.fixture
def home(clean_environment: Path) -> Path:
    return clean_environment


@pytest.fixture
def intruder(postgres_url: str) -> Iterator[Intruder]:
    with closing(Intruder(as_hand(postgres_url))) as intruder:
        yield intruder


@pytest.fixture
def owner(postgres_url: str) -> Iterator[Intruder]:
    with closing(Intruder(postgres_url)) as owner:
        yield owner


@pytest.fixture
def opened(postgres_url: str, home: Path) -> Open:
    from teamcli.cancel import CancelScope
    from teamcli.store.postgres.database import Database
    from teamcli.store.postgres.teams import open_team

    def open_one(name: str = "a", create: bool = True, url: str = postgres_url) -> Team:
        with closing(Database(url, CancelScope(), waits=False)) as database:
            return open_team(url, ROOT, name, create, database)

    return open_one


def view(url: str, name: str = "a") -> None:
    from teamcli.cancel import CancelScope
    from teamcli.store.postgres.database import Database
    from teamcli.store.postgres.teams import view_team

    with closing(Database(url, CancelScope(), waits=False)) as database:
        view_team(database, url, ROOT, name)


@pytest.mark.parametrize("form", ["absolute", "relative"])
def test_no_id_leads_to_another_file(
    opened: Open, intruder: Intruder, home: Path, tmp_path: Path, postgres_url: str, form: str
) -> None:
    opened()
    place = tmp_path / "repository" / "certs"
    place.mkdir(parents=True, mode=0o755)
    (place / "server.key").write_bytes(PEM[:32])
    teams = home / ".teamcli" / "teams"
    uid = str(place / "server") if form == "absolute" else os.path.relpath(place / "server", teams)
    intruder.do("update team set uid = %s", uid)
    with pytest.raises(StateError, match="not the one that this machine knows"):
        opened()
    for each in (home / ".teamcli" / "known-teams").iterdir():  # a machine that has never seen it
        each.unlink()
    with pytest.raises(StateError, match="the id of the team in the database is not one that teamcli has made"):
        opened()
    with pytest.raises(StateError, match="the id of the team in the database is not one that teamcli has made"):
        view(postgres_url)
    assert place.stat().st_mode & 0o777 == 0o755
    assert (place / "server.key").read_bytes() == PEM[:32]


@pytest.mark.parametrize("uid", ["", "../x", "/x", "x" * 32, UID.upper(), UID + "\n", UID[:-1]])
def test_an_id_that_teamcli_would_not_make_names_no_file(tmp_path: Path, uid: str) -> None:
    with pytest.raises(StateError, match="see who writes to it"):
        key_path(tmp_path, uid)
    with pytest.raises(StateError, match="see who writes to it"):
        load_key_of_team(tmp_path, uid, "")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", [PEM, bytes(33), bytes(31), b""])
def test_a_file_that_is_not_as_teamcli_writes_a_key_is_none(tmp_path: Path, content: bytes) -> None:
    make_key(tmp_path, UID)
    key_path(tmp_path, UID).write_bytes(content)
    with pytest.raises(StateError, match="does not have the key"):
        load_key_of_team(tmp_path, UID, "laptop")


@pytest.mark.parametrize("origin", ["x:/dev/null /dev/null; touch /tmp/x #", "-oProxyCommand=x", "$(x)", "a b", "a\nb"])
def test_only_the_name_of_a_machine_gets_into_a_command_to_copy(tmp_path: Path, origin: str) -> None:
    home = tmp_path / "my home" / ".teamcli"
    with pytest.raises(StateError) as refused:
        load_key_of_team(home, UID, origin)
    text = str(refused.value)
    assert origin not in text
    assert "from a machine that has it" in text
    words = shlex.split(text[text.index("(scp ") + 1 : -1])
    assert words == ["scp", f"HOST:.teamcli/teams/{UID}.key", str(home / "teams" / f"{UID}.key")]


def test_a_team_does_not_get_the_key_of_another(opened: Open, intruder: Intruder) -> None:
    first, second = opened("a"), opened("b")
    intruder.do("update team set uid = %s where name = 'a'", UID)
    intruder.do("update team set uid = %s where name = 'b'", first.uid)
    with pytest.raises(StateError, match="the team 'b' has the id of the team 'a'"):
        opened("b")
    intruder.do("update team set uid = %s where name = 'b'", second.uid)
    assert opened("b").key == second.key


def test_a_team_that_takes_the_name_of_another_is_not_used(opened: Open, intruder: Intruder) -> None:
    for name in ("a", "b"):
        opened(name)
    intruder.do("update team set name = 'c' where name = 'a'")
    intruder.do("update team set name = 'a' where name = 'b'")
    with pytest.raises(StateError, match="see who writes to the database"):
        opened("a")


def test_an_earlier_team_does_not_come_back(opened: Open, intruder: Intruder, owner: Intruder) -> None:
    first = opened()
    owner.do("delete from team")
    second = opened()
    assert second.uid != first.uid
    intruder.do("update team set uid = %s", first.uid)
    with pytest.raises(StateError, match="not the one that this machine knows by that name"):
        opened(create=False)


def test_a_team_that_was_created_again_elsewhere_is_used_after_the_file_that_is_named_is_gone(
    opened: Open, owner: Intruder, home: Path
) -> None:
    first = opened()
    owner.do("update team set uid = %s", UID)
    make_key(home / ".teamcli", UID)
    with pytest.raises(StateError, match="if it was deleted and created again") as refused:
        opened()
    file = home / ".teamcli" / "known-teams" / f"{first.uid}.json"
    assert f"delete {file};" in str(refused.value)
    file.unlink()
    assert opened().uid == UID


def test_teams_of_one_name_in_two_databases_are_both_known(
    opened: Open, postgres_url: str, empty_postgres_url: str
) -> None:
    import psycopg

    from teamcli.store.postgres.schema import migrate

    with psycopg.connect(empty_postgres_url) as connection, connection.cursor() as cursor:
        migrate(cursor)
    uids = [opened(url=url).uid for url in (postgres_url, empty_postgres_url) * 2]
    assert uids[:2] == uids[2:]


def test_another_user_of_the_same_database_is_no_other_database(
    opened: Open, postgres_url: str, intruder: Intruder
) -> None:
    opened()
    intruder.do("update team set uid = %s", UID)
    with pytest.raises(StateError, match="not the one that this machine knows"):
        opened(url=as_hand(postgres_url))


def test_a_home_that_cannot_remember_stops_nobody(opened: Open, home: Path) -> None:
    team = opened()
    known = home / ".teamcli" / "known-teams"
    for each in known.iterdir():
        each.unlink()
    known.rmdir()
    known.write_text("in the way")
    assert opened().key == team.key
