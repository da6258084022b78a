"""The REPL at a terminal: what the screen shows, and what keys do."""

from __future__ import annotations

import json
import os
import resource
import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.fake_api import FakeAPI, answer, stall_after, status, text, tool, tool_results
from tests.support.program import Program
from tests.support.screen import Screen
from tests.support.team_script import After, TeamScript
from tests.support.waiting import wait_until

PROMPT = "team >>"


@pytest.fixture
def program(program: Program) -> Program:
    """Always a new Python: here the prompt waits for what loads, as it does for a user."""
    return Program(program.directory, program.home)


def test_a_newcomer_gets_a_prompt_that_works(program: Program) -> None:
    with Screen(program) as screen:
        screen.wait_for(PROMPT)
        screen.wait_for("embedded")
        screen.wait_for("/help")
        screen.type("read x.txt\r")
        screen.wait_for("x.txt", 2)
        screen.type("\r")
        screen.type("q\r")
        screen.wait_for("teamcli --continue")
        assert screen.wait_for_end() == 0


@pytest.mark.parametrize("keys", ["\x04", "exit\r", "/quit\r"])
def test_there_are_several_ways_to_leave(program: Program, keys: str) -> None:
    with Screen(program) as screen:
        screen.wait_for(PROMPT)
        screen.type(keys)
        assert screen.wait_for_end() == 0


class TestPermission:
    def ask(self, program: Program, keys: str) -> tuple[FakeAPI, str]:
        script = [tool("bash", command="echo ran >> log.txt"), text("The end.")]
        with program.against(script) as api, Screen(program) as screen:
            screen.wait_for(PROMPT)
            screen.type("do it\r")
            screen.wait_for("lead wants to use bash")
            screen.wait_for("$ echo ran >> log.txt")
            screen.wait_for("allow? >>")
            screen.type(keys)
            screen.wait_for("The end.")
            screen.wait_for(PROMPT, 2)
            screen.type("q\r")
            assert screen.wait_for_end() == 0
        log = program.directory / "log.txt"
        return api, log.read_text() if log.exists() else ""

    def test_yes_runs_it_once(self, program: Program) -> None:
        assert self.ask(program, "y\r")[1] == "ran\n"
        assert not (program.directory / ".team/settings.local.json").exists()

    def test_always_writes_the_narrowest_rule_and_does_not_ask_again(self, program: Program) -> None:
        self.ask(program, "a\r1\r")
        rules = json.loads((program.directory / ".team/settings.local.json").read_text())["permissions"]["allow"]
        assert rules == ["bash(echo ran >> log.txt)"]
        with program.against([tool("bash", command="echo ran >> log.txt"), text("x")]):
            assert program.run("-p", "again").code == 0
        assert (program.directory / "log.txt").read_text() == "ran\n" * 2

    @pytest.mark.parametrize(("keys", "told"), [("n\r", "refused"), ("use tee instead\r", "use tee instead")])
    def test_a_refusal_reaches_the_model_with_the_users_reason(self, program: Program, keys: str, told: str) -> None:
        api, log = self.ask(program, keys)
        assert log == ""
        assert told in str(tool_results(api.requests[1])[0]["content"])

    def test_ctrl_c_at_the_question_ends_the_turn(self, program: Program) -> None:
        with program.against([tool("bash", command="touch made"), text("later")]), Screen(program) as screen:
            screen.wait_for(PROMPT)
            screen.type("do it\r")
            screen.wait_for("allow? >>")
            screen.type("\x03")
            screen.wait_for("Interrupted")
            screen.wait_for(PROMPT, 2)
            screen.type("and now\r")
            screen.wait_for("later")
        assert not (program.directory / "made").exists()

    def test_the_whole_command_is_shown(self, program: Program) -> None:
        command = "echo harmless " + "x" * 120 + "\ntouch second-line"
        with program.against([tool("bash", command=command), text("x")]), Screen(program) as screen:
            screen.wait_for(PROMPT)
            screen.type("do it\r")
            screen.wait_for("touch second-line")
            screen.wait_for("allow? >>")
            screen.type("n\r")
            screen.wait_for(PROMPT, 2)

    @pytest.mark.parametrize("lines", [16, 40])
    def test_nothing_of_a_command_can_be_pushed_off_the_screen(self, program: Program, lines: int) -> None:
        command = "echo\t" + "\x7f" * 30 + "\u00ad" * 39 + "\t; rm it"  # each is wider than it looks
        with (
            program.against([tool("bash", command=command), text("x")]),
            Screen(program, columns=50, lines=lines) as screen,
        ):
            screen.wait_for(PROMPT)
            screen.type("do it\r")
            screen.wait_for("allow? >>")
            screen.wait_for("rm it")

    def test_text_typed_before_the_question_is_not_an_answer(self, program: Program) -> None:
        with (
            program.against([answer(tool("bash", command="touch made"), stall_after(2)), text("x")]) as api,
            Screen(program) as screen,
        ):
            screen.wait_for(PROMPT)
            screen.type("do it\r")
            api.wait_for_stall()
            screen.type("y\r")
            screen.wait_for("queued: y")
            api.release()
            screen.wait_for("allow? >>")
            assert not (program.directory / "made").exists()
            screen.type("n\r")
            screen.wait_for("Refused")
        assert not (program.directory / "made").exists()


