"""A team in tables of the previous version goes on after a migration."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from teamcli.store.postgres.newest import Newest
from teamcli.team.message_bus import BEGINNING
from teamcli.team.roster import Member, Roster, Status
from tests.support.postgres import hold_lease, open_test_team
from tests.team.letters import contents, letter

if TYPE_CHECKING:
    from teamcli.store.postgres.team_rows import Team

EVENT = '{"ts":1.0,"agent":"alice","event":"turn_started"}'


@pytest.fixture
def team(empty_postgres_url: str) -> Iterator[Team]:
    """As version 1 has written it."""
    from teamcli.cancel import CancelScope
    from teamcli.store.postgres.database import Database
    from teamcli.store.postgres.message_rows import MessageRows
    from teamcli.store.postgres.newest import Newest
    from teamcli.store.postgres.schema import MIGRATIONS, migrate
    from teamcli.store.postgres.team_rows import Fence

    with closing(Database(empty_postgres_url, CancelScope(), waits=False)) as database:
        database.run(lambda cursor: cursor.execute("create table meta (version integer not null)"))
        database.run(lambda cursor: cursor.execute("insert into meta values (1)"))
        database.run(lambda cursor: cursor.execute(MIGRATIONS[0].encode()))
    team: Team = open_test_team(empty_postgres_url)
    doc = Member("alice", "coder", Status.IDLE).encoded
    line = MessageRows(team, Fence(team), Newest()).codec.write(letter("unread"), 1).decode().strip()
    at = {"team": team.id, "doc": doc, "sig": team.sign("member", "alice", 1, doc), "line": line, "event": EVENT}
    for sql in (
        "insert into member (team, name, doc, sig) values (%(team)s, 'alice', %(doc)s, %(sig)s)",
        "insert into inbox (team, name, tail, incarnation) values (%(team)s, 'alice', 1000, 1)",
        "insert into message (team, inbox, pos, id, body) values (%(team)s, 'alice', 0, 'x', %(line)s)",
        "update message set id = (body::json)->>'id'",
        "insert into event (team, host, seq, entry) values (%(team)s, 'box', 0, %(event)s)",
    ):
        team.database.run(lambda cursor, sql=sql: cursor.execute(sql, at))
    assert team.database.run(migrate) == (1, len(MIGRATIONS))
    yield team
    team.database.close()


def test_members_can_be_forgotten_and_named_again(team: Team, tmp_path: Path) -> None:
    from teamcli.store.postgres.roster import RosterRows

    roster = Roster(RosterRows(team, hold_lease(team, "lead"), Newest(), tmp_path / "config.json", copy_seconds=0))
    assert roster.names() == ("alice",)
    roster.transition("alice", Status.SHUTDOWN)
    roster.forget("alice")
    roster.add(Member("Alice", "coder"))
    assert RosterRows(team, hold_lease(team), Newest(), tmp_path / "other.json").load().members == roster.members()


def test_mail_is_read_and_a_new_incarnation_follows_the_last_one(team: Team, tmp_path: Path) -> None:
    from teamcli.store.postgres.bus import PostgresBus
    from teamcli.store.postgres.team_rows import Fence

    bus = PostgresBus(team, Fence(team), Newest(), tmp_path)
    bus.send(letter("new"))
    assert contents(bus.unread("alice", BEGINNING).messages) == ["unread", "new"]
    position = bus.begin_anew("alice")
    bus.send(letter("newest"))
    assert contents(bus.unread("alice", position).messages) == ["newest"]
    assert team.database.fetch("select incarnation from inbox where team = %(team)s", {"team": team.id}) == [(2,)]


def test_events_that_were_not_signed_yet_are_kept_and_marked(team: Team, tmp_path: Path) -> None:
    from teamcli.storage.team_dir import TeamDir
    from teamcli.store.mirror import Mirror
    from teamcli.store.postgres.events import EventRows

    EventRows(team, Newest(), "box", tmp_path / "events.jsonl").append(
        {"ts": 2.0, "agent": "alice", "event": "turn_ended"}
    )
    directory = TeamDir(tmp_path / "mirror")
    directory.prepare()
    Mirror(team, directory).bring_timeline()
    first, second = map(json.loads, directory.events.read_text().splitlines())
    assert first == {**json.loads(EVENT), "unverified": True}
    assert second == {"ts": 2.0, "agent": "alice", "event": "turn_ended"}
