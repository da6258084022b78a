"""Approving with open eyes: a long question is read to its end, and nothing of it is hidden."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.fake_api import text, tool
from tests.support.program import Program
from tests.support.screen import Screen

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
    found = re.search(r"lines (\d+)–(\d+) of ([\d,]+)", screen.text)
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
    with asked(program, tool("write_file", path="src/big.py", content=content), columns=columns, lines=50) as screen:
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


@pytest.mark.parametrize(("columns", "lines"), [(40, 10), (60, 12), (80, 24), (200, 60)])
def test_the_question_names_the_file_and_can_be_read_at_any_size(program: Program, columns: int, lines: int) -> None:
    content = "".join(f"number {number}\n" for number in range(1, 101))
    with asked(program, tool("write_file", path=LONG_PATH, content=content), columns=columns, lines=lines) as screen:
        screen.wait_for("t-name.py (+100 -0)")
        screen.wait_for_all("a-direc", "lead wants to use write_file:", "y once", "lines 1–", "below")
        assert position(screen)[2] == 101
        screen.type(END)
        screen.wait_for_all("+number 100", "the end", "t-name.py (+100 -0)", "allow? >>")
        screen.type(HOME)
        screen.wait_for_all("@@ -0,0 +1,100 @@", "lines 1–")


def saved_rules(program: Program) -> list[str]:
    path = program.directory / ".team/settings.local.json"
    return json.loads(path.read_text())["permissions"]["allow"] if path.exists() else []


class TestRules:
    GIT = tool("bash", command="git diff --stat HEAD~1")

    @pytest.mark.parametrize(
        ("keys", "saved", "is_asked_again"),
        [
            ("1\r", ["bash(git diff --stat HEAD~1)"], True),
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
            (GIT, "a2\r", ["bash(git diff:*)"]),
            (GIT, "aa\r", ["bash(git diff --stat HEAD~1)"]),
            (tool("bash", command="git status && ls -l"), "a 2\r", ["bash(git status:*)", "bash(ls:*)"]),
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
