"""`teamcli watch` from another terminal, while a lead runs, starts, leaves and is killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from teamcli import Session
from teamcli.session.watch_client import WatchClient
from teamcli.storage.team_dir import TeamDir
from tests.support.fake_api import answer, stall_after, text, thinking, tool
from tests.support.program import PATIENCE_SECONDS, MakeProgram, Program
from tests.support.running import Running
from tests.support.screen import Screen
from tests.support.team_script import TeamScript
from tests.support.waiting import wait_until

BYPASS = ("--permission-mode", "bypassPermissions")
HIRE = tool("spawn_teammate", name="alice", role="coder", prompt="Fix the parser.")
OFFLINE = ("--offline", *BYPASS)


def watched_team(*of_alice: Any) -> TeamScript:
    return TeamScript(lead=[HIRE, text("She is on it.")] + [text("Fine.")] * 5, alice=list(of_alice))


@pytest.fixture(scope="module")
def hired(tmp_path_factory: pytest.TempPathFactory, forked: MakeProgram) -> Program:
    """A directory with two members that have worked, and no lead. Watchers change nothing there."""
    program = forked(tmp_path_factory.mktemp("hired"), tmp_path_factory.mktemp("home"))
    hire(program, "alice", "one")
    hire(program, "bob", "two")
    return program


def hire(program: Program, name: str, word: str) -> None:
    assert program.run("-p", *OFFLINE, f"spawn {name} as coder: run echo {word}").code == 0


class TestWatching:
    def test_the_words_of_a_member_arrive_as_it_writes_them(self, program: Program) -> None:
        words = f"The key is {program.key}.\nSecond line.\nThird line."
        script = watched_team(tool("bash", command="echo hello"), answer(text(words, pieces=12), stall_after(10)))
        with (
            program.against(script) as api,
            Running(program, *BYPASS) as lead,
            Running(program, "watch", "lead", "--json") as other,
        ):
            lead.type("go")
            api.wait_for_stall()
            with Running(program, "watch", "alice") as watch:
                watch.wait_for("The key is [the API key].\n")
                assert "Third" not in watch.out
                api.release()
                watch.wait_for("Third line.")
                watch.process.send_signal(signal.SIGINT)
                assert watch.process.wait(PATIENCE_SECONDS) == 130
            other.wait_for('"text": "She is on it."')
            seen = watch.out.splitlines()
            assert [line for line in seen if not line.startswith("alice →")] == [
                "lead → alice: Fix the parser.",
                "> $ echo hello: hello",
                "The key is [the API key].",
                "Second line.",
                "Third line.",
            ]
            assert program.key not in other.out

    def test_at_a_terminal_it_shows_half_a_line_at_every_width(self, program: Program) -> None:
        first = f"{'I look at the parser and at its tests. ' * 6}Now half a sen"
        second = f"tence. Finished.{' and so on' * 100}"[: len(first)]
        script = watched_team(answer(thinking("I think."), text(first + second, pieces=2), stall_after(10)))
        with program.against(script) as api, Running(program, *BYPASS) as lead, ExitStack() as stack:
            lead.type("go")
            api.wait_for_stall()
            screens = {
                columns: stack.enter_context(Screen(program, "watch", "alice", *more, columns=columns, lines=20))
                for columns, more in ((60, ()), (80, ()), (120, ("--verbose",)))
            }
            for screen in screens.values():
                screen.wait_for_all("lead → alice: Fix the parser.", "half a sen")
            api.release()
            for columns, screen in screens.items():
                screen.wait_for("Finished.")
                assert screen.text.count("Fix the parser.") == 1
                # The terminal wraps the paragraph, also inside a word.
                assert "".join(screen.text.split()).count("Nowhalfasentence.") == 1
                assert ("I think." in screen.text) == (columns == 120)
            screens[80].type("\x03")
            assert screens[80].wait_for_end() == 130

    def test_a_question_is_shown_and_where_to_answer_it(self, program: Program) -> None:
        script = watched_team(tool("bash", command="touch made"), text("ok"))
        with (
            program.against(script),
            Screen(program) as lead,
            Running(program, "watch") as watch,
        ):
            lead.wait_for("team >>")
            lead.type("go\r")
            watch.wait_for("alice asks: $ touch made. Answer at the lead's prompt.")
            lead.wait_for("touch made")
            lead.type("y\r")
            watch.wait_for("alice: > $ touch made")

    def test_everyone_is_watched_by_name_and_who_is_hired_later_appears(self, program: Program) -> None:
        with Running(program, *OFFLINE) as lead:
            wait_until((program.directory / ".team/watch.sock").exists)
            with Running(program, "watch") as watch:
                lead.type("spawn carol as coder: run echo later")
                watch.wait_for("carol: > $ echo later: later")
                watch.wait_for("lead: > spawn carol (coder)")
                watch.process.terminate()
                assert watch.process.wait(PATIENCE_SECONDS) == 143

    def test_a_message_from_another_program_is_a_step(self, program: Program) -> None:
        hire(program, "alice", "one")
        with Running(program, *OFFLINE), Running(program, "watch", "ALICE") as watch:
            watch.wait_for("> $ echo one: one")
            line = json.dumps({"type": "message", "from": "me", "content": "run echo from outside"})
            with (program.directory / ".team/inbox/alice.jsonl").open("a") as inbox:
                inbox.write(line + "\n")
            watch.wait_for("outside → alice: (claims to be me) run echo from outside")
            watch.wait_for("> $ echo from outside: from outside")


class TestWithoutALead:
    def test_it_shows_the_last_steps_and_waits_for_one(self, program: Program) -> None:
        hire(program, "alice", "one")
        with Running(program, "watch", "alice") as watch:
            watch.wait_for("teamcli is not running in")
            for times in (1, 2):
                with Running(program, *OFFLINE) as lead:
                    watch.wait_for("teamcli is running (process", times)
                    lead.type("@alice run echo again")
                    watch.wait_for("> $ echo again: again", times)
                    assert lead.leave() == 0
                watch.wait_for("teamcli has left.", times)
            assert watch.out.count("> $ echo one: one") == 1
            assert watch.out.count("> $ echo again: again") == 2
            assert watch.out.count("user → alice: run echo again") == 2

    def test_a_killed_lead_loses_no_step_and_repeats_none(self, program: Program) -> None:
        script = watched_team(
            answer(text("Before."), tool("bash", command="echo 1")),
            answer(text("Half of an answer\nthat is lost", pieces=8), stall_after(8)),
            answer(text("The answer after all.")),
        )
        with program.against(script) as api, ExitStack() as stack:
            lead = stack.enter_context(Running(program, *BYPASS))
            lead.type("go")
            api.wait_for_stall()
            watch = stack.enter_context(Running(program, "watch", "alice"))
            watch.wait_for("Half of an answer\n")
            lead.process.kill()
            watch.wait_for("teamcli has left.")
            lead = stack.enter_context(Running(program, *BYPASS))
            watch.wait_for("teamcli is running")
            lead.type("/resume alice")
            watch.wait_for("The answer after all.")
            watch.wait_for("alice → lead (result)")
            api.release()
            counted = ("Fix the parser.", "Before.", "> $ echo 1: 1", "Half of an answer", "alice → lead (result)")
            assert {step: watch.out.count(step) for step in counted} == dict.fromkeys(counted, 1)

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    def test_a_signal_ends_it_with_its_exit_code(self, hired: Program, number: signal.Signals) -> None:
        with Running(hired, "watch") as watch:
            watch.wait_for("Waiting for it to start")
            watch.process.send_signal(number)
            assert watch.process.wait(PATIENCE_SECONDS) == 128 + number

    def test_a_closed_pipe_ends_it_quietly(self, hired: Program) -> None:
        process = hired.start("watch")
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert (process.wait(PATIENCE_SECONDS), process.stderr.read()) == (141, b"")
        process.stderr.close()

    def test_an_unknown_name_is_an_error_that_lists_the_names(self, hired: Program) -> None:
        ran = hired.run("watch", "dave")
        assert (ran.code, ran.out) == (2, "")
        assert ran.err == "teamcli: there is no teammate 'dave'; there are: lead, alice, bob\n"

    def test_it_creates_nothing(self, program: Program) -> None:
        with Running(program, "watch") as watch:
            watch.wait_for("Waiting for it to start")
        assert list(program.directory.iterdir()) == []


class TestWhoHasAChannel:
    def test_a_second_run_leaves_the_first_its_socket(self, program: Program) -> None:
        path = program.directory / ".team/watch.sock"
        with Running(program, *OFFLINE) as lead:
            wait_until(path.exists)
            inode = path.stat().st_ino
            assert program.run("-p", *OFFLINE, "run sleep 0.6").code == 0
            assert path.stat().st_ino == inode
            assert lead.leave() == 0
        assert not path.exists()

    def test_a_run_without_a_team_has_none(self, program: Program) -> None:
        assert program.run("-p", "--no-team", *OFFLINE, "run sleep 0.6; ls -a .team /tmp/teamcli-*").code == 0
        assert not (program.directory / ".team").exists()

    def test_a_session_of_the_library_has_one(self, tmp_path: Path) -> None:
        state = TeamDir.of(tmp_path)
        clients: list[WatchClient | None] = []
        with Session(tmp_path, offline=True):
            wait_until(lambda: clients.append(WatchClient.open(state, "lead", os.getpid())) or clients[-1])
            assert state.watch_socket.exists()
        assert not state.watch_socket.exists()
        clients[-1].close()  # type: ignore[union-attr]


class TestTmux:
    @pytest.fixture
    def tmux(self, tmp_path: Path) -> Iterator[Callable[..., str]]:
        if shutil.which("tmux") is None:
            pytest.skip("tmux is not installed")
        command = ["tmux", "-f", "/dev/null", "-S", str(tmp_path / uuid.uuid4().hex[:8])]

        def run(*arguments: str) -> str:
            return subprocess.run([*command, *arguments], capture_output=True, text=True, check=True, timeout=30).stdout

        yield run
        subprocess.run([*command, "kill-server"], capture_output=True, check=False)

    def start(self, program: Program, tmux: Callable[..., str], rows: int) -> None:
        """A shell in a window, in which the user starts the panes."""
        environment = [item for pair in program.env().items() for item in ("-e", "=".join(pair))]
        tmux("new-session", "-d", "-x", "100", "-y", str(rows), *environment, "-c", str(program.directory), "sh")
        command = " ".join(program.command(["--cwd", str(program.directory), "watch", "--tmux"]))
        tmux("send-keys", f"cd / && {command}; echo code $?", "Enter")

    def test_each_member_gets_a_pane_with_its_name(self, hired: Program, tmux: Callable[..., str]) -> None:
        self.start(hired, tmux, 40)
        wait_until(lambda: "code 0" in tmux("capture-pane", "-p", "-t", "0"))
        titles = tmux("list-panes", "-F", "#{pane_index} #{pane_title}").splitlines()[1:]
        assert titles == ["1 alice", "2 bob"]
        wait_until(lambda: "$ echo one" in tmux("capture-pane", "-p", "-t", "1"))
        wait_until(lambda: "$ echo two" in tmux("capture-pane", "-p", "-t", "2"))

    def test_a_window_that_is_too_small_says_who_has_no_pane(self, hired: Program, tmux: Callable[..., str]) -> None:
        self.start(hired, tmux, 4)
        wait_until(lambda: "code 0" in tmux("capture-pane", "-p", "-t", "0", "-S-", "-J"))
        shown = tmux("capture-pane", "-p", "-t", "0", "-S-", "-J")
        assert "No room for bob" in shown

    def test_outside_of_tmux_it_says_what_to_do(self, hired: Program) -> None:
        ran = hired.run("watch", "--tmux")
        assert (ran.code, ran.err.count("\n")) == (2, 1)
        assert "start tmux" in ran.err

    def test_without_members_it_says_so(self, program: Program) -> None:
        ran = program.run("watch", "--tmux", env={"TMUX": "/nowhere,1,0"})
        assert (ran.code, ran.out) == (0, "No teammates yet. Ask the lead to hire some.\n")
