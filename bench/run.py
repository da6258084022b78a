"""The figures that teamcli promises, as one table. Each is a ratio of two things measured in the same run.

Usage: python -m bench.run [--quick]; the exit code is 1 when a bound is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, TypeVar

from bench.client_run import (
    FLOOR,
    NAIVE,
    NAIVE_STREAMING,
    REPOSITORY,
    TEAMCLI,
    ClientRun,
    client_environment,
    fresh_directory,
    run_client,
    system_and_tools_characters,
)

Result = TypeVar("Result")


@dataclass(frozen=True)
class Figure:
    name: str
    ours: float
    reference: float
    """What `ours` is divided by: another program's figure, or the promise itself if that is absolute."""
    bound: float
    unit: str
    against: str

    @property
    def ratio(self) -> float:
        return self.ours / self.reference

    @property
    def is_met(self) -> bool:
        return self.ours <= self.bound * self.reference


@dataclass(frozen=True)
class Effort:
    """How often things are repeated."""

    starts: int
    one_shots: int
    rounds: int
    long_rounds: int
    long_turns: int
    is_quick: bool = False


FULL = Effort(starts=21, one_shots=7, rounds=7, long_rounds=3, long_turns=500)
QUICK = Effort(starts=7, one_shots=3, rounds=2, long_rounds=1, long_turns=200, is_quick=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.run", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions and a shorter long run: a rough look")
    effort = QUICK if parser.parse_args().quick else FULL
    figures: list[Figure] = []
    measures = (
        start,
        one_shot,
        tool_turns,
        growth,
        four_sleeps,
        cancelling,
        sandbox,
        message_bus,
        tasks,
        team,
        machines,
        mcp,
        terminal,
        worktrees,  # last: the disk is still busy with its files afterwards, and others wait for the disk
    )
    for measure in measures:
        os.sync()  # what the figure before has left to write must not slow this one
        print(f"measuring: {measure.__name__.replace('_', ' ')} …", file=sys.stderr, flush=True)
        figures += measure(effort)
    print_table(figures)
    print_load()
    return 0 if all(figure.is_met for figure in figures) else 1


def start(effort: Effort) -> list[Figure]:
    ours, bare = _alternate(
        effort.starts,
        lambda: _time_python("-m", "teamcli", "--version"),
        lambda: _time_python("-c", "pass"),
    )
    return [Figure("teamcli --version", median(ours), median(bare), 3.0, "ms", "python -c pass")]


def one_shot(effort: Effort) -> list[Figure]:
    ours, naive = _alternate(effort.one_shots, lambda: run_client(TEAMCLI, "hi"), lambda: run_client(NAIVE, "hi"))
    characters = system_and_tools_characters(ours[0].first_request)
    return [
        Figure("-p: first request", _first_request_ms(ours), _first_request_ms(naive), 0.15, "ms", "naive loop"),
        Figure("-p: peak memory", _peak_memory(ours), _peak_memory(naive), 0.8, "MB", "naive loop"),
        Figure("first request: system + tools", characters, 12500, 1.0, "chars", "the promise"),
    ]


def tool_turns(effort: Effort) -> list[Figure]:
    ours, naive, floor = (
        median(gap for run in runs for gap in run.gaps_ms)
        for runs in _alternate(
            effort.rounds,
            lambda: run_client(TEAMCLI, "turns:30"),
            lambda: run_client(NAIVE_STREAMING, "turns:30"),
            lambda: run_client(FLOOR, "turns:30"),
        )
    )
    return [
        Figure("tool turn, 30 turns", ours, naive, 0.9, "ms", "naive loop, streaming"),
        Figure("tool turn, 30 turns", ours, floor, 1.5, "ms", "floor, same fsyncs"),
    ]


def growth(effort: Effort) -> list[Figure]:
    """How much longer a turn takes at the end of a long conversation than near its beginning."""
    script = f"turns:{effort.long_turns}"
    ours, floor = _alternate(effort.long_rounds, lambda: run_client(TEAMCLI, script), lambda: run_client(FLOOR, script))
    name = f"growth of a turn, 20 → {effort.long_turns}"
    return [Figure(name, median(map(_growth_ms, ours)), median(map(_growth_ms, floor)), 1.0, "ms", "floor")]


def four_sleeps(effort: Effort) -> list[Figure]:
    gaps = [run_client(TEAMCLI, "sleeps:4").gaps_ms[0] for _ in range(3)]
    return [Figure("four `sleep 1` in one answer", median(gaps), 1000, 1.05, "ms", "one second")]


