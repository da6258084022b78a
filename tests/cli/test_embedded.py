"""Contract §7 from the outside: with nothing configured, the embedded model does real work."""

from __future__ import annotations

import re

from tests.support.program import Program

BYPASS = ("--permission-mode", "bypassPermissions")


def test_it_does_real_work_without_a_key(program: Program) -> None:
    ran = program.run("-p", "write notes/a.txt: hello there then run cat notes/a.txt", *BYPASS)
    assert ran.code == 0
    assert "hello there" in ran.out
    assert "embedded model" in ran.err
    assert (program.directory / "notes/a.txt").read_text().strip() == "hello there"


def test_what_it_does_not_understand_it_answers_with_what_it_knows(program: Program) -> None:
    ran = program.run("-p", "please make me a sandwich")
    assert ran.code == 1
    for verb in ("run", "read", "write"):
        assert verb in ran.out


def test_offline_wins_over_a_configured_endpoint(program: Program) -> None:
    program.url = "http://127.0.0.1:9"
    ran = program.run("-p", "--offline", "run echo offline", *BYPASS)
    assert ran.code == 0
    assert "offline" in ran.out


def test_a_conversation_can_be_resumed(program: Program) -> None:
    program.run("-p", "write a.txt: one", *BYPASS)
    ran = program.run("-p", "--continue", "read a.txt", *BYPASS)
    assert ran.code == 0
    assert "one" in ran.out


def test_it_costs_nothing(program: Program) -> None:
    ran = program.run("-p", "run true", "--output-format", "json", "--max-budget-usd", "1", *BYPASS)
    assert (ran.code, ran.json["total_cost_usd"]) == (0, 0)


def test_its_help_is_not_reported_as_a_refusal(program: Program) -> None:
    ran = program.run("-p", "sing a song")
    assert ran.code == 1
    assert "refused" not in ran.err


def test_what_help_suggests_works_at_once(program: Program) -> None:
    suggested = re.search(r"Try:\s+teamcli\s+-p\s+'([^']+)'", program.run("--help").out)
    assert suggested
    ran = program.run("-p", " ".join(suggested[1].split()))
    assert ran.code == 0
    assert "hello" in ran.out
