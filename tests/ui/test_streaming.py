"""Answers as they stream in: at every moment the screen shows all that has arrived, once and in order."""

from __future__ import annotations

import re

import pytest

from tests.support.fake_api import answer, drip, text
from tests.support.program import Program
from tests.support.screen import Screen

PROMPT = "team >>"
STEP = re.compile(r"s\s*t\s*e\s*p\s+(\d\s*\d\s*\d)(?!\d)")  # the terminal wraps anywhere
CODE = "".join(f"step {number:03d} = compute({number})\n" + "\n" * (number % 7 == 0) for number in range(90))
PROSE = " ".join(f"step {number:03d} of the *plan*," for number in range(150))
QUOTE = "".join(f"> step {number:03d} of the plan\n" for number in range(60))
ROWS = "".join(f"| step {number:03d} | of the plan |\n" for number in range(60))
ITEMS = "".join(f"{number + 1}. step {number:03d} of the plan\n" for number in range(60))


def indented(code: str) -> str:
    return "".join(f"   {line}\n" if line else "\n" for line in code.splitlines())


@pytest.mark.parametrize(
    ("words", "count"),
    [
        (f"Before.\n\n```python\n{CODE}```\n\nThe end.", 90),
        (f"1. Do this:\n\n   ```python\n{indented(CODE)}   ```\n\n2. The end.", 90),
        (f"{ITEMS}\nThe end.", 60),
        (f"Before.\n\n{PROSE}\n\nThe end.", 150),
        (f"1. Do this:\n   - {PROSE}\n\nThe end.", 150),
        (f"{QUOTE}\nThe end.", 60),
        (f"| what | of what |\n|---|---|\n{ROWS}\nThe end.", 60),
    ],
    ids=["code", "code in a list", "a list", "a paragraph", "a paragraph in a list", "a quotation", "a table"],
)
@pytest.mark.parametrize("lines", [16, 40])
def test_no_line_is_missing_or_shown_twice_while_it_streams(
    program: Program, words: str, count: int, lines: int
) -> None:
    seen: list[int] = []
    with (
        program.against([answer(text(words, pieces=len(words) // 9), drip(0.002))]),
        Screen(program, lines=lines) as screen,
    ):
        screen.wait_for(PROMPT)
        screen.type("go\r")
        for moment in screen.moments_until("The end."):
            seen = [int("".join(number.split())) for number in STEP.findall(moment)]
            assert seen == list(range(len(seen))), moment
    assert len(seen) == count
