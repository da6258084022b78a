"""Approving with open eyes: a long question is read to its end, and nothing of it is hidden."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.fake_api import answer, text, tool
from tests.support.program import Program
from tests.support.screen import Screen
from tests.support.waiting import wait_until

PROMPT = "team >>"
PAGE_DOWN, PAGE_UP, UP, DOWN, HOME, END = "\x1b[6~", "\x1b[5~", "\x1b[A", "\x1b[B", "\x1b[H", "\x1b[F"
CTRL_O = "\x0f"
LONG_PATH = "a-directory/with-a-long-name/and-another-one/the-module-with-the-important-name.py"


@contextmanager
def asked(program: Program, *calls: object, columns: int = 80, lines: int = 24) -> Iterator[Screen]:
    """A terminal in which the lead asks for permission."""
    with program.against([*calls, text("The end.")]), Screen(program, columns=columns, lines=lines) as screen:  # type: ignore[list-item]
        screen.wait_for(PROMPT)
        screen.type("do it\r")
        screen.wait_for("allow? >>")
        yield screen


def position(screen: Screen) -> tuple[int, int, int]:
    found = re.search(r"(\d+)–(\d+)(?: of |/)([\d,]+)", screen.text)
    assert found, screen.text
    first, last, total = (int(number.replace(",", "")) for number in found.groups())
    return first, last, total


def read_on(screen: Screen, key: str) -> None:
    before = position(screen)
    screen.type(key)
    screen.wait_for_match(re.compile(rf"lines (?!{before[0]}–)\d"))


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_diff_of_2000_lines_is_read_to_its_end_before_it_is_approved(program: Program, columns: int) -> None:
    content = "".join(f"line number {number}\n" for number in range(1, 2001))
    with asked(program, tool("write_file", path="src/big.py", content=content), columns=columns, lines=100) as screen:
        seen: set[str] = set()
        while True:
            assert "lead wants to use write_file: src/big.py (+2000 -0)" in screen.text
            seen.update(re.findall(r"^    \+line number (\d+)$", screen.text, re.MULTILINE))
            if " · the end" in screen.text:
                break
            read_on(screen, PAGE_DOWN)
        assert seen == {str(number) for number in range(1, 2001)}
        screen.type("y\r")
        screen.wait_for("The end.")
    assert (program.directory / "src/big.py").read_text() == content


@pytest.mark.parametrize(("columns", "lines"), [(40, 10), (60, 12), (200, 60)])
def test_the_question_names_the_file_and_can_be_read_at_any_size(program: Program, columns: int, lines: int) -> None:
    content = "".join(f"number {number}\n" for number in range(1, 101))
    with asked(program, tool("write_file", path=LONG_PATH, content=content), columns=columns, lines=lines) as screen:
        screen.wait_for("t-name.py (+100 -0)")
        screen.wait_for_all("a-direc", "lead wants to use write_file:", "y once", " 1–", "below")
        assert position(screen)[2] == 101
        screen.type(END)
        screen.wait_for_all("+number 100", "the end", "t-name.py (+100 -0)", "allow? >>")
        screen.type(HOME)
        screen.wait_for_all("@@ -0,0 +1,100 @@", " 1–")


def saved_rules(program: Program) -> list[str]:
    path = program.directory / ".team/settings.local.json"
    return json.loads(path.read_text())["permissions"]["allow"] if path.exists() else []


class TestRules:
    GIT = tool("bash", command="git diff --stat HEAD~1")

    @pytest.mark.parametrize(
        ("keys", "saved", "is_asked_again"),
        [
            ("a\r", ["bash(git diff --stat HEAD~1)"], True),
            ("2\r", ["bash(git diff:*)"], False),
        ],
    )
    def test_always_shows_the_rules_and_saves_the_chosen_one(
        self, program: Program, keys: str, saved: list[str], is_asked_again: bool
    ) -> None:
        with asked(program, self.GIT, tool("bash", command="git diff main")) as screen:
            screen.type("a\r")
            screen.wait_for_all("1 bash(git diff --stat HEAD~1)", "2 bash(git diff:*)", "rule? >>", "Esc: back")
            assert saved_rules(program) == []
            screen.type(keys)
            screen.wait_for(f"Allowed from now on: {saved[0]}")
            screen.wait_for("$ git diff main" if is_asked_again else "The end.")
        assert saved_rules(program) == saved

    @pytest.mark.parametrize(
        ("call", "keys", "saved"),
        [
            (tool("bash", command="git status && ls -l"), "a2\r", ["bash(git status:*)", "bash(ls:*)"]),
            (tool("write_file", path="src/x/a.py", content="1"), "a 2\r", ["write_file(src/x/**)"]),
            (tool("write_file", path="a.py", content="1"), "a\r1\r", ["write_file(./a.py)"]),
        ],
    )
    def test_the_rule_can_be_chosen_at_once(self, program: Program, call: object, keys: str, saved: list[str]) -> None:
        with asked(program, call) as screen:
            screen.type(keys)
            screen.wait_for("The end.")
        assert saved_rules(program) == saved

    def test_escape_goes_back_to_the_question(self, program: Program) -> None:
        with asked(program, self.GIT) as screen:
            screen.type("a\r")
            screen.wait_for("rule? >>")
            screen.type("\x1b")
            screen.wait_for_all("allow? >>", "a always")
            screen.type("y\r")
            screen.wait_for("The end.")
        assert saved_rules(program) == []


class TestOutcome:
    """A call that did not run has not failed."""

    @pytest.mark.parametrize(
        ("keys", "arguments", "expected"),
        [
            ("n use tee\r", (), ["⊘ $ touch made", "refused by you", "    use tee"]),
            ("", ("--disallowedTools", "bash(touch:*)"), ["⊘ $ touch made", "refused by the rule bash(touch:*)"]),
            ("", ("--permission-mode", "plan"), ["⊘ $ touch made", "refused by plan mode"]),
        ],
    )
    def test_a_refused_call_says_by_what(
        self, program: Program, keys: str, arguments: tuple[str, ...], expected: list[str]
    ) -> None:
        calls = [tool("bash", command="touch made"), text("The end.")]
        with program.against(calls), Screen(program, *arguments) as screen:
            screen.wait_for(PROMPT)
            screen.type("do it\r")
            if keys:
                screen.wait_for("allow? >>")
                screen.type(keys)
            screen.wait_for_all("The end.", *expected)
            assert "failed" not in screen.text
            screen.type("q\r")
            assert screen.wait_for_end() == 0
        finished = [row for row in program.lines(".team/events.jsonl") if row["event"] == "tool_finished"]
        assert finished[0]["refused"].startswith("refused by")
        assert "⊘ bash" in program.run("log").out

    def test_a_pipe_says_refused_too(self, program: Program) -> None:
        with program.against([tool("bash", command="touch made"), text("end")]):
            assert "> bash: refused: The mode default asks" in program.run(stdin="do it\n").out

    @pytest.mark.parametrize(
        ("hook", "mode", "expected"),
        [("", "plan", "refused by plan mode"), ("echo not here >&2; exit 2", "default", "refused by a hook: not here")],
    )
    def test_the_steps_of_a_headless_run_say_refused_too(
        self, program: Program, hook: str, mode: str, expected: str
    ) -> None:
        program.settings(hooks={"PreToolUse": [{"hooks": [{"type": "command", "command": hook or "true"}]}]})
        with program.against([tool("bash", command="touch made"), text("end")]):
            ran = program.run("-p", "do it", "--verbose", "--permission-mode", mode)
        assert f"⊘ lead: $ touch made ({expected})" in ran.err

    def test_the_line_that_says_why_a_command_failed_is_under_it(self, program: Program) -> None:
        with asked(program, tool("bash", command="python3 -c 'import nonexistent'")) as screen:
            screen.type("y\r")
            screen.wait_for_all("exit code 1", "\n    ModuleNotFoundError: No module named 'nonexistent'", "The end.")
            screen.type(CTRL_O)
            screen.wait_for_all("(/expand 1 of 1)", "Traceback")

    def test_the_wait_for_an_answer_is_not_the_time_of_the_call(self, program: Program) -> None:
        with asked(program, tool("bash", command="touch made")) as screen:
            screen.wait_for("▲ lead asks")
            begun = time.monotonic()
            wait_until(lambda: time.monotonic() > begun + 1)
            screen.type("n\x7fy\r")
            screen.wait_for("The end.")
            screen.type("q\r")
            screen.wait_for_end()
        rows = {row["event"]: row for row in program.lines(".team/events.jsonl")}
        assert rows["permission_given"]["waited_seconds"] >= 1
        assert rows["tool_finished"]["seconds"] < rows["permission_given"]["waited_seconds"]


class TestLongQuestions:
    def test_nothing_in_a_long_line_is_hidden(self, program: Program) -> None:
        command = "echo " + "漢字\t" * 3000 + "y" * 20_000 + "; rm it"
        with asked(program, tool("bash", command=command), columns=60, lines=16) as screen:
            screen.wait_for_all("below", "lines 1–1 of ", "$ echo 漢字")
            screen.type(END)
            screen.wait_for_all("; rm it", "the end")
            screen.type(PAGE_UP)
            screen.wait_for("%")
            assert not re.search(
                r"^\S", screen.text.partition("wants to use bash:")[2].partition("lines ")[0].strip("\n")
            )
            screen.type("n\r")
            screen.wait_for("The end.")

    def test_a_megabyte_on_one_line_is_scrolled_at_once(self, program: Program) -> None:
        with asked(program, tool("bash", command="echo " + "x" * 1_000_000 + "; rm it")) as screen:
            screen.type(END)
            screen.wait_for_all("; rm it", "the end")
            screen.type(HOME)
            screen.wait_for("$ echo")
            screen.type("n\r")
            screen.wait_for("Refused lead")

    def test_keys_scroll_only_while_the_answer_is_empty(self, program: Program) -> None:
        content = "".join(f"number {number}\n" for number in range(1, 101))
        with asked(program, tool("write_file", path="a", content=content)) as screen:
            first = position(screen)
            screen.type(DOWN)
            screen.wait_for(f"lines 2–{first[1] + 1} of")
            screen.type(UP)
            screen.wait_for(f"lines 1–{first[1]} of")
            screen.type(" ")
            screen.wait_for(f"lines {first[1]}–")
            screen.type("n not like this ")
            screen.wait_for("allow? >> n not like this")
            screen.type(HOME + "no, " + END + "at all\r")
            screen.wait_for("refused by you")
            screen.wait_for("n not like this at all")

    def test_a_question_that_is_withdrawn_while_it_is_read_leaves_the_prompt(self, program: Program) -> None:
        content = "".join(f"number {number}\n" for number in range(1, 101))
        with asked(program, tool("write_file", path="a", content=content)) as screen:
            read_on(screen, PAGE_DOWN)
            screen.type("\x1b[Z")  # Shift-Tab: acceptEdits
            screen.wait_for_all("The end.", PROMPT)
            assert "below" not in screen.text.rpartition("The end.")[2]
        assert (program.directory / "a").read_text() == content

    def test_each_question_is_read_from_its_start(self, program: Program) -> None:
        contents = ["".join(f"{name} {number}\n" for number in range(1, 101)) for name in ("first", "second")]
        calls = [tool("write_file", path=f"{number}.txt", content=content) for number, content in enumerate(contents)]
        with asked(program, answer(*calls)) as screen:
            screen.wait_for("1 of 2")
            screen.type(END)
            screen.wait_for("the end")
            screen.type("y\r")
            screen.wait_for_all("@@ -0,0 +1,100 @@", "lines 1–", "allow? >>")
            screen.type("y\r")
            screen.wait_for("The end.")

    def test_a_terminal_that_only_prints_shows_all_of_it_and_the_rules(self, program: Program) -> None:
        program.variables["TERM"] = "dumb"
        content = "".join(f"number {number}\n" for number in range(1, 301))
        with asked(program, tool("write_file", path="src/a", content=content)) as screen:
            shown = screen.text_with_scrollback
            assert all(f"    +number {number}\n" in shown for number in range(1, 301))
            assert "lead wants to use write_file: src/a (+300 -0)" in shown
            screen.type("a\n")
            screen.wait_for_all("1 write_file(src/a)", "2 write_file(src/**)", "rule? >>")
            screen.type("2\n")
            screen.wait_for("The end.")
        assert saved_rules(program) == ["write_file(src/**)"]


class TestPager:
    def test_a_question_opens_in_the_pager_without_keys_or_control_characters(self, program: Program) -> None:
        pager = program.home / "pager"
        pager.write_text('#!/bin/sh\ncat > read.txt; echo "$@" > args.txt; env > env.txt; touch done\n')
        pager.chmod(0o755)
        program.variables["PAGER"] = f"{pager} -x"
        content = "".join(f"number {number} \x1b[2J\r{program.key}\n" for number in range(1, 101))
        with asked(program, tool("write_file", path="a", content=content)) as screen:
            screen.type(CTRL_O)
            wait_until((program.directory / "done").exists)
            screen.wait_for_all("allow? >>", "lines 1–")
            screen.type("n\r")
            screen.wait_for("The end.")
        read, passed, env = ((program.directory / name).read_text() for name in ("read.txt", "args.txt", "env.txt"))
        assert "+number 100 ␛[2J␍" in read
        assert read.startswith("▲ lead wants to use write_file: a (+100 -0)\n")
        assert passed == "-x\n"
        assert program.key not in read + passed + env

    def test_ctrl_c_in_the_pager_is_not_an_answer(self, program: Program) -> None:
        """Programs such as less receive it as a signal, and so does teamcli."""
        pager = program.home / "pager"
        pager.write_text("#!/bin/sh\ntrap 'touch interrupted' INT\ncat > /dev/null\ntouch ready\nread key < /dev/tty\n")
        pager.chmod(0o755)
        program.variables["PAGER"] = str(pager)
        with asked(program, tool("bash", command="touch made")) as screen:
            screen.type(CTRL_O)
            wait_until((program.directory / "ready").exists)
            screen.type("\x03")
            wait_until((program.directory / "interrupted").exists)
            screen.type("\r")
            screen.wait_for("allow? >>")
            screen.type("y\r")
            screen.wait_for("The end.")
            assert "Interrupted" not in screen.text
        assert (program.directory / "made").exists()

    @pytest.mark.parametrize("name", ["no-such-pager", "./bin/evil", "evil"])
    def test_a_pager_that_is_missing_or_that_agents_can_write_is_not_started(self, program: Program, name: str) -> None:
        evil = program.directory / "bin/evil"
        evil.parent.mkdir()
        evil.write_text("#!/bin/sh\ntouch started\n")
        evil.chmod(0o755)
        program.variables |= {"PAGER": name, "PATH": f"{evil.parent}:{os.environ['PATH']}"}
        with asked(program, tool("bash", command="touch made")) as screen:
            screen.type(CTRL_O)
            screen.wait_for(f"the pager '{name}' is missing, or agents can change it")
            screen.wait_for("allow? >>")
        assert not (program.directory / "started").exists()
