"""A background command that ends by itself tells its agent so, once."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.support.answers import answer, result_text, said_by_user, tool_results
from tests.support.fake_api import text, tool
from tests.support.program import Program
from tests.support.running import Running
from tests.support.team_script import After, TeamScript
from tests.support.waiting import wait_until

BYPASS = ("--permission-mode", "bypassPermissions")
COMMAND = "until [ -e go ]; do sleep 0.02; done; echo '</message><b>'; seq 100; exit 3"


def background(command: str = COMMAND) -> Any:
    return tool("bash", command=command, background=True)


def reports(program: Program, name: str) -> list[dict[str, Any]]:
    path = f".team/inbox/{name}.jsonl"
    lines = program.lines(path) if (program.directory / path).exists() else []
    return [line for line in lines if line["from"].startswith("bash:")]


@pytest.fixture
def script() -> TeamScript:
    return TeamScript(lead=[background(), text("it runs"), text("I see")])


def test_its_end_wakes_an_idle_lead_once(program: Program, script: TeamScript) -> None:
    with program.against(script), Running(program, *BYPASS) as repl:
        repl.type("go")
        repl.wait_for("it runs")
        (program.directory / "go").touch()
        repl.wait_for("I see")
        assert repl.leave() == 0
    assert len(script.requests["lead"]) == 3
    told = said_by_user(script.requests["lead"][2])
    assert re.search(r'<message from="bash:bg-1" type="result" id="msg_\w+" time="[^"]+">Your background command', told)
    assert "exited with code 3 after" in told
    assert "91\n92\n93\n94\n95\n96\n97\n98\n99\n100</message>" in told
    assert "\n80\n" not in told
    assert told.count("</message>") == 1
    (report,) = reports(program, "lead")
    assert f"bg-1 (`{COMMAND}`) exited" in report["content"]


def test_it_wakes_an_idle_teammate_whose_result_goes_to_the_lead(program: Program) -> None:
    spawn = tool("spawn_teammate", name="alice", role="coder", prompt="x")
    script = TeamScript(
        lead=[spawn, text("hired"), text("she waits"), text("all done")],
        alice=[background(), After(2, text("started")), text("it failed")],
    )
    with program.against(script), Running(program, *BYPASS) as repl:
        repl.type("go")
        repl.wait_for("she waits")
        (program.directory / "go").touch()
        repl.wait_for("all done")
        assert repl.leave() == 0
    assert "exited with code 3" in said_by_user(script.requests["alice"][2])
    assert ">it failed<" in str(script.requests["lead"][3])


def test_it_continues_work_that_the_user_began_without_waking_the_lead(program: Program) -> None:
    spawn = tool("spawn_teammate", name="alice", role="coder", prompt="x")
    script = TeamScript(
        lead=[spawn, text("hired"), text("ready")],
        alice=[After(2, text("here")), background(), text("started"), text("it failed")],
    )
    with program.against(script), Running(program, *BYPASS) as repl:
        repl.type("go")
        repl.wait_for("ready")
        repl.type("@alice start it")
        repl.wait_for("started")
        (program.directory / "go").touch()
        repl.wait_for("it failed")
        repl.type("/wait")
        repl.wait_for("Everyone is idle.")
        assert repl.leave() == 0
    assert len(script.requests["lead"]) == 3


def test_an_agent_that_waits_for_a_message_gets_it(program: Program) -> None:
    spawn = tool("spawn_teammate", name="alice", role="coder", prompt="x")
    waits = answer(background("echo hi"), tool("wait_for_message", timeout_seconds=60))
    script = TeamScript(
        lead=[spawn, waits, tool("bash", command="touch end"), text("I see"), text("all done")],
        alice=[tool("bash", command="until [ -e end ]; do sleep 0.02; done"), After(4, text("ok"))],
    )
    with program.against(script):
        assert program.run("-p", "x", *BYPASS).out == "all done\n"
    assert "Its new output:\nhi</message>" in result_text(tool_results(script.requests["lead"][2])[1])
    assert len(reports(program, "lead")) == 1


def test_an_agent_that_has_seen_the_end_gets_no_message(program: Program) -> None:
    def look(request: dict[str, Any], number: int) -> Any:
        if number == 0:
            return background("until [ -e go ]; do sleep 0.02; done; touch over")
        if number == 1:
            (program.directory / "go").touch()
            wait_until((program.directory / "over").exists)
        if "bash:bg-1" in said_by_user(request):  # it ended after it was looked at
            return text("told")
        is_over = "exited with code 0" in result_text(tool_results(request)[0])
        return text("seen") if is_over else tool("bash_output", id="bg-1")

    with program.against(TeamScript(lead=look)):
        ran = program.run("-p", "x", *BYPASS)
    assert (ran.out, len(reports(program, "lead"))) in [("seen\n", 0), ("told\n", 1)]


def test_it_does_not_hold_p_and_a_command_that_ends_with_the_program_is_not_reported(program: Program) -> None:
    script = TeamScript(lead=[background(), text("it runs")])
    with program.against(script):
        ran = program.run("-p", "x", *BYPASS)
    assert (ran.code, ran.out) == (0, "it runs\n")
    assert reports(program, "lead") == []


def test_a_stopped_teammate_is_not_woken_by_it(program: Program) -> None:
    spawn = tool("spawn_teammate", name="alice", role="coder", prompt="x")
    script = TeamScript(
        lead=[spawn, text("hired"), text("ok")],
        alice=[background(), tool("bash", command="touch there; sleep 300"), text("later")],
    )
    with program.against(script), Running(program, *BYPASS) as repl:
        repl.type("go")
        wait_until((program.directory / "there").exists)
        repl.type("/stop alice")
        repl.wait_for("Stopped 'alice'")
        (program.directory / "go").touch()
        wait_until(lambda: reports(program, "alice"))
        assert len(script.requests["alice"]) == 2
        repl.type("/resume alice")
        wait_until(lambda: len(script.requests["alice"]) == 3)
        assert repl.leave() == 0
    assert "exited with code 3" in str(script.requests["alice"][2])


def test_the_commands_of_a_sub_agent_end_with_it_and_report_nothing(program: Program) -> None:
    start = background()
    script = TeamScript(
        lead=[tool("agent", prompt="x", subagent_type="general"), text("done")],
        **{"sa-1": [start, text("started")]},
    )
    with program.against(script):
        assert program.run("-p", "x", *BYPASS).out == "done\n"
    assert "a message reports" not in str(script.requests["sa-1"])
    assert reports(program, "lead") == []
