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
from tests.store.conftest import HostMaker

if TYPE_CHECKING:
    from teamcli.store.postgres.team_rows import Team

ROW = {"id": "alice-1", "parent": "alice", "description": "look", "began": 1.0, "by_user": False}


class HostBudgets:
    """The budgets of one host, as the members of a team without any member use them."""

    def __init__(self, team: Team, has_lead: bool) -> None:
        nobody: Any = SimpleNamespace(
            roster=SimpleNamespace(members=tuple, names=tuple),
            agents=SimpleNamespace(teammates=()),
            resume_within_limits=lambda: None,
        )
        self.budgets = Budgets()
        self.shared = SharedBudgets(team, nobody, self.budgets, has_lead)

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
