"""Stopping, pausing and dismissing teammates: who is notified, what it costs, and what resumes them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_api import answer, said_by_user, status, text, tool
from tests.support.program import Program
from tests.support.running import Running
from tests.support.team_script import TeamScript
from tests.support.waiting import wait_until
from tests.team.test_team import BYPASS, inbox, members, run, spawn, told

UNTIL_GO = tool("bash", command="touch on; until [ -e go ]; do sleep 0.02; done")
UNTIL_NEVER = tool("bash", command="until [ -e never ]; do sleep 0.02; done")
SEND_ONE_MORE = tool("send_message", to="alice", content="one more thing")


def until(file: str) -> Any:
    return tool("bash", command=f"until [ -e {file} ]; do sleep 0.02; done")


def when(condition: Callable[[], bool], answer: Any) -> Any:
    wait_until(condition)
    return answer


def respond(request: dict[str, Any], **answer: Any) -> Any:
    request_id = told_ids(request)[-1]
    return tool("shutdown_response", request_id=request_id, **answer)


def told_ids(request: dict[str, Any]) -> list[str]:
    return re.findall(r'request_id="(req-[0-9a-f]+)"', said_by_user(request))


def open_requests(program: Program) -> list[dict[str, Any]]:
    config = json.loads((program.directory / ".team/config.json").read_text())
    return [request for request in config["requests"] if request["state"] == "open"]


def change_config(program: Program, change: Callable[[dict[str, Any]], object]) -> None:
    config = program.directory / ".team/config.json"
    team = json.loads(config.read_text())
    change(team)
    config.write_text(json.dumps(team))


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
    with program.against(script), Running(program, *BYPASS) as repl:
        interrupt_alice(program, repl, "/pause alice")
    assert members(program)["alice"]["paused"]


class TestStop:
    @pytest.mark.parametrize("how", ["/stop alice", "/pause alice"])
    def test_costs_no_model_call_and_the_lead_hears_of_it_with_its_next_turn(self, program: Program, how: str) -> None:
        script = TeamScript(lead=[spawn("alice"), text("hired"), text("I see")], alice=[UNTIL_GO])
        with program.against(script), Running(program, *BYPASS) as repl:
            interrupt_alice(program, repl, how)
            repl.type("/wait")
            repl.wait_for("Everyone is idle")
            assert len(script.requests["lead"]) == 2
            repl.type("and?")
            repl.wait_for("I see")
        assert f"{how[1:5]}" in said_by_user(script.requests["lead"][2])
        assert "by the user" in told(script, "lead")

    def test_holds_against_mail_that_came_before_it(self, program: Program) -> None:
        script = TeamScript(lead=[spawn("alice"), text("hired")], alice=[UNTIL_GO, text("both")])
        with program.against(script), Running(program, *BYPASS) as repl:
            repl.type("go")
            wait_until(lambda: is_on(program))
            repl.type("/send alice before")
            repl.type("/stop alice")
            repl.type("/wait")
            repl.wait_for("Everyone is idle")
            assert len(script.requests["alice"]) == 1
            repl.type("/send alice after")
            repl.wait_for("both")
        assert all(word in said_by_user(script.requests["alice"][1]) for word in ("before", "after"))

    def test_holds_against_a_resume_that_came_before_it(self, program: Program) -> None:
        script = TeamScript(lead=[spawn("alice"), text("hired")], alice=[UNTIL_GO, text("on and on")])
        with program.against(script), Running(program, *BYPASS) as repl:
            repl.type("go")
            wait_until(lambda: is_on(program))
            repl.type("/resume alice")
            repl.type("/stop alice")
            repl.type("/wait")
            repl.wait_for("Everyone is idle")
            assert len(script.requests["alice"]) == 1
            repl.type("/resume alice")
            repl.wait_for("on and on")

    def test_does_not_hide_an_error_of_the_same_work(self, program: Program) -> None:
        program.settings(retries=0)
        script = TeamScript(
            lead=[spawn("alice"), text("hired"), text("I see")],
            alice=[UNTIL_GO, status(529)],
        )
        with program.against(script), Running(program, *BYPASS) as repl:
            interrupt_alice(program, repl)
            repl.type("/resume alice")
            repl.wait_for("I see")
        assert "overloaded" in told(script, "lead").lower()


class TestPause:
    def test_ends_with_a_message_of_the_users_from_another_shell(self, program: Program) -> None:
        script = TeamScript(lead=[spawn("alice"), text("hired")], alice=[UNTIL_GO, text("here I am")])
        with program.against(script), Running(program, *BYPASS) as repl:
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
        assert ">finished<" in told(script, "lead")
        assert not members(program)["alice"]["paused"]

    def test_of_an_earlier_run_ends_with_what_the_user_sends_before_the_next(self, program: Program) -> None:
        kill_with_a_paused_alice(program)
        assert program.run("send", "alice", "come").code == 0
        script = TeamScript(lead=[text("hello")], alice=[text("here I am")])
        run(program, script)
        assert ">come<" in told(script, "alice")
        assert not members(program)["alice"]["paused"]

    def test_of_an_earlier_run_ends_with_any_new_message(self, program: Program) -> None:
        kill_with_a_paused_alice(program)
        write = tool("send_message", to="alice", content="come")
        script = TeamScript(lead=[write, text("waiting"), text("end")], alice=[text("here I am")])
        run(program, script)
        assert ">here I am<" in told(script, "lead")
        assert not members(program)["alice"]["paused"]


class TestShutdown:
    def test_of_a_working_one_that_does_not_answer_the_user_is_done_all_the_same(self, program: Program) -> None:
        program.settings(limits={"shutdown_seconds": 0.1})
        script = TeamScript(lead=[spawn("alice"), text("hired"), text("I see")], alice=[UNTIL_GO])
        with program.against(script), Running(program, *BYPASS) as repl:
            repl.type("go")
            wait_until(lambda: is_on(program))
            repl.type("/shutdown alice")
            wait_until(lambda: members(program)["alice"]["status"] == "shutdown")
            repl.type("/wait")
            repl.wait_for("Everyone is idle")
            assert len(script.requests["lead"]) == 2
            repl.type("and?")
            repl.wait_for("I see")
        assert "did not answer the user" in said_by_user(script.requests["lead"][2])

    def test_a_request_that_nobody_answers_lapses_and_the_lead_learns_it(self, program: Program) -> None:
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
        with program.against(script), Running(program, *BYPASS) as repl:
            repl.type("go")
            wait_until(lambda: is_on(program))
            repl.type("/shutdown alice")
            repl.wait_for("Asked 'alice' to shut down")
        change_config(program, lambda team: team["requests"][0].update(deadline=team["requests"][0]["created"]))
        script = TeamScript(lead=[text("hello")])
        run(program, script)
        assert members(program)["alice"]["status"] == "shutdown"
        assert [(each["type"], each.get("by_user")) for each in inbox(program, "lead")] == [("error", True)]

    def test_a_turn_that_ends_without_an_answer_counts_as_approval(self, program: Program) -> None:
        ask = tool("shutdown_request", teammate="alice")
        script = TeamScript(
            lead=[spawn("alice"), until("on"), ask, tool("bash", command="touch go"), text("waiting"), text("end")],
            alice=[UNTIL_GO, text("my work is done")],
        )
        ran = run(program, script, "--output-format", "json")
        assert members(program)["alice"]["status"] == "shutdown"
        assert ran.json["waiting"] == []
        assert [(each["type"], each.get("approve")) for each in inbox(program, "lead")] == [
            ("result", None),
            ("shutdown_response", True),
        ]

    def test_a_request_that_comes_with_the_last_words_closes_the_teammate_too(self, program: Program) -> None:
        asked = tool("shutdown_request", teammate="alice")

        def last_words(request: dict[str, Any]) -> Any:
            (program.directory / "on").touch()
            wait_until(lambda: bool(open_requests(program)))
            return text("done")

        script = TeamScript(lead=[spawn("alice"), until("on"), asked, text("waiting"), text("end")], alice=[last_words])
        run(program, script)
        assert members(program)["alice"]["status"] == "shutdown"

    def test_a_turn_that_fails_leaves_the_request_open(self, program: Program) -> None:
        program.settings(retries=0)
        ask = tool("shutdown_request", teammate="alice")
        script = TeamScript(
            lead=[spawn("alice"), until("on"), ask, tool("bash", command="touch go"), text("waiting"), text("end")],
            alice=[UNTIL_GO, status(529)],
        )
        ran = run(program, script, "--output-format", "json")
        assert members(program)["alice"]["status"] == "idle"
        assert [words.partition(" (")[0] for words in ran.json["waiting"]] == ["alice was asked to shut down"]

    def test_the_user_overtakes_the_lead_and_when_repeated_stops_it_at_once(self, program: Program) -> None:
        ask = tool("shutdown_request", teammate="alice")
        script = TeamScript(
            lead=[spawn("alice"), until("on"), ask, text("waiting"), text("I see")],
            alice=[UNTIL_GO],
        )
        with program.against(script), Running(program, *BYPASS) as repl:
            repl.type("go")
            wait_until(lambda: is_on(program) and bool(open_requests(program)))
            repl.type("/shutdown alice")
            repl.wait_for("/shutdown alice again stops it")
            assert [each["asker"] for each in open_requests(program)] == ["user"]
            repl.type("/shutdown alice")
            repl.wait_for("Stopped 'alice'; it is shut down")
            assert members(program)["alice"]["status"] == "shutdown"
            repl.type("and?")
            repl.wait_for("I see")
        assert "your request" in told(script, "lead")
        assert "is void" in told(script, "lead")

    def test_a_refusal_is_shown_to_the_user_who_can_insist(self, program: Program) -> None:
        script = TeamScript(
            lead=[spawn("alice"), text("hired")],
            alice=[UNTIL_GO, lambda request: respond(request, approve=False, reason="tests are running"), UNTIL_NEVER],
        )
        with program.against(script), Running(program, *BYPASS) as repl:
            repl.type("go")
            wait_until(lambda: is_on(program))
            repl.type("/shutdown alice")
            repl.wait_for("Asked 'alice'")
            (program.directory / "go").touch()
            repl.wait_for("alice refuses to shut down: tests are running")
            repl.type("/shutdown alice")
            repl.wait_for("Stopped 'alice'")
            assert members(program)["alice"]["status"] == "shutdown"

    def test_an_approval_that_a_crash_kept_from_being_carried_out_is_carried_out_at_the_next_start(
        self, program: Program
    ) -> None:
        script = TeamScript(lead=[spawn("alice"), text("hired")], alice=[UNTIL_GO])
        with program.against(script), Running(program, *BYPASS) as repl:
            repl.type("go")
            wait_until(lambda: is_on(program))
            repl.type("/shutdown alice")
            repl.wait_for("Asked 'alice' to shut down")
        change_config(program, lambda team: team["requests"][0].update(state="approved"))
        run(program, TeamScript(lead=[text("hello")]))
        assert members(program)["alice"]["status"] == "shutdown"

    def test_a_clock_that_is_set_back_does_not_keep_a_request_open(self, program: Program) -> None:
        clock = program.use_test_clock()
        program.settings(limits={"shutdown_seconds": 1})
        script = TeamScript(lead=[spawn("alice"), text("hired"), text("I see")], alice=[UNTIL_GO])
        with program.against(script), Running(program, *BYPASS) as repl:
            repl.type("go")
            wait_until(lambda: is_on(program))
            repl.type("/shutdown alice")
            repl.wait_for("Asked 'alice'")
            clock.write_text("-7200")
            wait_until(lambda: members(program)["alice"]["status"] == "shutdown")


class TestMailThatNobodyWillRead:
    def test_comes_back_to_the_teammate_that_sent_it(self, program: Program) -> None:
        def approve_late(request: dict[str, Any]) -> Any:
            (program.directory / "writing").touch()
            wait_until(lambda: "are you there" in str(inbox(program, "alice")))
            return respond(request, approve=True)

        ask = tool("shutdown_request", teammate="alice")
        write = tool("send_message", to="alice", content="are you there?")
        script = TeamScript(
            lead=[
                answer(spawn("alice"), spawn("bob")),
                until("on"),
                ask,
                tool("bash", command="touch go"),
                *[text("waiting")] * 4,
            ],
            alice=[UNTIL_GO, approve_late],
            bob=[until("writing"), write, tool("wait_for_message"), text("I know")],
        )
        run(program, script)
        assert "was shut down before it read your message: are you there?" in told(script, "bob")
        (returned,) = inbox(program, "bob")
        assert (returned["type"], returned["from"]) == ("error", "alice")
        assert "are you there?" not in (program.directory / ".team/transcripts/alice.jsonl").read_text()

    def test_comes_back_although_it_was_read_with_the_same_answer_that_approved(self, program: Program) -> None:
        def approve_and_read(request: dict[str, Any]) -> Any:
            wait_until(lambda: "one more thing" in str(inbox(program, "alice")))
            return answer(tool("read_inbox"), respond(request, approve=True))

        script = TeamScript(
            lead=[
                spawn("alice"),
                until("on"),
                tool("shutdown_request", teammate="alice"),
                tool("bash", command="touch go"),
                lambda request: when(lambda: len(script.requests["alice"]) == 2, SEND_ONE_MORE),
                *[text("waiting")] * 4,
            ],
            alice=[UNTIL_GO, approve_and_read],
        )
        run(program, script)
        assert "was shut down before it read your message: one more thing" in told(script, "lead")

    def test_of_the_user_or_from_outside_is_a_line_on_the_screen(self, program: Program) -> None:
        def approve_late(request: dict[str, Any]) -> Any:
            assert program.run("send", "alice", "from the user").code == 0
            with (program.directory / ".team/inbox/alice.jsonl").open("a") as file:
                file.write('{"type":"message","from":"cron","content":"from a shell"}\n')
            return respond(request, approve=True)

        script = TeamScript(lead=[spawn("alice"), text("hired")], alice=[UNTIL_GO, approve_late])
        with program.against(script), Running(program, *BYPASS) as repl:
            repl.type("go")
            wait_until(lambda: is_on(program))
            repl.type("/shutdown alice")
            repl.wait_for("Asked 'alice'")
            (program.directory / "go").touch()
            repl.wait_for("alice was shut down before it read your message: from the user")
            repl.wait_for("before it read a message from outside (claims to be cron): from a shell")

    def test_is_counted_when_a_paused_teammate_is_shut_down(self, program: Program) -> None:
        write = tool("send_message", to="alice", content="when you are back")
        script = TeamScript(lead=[spawn("alice"), text("hired"), write, text("sent"), text("I see")], alice=[UNTIL_GO])
        with program.against(script), Running(program, *BYPASS) as repl:
            interrupt_alice(program, repl, "/pause alice")
            repl.type("write to her")
            repl.wait_for("sent")
            repl.type("/shutdown alice")
            repl.wait_for("is shut down now; 1 unread message went back to the sender")
            repl.wait_for("I see")
        assert "was shut down before it read your message: when you are back" in told(script, "lead")

    def test_of_an_earlier_incarnation_does_not_come_back(self, program: Program) -> None:
        script = TeamScript(
            lead=[spawn("alice"), text("hired"), text("ok"), spawn("alice"), text("again"), text("ok")],
            alice=[text("one"), text("two")],
        )
        with program.against(script):
            ran = program.run(*BYPASS, stdin="go\n/wait\n/shutdown alice\ngo\n/wait\n/shutdown alice\n")
        assert ran.code == 0
        assert "went back" not in ran.out
        assert "before it read" not in ran.out + ran.err


def test_a_name_that_was_forgotten_and_hired_again_reports_as_any_other(program: Program) -> None:
    def lead(request: dict[str, Any], n: int) -> Any:
        return spawn("alice") if said_by_user(request).startswith("go") else text("ok")

    script = TeamScript(lead=lead, alice=[text("one"), text("two")])
    with program.against(script):
        ran = program.run(*BYPASS, stdin="go\n/wait\n/shutdown alice\n/forget alice\ngo\n/wait\n")
    assert ran.code == 0
    assert [(each["type"], each["content"]) for each in inbox(program, "lead")] == [
        ("result", "one"),
        ("result", "two"),
    ]


def test_a_teammate_that_has_left_keeps_no_file_open(program: Program) -> None:
    with Running(program, "--offline") as repl:
        for number in range(1, 7):
            name = f"m{number}"
            repl.type(f"spawn {name} as coder: list")
            repl.wait_for(f"{name} → lead (result)")
            repl.type(f"@{name} list")
            repl.wait_for(f"{name} → lead (result)", times=2)
            repl.type(f"/shutdown {name}")
            repl.wait_for(f"'{name}' was idle and is shut down now")
        wait_until(lambda: not [path for path in open_files(repl.process.pid) if re.search(r"/m\d\.jsonl", path)])


def open_files(pid: int) -> list[str]:
    return [str(each.readlink()) for each in Path(f"/proc/{pid}/fd").iterdir() if each.is_symlink()]
