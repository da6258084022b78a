"""The benchmarks work: each side of a comparison does its job, and a missed bound is reported."""

from __future__ import annotations

import pytest

from bench import bus, machines, mcp, tasks, team, terminal
from bench.bus import BUS, BY_HAND, Way
from bench.client_run import FLOOR, NAIVE, NAIVE_STREAMING, TEAMCLI, run_client, system_and_tools_characters
from bench.run import Figure, print_table

pytestmark = pytest.mark.soak_only


@pytest.mark.parametrize("client", [FLOOR, NAIVE, NAIVE_STREAMING, TEAMCLI], ids=lambda client: " ".join(client[1:]))
def test_every_client_of_the_benchmark_does_the_turns_it_is_measured_by(client: tuple[str, ...]) -> None:
    run = run_client(client, "turns:2")
    assert len(run.gaps_ms) == 2
    assert all(gap > 0 for gap in run.gaps_ms)
    assert run.peak_memory_mb > 5
    assert system_and_tools_characters(run.first_request) > 100


def test_a_failing_client_yields_no_figure() -> None:
    with pytest.raises(RuntimeError, match="no_such_module"):
        run_client(("-m", "no_such_module"), "hi")


def test_the_table_says_which_bound_is_missed(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([Figure("slow", 30, 10, 2.5, "ms", "floor"), Figure("fast", 20, 10, 2.5, "ms", "floor")])
    lines = capsys.readouterr().out.splitlines()
    assert "3.00" in lines[1]
    assert lines[1].endswith("MISSED")
    assert "2.00" in lines[2]
    assert lines[2].endswith("met")


def test_the_figures_of_a_team_are_measured() -> None:
    counts = team.Counts(wakes=3, workers=2, turns=2, rounds=1, idlers=2, idle_seconds=0.1)
    figures = [Figure(*row) for row in team.rows(counts=counts)]
    assert [figure.unit for figure in figures] == ["ms", "ms", "ms", "%", "KB"]
    assert all(figure.ours > 0 for figure in figures[:3])
    assert all(figure.reference > 0 for figure in figures)


def test_workers_that_never_reach_their_tool_yield_no_figure() -> None:
    with pytest.raises(RuntimeError, match="threads ended with 1"):
        team.run("threads", team.OK, 1, 1)


def test_the_figures_of_a_team_in_a_database_are_measured() -> None:
    if why := machines.why_not():
        pytest.skip(why)
    counts = machines.Counts(wakes=5, sends=5, members=4, turns=2, rounds=1, idlers=4, idle_seconds=0.2, workers=2)
    rows = machines.rows(counts=counts)
    assert len(rows) == 6
    assert all(ours >= 0 for _, ours, *_ in rows)


def test_the_figures_of_the_bus_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bus, "WRITERS", 2)
    assert all(microseconds > 0 for microseconds in bus.compare(rounds=1, messages=3, durable=True))
    assert all(microseconds > 0 for microseconds in bus.growth(3, samples=3))


def test_the_figure_of_mcp_is_measured() -> None:
    assert all(milliseconds > 0 for milliseconds in mcp.compare(calls=3))
    assert all(milliseconds > 0 for milliseconds in mcp.measure_ready(repetitions=1))
    assert mcp.measure_first_request() > 0


def test_the_figures_of_the_task_board_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "PROCESSES", 2)
    assert all(ours > 0 for _, ours, *_ in tasks.rows(quick=True, tasks=5))


@pytest.mark.parametrize("way", [BUS, BY_HAND], ids=["bus", "by hand"])
@pytest.mark.parametrize("durable", [False, True])
def test_both_ways_to_send_that_the_bus_benchmark_compares_carry_every_message(way: Way, durable: bool) -> None:
    assert bus.run(way, messages=3, durable=durable, writers=2) > 0


def test_the_figure_of_the_terminal_is_measured() -> None:
    (row,) = terminal.rows(is_quick=True)
    figure = Figure(*row)
    assert figure.ours > 0
    assert (figure.reference, figure.unit) == (500, "ms")
