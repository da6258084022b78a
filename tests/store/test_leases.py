"""Which host runs which agent."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from teamcli.errors import ConfigError, LeaseLost, StateError
from teamcli.team.host_row import HostRow
from tests.store.conftest import HostMaker
from tests.support.postgres import expire
from tests.support.waiting import DEADLINE_SECONDS, wait_until

if TYPE_CHECKING:
    from teamcli.store.postgres.leases import Host
    from teamcli.store.postgres.team_rows import Fence, Team


def fence_of(host: Any) -> Fence:
    fence: Fence = host._fence
    return fence


def write(team: Team, host: Host, agent: str) -> int:
    """What every write for an agent does first."""
    return team.database.run(lambda cursor: fence_of(host).check(cursor, agent))


def test_an_agent_runs_on_one_host(team: Team, make_host: HostMaker) -> None:
    one, two = make_host("one"), make_host("two")
    assert one.take("alice")
    assert not two.take("alice")
    assert two.holders() == {"alice": "one"}
    assert write(team, one, "alice") == 1


def test_a_host_that_does_not_renew_loses_its_agents_to_others(team: Team, make_host: HostMaker) -> None:
    one, two = make_host("one"), make_host("two")
    one.take("alice")
    expire(team, "one")
    assert two.take("alice")
    assert write(team, two, "alice") == 2
    with pytest.raises(LeaseLost, match="'alice' runs on another host now"):
        write(team, one, "alice")


def test_a_host_that_was_cut_off_keeps_what_nobody_has_taken(team: Team, make_host: HostMaker) -> None:
    one, two = make_host("one"), make_host("two")
    for agent in ("alice", "bob"):
        one.take(agent)
    expire(team, "one")
    two.take("alice")
    assert one.renew() == ["alice"]
    assert not two.take("bob")
    assert write(team, one, "bob") == 1


def test_a_host_that_has_lost_an_agent_writes_nothing_for_it_any_more(team: Team, make_host: HostMaker) -> None:
    one, two = make_host("one"), make_host("two")
    one.take("alice")
    expire(team, "one")
    two.take("alice")
    two.give_up("alice")
    with pytest.raises(LeaseLost):
        write(team, one, "alice")


def test_an_agent_that_was_lost_is_not_taken_again_before_its_threads_have_ended(
    team: Team, make_host: HostMaker
) -> None:
    one, two = make_host("one"), make_host("two")
    one.take("alice")
    expire(team, "one")
    two.take("alice")
    assert one.renew() == ["alice"]
    two.give_up("alice")
    assert not one.take("alice")
    one.forget("alice")
    assert one.take("alice")
    assert write(team, one, "alice") == 3


@pytest.mark.parametrize("is_taken_again", [False, True])
def test_an_agent_that_is_given_up_while_the_host_renews_its_lease_was_not_lost(
    team: Team, make_host: HostMaker, is_taken_again: bool
) -> None:
    one = make_host("one")
    one.take("alice")
    one.take("bob")

    class Meanwhile:
        """The database, and what another thread does right before the next statement."""

        def fetch(self, *arguments: Any) -> Any:
            one._team = team
            one.give_up("alice")
            if is_taken_again:
                one.forget("alice")
                one.take("alice")
                one.give_up("alice")
            expire(team, "one")
            make_host("two").take("bob")
            return team.database.fetch(*arguments)

    meanwhile: Any = Meanwhile()
    one._team = team._replace(database=meanwhile)
    assert one.renew() == ["bob"]


def test_a_thread_of_an_agent_that_was_given_up_writes_nothing(team: Team, make_host: HostMaker) -> None:
    one, two = make_host("one"), make_host("two")
    one.take("alice")
    one.give_up("alice")
    two.take("alice")
    with pytest.raises(LeaseLost):
        write(team, one, "alice")


def test_an_agent_that_is_given_up_is_free_at_once(make_host: HostMaker) -> None:
    one, two = make_host("one"), make_host("two")
    one.take("alice")
    one.give_up("alice")
    assert two.take("alice")


def test_an_agent_that_could_not_be_given_up_is_free_after_the_next_renewal(team: Team, make_host: HostMaker) -> None:
    one, two = make_host("one"), make_host("two")
    one.take("alice")
    team.database.run(lambda cursor: cursor.execute("alter table lease add constraint kept check (host <> '')"))
    try:
        with pytest.raises(StateError, match="the database refuses"):
            one.give_up("alice")
        one.forget("alice")
        assert one.renew() == []
        assert not two.take("alice")
    finally:
        team.database.run(lambda cursor: cursor.execute("alter table lease drop constraint kept"))
    assert one.renew() == []
    assert two.take("alice")


def test_an_agent_that_is_taken_again_after_it_could_not_be_given_up_stays(team: Team, make_host: HostMaker) -> None:
    one, two = make_host("one"), make_host("two")
    one.take("alice")
    team.database.run(lambda cursor: cursor.execute("alter table lease add constraint kept check (host <> '')"))
    try:
        with pytest.raises(StateError, match="the database refuses"):
            one.give_up("alice")
    finally:
        team.database.run(lambda cursor: cursor.execute("alter table lease drop constraint kept"))
    one.forget("alice")
    assert one.take("alice")
    assert one.renew() == []
    assert not two.take("alice")


def test_what_a_host_ran_is_free_as_soon_as_it_has_left(make_host: HostMaker) -> None:
    one, two = make_host("one"), make_host("two")
    one.take("alice")
    one.leave()
    assert two.take("alice")


def test_a_thread_that_outlives_the_leaving_of_its_host_writes_nothing(team: Team, make_host: HostMaker) -> None:
    one = make_host("one")
    one.take("alice")
    one.leave()
    with pytest.raises(LeaseLost):
        write(team, one, "alice")


def test_a_takeover_waits_for_a_write_that_is_under_way(postgres_url: str, team: Team, make_host: HostMaker) -> None:
    import psycopg

    one, two = make_host("one"), make_host("two")
    one.take("alice")
    expire(team, "one")
    with psycopg.connect(postgres_url) as connection, connection.cursor() as cursor:
        assert fence_of(one).check(cursor, "alice") == 1
        with ThreadPoolExecutor() as pool, psycopg.connect(postgres_url, autocommit=True) as looking:
            taken = pool.submit(two.take, "alice")
            wait_until(lambda: looking.execute(WAITING).fetchone() == (1,))
            assert not taken.done()
            connection.commit()
            assert taken.result(DEADLINE_SECONDS)
    assert write(team, two, "alice") == 2


WAITING = (
    "select count(*) from pg_stat_activity"
    " where datname = current_database() and wait_event_type = 'Lock' and query like '%into lease%'"
)


def test_two_processes_cannot_be_the_same_host(make_host: HostMaker) -> None:
    make_host("one")
    with pytest.raises(ConfigError, match="a host named 'one' is running for this team; choose another name"):
        make_host("one")


def test_a_host_joins_although_the_answer_to_its_commit_was_lost(make_host: HostMaker) -> None:
    one = make_host("one")
    one.join()  # the transaction is repeated
    assert one.take("alice")
    assert one.renew() == []


def test_a_host_that_died_on_this_machine_is_replaced_at_once(team: Team, make_host: HostMaker) -> None:
    one = make_host("one")
    one.take("alice")
    dead = subprocess.Popen(["true"])
    dead.wait()
    sql = "update host set doc = jsonb_set(doc::jsonb, '{pid}', %s::text::jsonb)::text where team = %s"
    team.database.run(lambda cursor: cursor.execute(sql, (dead.pid, team.id)))
    again = make_host("one")
    assert again.take("alice")
    with pytest.raises(StateError, match="another process is the host 'one' now"):
        one.renew()


def test_the_hosts_of_a_team_are_listed_with_what_they_run(team: Team, make_host: HostMaker) -> None:
    from teamcli.store.postgres.leases import read_hosts

    one, _ = make_host("one"), make_host("two")
    for agent in ("lead", "alice", "bob"):
        one.take(agent)
    expire(team, "two")
    assert read_hosts(team) == [HostRow("one", True, 4, 2, has_lead=True), HostRow("two", False, 4, 0)]


def test_a_host_that_has_not_renewed_its_lease_is_silent_before_it_counts_as_dead(
    team: Team, make_host: HostMaker
) -> None:
    from teamcli.store.postgres.leases import read_hosts

    def let_pass(seconds: float) -> None:
        sql = "update host set expires_at = expires_at - %s * interval '1 second' where team = %s"
        team.database.run(lambda cursor: cursor.execute(sql, (seconds, team.id)))

    make_host("box")
    assert [(host.is_alive, host.silent_seconds) for host in read_hosts(team)] == [(True, 0.0)]
    let_pass(15)
    (silent,) = read_hosts(team)
    assert silent.is_alive
    assert 15 <= silent.silent_seconds < 30
    let_pass(15)
    assert [(host.is_alive, host.silent_seconds) for host in read_hosts(team)] == [(False, 0.0)]
