from __future__ import annotations

import os

import pytest

from tests.support.fake_api import answer, stall_after, text, tool
from tests.support.program import Program


def test_doctor_finds_no_problem_without_a_key(program: Program) -> None:
    ran = program.run("doctor")
    assert ran.code == 0
    assert "BAD" not in ran.out
    assert "embedded" in ran.out
    assert not (program.directory / ".team").exists()


def test_doctor_changes_no_file(program: Program) -> None:
    def files() -> dict[str, bytes]:
        places = (program.directory, program.home)
        return {str(path): path.read_bytes() if path.is_file() else b"" for each in places for path in each.rglob("*")}

    assert program.run("-p", "write a.txt: hello", "--offline", "--permission-mode", "acceptEdits").code == 0
    before = files()
    with program.against([tool("list_teammates")]):
        assert program.run("doctor").code == 0
    assert program.run("doctor", "--explain", "git push").code in (0, 1)
    assert files() == before


def test_doctor_finds_no_problem_with_an_endpoint(program: Program) -> None:
    with program.against([tool("list_teammates")]) as api:
        ran = program.run("doctor")
    assert ran.code == 0
    assert api.url in ran.out
    assert "direct" in ran.out
    assert "ok   model      test-model answers after" in ran.out
    assert "and calls tools" in ran.out
    assert program.key not in ran.out


def test_the_model_is_called_as_an_agent_calls_it(program: Program) -> None:
    program.settings(max_tokens=5000)
    with program.against([tool("list_teammates"), "hello"]) as api:
        program.run("doctor")
        program.run("-p", "hi")
    trial, real = api.requests
    assert (trial["tools"], trial["max_tokens"]) == (real["tools"], 5000)
    assert real["system"][0]["text"].startswith(trial["system"][0]["text"])


def test_a_server_that_drops_tools_is_not_ok(program: Program) -> None:
    with program.against([answer(text("pong"), usage={"input_tokens": 4000})]):
        ran = program.run("doctor")
    assert "?    model      test-model answers" in ran.out
    assert "called no tool" in ran.out
    assert "check that the server passes tools on" in ran.out


def test_a_server_that_cuts_the_prompt_is_not_ok(program: Program) -> None:
    with program.against([answer(text("pong"), usage={"input_tokens": 500})]):
        ran = program.run("doctor")
    assert "it read 500 of about" in ran.out
    assert "longer context" in ran.out


def test_a_model_that_only_talks_is_not_listened_to_for_long(program: Program) -> None:
    with program.against([answer(text("bla " * 1000, pieces=1000), stall_after(900))]):
        assert "called no tool" in program.run("doctor").out


def test_a_rejected_key_is_reported(program: Program) -> None:
    with program.against([], key="another"):
        ran = program.run("doctor")
    assert ran.code == 1
    assert "BAD  model" in ran.out
    assert "ANTHROPIC_API_KEY" in ran.out


def test_an_unreachable_endpoint_and_broken_settings_are_reported(program: Program) -> None:
    program.url = "http://127.0.0.1:9"
    assert "127.0.0.1:9" in program.run("doctor").out
    (program.home / ".teamcli").mkdir()
    (program.home / ".teamcli/settings.json").write_text("{")
    ran = program.run("doctor")
    assert ran.code == 1
    assert "BAD  settings" in ran.out


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("git status -s", "allow: The rule bash(git status:*) allows it."),
        ("git push", "deny: The rule bash(git push:*) denies this call."),
        ("make", "The rule that would allow exactly this: bash(make)"),
        ("git status $X", "write the value out, or use single quotes"),
        ("git status > .git/config", "it changes"),
        ("sudo ls", "deny: Dangerous command blocked"),
        ("echo \x1b[2J", "ask: "),
    ],
)
def test_explain_says_whether_a_command_would_run_and_how_to_write_it(
    program: Program, command: str, said: str
) -> None:
    program.settings(permissions={"allow": ["bash(git status:*)"], "deny": ["bash(git push:*)"]})
    if "$X" in command:  # while a rule denies commands, it counts as denied
        program.settings(permissions={"allow": ["bash(git status:*)"]})
    ran = program.run("doctor", "--explain", command)
    assert ran.code == 0
    assert said in ran.out
    assert "\x1b" not in ran.out


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes anywhere")
def test_a_directory_that_is_not_writable_is_reported(program: Program) -> None:
    program.directory.chmod(0o555)
    ran = program.run("doctor")
    assert ran.code == 1
    assert "BAD  .team" in ran.out
    assert "--no-team" in ran.out
    assert program.run("-p", "list", "--offline").code == 2
    assert program.run("-p", "run true", "--offline", "--no-team", "--allowedTools", "bash").code == 0
