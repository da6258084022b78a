"""The window is resized while text streams: every word stays once, and nothing of the prompt stays behind."""

from __future__ import annotations

import re

import pytest

from teamcli.ui.render.open_line import wraps_again
from teamcli.ui.terminal.reflow import wrapped_rows
from tests.support.fake_api import answer, stall_after, text, tool
from tests.support.program import Program
from tests.support.tmux import Tmux
from tests.support.waiting import wait_until

PROMPT = "team >>"
WORDS = " ".join(f"word{number:03d}" for number in range(240))
CODE = "".join(
    f"code{number:03d} = call({number})  # with a remark that fills the rest of the row\n" for number in range(30)
)
ITEMS = "".join(f"- item{number:03d} is a sentence that takes a few rows in a narrow window\n" for number in range(20))
ANSWER = f"{WORDS}\n\n```python\n{CODE}```\n\n{ITEMS}\nThe end."
SIZES = ((60, 24), (80, 20), (40, 24), (120, 30), (50, 16), (120, 24))
EVENTS_BEFORE_TEXT = 2
MARKED = re.compile(r"(?:word|code|item)\d{3}")


def resize(tmux: Tmux, columns: int, lines: int) -> None:
    """And wait until the status bar fits."""

    def fits() -> bool:
        rows = tmux.rows()
        bar = next((row for row in reversed(rows) if row), "")  # between two drawings there may be none
        is_drawn = len(bar) == columns - 1 or (columns <= 60 and len(bar) < columns)  # too narrow for hints
        return len(rows) == lines and bar.startswith("test-model") and is_drawn

    tmux.resize(columns, lines)
    wait_until(fits)


def test_every_word_stays_once_and_nothing_of_the_prompt_stays_behind(program: Program, tmux: Tmux) -> None:
    size = 10
    stops = [20 + at * (len(ANSWER) // size // len(SIZES)) for at in range(len(SIZES))]
    stalls = [stall_after(EVENTS_BEFORE_TEXT + stop) for stop in stops]
    with program.against([answer(text(ANSWER, pieces=-(-len(ANSWER) // size)), *stalls)]) as api:
        tmux.start(program, columns=120)
        tmux.wait_for(PROMPT)
        tmux.type("go", "Enter")
        for stop, (columns, lines) in zip(stops, SIZES, strict=True):
            api.wait_for_stall(stops.index(stop) + 1)
            sent = "".join(ANSWER[: stop * size].split())
            wait_until(lambda sent=sent: sent[-7:] in "".join(tmux.copied().split()))
            resize(tmux, columns, lines)
            api.release()
        tmux.wait_for("The end.")
        copied = ""

        def is_whole() -> bool:
            """Between two drawings there is no prompt for a moment."""
            nonlocal copied
            copied = tmux.copied()
            return (copied.count(PROMPT), copied.count("○ lead"), copied.count("● lead")) == (2, 1, 0)

        wait_until(is_whole)
    assert MARKED.findall(copied) == MARKED.findall(ANSWER)
    assert WORDS in copied.splitlines()


def test_a_question_stays_once(program: Program, tmux: Tmux) -> None:
    command = "touch " + " ".join(f"word{number:03d}" for number in range(30))
    lines = "".join(f"{number}\n\n" for number in range(40))
    with program.against([text(f"{lines}Full."), tool("bash", command=command), text("The end.")]):
        tmux.start(program, columns=120)
        tmux.wait_for(PROMPT)
        tmux.type("fill the screen", "Enter")
        tmux.wait_for("Full.")
        tmux.type("go", "Enter")
        tmux.wait_for("allow?")
        for columns in (60, 80, 40, 120):
            resize(tmux, columns, 24)

        def is_shown_once() -> bool:
            """Between two drawings there is none for a moment."""
            copied = tmux.copied()
            is_whole = MARKED.findall(copied) == MARKED.findall(command)
            return is_whole and copied.count("allow?") == 1 and copied.count("▲ lead asks") == 1

        wait_until(is_shown_once)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"TMUX": "x"}, True),
        ({"TERM": "xterm-kitty"}, True),
        ({"TERM": "xterm-256color", "VTE_VERSION": "7600"}, True),
        ({"TERM": "xterm-256color"}, False),
        ({"TERM": "xterm", "XTERM_VERSION": "x"}, False),
        ({"TERM": "screen", "STY": "x", "VTE_VERSION": "7600"}, False),
    ],
)
def test_only_terminals_that_are_known_to_wrap_again_are_treated_so(variables: dict[str, str], expected: bool) -> None:
    assert wraps_again(variables) is expected


def test_a_row_takes_as_many_rows_as_it_fills() -> None:
    assert wrapped_rows([0, 40, 41, 80, 81], 40) == 1 + 1 + 2 + 2 + 3