class TestTeam:
    def test_a_teammates_question_comes_up_at_the_prompt_and_half_typed_text_survives(self, program: Program) -> None:
        script = TeamScript(
            lead=[tool("spawn_teammate", name="alice", role="coder", prompt="x"), text("hired"), text("all done")],
            alice=[
                lambda request: _once((program.directory / "typed").exists, tool("bash", command="touch made")),
                text("alice's last words"),
            ],
        )
        with program.against(script), Screen(program) as screen:
            screen.wait_for(PROMPT)
            screen.type("go\r")
            screen.wait_for("hired")
            screen.wait_for(PROMPT, 2)
            screen.type("half typed")
            screen.wait_for("half typed")
            (program.directory / "typed").touch()
            screen.wait_for("alice wants to use bash")
            screen.wait_for("allow? >>")
            config = json.loads((program.directory / ".team/config.json").read_text())
            assert config["members"][0]["waiting_for"].startswith("permission")
            screen.type("y\r")
            screen.wait_for("team >> half typed")
            screen.wait_for("all done")
            assert (program.directory / "made").exists()

    def test_at_name_talks_to_a_teammate_and_the_answer_is_shown(self, program: Program) -> None:
        script = TeamScript(
            lead=[tool("spawn_teammate", name="alice", role="coder", prompt="x"), text("hired"), text("noted")],
            alice=[After(2, text("ready")), text("the colour is blue")],
        )
        with program.against(script), Screen(program) as screen:
            screen.wait_for(PROMPT)
            screen.type("go\r")
            screen.wait_for("noted")
            screen.type("@alice which colour?\r")
            screen.wait_for("the colour is blue")
            screen.type("@nobody hi\x03")
        assert len(script.requests["lead"]) == 3

    def test_a_question_comes_up_while_the_lead_streams_and_blocks_nobody(self, program: Program) -> None:
        script = TeamScript(
            lead=[
                tool("spawn_teammate", name="alice", role="coder", prompt="x"),
                answer(text("words of the lead, and more to come", pieces=2), stall_after(4)),
                text("all done"),
            ],
            alice=[tool("bash", command="touch made"), text("made it")],
        )
        with program.against(script) as api, Screen(program) as screen:
            screen.wait_for(PROMPT)
            screen.type("go\r")
            api.wait_for_stall()
            screen.wait_for("alice wants to use bash")
            screen.wait_for("▲ alice asks")
            screen.wait_for("● lead writing")
            screen.type("/team\r")  # any other line is not an answer
            screen.wait_for("permission: bash")
            screen.type("y\r")
            wait_until((program.directory / "made").exists)
            screen.wait_for("● lead writing")
            api.release()
            screen.wait_for("all done")
        assert len(script.requests["lead"]) == 3

    def test_the_user_approves_a_plan_at_the_prompt_before_the_lead_reads_it(self, program: Program) -> None:
        script = TeamScript(
            lead=[
                answer(
                    tool("spawn_teammate", name="alice", role="coder", prompt="x", plan=True),
                    tool("wait_for_message", timeout_seconds=60),
                ),
                *[text("seen")] * 3,  # the plan, and each of alice's two results
            ],
            alice=[tool("submit_plan", plan="1. touch made\n2. rest"), text("waiting"), text("as approved")],
        )
        with program.against(script), Screen(program) as screen:
            screen.wait_for(PROMPT)
            screen.type("go\r")
            screen.wait_for("alice has a plan")
            screen.wait_for("2. rest")
            screen.wait_for("approve? >>")
            screen.type("n touch nothing\r")
            screen.wait_for("Rejected the plan of 'alice'")
            wait_until(lambda: len(script.requests["alice"]) >= 3)
        assert "touch nothing" in str(script.requests["alice"][2]["messages"][-1])

    def test_the_first_hire_shows_a_tip_and_the_next_start_lists_the_team(self, program: Program) -> None:
        with Screen(program) as screen:
            screen.wait_for(PROMPT)
            screen.type("spawn alice as coder: list\r")
            screen.wait_for(".team/inbox/alice.jsonl")
            screen.wait_for("alice → lead result")
            screen.type("q\r")
            screen.wait_for("teamcli --continue")
            assert screen.wait_for_end() == 0
        with Screen(program) as screen:
            screen.wait_for("team alice (coder, idle)")
            screen.wait_for("○ lead │ ○ alice")


