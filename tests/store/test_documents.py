"""Documents that hosts write for each other: the limits of the budgets, and sub-agents that have not been reported."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from teamcli.agent.budgets import Budgets
from teamcli.app.shared_budgets import SharedBudgets
from teamcli.config.settings import Allowance
from teamcli.errors import LeaseLost
from tests.store.conftest import HostMaker
from tests.support.postgres import expire, hold_lease

if TYPE_CHECKING:
    from teamcli.store.postgres.team_rows import Team

ROW = {"id": "alice-1", "parent": "alice", "description": "look", "began": 1.0, "by_user": False}


class HostBudgets:
    """The budgets of one host, as the members of a team without any member use them."""

    def __init__(self, team: Team, has_lead: bool) -> None:
        """A lead is one that has just taken over."""
        nobody: Any = SimpleNamespace(
            roster=SimpleNamespace(members=tuple, names=tuple),
            agents=SimpleNamespace(teammates=()),
            resume_within_limits=lambda: None,
        )
        self.budgets = Budgets()
        fence = hold_lease(team, *(["lead"] if has_lead else []))
        self.shared = SharedBudgets(team, fence, nobody, self.budgets, has_lead)

    @property
    def calls(self) -> int | None:
        """How many calls the team may make."""
        return self.budgets.team.allowance.calls

    def publish(self, calls: int) -> None:
        self.budgets.team.allow(Allowance(calls=calls))
        self.shared.publish()


def megabytes_for(act: Callable[[], object]) -> float:
    """How much memory this needs."""
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


def forge(team: Team, name: str, size: int) -> None:
    sql = "insert into document (team, name, body) values (%s, %s, repeat('x', %s))"
    team.database.run(lambda cursor: cursor.execute(sql, (team.id, name, size)))


@pytest.mark.parametrize("name", ["budgets", "budgets of a stranger"])
def test_of_the_budgets_no_large_document_is_fetched(team: Team, name: str) -> None:
    worker = HostBudgets(team, has_lead=False)
    forge(team, name, 70_000_000)
    assert megabytes_for(worker.shared.follow) < 10


@pytest.mark.parametrize("name", ["subagents:two:1", "subagents:two:10"])
def test_of_the_sub_agents_of_others_no_large_document_is_fetched(team: Team, make_host: HostMaker, name: str) -> None:
    from teamcli.store.postgres.subagents import SubAgentRows

    rows = SubAgentRows(team, make_host("one"))
    forge(team, name, 70_000_000)
    assert megabytes_for(lambda: rows.take_left(["alice"], lambda left: None)) < 10


def test_a_host_follows_the_limits_of_the_lead(team: Team) -> None:
    lead, worker = HostBudgets(team, has_lead=True), HostBudgets(team, has_lead=False)
    lead.publish(7)
    worker.shared.follow()
    assert worker.calls == 7


def test_sub_agents_that_a_host_has_left_are_reported_once(team: Team, make_host: HostMaker) -> None:
    from teamcli.store.postgres.subagents import SubAgentRows

    one, two = make_host("one"), make_host("two")
    one.take("alice")
    SubAgentRows(team, one).keep([ROW])
    reported: list[Any] = []
    for _ in range(2):
        SubAgentRows(team, two).take_left(["alice"], reported.extend)
    assert reported == [ROW]


def test_a_lead_that_was_replaced_changes_no_limits(team: Team) -> None:
    old, new, worker = (HostBudgets(team, has_lead) for has_lead in (True, True, False))
    new.publish(5)
    with pytest.raises(LeaseLost):
        old.publish(9)
    worker.shared.follow()
    assert worker.calls == 5


def test_a_host_that_has_lost_a_member_does_not_put_its_sub_agents_back(team: Team, make_host: HostMaker) -> None:
    from teamcli.store.postgres.subagents import SubAgentRows

    one, two = make_host("one"), make_host("two")
    for name in ("alice", "bob"):
        one.take(name)
    frozen, of_bob = SubAgentRows(team, one), {**ROW, "id": "bob-1", "parent": "bob"}
    frozen.keep([ROW])
    expire(team, "one")
    two.take("alice")
    reported: list[Any] = []
    SubAgentRows(team, two).take_left(["alice"], reported.extend)
    one.renew()
    frozen.keep([ROW, of_bob])
    SubAgentRows(team, two).take_left(["alice", "bob"], reported.extend)
    assert reported == [ROW, of_bob]


def test_hosts_that_start_often_leave_one_document(team: Team, make_host: HostMaker) -> None:
    from teamcli.store.postgres.subagents import SubAgentRows

    for _ in range(3):
        host = make_host("one")
        host.take("alice")
        rows = SubAgentRows(team, host)
        rows.keep([ROW])
        rows.keep([])
        host.leave()
    count = "select count(*) from document where team = %(team)s and name like 'subagents:%%'"
    assert team.database.fetch(count, {"team": team.id}) == [(1,)]
