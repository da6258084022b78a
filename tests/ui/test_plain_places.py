"""Terminals that can do less, and windows that change: the screen stays right."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from teamcli.ui.terminal.plain_prompt import AroundThePrompt
from tests.support.fake_api import answer, drip, text, tool
from tests.support.program import Program
from tests.support.screen import Screen
from tests.support.team_script import TeamScript
from tests.support.waiting import wait_until

PROMPT = "team >>"
ANSWER = (
    "# Title\n\nSome **bold** `code`.\n\n" + "word " * 60 + "\n\n- 漢字 and 🚀\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
)


def color_codes(raw: str) -> list[str]:
    return [code for code in re.findall(r"\x1b\[([0-9;]*)m", raw) if code.strip("0;")]


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_every_width_shows_the_answer_the_prompt_and_the_bar(program: Program, columns: int) -> None:
    with (
        program.against([tool("bash", command="echo " + "long " * 40), text(ANSWER)]),
        Screen(program, "--permission-mode", "bypassPermissions", columns=columns) as screen,
    ):
        screen.wait_for(PROMPT)
        screen.type("go\r")
        screen.wait_for("漢字 and 🚀")
        screen.wait_for_all("○ lead", "Title", f"{PROMPT} go", "bypassPermi")
        assert screen.text.count("○ lead") == 1


def test_no_color_turns_all_colors_off(program: Program) -> None:
    program.variables["NO_COLOR"] = "1"
    with program.against([text(ANSWER)]), Screen(program) as screen:
        screen.wait_for(PROMPT)
        screen.type("go\r")
        screen.wait_for("漢字 and 🚀")
        assert color_codes(screen.raw) == []


def test_a_dumb_terminal_gets_plain_text_and_can_answer(program: Program) -> None:
    program.variables["TERM"] = "dumb"
    with program.against([tool("bash", command="touch made"), text("The end.")]), Screen(program) as screen:
        screen.wait_for(PROMPT)
        screen.type("go\r")
        screen.wait_for("$ touch made")
        screen.wait_for("allow? >>")
        screen.type("y\r")
        screen.wait_for("The end.")
        screen.type("q\r")
        assert screen.wait_for_end() == 0
        assert color_codes(screen.raw) == []
    assert (program.directory / "made").exists()


def test_a_dumb_terminal_shows_a_question_after_the_words_before_it(program: Program) -> None:
    program.variables["TERM"] = "dumb"
    calls = answer(text("First words."), tool("bash", command="touch made"))
    with program.against([calls, text("The end.")]), Screen(program) as screen:
        screen.wait_for(PROMPT)
        screen.type("go\r")
        screen.wait_for("allow? >>")
        screen.type("y\r")
        screen.wait_for("The end.")
        assert screen.text.index("First words.") < screen.text.index("wants to use bash")


def test_a_dumb_terminal_repeats_the_label_of_an_open_question() -> None:
    stream = io.StringIO()
    page = AroundThePrompt(stream)
    page.set_label("allow? >> ")
    page.put("bob joins the team\n", [])
    assert stream.getvalue() == "\nbob joins the team\nallow? >> "


def test_a_question_gets_ascii_in_a_locale_without_unicode(program: Program) -> None:
    program.variables |= {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    call = tool("write_file", path="a", content="x\n" * 100)
    with program.against([call, text("end")]), Screen(program) as screen:
        screen.wait_for(PROMPT)
        screen.type("go\r")
        screen.wait_for_all("lines 1-", "allow? >>")
        screen.type("n\r")
        screen.wait_for_all("- write a  refused by you", "end")
        assert screen.raw.isascii()


def test_a_locale_without_unicode_gets_ascii(program: Program) -> None:
    program.variables |= {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    with (
        program.against([tool("bash", command="true"), text("- one\n- two, naïve\n")]),
        Screen(program, "--permission-mode", "bypassPermissions") as screen,
    ):
        screen.wait_for(PROMPT)
        screen.type("go\r")
        screen.wait_for("two, na")
        assert screen.raw.isascii()


@pytest.fixture
def tmux(program: Program, tmp_path: Path) -> Iterator[list[str]]:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    command = ["tmux", "-S", str(tmp_path / uuid.uuid4().hex[:8])]
    yield command
    subprocess.run([*command, "kill-server"], capture_output=True, check=False)


def test_resizing_while_text_streams_leaves_one_prompt_and_loses_nothing(program: Program, tmux: list[str]) -> None:
    def run(*arguments: str) -> str:
        return subprocess.run([*tmux, *arguments], capture_output=True, text=True, check=True, timeout=30).stdout

    lines = "".join(f"line {number:03d} of the answer\n\n" for number in range(120))
    with program.against([answer(text(lines, pieces=120), drip(0.02))]):
        environment = [item for pair in program.env().items() for item in ("-e", "=".join(pair))]
        options = ["-d", "-x", "80", "-y", "24", *environment, "-c", str(program.directory)]
        run("new-session", *options, *program.command(()))
        run("set-option", "-g", "history-limit", "5000")
        wait_until(lambda: PROMPT in run("capture-pane", "-p"))
        run("send-keys", "go", "Enter")
        for width, row in ((60, 10), (110, 30), (40, 50), (80, 70)):
            wait_until(lambda row=row: f"line {row:03d}" in run("capture-pane", "-p", "-S-"))
            run("resize-window", "-x", str(width), "-y", "24")
        shown = ""

        def is_whole() -> bool:
            """Between two drawings there may be no prompt for a moment."""
            nonlocal shown
            shown = run("capture-pane", "-p", "-S-")
            return "line 119" in shown and (shown.count(PROMPT), shown.count("○ lead")) == (2, 1)

        wait_until(is_whole)
    assert [int(number) for number in re.findall(r"line (\d+) of", shown)] == list(range(120))


def test_a_question_can_be_read_and_answered_after_the_terminal_was_resized(program: Program, tmux: list[str]) -> None:
    def run(*arguments: str) -> str:
        return subprocess.run([*tmux, *arguments], capture_output=True, text=True, check=True, timeout=30).stdout

    content = "".join(f"line {number:03d} {'of the file ' * 10}\n" for number in range(300))
    with program.against([tool("write_file", path="src/big.txt", content=content), text("The end.")]):
        environment = [item for pair in program.env().items() for item in ("-e", "=".join(pair))]
        options = ["-d", "-x", "80", "-y", "24", *environment, "-c", str(program.directory)]
        run("new-session", *options, *program.command(()))
        wait_until(lambda: PROMPT in run("capture-pane", "-p"))
        run("send-keys", "go", "Enter")
        wait_until(lambda: "allow? >>" in run("capture-pane", "-p"))
        for columns, rows in ((40, 10), (120, 40), (60, 15), (80, 24)):
            run("send-keys", "PageDown")
            run("resize-window", "-x", str(columns), "-y", str(rows))
        run("send-keys", "End")
        wait_until(lambda: "line 299" in run("capture-pane", "-p"))
        run("send-keys", "Home")

        def is_whole() -> bool:
            _, _, shown = run("capture-pane", "-p").rpartition("wants to use write_file: ")
            parts = ("src/big.txt (+300 -0)", "line 000", "lines 1–", "allow? >>", "default")
            return [shown.count(part) for part in parts] == [1] * len(parts)

        wait_until(is_whole)
        run("send-keys", "y", "Enter")
        wait_until((program.directory / "src/big.txt").exists)


def test_resizing_while_a_member_is_watched_keeps_its_view_and_loses_nothing(program: Program, tmux: list[str]) -> None:
    def run(*arguments: str) -> str:
        return subprocess.run([*tmux, *arguments], capture_output=True, text=True, check=True, timeout=30).stdout

    lines = "".join(f"line {number:03d} of alice\n\n" for number in range(60))
    script = TeamScript(
        lead=[tool("spawn_teammate", name="alice", role="writer", prompt="x"), text("hired"), text("noted")],
        alice=[answer(text(lines, pieces=60), drip(0.02))],
    )
    with program.against(script):
        environment = [item for pair in program.env().items() for item in ("-e", "=".join(pair))]
        options = ["-d", "-x", "80", "-y", "24", *environment, "-c", str(program.directory)]
        run("new-session", *options, *program.command(()))
        run("set-option", "-g", "history-limit", "5000")
        wait_until(lambda: PROMPT in run("capture-pane", "-p"))
        run("send-keys", "go", "Enter")
        wait_until(lambda: "○ lead" in run("capture-pane", "-p") and "alice writing" in run("capture-pane", "-p"))
        run("send-keys", "/watch alice", "Enter")  # Shift-Down would show only half a screen of what she wrote so far
        for size, row in ((("60", "20"), 10), (("110", "30"), 25), (("80", "12"), 40)):
            wait_until(lambda row=row: f"line {row:03d}" in run("capture-pane", "-p", "-S-"))
            run("resize-window", "-x", size[0], "-y", size[1])
        shown = ""

        def is_whole() -> bool:
            nonlocal shown
            shown = run("capture-pane", "-p", "-S-")
            return "line 059" in shown and (shown.count("alice >>"), shown.count("○ alice◂")) == (1, 1)

        wait_until(is_whole)
    assert [int(number) for number in re.findall(r"^line (\d+) of", shown, re.M)] == list(range(60))