def test_a_choice_is_made_at_the_prompt(program: Program) -> None:
    with Screen(program) as screen:
        screen.wait_for(PROMPT)
        screen.type("/permissions\r")
        screen.wait_for("choose >>")
        screen.wait_for("Esc: cancel")
        screen.type("2\r")
        screen.wait_for("· acceptEdits ·")
        screen.wait_for(PROMPT)


def test_tab_right_after_a_text_takes_the_first_completion_before_what_follows(program: Program) -> None:
    with Screen(program) as screen:
        screen.wait_for(PROMPT)
        screen.type("/permis\t")
        screen.wait_for(f"{PROMPT} /permissions")
        screen.type("acc\t\r")  # the only completion, so Enter sends the line
        screen.wait_for("· acceptEdits ·")


def test_a_line_can_be_added_to_the_instructions(program: Program) -> None:
    with Screen(program) as screen:
        screen.wait_for(PROMPT)
        screen.type("# use tabs\r")
        screen.wait_for("Added to AGENTS.md: use tabs")
    assert (program.directory / "AGENTS.md").read_text() == "- use tabs\n"


def test_the_bell_rings_when_a_question_waits(program: Program) -> None:
    with Screen(program) as screen:
        screen.wait_for(PROMPT)
        assert "\a" not in screen.raw
        screen.type("run date\r")
        screen.wait_for("allow? >>")
        screen.type("n\r")
        screen.wait_for("Refused")  # the bell rang before this
        assert "\a" in screen.raw


def _once(condition: Callable[[], bool], answer: Any) -> Any:
    wait_until(condition)
    return answer


