"""`--verbose`: what everyone does, on stderr of `-p` or at the prompt."""

from __future__ import annotations

import json

import pytest

from tests.support.fake_api import answer, text, tool
from tests.support.program import Program
from tests.support.screen import Screen
from tests.support.team_script import After, TeamScript

BYPASS = ("--permission-mode", "bypassPermissions")
SPAWN = tool("spawn_teammate", name="alice", role="coder", prompt="x")
CALLS = (tool("bash", command="ls nope"), tool("bash", command="echo hi"))


@pytest.fixture
def script() -> TeamScript:
    return TeamScript(
        lead=[SPAWN, tool("task_create", subject="Build it"), text("hired"), text("all done")],
        alice=[
            answer(text("I look."), CALLS[0]),
            CALLS[1],
            tool("send_message", to="lead", content="nearly"),
            After(3, text("built")),
        ],
    )


def test_each_step_of_everyone_is_on_stderr_and_stdout_has_only_the_answer(
    program: Program, script: TeamScript
) -> None:
    with program.against(script):
        ran = program.run("-p", "go", "--verbose", *BYPASS)
    assert (ran.code, ran.out) == (0, "all done\n")
    lines = ran.err.splitlines()
    failed = next(number for number, line in enumerate(lines) if line.startswith("  ✗ alice: $ ls nope ("))
    assert lines[failed].endswith(" s, exit code 2)")
    assert "No such file or directory" in lines[failed + 1]
    for expected in (
        "  alice joins the team as coder",
        "  lead: task 1 created: Build it",
        "  alice: I look.",
        "  ✓ alice: $ echo hi",
        "  alice → lead (message): nearly",
        "teamcli: alice → lead (result): built",
    ):
        assert any(line.startswith(expected) for line in lines), (expected, ran.err)


@pytest.mark.parametrize("output_format", ["json", "stream-json"])
def test_json_on_stdout_stays_readable(program: Program, script: TeamScript, output_format: str) -> None:
    with program.against(script):
        ran = program.run("-p", "go", "--verbose", "--output-format", output_format, *BYPASS)
    assert [json.loads(line) for line in ran.out.splitlines()][-1]["result"] == "all done"
    assert "  ✓ alice: $ echo hi" in ran.err


def test_without_it_stderr_that_is_not_a_terminal_has_no_steps(program: Program, script: TeamScript) -> None:
    program.settings(sandbox="off")  # else it says so if there is none
    with program.against(script):
        ran = program.run("-p", "go", *BYPASS)
    assert ran.err == "teamcli: alice → lead (result): built\n"


def test_no_text_controls_the_terminal(program: Program) -> None:
    call = tool("bash", command="printf '\\033[2Jno such x\\n'; exit 1")
    script = TeamScript(lead=[answer(text("\x1b[2Jlook"), call), text("x")])
    with program.against(script):
        ran = program.run("-p", "go", "--verbose", *BYPASS)
    assert "\x1b" not in ran.err


def test_the_prompt_starts_verbose(program: Program) -> None:
    with program.against([tool("bash", command="echo printed")]), Screen(program, "--verbose", *BYPASS) as screen:
        screen.wait_for("Verbose on.")
        screen.type("/verbose o\t")
        screen.wait_for_all("on", "off")
