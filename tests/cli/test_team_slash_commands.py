"""Slash commands about the team, at the real prompt. None of them costs a model call."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.fake_api import answer, said_by_user, stall_after, text, tool
from tests.support.program import Program
from tests.support.running import Running
from tests.support.screen import Screen
from tests.support.team_script import After, TeamScript
from tests.support.waiting import wait_until

BYPASS = ("--permission-mode", "bypassPermissions")
UNTIL_GO = "spawn alice as coder: run until [ -e go ]; do sleep 0.05; done"
HIRE_BOB = "spawn bob as writer: read a.txt"


@pytest.fixture
def repl(program: Program) -> Iterator[Running]:
    """A REPL with bob, who is idle, and alice, who works until the file `go` exists."""
    with Running(program, *BYPASS) as repl:
        repl.type(HIRE_BOB)
        repl.type("/wait")
        repl.type(UNTIL_GO)
        wait_until(lambda: member(program, "alice").get("status") == "working" and has_command(program))
        yield repl


def has_command(program: Program) -> bool:
    events = program.directory / ".team/events.jsonl"
    return events.exists() and '"tool":"bash"' in events.read_text()


def member(program: Program, name: str) -> dict[str, Any]:
    path = program.directory / ".team/config.json"
    members = json.loads(path.read_text())["members"] if path.exists() else []
    return next((each for each in members if each["name"] == name), {})


def append_line(program: Program, name: str, content: str) -> None:
    line = {"type": "message", "from": "a shell", "content": content}
    with (program.directory / f".team/inbox/{name}.jsonl").open("a") as inbox:
        inbox.write(json.dumps(line) + "\n")


def row(repl: Running, name: str) -> list[str]:
    """The words of the last table row for `name`."""
    return [line.split() for line in repl.out.splitlines() if line.startswith(f"{name} ")][-1]


class TestTeam:
    def test_it_lists_everyone_with_the_lead_on_top(self, repl: Running) -> None:
        repl.type("/team")
        repl.type("!echo that was it")
        repl.wait_for("\nthat was it\n")
        table = repl.out[repl.out.index("NAME ") :].splitlines()
        assert table[0].split() == ["NAME", "ROLE", "STATUS", "SINCE", "UNREAD", "CALLS", "COST"]
        assert [line.split()[0] for line in table[1:4]] == ["lead", "bob", "alice"]
        assert row(repl, "bob")[1:3] == ["writer", "idle"]
        assert row(repl, "alice")[1:3] == ["coder", "working"]

    def test_it_says_so_if_there_are_no_teammates(self, program: Program) -> None:
        ran = program.run(stdin="/team\n/wait\n/pause\n/inbox\n/log\n")
        for shown in ("No teammates yet.", "Everyone is idle", "there are no teammates", "No messages for lead."):
            assert shown in ran.out, shown
        assert "Nothing has happened yet." in ran.out

    def test_it_says_what_holds_a_teammate_up(self, program: Program, repl: Running) -> None:
        repl.type("/pause alice")
        repl.wait_for("Paused 'alice'")
        wait_until(lambda: member(program, "alice")["status"] == "idle")
        repl.type("/team")
        repl.wait_for("interrupted; paused")


class TestMail:
    def test_showing_an_inbox_consumes_nothing(self, program: Program) -> None:
        script = TeamScript(
            lead=[tool("spawn_teammate", name="bob", role="writer", prompt="x"), text("hired"), text("ok")],
            bob=[After(2, text("first")), text("second")],
        )
        with program.against(script), Running(program) as repl:
            repl.type("go")
            repl.type("/wait")
            repl.type("/send bob and again")  # its result does not wake the lead
            repl.type("/wait")
            repl.type("/inbox")
            repl.type("/inbox lead")
            repl.wait_for("2 messages for lead, 1 unread", times=2)
            repl.type("/inbox bob")
            repl.wait_for("user  message  and again")
            assert repl.leave() == 0
        assert len(script.requests["lead"]) == 3

    def test_a_message_wakes_a_teammate(self, program: Program, repl: Running) -> None:
        repl.type("/send @Bob write done.txt: by bob")
        repl.wait_for("Sent message to bob")
        wait_until(lambda: (program.directory / "done.txt").exists())

    def test_log_shows_the_timeline(self, repl: Running) -> None:
        repl.type("/log")
        repl.wait_for("alice     spawned as coder")
        repl.type("/log 1")
        repl.type("/log x")
        repl.type("/log 0")
        repl.wait_for("N must be a whole number from 1 up", times=2)


class TestStopping:
    def test_stop_interrupts_and_resume_continues(self, program: Program, repl: Running) -> None:
        repl.type("/stop alice")
        repl.wait_for("Stopped 'alice'")
        wait_until(lambda: member(program, "alice")["interrupted"])
        repl.type("/stop bob")
        repl.wait_for("'bob' is not working")
        (program.directory / "go").touch()
        repl.type("/resume")
        repl.wait_for("'alice' resumes")
        wait_until(lambda: not member(program, "alice")["interrupted"])

    def test_a_lead_woken_by_mail_can_be_stopped(self, program: Program) -> None:
        hire = tool("spawn_teammate", name="bob", role="writer", prompt="x")
        script = TeamScript(
            lead=[hire, text("hired"), answer(text("never ending"), stall_after(2))], bob=[After(2, text("done"))]
        )
        with program.against(script) as api, Running(program) as repl:
            repl.type("/stop lead")
            repl.wait_for("The lead is not working")
            repl.type("go")
            api.wait_for_stall()
            repl.type("/stop lead")
            repl.wait_for("Stopped the lead")
            repl.type("/wait")
            repl.wait_for("Everyone is idle")

    def test_all_teammates_can_be_paused_and_resumed(self, program: Program, repl: Running) -> None:
        repl.type("/pause")
        repl.wait_for("Paused 'bob'")
        repl.wait_for("Paused 'alice'")
        repl.type("/pause")
        repl.wait_for("Everyone is paused already.")
        append_line(program, "bob", "write done.txt: by bob")
        repl.type("spawn carol as coder: tell bob: write more.txt: by bob")
        wait_until(lambda: member(program, "carol").get("status") == "idle")
        append_line(program, "carol", "write seen.txt: the watcher has looked")  # so it has seen bob's line, too
        wait_until(lambda: (program.directory / "seen.txt").exists())
        repl.type("/wait")
        repl.type("/inbox bob")
        repl.wait_for("2 messages for bob, 2 unread")
        assert member(program, "bob")["paused"]
        repl.type("/resume bob")
        repl.wait_for("'bob' resumes")
        repl.type("/resume carol")
        repl.wait_for("'carol' is idle, neither paused nor interrupted")
        wait_until(lambda: (program.directory / "more.txt").exists())
        wait_until(lambda: (program.directory / "done.txt").exists())
        assert member(program, "alice")["paused"]

    def test_a_message_from_the_user_ends_a_pause(self, program: Program, repl: Running) -> None:
        repl.type("/pause bob")
        repl.type("/send bob write done.txt: by bob")
        wait_until(lambda: (program.directory / "done.txt").exists())

    def test_a_teammate_can_be_shut_down_and_forgotten(self, program: Program, repl: Running) -> None:
        repl.type("/forget bob")
        repl.wait_for("shut it down first")
        repl.type("/shutdown bob")
        repl.wait_for("'bob' was idle and is shut down now")
        repl.type("/shutdown alice")
        repl.wait_for("Asked 'alice' to shut down")
        repl.type("/team")
        repl.wait_for("user asked alice to shut down")
        repl.type("/forget bob")
        repl.wait_for("Forgot 'bob'")
        assert not member(program, "bob")
        assert member(program, "alice")


def test_an_unknown_or_missing_name_lists_the_teammates(program: Program) -> None:
    lines = ["/send", "/stop", "/shutdown", "/forget", "/pause", "/resume", "/inbox"]
    tries = "".join(f"!echo try {line}\n{line} carol hi\n{line}\n" for line in lines)
    ran = program.run(*BYPASS, stdin=f"{HIRE_BOB}\n/wait\n{tries}")
    for line, shown in zip(lines, ran.out.split("try /")[1:], strict=True):
        errors = [error for error in shown.splitlines() if error.startswith("teamcli:")]
        assert len(errors) == (1 if line in ("/pause", "/resume", "/inbox") else 2), line
        assert all("bob" in error for error in errors), line
        assert "carol" in errors[0], line


class TestPlans:
    def script(self, *after: Any) -> TeamScript:
        hire = tool("spawn_teammate", name="alice", role="coder", prompt="x", plan=True)
        plan = tool("submit_plan", plan="1. look\n2. leap")
        return TeamScript(
            lead=[hire, text("hired"), *[text("seen")] * 4],
            alice=[plan, text("submitted"), *after],
        )

    def talk(self, program: Program, script: TeamScript, *lines: str) -> str:
        with program.against(script):
            ran = program.run(*BYPASS, stdin="\n".join(["go", "/wait", *lines, ""]))
        assert ran.code == 0, ran.err
        return ran.out

    def test_a_plan_is_shown_and_approved(self, program: Program) -> None:
        script = self.script(text("thanks"))
        out = self.talk(program, script, "/team", "/approve", "/approve alice", "/wait", "/approve")
        assert "Waiting for an answer:" in out
        assert "plan of alice" in out
        assert "1. look\n2. leap" in out
        assert "Approved the plan of 'alice'" in out
        assert "No plan waits" in out
        assert 'approve="true"' in said_by_user(script.requests["alice"][2])

    def test_a_plan_is_rejected_with_feedback(self, program: Program) -> None:
        script = self.script(text("I see"))
        out = self.talk(program, script, "/reject", "/reject req-0", "/reject alice look twice", "/wait")
        assert "say which plan" in out
        assert "no request 'req-0'" in out
        assert "Rejected the plan of 'alice'" in out
        assert "look twice" in said_by_user(script.requests["alice"][2])

    def test_open_plans_are_visible_from_another_shell(self, program: Program) -> None:
        self.talk(program, self.script())
        (request,) = program.run("team", "--json").json["requests"]
        assert (request["kind"], request["teammate"], request["state"]) == ("plan", "alice", "open")
        out = program.run("team").out
        assert request["id"] in out
        assert "/approve ID" in out


class TestWaiting:
    def test_it_ends_when_everyone_is_idle(self, program: Program, repl: Running) -> None:
        repl.type("/wait")
        repl.type("!echo after the waiting")
        (program.directory / "go").touch()
        repl.wait_for("after the waiting")
        assert repl.out.rindex("alice → lead (result)") < repl.out.rindex("after the waiting")

    def test_it_ends_and_names_those_who_wait_for_a_message(self, program: Program) -> None:
        hire = tool("spawn_teammate", name="alice", role="coder", prompt="wait")
        wait = tool("wait_for_message", timeout_seconds=600)
        script = TeamScript(lead=[hire, text("hired"), text("end")], alice=[wait, text("heard you")])
        with program.against(script), Screen(program) as screen:
            screen.wait_for("team >>")
            screen.type("go\r")
            wait_until(lambda: len(script.requests["alice"]) == 1)
            screen.type("/wait\r")
            screen.wait_for("Everyone is idle")
            screen.wait_for("alice waits for a message")
            assert member(program, "alice")["status"] == "working"
            screen.type("@alice hello\r")
            screen.wait_for("heard you")

    def test_ctrl_c_ends_only_the_waiting(self, program: Program) -> None:
        with Screen(program, *BYPASS) as screen:
            screen.wait_for("team >>")
            screen.type(UNTIL_GO + "\r")
            wait_until(lambda: has_command(program))
            screen.wait_for("team >>", 2)
            screen.type("/wait\r")
            screen.wait_for("Waiting for alice")
            screen.type("\x03")
            screen.wait_for("Interrupted")
            assert member(program, "alice")["status"] == "working"
            screen.type("q\r")
            assert screen.wait_for_end() == 0

    def test_a_teammates_question_comes_up_during_the_waiting(self, program: Program) -> None:
        gate = program.directory / "gate"
        gate.write_text("#!/bin/sh\nuntil [ -e go ]; do sleep 0.05; done\n")
        gate.chmod(0o755)
        with Screen(program, "--allowedTools", "bash(./gate)") as screen:
            screen.wait_for("team >>")
            screen.type("spawn alice as coder: run ./gate then run touch made\r")
            wait_until(lambda: has_command(program))
            screen.wait_for("team >>", 2)
            screen.type("/wait\r")
            screen.wait_for("Waiting for alice")
            (program.directory / "go").touch()
            screen.wait_for("alice wants to use bash")
            screen.wait_for("allow?")
            screen.type("y\r")
            screen.wait_for("Everyone is idle")
        assert (program.directory / "made").exists()