class TestInterrupting:
    def test_ctrl_c_ends_a_hook(self, program: Program) -> None:
        slow = "test -e began && exit 0; touch began; sleep 60"
        program.settings(hooks={"UserPromptSubmit": [{"hooks": [{"type": "command", "command": slow}]}]})
        with program.against([text("going on")]) as api, Screen(program) as screen:
            screen.wait_for(PROMPT)
            screen.type("do it\r")
            wait_until((program.directory / "began").exists)
            screen.type("\x03")
            screen.wait_for("Interrupted")
            screen.type("go on\r")
            screen.wait_for("going on")
        said = str(api.requests[0]["messages"])
        assert "do it" not in said
        assert "<environment>" in said

    def test_ctrl_c_ends_a_command(self, program: Program) -> None:
        with (
            program.against([tool("bash", command="touch started; sleep 60"), text("going on")]),
            Screen(program, "--permission-mode", "bypassPermissions") as screen,
        ):
            screen.wait_for(PROMPT)
            screen.type("work\r")
            wait_until(lambda: (program.directory / "started").exists())
            screen.type("\x03")
            screen.wait_for("Interrupted")
            screen.wait_for(PROMPT, 2)
            screen.type("go on\r")
            screen.wait_for("going on")

    def test_ctrl_c_ends_a_stream(self, program: Program) -> None:
        with (
            program.against([answer(text("half an answer", pieces=2), stall_after(4)), text("going on")]) as api,
            Screen(program) as screen,
        ):
            screen.wait_for(PROMPT)
            screen.type("work\r")
            api.wait_for_stall()
            screen.type("\x03")
            screen.wait_for("Interrupted")
            screen.type("go on\r")
            screen.wait_for("going on")
        assert "interrupted you" in str(api.requests[1]["messages"][-1])

    def test_ctrl_c_ends_the_wait_for_a_retry(self, program: Program) -> None:
        with program.against([status(529, retry_after=50), text("going on")]), Screen(program, columns=200) as screen:
            screen.wait_for(PROMPT)
            screen.type("work\r")
            screen.wait_for("Retrying in 50 s, for 10 more minutes. Esc stops.")
            screen.type("\x03")
            screen.wait_for("Interrupted")
            screen.type("a new task\r")
            screen.wait_for("going on")
            assert screen.text.count("Retrying") == 1

    def test_ctrl_c_clears_a_typed_line(self, program: Program) -> None:
        with Screen(program) as screen:
            screen.wait_for(PROMPT)
            screen.type("half a line")
            screen.wait_for("half a line")
            screen.type("\x03/cost\r")
            screen.wait_for("COST")
            assert "half a line" not in screen.text

    def test_a_second_ctrl_c_at_an_empty_prompt_leaves(self, program: Program) -> None:
        with Screen(program) as screen:
            screen.wait_for(PROMPT)
            screen.type("\x03")
            screen.wait_for("again to leave")
            screen.type("/cost\r")  # the first Ctrl-C no longer counts
            screen.wait_for("COST")
            screen.type("\x03\x03")  # at once: after two seconds, the second would count as the first
            assert screen.wait_for_end() == 0


def test_streamed_text_stays_on_the_screen_when_the_user_leaves(program: Program) -> None:
    with (
        program.against([answer(text("half an answer", pieces=2), stall_after(4))]),
        Screen(program, columns=60) as screen,
    ):
        screen.wait_for(PROMPT)
        screen.type("work\r")
        screen.wait_for("half an")
        screen.type("q\r")
        assert screen.wait_for_end() == 0
        assert "half an" in screen.text
        assert "\nResume with: teamcli --continue" in screen.text


def test_an_api_error_brings_the_prompt_back(program: Program) -> None:
    with (
        program.against(
            [
                status(400, body={"type": "error", "error": {"type": "invalid_request_error", "message": "no"}}),
                text("ok"),
            ]
        ),
        Screen(program) as screen,
    ):
        screen.wait_for(PROMPT)
        screen.type("one\r")
        screen.wait_for(PROMPT, 2)
        screen.type("two\r")
        screen.wait_for("ok")


