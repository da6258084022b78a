"""What runs in the background, at a terminal: counted in the status bar, stopped, and named on leaving."""

from __future__ import annotations

import pytest

from tests.support.fake_api import text, tool
from tests.support.program import Program
from tests.support.screen import Screen
from tests.support.team_script import TeamScript

BYPASS = ("--permission-mode", "bypassPermissions")
SPAWN = tool("spawn_teammate", name="alice", role="coder", prompt="x")


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_jobs_are_counted_listed_stopped_and_named_on_leaving(program: Program, columns: int) -> None:
    command = "echo 'listening on 8000'; exec sleep 300"
    script = TeamScript(
        lead=[SPAWN, tool("bash", command="sleep 301", background=True), text("both run"), text("I see")],
        alice=[tool("bash", command=command, background=True), tool("bash", command="sleep 302"), text("never")],
    )
    with program.against(script), Screen(program, *BYPASS, columns=columns, lines=24) as screen:
        screen.wait_for("team >>")
        screen.type("go\r")
        screen.wait_for_all("both run", "2 jobs")
        screen.type("!echo mine; sleep 303\r")
        screen.wait_for("mine", 2)
        screen.type("/jobs\r")
        screen.wait_for_all("bg-1", "bg-2", "sh-1", "alice", "you", "listening on 8000")
        screen.type("/jobs stop sl\t")  # no such id: nothing is completed
        screen.type("\x7f\x7fsh\t\r")
        screen.wait_for("Stopped sh-1 (you: echo mine; sleep 303).")
        screen.wait_for_all("Interrupted", "2 jobs")
        screen.type("/jobs stop all\r")
        screen.wait_for("Stopped bg-2")
        screen.wait_for("I see")
        assert "jobs" not in screen.text.splitlines()[-1]
        screen.type("q\r")
        screen.wait_for("Interrupted: alice. After teamcli --continue, /resume")
        screen.wait_for("Resume with: teamcli --continue")
        assert screen.wait_for_end() == 0
    assert "running command" not in screen.text


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_the_first_ctrl_c_says_what_leaving_stops_and_the_last_lines_name_it(program: Program, columns: int) -> None:
    script = TeamScript(
        lead=[SPAWN, tool("bash", command="sleep 301", background=True), text("ready")],
        alice=[tool("bash", command="sleep 302"), text("never")],
    )
    with program.against(script), Screen(program, *BYPASS, columns=columns) as screen:
        screen.wait_for("team >>")
        screen.type("go\r")
        screen.wait_for_all("ready", "1 job", "$ sleep 302")
        screen.type("\x03")
        screen.wait_for("Ctrl-C again to leave (stops 1 working, 1 job)")
        screen.type("\x03")
        screen.wait_for_all("Interrupted: alice.", "Stopped 1 running command:", "  lead: sleep 301")
        assert screen.wait_for_end() == 0
