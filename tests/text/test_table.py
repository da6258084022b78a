"""Tables as plain text."""

from __future__ import annotations

from teamcli.text.console import cell_width, shorten
from teamcli.text.table import Cell, Column, Table


def test_columns_are_aligned_with_wide_and_combining_characters() -> None:
    columns = (Column("NAME"), Column("N", right=True), Column("TEXT"))
    rows = (("bob", "7", "x"), ("名前", Cell("12", "warn"), "x"), ("e\u0301va", "3", "x"))
    lines = Table("Title", columns, rows, ("note",)).to_text().splitlines()
    assert (lines[0], lines[1], lines[-1]) == ("Title", "NAME   N  TEXT", "note")
    assert {cell_width(line[: line.index("x")]) for line in lines[2:5]} == {10}


def test_only_the_columns_that_may_shrink_do() -> None:
    table = Table("", (Column("NAME"), Column("TEXT", shrinks=True)), (("alice", "a long text that does not fit"),))
    assert table.to_text(width=20).splitlines() == ["NAME   TEXT", "alice  a long text …"]
    assert table.to_text(width=1).splitlines() == ["NAME   TEXT", "alice  a long …"]
    assert "does not fit" in table.to_text()


def test_nothing_in_a_table_can_control_a_terminal_or_break_a_row() -> None:
    text = Table("a\x1b[2J", (Column(""),), (("b\x1b]0;x\x07\nc",),), ("d\r",)).to_text()
    assert not set("\x1b\x07\r") & set(text)
    assert len(text.splitlines()) == 3


def test_markup_of_rich_is_text() -> None:
    words = "[bold]x[/bold] :smile:"
    assert Table(words, (Column(words),), ((words,),), (words,)).to_text().splitlines() == [words] * 4


def test_a_table_without_rows_has_only_its_title_and_notes() -> None:
    assert Table("Nothing here.", (Column("NAME"),), ()).to_text() == "Nothing here."


def test_shortened_text_fits() -> None:
    assert [shorten("名前名前", width) for width in (8, 7, 6, 2)] == ["名前名前", "名前名…", "名前…", "…"]


def test_in_a_narrow_table_a_column_goes_below_or_is_left_out() -> None:
    columns = (Column("NAME"), Column("CALLS", may_go=True), Column("COST", may_go=True), Column("", goes_below=True))
    table = Table("", columns, (("alice", "12", "$0.10", "waiting for a long answer"), ("bob", "1", "$0", "")))
    assert table.to_text(width=60).splitlines()[1] == "alice  12     $0.10  waiting for a long answer"
    assert table.to_text(width=25).splitlines()[1:3] == ["alice  12     $0.10", "  waiting for a long answer"]
    assert table.to_text(width=15).splitlines() == [
        "NAME   CALLS",
        "alice  12",
        "  waiting for a long answer",
        "bob    1",
    ]
    assert table.to_text(width=5).splitlines()[0] == "NAME"


def test_a_row_that_goes_below_as_a_whole_leaves_no_empty_line() -> None:
    table = Table("", (Column(""), Column("", goes_below=True)), (("/help", "Show all."), ("", "an example")))
    assert table.to_text(width=10).splitlines() == ["/help", "  Show all.", "  an example"]
