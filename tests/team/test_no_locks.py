"""A file system without locks, as some network file systems are."""

from __future__ import annotations

import json

import pytest

from tests.support.faults import with_fault
from tests.support.program import Program

NO_LOCKS = json.dumps({"operation": "flock", "how": "ENOLCK"})


@pytest.mark.parametrize("arguments", [("-p", "run true"), ("--continue",)])
def test_the_error_is_one_line_that_says_what_works_without_locks(program: Program, arguments: tuple[str, ...]) -> None:
    ran = with_fault(program, NO_LOCKS).run(*arguments, stdin="")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "lead.lock" in ran.err
    assert "--no-team" in ran.err


def test_no_team_works_without_locks(program: Program) -> None:
    assert with_fault(program, NO_LOCKS).run("-p", "--no-team", "list").code == 0


@pytest.mark.parametrize("arguments", [("team",), ("inbox",), ("log",), ("doctor",), ("sessions",)])
def test_showing_the_team_needs_no_lock(program: Program, arguments: tuple[str, ...]) -> None:
    assert program.run("-p", "spawn alice as coder: list").code == 0
    assert with_fault(program, NO_LOCKS).run(*arguments).code in (0, 1)


def test_a_message_that_cannot_be_written_is_one_line(program: Program) -> None:
    assert program.run("-p", "spawn alice as coder: list").code == 0
    ran = with_fault(program, NO_LOCKS).run("send", "alice", "hi")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "alice.jsonl" in ran.err
