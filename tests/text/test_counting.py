"""Numbers and the words after them."""

from __future__ import annotations

from teamcli.text.counting import counted


def test_one_is_singular_and_everything_else_plural() -> None:
    assert [counted(number, "line") for number in (0, 1, 2, 1000)] == ["0 lines", "1 line", "2 lines", "1,000 lines"]


def test_a_noun_can_have_another_plural() -> None:
    assert [counted(number, "entry", "entries") for number in (1, 2)] == ["1 entry", "2 entries"]