def cancelling(effort: Effort) -> list[Figure]:
    found = _measure_aside("bench.cancel")
    return [Figure(f"cancelling {name}", ms, 100, 1.0, "ms", "the promise") for name, ms in found.items()]


def sandbox(effort: Effort) -> list[Figure]:
    """What it adds; empty without a sandbox."""
    found = _measure_aside("bench.sandbox")
    promises = {"a command": 25, "the first command of a program": 250}
    return [Figure(f"sandbox: {name}", ms, promises[name], 1.0, "ms", "the promise") for name, ms in found.items()]


def worktrees(effort: Effort) -> list[Figure]:
    """Of a member with its own checkout; empty without a sandbox."""
    found = _measure_aside("bench.worktrees", *(["--quick"] if effort.is_quick else []))
    names = {
        "make": ("a checkout of 20,000 files", 1.5, "git worktree add"),
        "command": ("a command in a checkout", 1.05, "one outside"),
    }
    figures = [(*found[key], *name) for key, name in names.items() if key in found]
    return [Figure(name, ours, other, bound, "ms", against) for ours, other, name, bound, against in figures]


def _measure_aside(module: str, *options: str) -> dict[str, Any]:
    """In a separate process, so that this one stays small (see client_run)."""
    with fresh_directory() as directory:
        command = [sys.executable, "-m", module, str(directory / "work"), *options]
        environment = client_environment(directory, "")
        done = subprocess.run(command, env=environment, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def message_bus(effort: Effort) -> list[Figure]:
    from bench import bus  # late: it loads a part of teamcli, and this process stays small (see client_run)

    return [Figure(*row) for row in bus.rows(effort.is_quick)]


def tasks(effort: Effort) -> list[Figure]:
    from bench.tasks import rows

    return [Figure(*row) for row in rows(effort.is_quick)]


def team(effort: Effort) -> list[Figure]:
    from bench.team import rows

    return [Figure(*row) for row in rows(effort.is_quick)]


def machines(effort: Effort) -> list[Figure]:
    """Of a team in a database; empty without a server."""
    from bench.machines import rows

    return [Figure(*row) for row in rows(effort.is_quick)]


def mcp(effort: Effort) -> list[Figure]:
    from bench.mcp import rows

    return [Figure(*row) for row in rows(effort.is_quick)]


def terminal(effort: Effort) -> list[Figure]:
    from bench import prompt, terminal, watch

    measured = [each.rows(effort.is_quick) for each in (terminal, prompt, watch)]
    return [Figure(*row) for rows in measured for row in rows]


def print_table(figures: Sequence[Figure]) -> None:
    header = ("figure", "teamcli", "reference", "against", "ratio", "bound", "")
    rows = [header, *(_row(figure) for figure in figures)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def print_load() -> None:
    """A busy machine stretches whatever switches between processes most: its table means little."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    remark = "" if load <= cores else "; other programs were busy, so measure again before you trust this table"
    print(f"load {load:.1f} on {cores} cores{remark}")


def _row(figure: Figure) -> tuple[str, ...]:
    return (
        figure.name,
        f"{figure.ours:,.1f} {figure.unit}",
        f"{figure.reference:,.1f} {figure.unit}",
        figure.against,
        f"{figure.ratio:.2f}",
        f"≤ {figure.bound:g}",
        "met" if figure.is_met else "MISSED",
    )


def _alternate(times: int, *measures: Callable[[], Result]) -> list[list[Result]]:
    """Alternate, so that a busy moment of the machine affects all; the first of each only warms caches."""
    for measure in measures:
        measure()
    rounds = [[measure() for measure in measures] for _ in range(times)]
    return [list(column) for column in zip(*rounds, strict=True)]


def _first_request_ms(runs: Sequence[ClientRun]) -> float:
    return median(run.first_request_seconds for run in runs) * 1000


def _peak_memory(runs: Sequence[ClientRun]) -> float:
    return median(run.peak_memory_mb for run in runs)


def _growth_ms(run: ClientRun) -> float:
    return median(run.gaps_ms[-30:]) - median(run.gaps_ms[10:30])


def _time_python(*arguments: str) -> float:
    return _time_command(sys.executable, *arguments)


def _time_command(*command: str) -> float:
    """How long it runs, in ms."""
    started = time.monotonic()
    subprocess.run(command, cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
    return (time.monotonic() - started) * 1000


if __name__ == "__main__":
    sys.exit(main())
