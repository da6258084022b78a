"""Budgets by themselves: what is let through, what waits, what is refused; with real threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from teamcli.agent.budgets import Budgets, chosen_from, used_from
from teamcli.agent.limits import Budget, Meter, PlannedCall, Used, shown
from teamcli.cancel import CancelScope
from teamcli.commands.base import Table
from teamcli.commands.budget import COLUMNS, _rows
from teamcli.config.settings import Allowance, BudgetSettings
from teamcli.errors import Cancelled, LimitReached
from teamcli.llm.types import Usage
from tests.support.waiting import wait_until

COST = 0.3


def call_until_refused(meter: Meter, call: PlannedCall, cost: float, together: Callable[[], object]) -> int:
    """How many calls are let through."""
    count = 0
    while True:
        try:
            with meter.call(call, CancelScope()):
                together()
                meter.book(Usage(output_tokens=1000), 0, cost)
                count += 1
        except LimitReached:
            return count


@pytest.mark.parametrize("most_usd", [COST, 2 * COST, 0.0])
def test_many_at_once_exceed_a_shared_budget_by_no_more_than_one_call(most_usd: float) -> None:
    """Whether the most that a call can use is known, overestimated, or only what others have used."""
    shared = Budget(Allowance(usd=2.0))
    if not most_usd:
        Meter(shared).book(Usage(), 0, COST)
    meters = [Meter(shared, narrower=(shared.new(f"mate{n}"),)) for n in range(8)]
    together = threading.Barrier(8)

    def hurry() -> None:
        with pytest.raises(threading.BrokenBarrierError):  # they may never be eight at once, and break it together
            together.wait(0.01)

    threads = [
        threading.Thread(target=call_until_refused, args=(meter, PlannedCall("m", most_usd), COST, hurry))
        for meter in meters
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 2.0 <= shared.spent_usd < 2.0 + COST + 1e-9


def test_a_number_of_calls_is_never_exceeded_at_all() -> None:
    shared = Budget(Allowance(calls=10))
    counts: list[int] = []

    def work() -> None:
        counts.append(call_until_refused(Meter(shared), PlannedCall("m"), 0.0, lambda: None))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(counts) == 10
    assert shared.used.calls == 10


def test_a_call_that_waits_for_room_can_be_cancelled_and_starts_when_there_is_some() -> None:
    shared = Budget(Allowance(usd=1.0))
    first, second, third = Meter(shared), Meter(shared), Meter(shared)
    scope, ended = CancelScope(), list[str]()

    def wait_in_vain() -> None:
        with pytest.raises(Cancelled), second.call(PlannedCall("m", 0.6), scope):
            pass
        ended.append("cancelled")

    def wait_for_the_first() -> None:
        with third.call(PlannedCall("m", 0.6), CancelScope()):
            ended.append("let through")

    with first.call(PlannedCall("m", 0.6), CancelScope()):
        threads = [threading.Thread(target=wait_in_vain), threading.Thread(target=wait_for_the_first)]
        for thread in threads:
            thread.start()
        scope.cancel()
        threads[0].join()
        assert ended == ["cancelled"]
        first.book(Usage(), 0, 0.1)
    threads[1].join()
    assert ended == ["cancelled", "let through"]


def test_a_wait_for_room_is_reported_until_there_is_some() -> None:
    shared = Budget(Allowance(calls=2))
    shown: list[str] = []

    def show(what: str) -> None:
        with ThreadPoolExecutor(1) as other:  # the callback may look at budgets, from any thread
            assert other.submit(lambda: shared.used.calls).result(30) == 1
        shown.append(what)

    first, second = Meter(shared, on_wait=show), Meter(shared, on_wait=show)
    shared_with = threading.Thread(target=call_until_refused, args=(second, PlannedCall("m"), 0.0, lambda: None))
    first.book(Usage(), 0, 0.0)
    with first.call(PlannedCall("m"), CancelScope()):
        shared_with.start()
        wait_until(lambda: shown == ["room in a budget"])
    wait_until(lambda: shown == ["room in a budget", ""])
    shared_with.join()


def test_no_call_waits_if_there_is_room_for_all() -> None:
    shared = Budget(Allowance(usd=10.0, tokens=100_000))
    meters = [Meter(shared) for _ in range(5)]
    together = threading.Barrier(5)

    def work(meter: Meter) -> None:
        with meter.call(PlannedCall("m", 0.5, 10_000), CancelScope()):
            together.wait(30)

    threads = [threading.Thread(target=work, args=(meter,)) for meter in meters]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not together.broken


def test_the_table_of_budgets_fits_a_narrow_terminal() -> None:
    def lines(*budgets: tuple[str, Budget]) -> list[str]:
        rows = tuple(row for name, budget in budgets for row in _rows(name, budget))
        return Table("", COLUMNS, rows).to_text(60).splitlines()

    usual = lines(("lead", Budget()), ("bob", Budget(Allowance(calls=5))))
    assert usual[1].split(maxsplit=2) == ["lead", "none", "$0.00, 0 calls, 0 tokens"]
    assert usual[2].split() == ["bob", "5", "calls", "5", "calls", "0", "calls"]
    long = lines(("lead", Budget()), ("alexandra-the-second", Budget(Allowance(tokens=20_000_000, usd=10.5))))
    assert max(map(len, long)) <= 60
    assert "  $0.00, 0 calls, 0 tokens" in long  # on its own line


def test_a_model_without_a_price_is_refused_under_a_budget_in_dollars() -> None:
    meter = Meter(Budget(Allowance(usd=1.0)))
    with (
        pytest.raises(LimitReached, match="no price is known for mystery"),
        meter.call(PlannedCall("mystery", None), CancelScope()),
    ):
        pass


def test_time_counts_once_however_many_work_and_ends_their_turns() -> None:
    shared = Budget(Allowance(seconds=0.2))
    turns = [CancelScope(), CancelScope()]
    with Meter(shared).work(turns[0]), Meter(shared).work(turns[1]):
        wait_until(lambda: all(turn.cancelled for turn in turns))
        assert 0.2 <= shared.used.seconds < 30
    before = shared.used.seconds
    assert shared.reached()
    assert shared.used.seconds == before


def test_the_clock_stops_while_the_user_is_asked() -> None:
    meter = Meter(Budget(Allowance(seconds=3600)))
    with meter.work(CancelScope()):
        meter.wait_for_user(True)
        meter.wait_for_user(True)
        meter.wait_for_user(False)
        before = meter.budget.used.seconds
        assert meter.budget.used.seconds == before
        meter.wait_for_user(False)
        wait_until(lambda: meter.budget.used.seconds > before)


def test_the_clock_stops_for_parents_that_wait_for_the_one_that_asks() -> None:
    budgets = Budgets(BudgetSettings(session=Allowance(seconds=3600)))
    lead = budgets.lead_meter("lead", None)
    inner, other = (
        [budgets.subagent_meter(name, above, None, 200, is_waited_for=True) for name, above in chain][-1]
        for chain in ([("sa-1", "lead"), ("sa-2", "sa-1")], [("sa-3", "lead")])
    )
    with lead.work(CancelScope()), inner.work(CancelScope()):
        budgets.wait_for_user("sa-2", True)
        before = lead.own.used.seconds
        assert (lead.own.used.seconds, budgets.session.used.seconds) == (before, budgets.session.used.seconds)
        with other.work(CancelScope()):  # works for the lead, too
            wait_until(lambda: lead.own.used.seconds > before)
        budgets.wait_for_user("sa-2", False)
        before = lead.own.used.seconds
        wait_until(lambda: lead.own.used.seconds > before)


def test_the_clock_runs_for_a_parent_whose_background_sub_agent_asks() -> None:
    budgets = Budgets()
    lead = budgets.lead_meter("lead", None)
    budgets.subagent_meter("sa-1", "lead", None, 200)
    with lead.work(CancelScope()):
        budgets.wait_for_user("sa-1", True)
        before = lead.own.used.seconds
        wait_until(lambda: lead.own.used.seconds > before)


def test_a_raised_limit_moves_the_deadline_and_frees_the_agents_that_reached_it() -> None:
    budget = Budget(Allowance(seconds=3600, calls=1))
    turn, meter = CancelScope(), Meter(budget)
    with meter.work(turn):
        meter.book(Usage(), 0, 0.0)
        assert meter.reached()
        budget.allow(Allowance(calls=2))
        assert not meter.reached()
        budget.allow(Allowance(seconds=0.01))
        wait_until(lambda: turn.cancelled)


def test_a_sub_agent_counts_toward_its_parent_and_all_above() -> None:
    budgets = Budgets()
    budgets.lead_meter("lead", None)
    budgets.member_meter("alice", {}, Used(), None, 200)
    for parent in ("alice", "lead"):
        budgets.subagent_meter(f"sa-{parent}", parent, None, 200).book(Usage(output_tokens=7), 0, 0.5)
    assert [each.used.usd for each in budgets.of_agents().values()] == [0.5, 0.5, 0.5, 0.5]
    assert (budgets.team.spent_usd, budgets.session.spent_usd) == (0.5, 1.0)
    assert set(budgets.counting_for("sa-alice")) == {"alice"}


def test_the_setting_for_one_teammate_wins_over_the_one_for_all() -> None:
    plan = BudgetSettings(teammate=Allowance(usd=1.0, calls=5), agents={"Alice": Allowance(usd=2.0)})
    budgets = Budgets(plan)
    assert budgets.for_member("bob", {}) == Allowance(usd=1.0, calls=5)
    assert budgets.for_member("alice", {}) == Allowance(usd=2.0, calls=5)
    assert budgets.for_member("alice", {"usd": None, "tokens": 7}) == Allowance(None, 7, 5)


def test_a_teammate_hired_again_continues_with_what_was_used_under_its_name() -> None:
    budgets = Budgets()
    budgets.member_meter("alice", {}, Used(usd=1.5), None, 200).book(Usage(), 0, 0.5)
    again = budgets.member_meter("alice", {"usd": 2.0}, Used(), None, 200)
    assert again.own.spent_usd == 2.0
    assert "Its budget of $2.00 is used up" in str(again.reached())


def test_invalid_values_in_a_file_are_ignored() -> None:
    assert used_from({"usd": "1", "tokens": True, "calls": -1, "seconds": 2.5, "x": 1}) == Used(seconds=2.5)
    assert chosen_from({"usd": [], "tokens": None, "calls": 3, "x": 1}) == {"tokens": None, "calls": 3}


@pytest.mark.parametrize(
    ("kind", "amount", "text"),
    [
        ("usd", 2.0, "$2.00"),
        ("usd", 0.1234, "$0.1234"),
        ("tokens", 200_000, "200,000 tokens"),
        ("calls", 1, "1 model call"),
        ("seconds", 90, "90 s"),
        ("seconds", 600, "10 min"),
    ],
)
def test_amounts_are_shown_in_words(kind: str, amount: float, text: str) -> None:
    assert shown(kind, amount) == text
