"""`/jobs`: what runs in the background can be seen and stopped, and is named on leaving."""

from __future__ import annotations

import signal
from typing import Any

from tests.support.answers import said_by_user
from tests.support.fake_api import text, tool
from tests.support.program import Program
from tests.support.running import Running
from tests.support.team_script import After, TeamScript
from tests.support.waiting import wait_until

BYPASS = ("--permission-mode", "bypassPermissions")
SERVER = "echo 'listening on 8000'; touch up; exec sleep 300"
SPAWN = tool("spawn_teammate", name="alice", role="coder", prompt="x")


def background(command: str = SERVER) -> Any:
    return tool("bash", command=command, background=True)


def is_up(program: Program) -> bool:
    return (program.directory / "up").exists()


def test_a_running_command_is_listed_shown_and_stopped_and_its_agent_learns_that_the_user_did_it(
    program: Program,
) -> None:
    script = TeamScript(
        lead=[SPAWN, text("hired"), text("ready"), text("I see")],
        alice=[background(), After(2, text("it runs")), text("stopped, then")],
    )
    with program.against(script), Running(program, *BYPASS) as repl:
        repl.type("/jobs")
        repl.wait_for("Nothing runs in the background.")
        repl.type("go")
        repl.wait_for("ready")
        wait_until(lambda: is_up(program))
        repl.type("/jobs")
        repl.wait_for("COMMAND")
        repl.wait_for("listening on 8000")
        row = next(line for line in repl.out.splitlines() if line.startswith("bg-1"))
        assert row.split()[1] == "alice"
        repl.type("/jobs bg-1")
        repl.wait_for("The end of its output:\nlistening on 8000")
        repl.type("/jobs stop bg-1")
        repl.wait_for("Stopped bg-1 (alice: echo 'listening on 8000'; touch up; exec sleep 300).")
        repl.wait_for("I see")
        repl.type("/jobs stop bg-1")
        repl.wait_for("bg-1 has ended already.")
        assert repl.leave() == 0
    assert "was stopped by the user after" in said_by_user(script.requests["alice"][2])
    assert "Stopped 1 running" not in repl.out


def test_all_can_be_stopped_at_once(program: Program) -> None:
    script = TeamScript(lead=[background("sleep 301"), background("sleep 302"), text("both run"), text("I see")])
    with program.against(script), Running(program, *BYPASS) as repl:
        repl.type("go")
        repl.wait_for("both run")
        repl.type("/jobs stop all")
        repl.wait_for("Stopped bg-1 (lead: sleep 301).\nStopped bg-2 (lead: sleep 302).")
        repl.type("/jobs stop all")
        repl.wait_for("Nothing runs in the background.")
        assert repl.leave() == 0


def test_mistakes_are_explained(program: Program) -> None:
    with Running(program) as repl:
        repl.type("/jobs bg-9")
        repl.wait_for("there is no job 'bg-9' (running: none)")
        repl.type("/jobs stop")
        repl.wait_for("say which job to stop: /jobs stop ID, or /jobs stop all")
        assert repl.leave() == 0


def test_leaving_names_what_it_stops_and_who_it_interrupts(program: Program) -> None:
    script = TeamScript(
        lead=[SPAWN, text("hired"), text("never")],
        alice=[background(), tool("bash", command="touch there; sleep 300")],
    )
    with program.against(script), Running(program, *BYPASS) as repl:
        repl.type("go")
        repl.wait_for("hired")
        wait_until((program.directory / "there").exists)
        assert repl.leave() == 0
    assert "teamcli: Interrupted: alice. After teamcli --continue, /resume lets teammates continue.\n" in repl.out
    assert (
        "teamcli: Stopped 1 running command:\nteamcli:   alice: echo 'listening on 8000'; touch up; exec sleep 300\n"
        in repl.out
    )


def test_p_names_what_it_stops_on_stderr(program: Program) -> None:
    with program.against([background(), text("it runs")]):
        ran = program.run("-p", "x", *BYPASS)
    assert (ran.code, ran.out) == (0, "it runs\n")
    assert "teamcli: Stopped 1 running command:\nteamcli:   lead: echo 'listening" in ran.err


def test_p_that_is_stopped_by_a_signal_says_who_was_interrupted(program: Program) -> None:
    with program.against([tool("bash", command="touch there; sleep 300")]):
        process = program.start("-p", "x", *BYPASS)
        wait_until((program.directory / "there").exists)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 143
    assert b"teamcli: Interrupted: lead. Resume with: teamcli -p --continue\n" in err


def test_an_ordinary_end_says_nothing_about_it(program: Program) -> None:
    with program.against([text("done")]):
        assert "Interrupted" not in program.run("-p", "x").err
