"""Runs that are forks do what a new process of the program does."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.fake_api import text
from tests.support.program import MakeProgram, Program, Ran


@pytest.fixture
def both(program: Program, forked: MakeProgram) -> tuple[Program, Program]:
    return program, forked(program.directory, program.home)


def run_both(programs: tuple[Program, Program], *arguments: str, **options: Any) -> tuple[Ran, Ran]:
    started, fork = (program.run(*arguments, **options) for program in programs)
    return started, fork


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (["--version"], {}),
        (["-p", "say hi", "--offline"], {}),
        (["-p", "--offline"], {"stdin": "say hi"}),
        (["--offline"], {"stdin": "say hi\n/nonsense\n"}),
        (["--nonsense"], {}),
        (["-p", "run env; pwd", "--offline", "--permission-mode", "bypassPermissions"], {"env": {"X": "y z"}}),
    ],
)
def test_output_and_exit_code_are_the_same(
    both: tuple[Program, Program], arguments: list[str], options: dict[str, Any]
) -> None:
    started, fork = run_both(both, *arguments, **options)
    assert fork == started


def test_more_than_a_pipe_holds_goes_in_and_out(both: tuple[Program, Program]) -> None:
    long = "x" * 1_000_000
    _, fork = both
    with fork.against(lambda request, n: text(long)) as api:
        assert fork.run("-p", stdin=long).out == long + "\n"
    assert long in str(api.requests[0]["messages"])


def test_a_variable_that_python_reads_starts_a_new_one(both: tuple[Program, Program]) -> None:
    _, fork = both
    assert fork.run("--version", env={"PYTHONHASHSEED": "nonsense"}).code == 1
