"""Stopping, pausing and dismissing teammates: who is told, what it costs, what lets them go on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.fake_api import FakeAPI, said_by_user, status, text, tool
from tests.support.program import Program
from tests.support.running import Running
from tests.support.team_script import TeamScript
from tests.support.waiting import wait_until
from tests.team.test_team import BYPASS, inbox, members, run, spawn, told

UNTIL_GO = tool("bash", command="touch on; until [ -e go ]; do sleep 0.02; done")


def is_on(program: Program) -> bool:
    return (program.directory / "on").exists()


def interrupt_alice(program: Program, repl: Running, how: str = "/stop alice") -> None:
    """Hire alice, have her begin a command, and end that."""
    repl.type("go")
    wait_until(lambda: is_on(program))
    repl.type(how)
    wait_until(lambda: members(program)["alice"]["interrupted"])


def kill_with_a_paused_alice(program: Program) -> None:
    script = TeamScript(lead=[spawn("alice"), text("hired")], alice=[UNTIL_GO])
    with FakeAPI(script) as api:
        program.url = api.url
        with Running(program, *BYPASS) as repl:
            interrupt_alice(program, repl, "/pause alice")
    assert members(program)["alice"]["paused"]


class TestStop:
    @pytest.mark.parametrize("how", ["/stop alice", "/pause alice"])
    def test_costs_no_model_call_and_the_lead_hears_of_it_with_its_next_turn(self, program: Program, how: str) -> None:
        script = TeamScript(lead=[spawn("alice"), text("hired"), text("I see")], alice=[UNTIL_GO])
        with FakeAPI(script) as api:
            program.url = api.url
            with Running(program, *BYPASS) as repl:
                interrupt_alice(program, repl, how)
                repl.type("/wait")
                repl.wait_for("Nobody works any more")
                assert len(script.requests["lead"]) == 2
                repl.type("and?")
                repl.wait_for("I see")
        assert f"{how[1:5]}" in said_by_user(script.requests["lead"][2]) and "by the user" in told(script, "lead")

    def test_holds_against_mail_that_came_before_it(self, program: Program) -> None:
        script = TeamScript(lead=[spawn("alice"), text("hired")], alice=[UNTIL_GO, text("both")])
        with FakeAPI(script) as api:
            program.url = api.url
            with Running(program, *BYPASS) as repl:
                repl.type("go")
                wait_until(lambda: is_on(program))
                repl.type("/send alice before")
                repl.type("/stop alice")
                repl.type("/wait")
                repl.wait_for("Nobody works any more")
                assert len(script.requests["alice"]) == 1
                repl.type("/send alice after")
                repl.wait_for("both")
        assert all(word in said_by_user(script.requests["alice"][1]) for word in ("before", "after"))

    def test_holds_against_a_resume_that_came_before_it(self, program: Program) -> None:
        script = TeamScript(lead=[spawn("alice"), text("hired")], alice=[UNTIL_GO, text("on and on")])
        with FakeAPI(script) as api:
            program.url = api.url
            with Running(program, *BYPASS) as repl:
                repl.type("go")
                wait_until(lambda: is_on(program))
                repl.type("/resume alice")
                repl.type("/stop alice")
                repl.type("/wait")
                repl.wait_for("Nobody works any more")
                assert len(script.requests["alice"]) == 1
                repl.type("/resume alice")
                repl.wait_for("on and on")

    def test_does_not_hide_an_error_of_the_same_work(self, program: Program) -> None:
        program.settings(retries=0)
        script = TeamScript(
            lead=[spawn("alice"), text("hired"), text("I see")],
            alice=[UNTIL_GO, status(529)],
        )
        with FakeAPI(script) as api:
            program.url = api.url
            with Running(program, *BYPASS) as repl:
                interrupt_alice(program, repl)
                repl.type("/resume alice")
                repl.wait_for("I see")
        assert "overloaded" in told(script, "lead").lower()


class TestPause:
    def test_ends_with_a_message_of_the_users_from_another_shell(self, program: Program) -> None:
        script = TeamScript(lead=[spawn("alice"), text("hired")], alice=[UNTIL_GO, text("here I am")])
        with FakeAPI(script) as api:
            program.url = api.url
            with Running(program, *BYPASS) as repl:
                interrupt_alice(program, repl, "/pause alice")
                assert program.run("send", "alice", "come").code == 0
                repl.wait_for("here I am")
                assert not members(program)["alice"]["paused"]

    def test_lasts_over_a_plain_start_and_ends_with_continue(self, program: Program) -> None:
        kill_with_a_paused_alice(program)
        run(program, TeamScript(lead=[text("hello")]))
        assert members(program)["alice"]["paused"]
        script = TeamScript(lead=[text("waiting"), text("end")], alice=[text("finished")])
        run(program, script, "--continue")
        assert ">finished<" in told(script, "lead") and not members(program)["alice"]["paused"]

    def test_of_an_earlier_run_ends_with_what_the_user_sends_before_the_next(self, program: Program) -> None:
        kill_with_a_paused_alice(program)
        assert program.run("send", "alice", "come").code == 0
        script = TeamScript(lead=[text("hello")], alice=[text("here I am")])
        run(program, script)
        assert ">come<" in told(script, "alice") and not members(program)["alice"]["paused"]

    def test_of_an_earlier_run_ends_with_any_new_message(self, program: Program) -> None:
        kill_with_a_paused_alice(program)
        write = tool("send_message", to="alice", content="come")
        script = TeamScript(lead=[write, text("waiting"), text("end")], alice=[text("here I am")])
        run(program, script)
        assert ">here I am<" in told(script, "lead") and not members(program)["alice"]["paused"]


class TestShutdown:
    def test_of_a_working_one_that_does_not_answer_the_user_is_done_all_the_same(self, program: Program) -> None:
        program.settings(limits={"shutdown_seconds": 0.1})
        script = TeamScript(lead=[spawn("alice"), text("hired"), text("I see")], alice=[UNTIL_GO])
        with FakeAPI(script) as api:
            program.url = api.url
            with Running(program, *BYPASS) as repl:
                repl.type("go")
                wait_until(lambda: is_on(program))
                repl.type("/shutdown alice")
                wait_until(lambda: members(program)["alice"]["status"] == "shutdown")
                repl.type("/wait")
                repl.wait_for("Nobody works any more")
                assert len(script.requests["lead"]) == 2
                repl.type("and?")
                repl.wait_for("I see")
        assert "did not answer the user" in said_by_user(script.requests["lead"][2])

    def test_that_nobody_answers_lapses_and_the_lead_is_told(self, program: Program) -> None:
        program.settings(limits={"shutdown_seconds": 0.1})
        wait = tool("bash", command="until [ -e on ]; do sleep 0.02; done")
        first = [spawn("alice"), wait, tool("shutdown_request", teammate="alice")]

        def lead(request: dict[str, Any], n: int) -> Any:
            if n < len(first):
                return first[n]
            has_to_act = "it has lapsed" in said_by_user(request) and not (program.directory / "go").exists()
            return tool("bash", command="touch go") if has_to_act else text("waiting")

        script = TeamScript(lead=lead, alice=[UNTIL_GO, text("went on")])
        run(program, script)
        assert (program.directory / "go").exists()
        assert members(program)["alice"]["status"] == "idle"

    def test_that_the_user_asked_for_is_made_good_after_a_restart(self, program: Program) -> None:
        script = TeamScript(lead=[spawn("alice"), text("hired")], alice=[UNTIL_GO])
        with FakeAPI(script) as api:
            program.url = api.url
            with Running(program, *BYPASS) as repl:
                repl.type("go")
                wait_until(lambda: is_on(program))
                repl.type("/shutdown alice")
                repl.wait_for("Asked 'alice' to shut down")
        config = program.directory / ".team/config.json"
        team = json.loads(config.read_text())
        team["requests"][0]["deadline"] = team["requests"][0]["created"]  # long ago
        config.write_text(json.dumps(team))
        script = TeamScript(lead=[text("hello")])
        run(program, script)
        assert members(program)["alice"]["status"] == "shutdown"
        assert [(each["type"], each.get("by_user")) for each in inbox(program, "lead")] == [("error", True)]


def test_a_name_that_was_forgotten_and_hired_again_reports_as_any_other(program: Program) -> None:
    def lead(request: dict[str, Any], n: int) -> Any:
        return spawn("alice") if said_by_user(request).startswith("go") else text("ok")

    script = TeamScript(lead=lead, alice=[text("one"), text("two")])
    with FakeAPI(script) as api:
        program.url = api.url
        ran = program.run(*BYPASS, stdin="go\n/wait\n/shutdown alice\n/forget alice\ngo\n/wait\n")
    assert ran.code == 0
    assert [(each["type"], each["content"]) for each in inbox(program, "lead")] == [
        ("result", "one"),
        ("result", "two"),
    ]
