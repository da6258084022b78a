"""A long question in a window: every row fits, and scrolling shows all of it in order."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teamcli.agent.permission_question import Question
from teamcli.agent.tool import Display
from teamcli.text.escaping import escape_controls
from teamcli.ui.render.style import Line
from teamcli.ui.terminal.fragments import width_of
from teamcli.ui.terminal.question_view import QuestionView
from teamcli.ui.terminal.questions import PermissionQuestion

FAMILY = "👨‍👩‍👧"
POSITION = re.compile(r" +(lines )?\d+–\d+(/| of )")


def view_of(command: str) -> QuestionView:
    return QuestionView(PermissionQuestion(Question("alice", "bash", Display("x", text=command), "bash(x)")))


def text_of(line: Line) -> str:
    return "".join(text for text, _ in line)


def body(view: QuestionView, width: int, rows: int) -> list[str]:
    _, *shown = [text_of(row) for row in view.rows(width, rows, 2)]
    return [row for row in shown if not POSITION.match(row)]


def squeezed(text: str) -> str:
    return re.sub(r"\s", "", text)


TEXTS = st.text(st.one_of(st.sampled_from("ab \t\n漢👨‍👩é\r\x1b\u202e"), st.characters()), min_size=1, max_size=300)


@given(TEXTS, st.integers(20, 60), st.integers(8, 30))
def test_scrolling_by_rows_shows_everything_in_order(text: str, width: int, rows: int) -> None:
    view = view_of(text)
    shown = body(view, width, rows)
    for _ in range(10_000):
        before = view._top
        view.scroll(1)
        if view._top == before:
            break
        shown.append(body(view, width, rows)[-1])
    expected = [escape_controls(line).expandtabs(4) for line in text.rstrip("\n").split("\n")]
    assert squeezed("".join(shown)) == squeezed("".join(expected))


@given(TEXTS, st.integers(20, 60), st.integers(8, 30))
def test_every_row_fits_the_screen(text: str, width: int, rows: int) -> None:
    shown = view_of(text * 5).rows(width, rows, 2)
    assert max(map(width_of, shown)) <= width
    assert len(shown) <= max(3, rows - 5)


@pytest.mark.parametrize(
    "text", [FAMILY * 500, "e\u0301" * 2000, "🇩🇪" * 500, "漢" * 5000, "\t" * 500 + "x", "x" * 100_000]
)
def test_pages_forth_and_back_show_the_same_rows(text: str) -> None:
    view = view_of(text)
    forth = [body(view, 40, 12)]
    while view._top != view._last_top():
        view.page(1)
        forth.append(body(view, 40, 12))
    for page in reversed(forth[:-2]):
        view.page(-1)
        shown = body(view, 40, 12)
        assert set(shown) & set(page)
    view.to_start()
    assert body(view, 40, 12) == forth[0]


def test_a_new_width_keeps_the_line_at_the_top() -> None:
    view = view_of("\n".join(f"line {number} {'word ' * 40}" for number in range(100)))
    view.rows(40, 24, 2)
    view.scroll(120)
    at = view._top.part
    for width in (120, 20, 60):
        view.rows(width, 24, 2)
        assert view._top.part == at


def test_a_short_question_has_no_position() -> None:
    assert [text_of(row) for row in view_of("$ ls\n-la").rows(80, 24, 2)][1:] == ["  $ ls", "  -la"]
