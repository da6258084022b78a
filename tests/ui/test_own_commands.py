"""`!command` at a terminal: what the lead sees of it, and programs that need the terminal for themselves."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.support.fake_api import answer, said_by_user, stall_after, text
from tests.support.program import Program
from tests.support.screen import Screen
from tests.support.tmux import Tmux
from tests.support.waiting import wait_until

PROMPT = "team >>"
SHARED = "The lead sees this with your next line"


@pytest.fixture
def editor(program: Program, tmp_path: Path) -> Path:
    """A program called `vim` that wants a terminal: it says so, reads keys one by one, and ends with its last key."""
    directory = tmp_path / "bin"
    directory.mkdir()
    path = directory / "vim"
    path.write_text(
        """#!/bin/bash
test -t 0 && test -t 1 || { echo no terminal; exit 9; }
trap 'echo [ctrl-c]' INT
stty -icanon -echo
echo "editing $1, key: ${ANTHROPIC_API_KEY:-none}"
while read -r -n 1 key || test $? -gt 128; do
    echo "<$key>"
    test "$key" = Q && exit 4
done
"""
    )
    path.chmod(0o755)
    program.variables["PATH"] = f"{directory}:{program.env()['PATH']}"
    return path


def test_the_lead_sees_a_command_and_a_line_says_so_once(program: Program) -> None:
    with program.against([text("I see")]) as api, Screen(program) as screen:
        screen.wait_for(PROMPT)
        screen.type("!echo first\r")
        screen.wait_for(SHARED)
        screen.type("!echo second\r")
        screen.wait_for("\nsecond\n")
        screen.type("look\r")
        screen.wait_for("I see")
        assert screen.text.count(SHARED) == 1
    assert "$ echo first\nfirst" in said_by_user(api.requests[0])
    assert "$ echo second\nsecond" in said_by_user(api.requests[0])


def test_what_an_interrupted_command_printed_is_seen_too(program: Program) -> None:
    with program.against([text("I see")]) as api, Screen(program) as screen:
        screen.wait_for(PROMPT)
        screen.type("!echo so far; touch started; sleep 60\r")
        wait_until((program.directory / "started").exists)
        screen.wait_for("\nso far\n")
        screen.type("\x03")
        screen.wait_for("Interrupted")
        screen.type("look\r")
        screen.wait_for("I see")
    assert "so far\n[interrupted by the user]" in said_by_user(api.requests[0])


def test_a_private_command_is_not_announced(program: Program) -> None:
    program.settings(shell_output="private")
    with program.against([text("ok")]) as api, Screen(program) as screen:
        screen.wait_for(PROMPT)
        screen.type("!echo secret words\r")
        screen.wait_for("\nsecret words\n")
        screen.type("hi\r")
        screen.wait_for("ok")
        assert SHARED not in screen.text
    assert "secret words" not in str(api.requests)


def test_an_editor_gets_the_terminal_while_the_leads_output_waits(program: Program, editor: Path) -> None:
    script = [answer(text("first words\n\nlast words", pieces=4), stall_after(2)), text("done")]
    with program.against(script) as api, Screen(program) as screen:
        screen.wait_for(PROMPT)
        screen.type("work\r")
        api.wait_for_stall()
        screen.type("!vim notes.txt\r")
        screen.wait_for("editing notes.txt, key: none")
        api.release()
        for key, shown in (("a", "<a>"), ("\x03", "[ctrl-c]"), ("b", "<b>")):
            screen.type(key)
            screen.wait_for(shown)
        assert "last words" not in screen.text
        screen.type("Q")
        screen.wait_for_all("[exit code 4]", "last words", "○ lead")
        assert "Interrupted" not in screen.text
        screen.type("and now\r")
        screen.wait_for("done")
    assert "vim" not in said_by_user(api.requests[1])


def test_ctrl_z_does_not_lose_a_program_that_has_the_terminal(program: Program, editor: Path) -> None:
    with Screen(program) as screen:
        screen.wait_for(PROMPT)
        screen.type("!vim a\r")
        screen.wait_for("editing a")
        screen.type("\x1ax")
        screen.wait_for("<x>")
        screen.type("Q")
        screen.wait_for("[exit code 4]")
        screen.type("/cost\r")
        screen.wait_for("COST")


def test_leaving_by_a_signal_ends_a_program_that_has_the_terminal(program: Program, editor: Path) -> None:
    with Screen(program) as screen:
        screen.wait_for(PROMPT)
        screen.type("!vim a\r")
        screen.wait_for("editing a")
        screen.process.kill(15)
        assert screen.wait_for_end() == 143


@pytest.mark.skipif(shutil.which("less") is None, reason="less is not installed")
def test_a_pager_works(program: Program) -> None:
    (program.directory / "a.txt").write_text("\n".join(f"line {number}" for number in range(200)))
    with Screen(program) as screen:
        screen.wait_for(PROMPT)
        screen.type("!less a.txt\r")
        screen.wait_for("line 30")
        screen.type("G")
        screen.wait_for("line 199")
        screen.type("q")
        screen.wait_for(PROMPT)
        screen.type("/cost\r")
        screen.wait_for("COST")


def test_the_program_gets_only_the_keys_that_are_typed(program: Program, editor: Path, tmux: Tmux) -> None:
    """teamcli asks the terminal where the cursor is, for example when it prints. The answer is not for the program."""
    with program.against([answer(text("So far.\n\nThe end.\n\n"), stall_after(4))]) as api:
        tmux.start(program)
        tmux.wait_for(PROMPT)
        tmux.type("go", "Enter")
        api.wait_for_stall()
        tmux.type(f"!{editor} a", "Enter")
        tmux.wait_for("editing a")
        api.release()
        for number, columns in enumerate((60, 90, 50, 80), 1):
            tmux.resize(columns, 24)
            tmux.type("x")
            wait_until(lambda number=number: tmux.copied().count("<x>") == number)
        tmux.type("Q")
        tmux.wait_for("The end.")
    assert re.findall(r"<(.*)>", tmux.copied()) == [*"xxxxQ"]
    assert "^[" not in tmux.copied()