def test_the_directory_is_trusted_only_if_the_user_agrees(program: Program) -> None:
    (program.directory / ".env").write_text("ANTHROPIC_BASE_URL=http://127.0.0.1:9\nANTHROPIC_API_KEY=k\n")
    with Screen(program) as screen:
        screen.wait_for("http://127.0.0.1:9")
        screen.wait_for("Trust this directory?")
        screen.type("n\r")
        screen.wait_for("not trusted")
        screen.wait_for(PROMPT)
        screen.wait_for("embedded")
    with Screen(program) as screen:  # the same content is not asked about again
        screen.wait_for("not trusted")
        screen.wait_for(PROMPT)
        assert "Trust this directory?" not in screen.text
    (program.directory / ".env").write_text("ANTHROPIC_BASE_URL=http://127.0.0.1:10\nANTHROPIC_API_KEY=k\n")
    with Screen(program) as screen:  # but new content is
        screen.wait_for("Trust this directory?")
        screen.type("y\r")
        screen.wait_for(PROMPT)
        screen.wait_for("· default ·")  # in the status bar, after the model
        assert "embedded" not in screen.text
    with Screen(program) as screen:
        screen.wait_for(PROMPT)
        assert "Trust this directory?" not in screen.text
        assert "not trusted" not in screen.text


def test_a_second_repl_is_refused_and_names_the_first(program: Program) -> None:
    with Screen(program) as screen:
        screen.wait_for(PROMPT)
        with Screen(program) as second:
            second.wait_for(str(screen.process.pid))
            assert second.wait_for_end() == 2
        os.kill(screen.process.pid, signal.SIGKILL)
        screen.wait_for_end()
    with Screen(program) as third:
        third.wait_for(PROMPT)


def test_a_signal_in_a_turn_keeps_what_has_arrived(program: Program) -> None:
    with program.against([answer(text("half an answer", pieces=2), stall_after(4)), text("x")]) as api:
        with Screen(program) as screen:
            screen.wait_for(PROMPT)
            screen.type("work\r")
            screen.wait_for("half")
            os.kill(screen.process.pid, signal.SIGTERM)
            assert screen.wait_for_end() == 143
        program.run("-p", "--continue", "go on")
    assert [message["role"] for message in api.requests[1]["messages"]] == ["user", "assistant", "user"]


def test_a_terminal_that_goes_away_ends_the_program(program: Program) -> None:
    with (
        program.against([answer(text("half an answer\n\nand more", pieces=2), stall_after(4))]) as api,
        Screen(program) as screen,
    ):
        screen.wait_for(PROMPT)
        screen.type("work\r")
        api.wait_for_stall()
        screen.hang_up()
        wait_until(lambda: not screen.process.isalive())
    assert '"interrupted"' in (program.directory / ".team/events.jsonl").read_text()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_the_program_cleanly(program: Program, number: int, code: int) -> None:
    with Screen(program) as screen:
        screen.wait_for(PROMPT)
        os.kill(screen.process.pid, number)
        assert screen.wait_for_end() == code


def test_escape_sequences_in_answers_and_results_are_shown_not_obeyed(program: Program) -> None:
    with (
        program.against([tool("read_file", path="evil\x1b[2J.txt"), text("a\x1b[31mb\x1b]0;title\x07c")]),
        Screen(program) as screen,
    ):
        screen.wait_for(PROMPT)
        screen.type("go\r")
        screen.wait_for("a␛[31mb␛]0;title␇c")
        assert PROMPT + " go" in screen.text


def test_a_full_disk_is_reported_and_the_prompt_works_again_when_there_is_space(program: Program) -> None:
    with program.against([text("Here I am.")]), Screen(program) as screen:
        screen.wait_for(PROMPT)
        _, hard = resource.prlimit(screen.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(screen.process.pid, resource.RLIMIT_FSIZE, (0, hard))  # no file can grow
        screen.type("hello\r")
        screen.wait_for("cannot write")
        screen.wait_for(PROMPT, 2)
        resource.prlimit(screen.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
        screen.type("hello again\r")
        screen.wait_for("Here I am.")
        assert "Traceback" not in screen.text
        assert "Press ENTER" not in screen.text
        screen.type("q\r")
        assert screen.wait_for_end() == 0
