"""Markdown in the terminal: blocks come when they are finished, look right at every width, and drive nothing."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from teamcli.ui.render.blocks import LONGEST_LINE, LONGEST_LINES
from teamcli.ui.render.markdown import BlockSplitter, goes_on, render
from tests.test_layers import loaded_by

SGR = re.compile(r"\x1b\[([0-9;]*)m")


def split(text: str, size: int = 1) -> list[str]:
    splitter = BlockSplitter()
    finished = [b for at in range(0, len(text), size) for b in splitter.feed(text[at : at + size])]
    return finished + splitter.close()


def plain(text: str, width: int = 80) -> list[str]:
    return render(text, width, None).splitlines()


def shown(text: str, width: int = 80) -> str:
    """A whole answer, set block by block as the terminal sets it."""
    return "".join(render(block, width, None) + "\n" * (not goes_on(block)) for block in split(text))


class TestBlocks:
    def test_a_blank_line_finishes_a_paragraph_and_the_rest_is_the_tail(self) -> None:
        splitter = BlockSplitter()
        assert splitter.feed("one\ntwo\n") == []
        assert splitter.tail == "one\ntwo\n"
        assert splitter.feed("\nthr") == ["one\ntwo\n"]
        assert splitter.tail == "thr"
        assert splitter.feed("ee") == []
        assert splitter.close() == ["three\n"]
        assert (splitter.tail, splitter.close()) == ("", [])

    def test_a_heading_is_finished_with_its_line_and_ends_what_is_before_it(self) -> None:
        splitter = BlockSplitter()
        assert splitter.feed("text\n## Heading\n") == ["text\n", "## Heading\n"]
        assert splitter.feed("#no heading\n\n") == ["#no heading\n"]

    def test_a_fence_is_finished_with_the_sign_that_opened_it_and_blank_lines_do_not_end_it(self) -> None:
        splitter = BlockSplitter()
        code = "````python\na\n\n```\n~~~~\n"
        assert splitter.feed("see\n" + code) == ["see\n"]
        assert splitter.feed("````\nafter") == [code + "````\n"]
        assert splitter.tail == "after"

    def test_back_ticks_inside_a_line_open_no_fence(self) -> None:
        assert split("```x``` is code\n\nnext\n") == ["```x``` is code\n", "next\n"]

    def test_a_fence_that_is_never_closed_comes_at_the_end(self) -> None:
        assert split("```\na\n\nb") == ["```\na\n\nb\n"]

    def test_a_loose_list_stays_together_with_its_numbers_and_what_is_nested(self) -> None:
        text = "1. a\n\n1. b\n\n   more of b\n\n   - inside\n\n1. c\n\nText.\n"
        blocks = split(text)
        assert blocks == ["1. a\n\n2. b\n\n   more of b\n\n   - inside\n\n3. c\n", "Text.\n"]

    def test_a_list_ends_before_text_that_does_not_belong_to_it_as_soon_as_that_is_clear(self) -> None:
        splitter = BlockSplitter()
        assert splitter.feed("- a\n- b\n\n") == []
        assert splitter.feed("T") == ["- a\n- b\n"]
        assert splitter.feed("his\n\n") == ["This\n"]

    def test_a_list_may_follow_a_paragraph_at_once_and_a_list_of_another_kind_begins_anew(self) -> None:
        assert split("Do:\n- a\nlazy\n* b\n1) c\n") == ["Do:\n", "- a\nlazy\n", "* b\n", "1) c\n"]

    def test_a_year_at_the_beginning_of_a_line_begins_no_list(self) -> None:
        assert split("It was in\n1984. Then\n") == ["It was in\n1984. Then\n"]

    def test_code_in_an_item_stays_in_it_also_where_the_model_forgot_to_indent_it(self) -> None:
        block = "1. Run:\n   ```sh\n   make\n\n   ```\n2. Done\n"
        assert split(block) == [block]
        assert split("1. Run:\n   ```sh\nmake\n\n```\n2. Done\n") == [block]
        assert split("- ```sh\n  make\n\n  x\n  ```\n- b\n") == ["- ```sh\n  make\n\n  x\n  ```\n- b\n"]

    def test_a_rule_is_no_list(self) -> None:
        assert split("* * *\n\ntext\n") == ["* * *\n", "text\n"]

    def test_line_ends_of_windows_are_line_ends(self) -> None:
        assert split("a\r\n\r\nb\r\n") == ["a\n", "b\n"]

    @given(st.lists(st.sampled_from(["a", " ", "\n", "\n\n", "- ", "1. ", "```", "# ", "| ", "|--|", "   ", "> "])))
    @settings(max_examples=150, deadline=None)
    def test_how_the_text_arrives_makes_no_difference_and_nothing_is_lost(self, parts: list[str]) -> None:
        text = "".join(parts)
        assert "".join("".join(split(text)).split()).count("a") == text.count("a")
        assert split(text, 1) == split(text, 7) == split(text, len(text) or 1)


class TestLongBlocks:
    def test_long_code_comes_in_pieces_that_are_code_again(self) -> None:
        lines = [f"x_{n} = {n}" for n in range(1500)]
        splitter = BlockSplitter()
        blocks: list[str] = []
        longest = 0
        for line in ["```python title", *lines, "```"]:
            blocks += splitter.feed(line + "\n")
            longest = max(longest, splitter.tail.count("\n"))
        assert longest <= LONGEST_LINES + 1
        assert splitter.tail == ""
        assert [goes_on(block) for block in blocks] == [True] * (len(blocks) - 1) + [False]
        assert all(block.startswith("```python title\n") and block.rstrip().endswith("\n```") for block in blocks)
        assert "".join(render(block, 80, None) for block in blocks).split("\n") == [*(f"  {x}" for x in lines), ""]

    def test_code_is_preferably_cut_at_a_blank_line(self) -> None:
        function = "def f():\n" + "    pass\n" * 20 + "\n"
        first, *_ = split("```\n" + function * 20 + "```\n", 100)
        assert render(first, 80, None).count("def f") * 22 == len(first.splitlines()) - 2

    def test_a_long_list_is_cut_between_its_items_and_its_numbers_go_on(self) -> None:
        text = "".join(f"1. item {n}\n   more\n" for n in range(1, 500))
        assert len(split(text)) > 3
        items = [line.split() for line in shown(text).splitlines() if "item" in line]
        assert [number for number, _, _ in items] == [f"{n}." for _, _, n in items] == [f"{n}." for n in range(1, 500)]

    def test_an_item_that_is_endless_code_is_cut_all_the_same(self) -> None:
        lines = [f"line {n}" for n in range(2000)]
        text = "- see\n  ```sh\n" + "".join(f"  {line}\n" for line in lines) + "  ```\n- last\n"
        assert max(map(len, split(text))) < 10_000
        assert [line.strip() for line in shown(text).splitlines() if "line" in line] == lines

    def test_each_piece_of_a_long_table_has_its_head(self) -> None:
        text = "| n | square |\n|---|---|\n" + "".join(f"| {n} | {n * n} |\n" for n in range(1000))
        blocks = split(text)
        assert len(blocks) > 2
        assert all(block.startswith("| n | square |\n|---|") for block in blocks)
        assert plain(blocks[-1])[-1].split() == ["999", "998001"]

    def test_a_line_that_never_ends_is_cut_between_words(self) -> None:
        splitter = BlockSplitter()
        blocks = [block for _ in range(10_000) for block in splitter.feed("word ")]
        assert len(splitter.tail) <= 3 * LONGEST_LINE
        words = "\n".join(blocks + splitter.close()).split()
        assert words == ["word"] * 10_000


class TestLooks:
    def test_a_heading_is_bold_and_stands_at_the_left(self) -> None:
        assert render("# Title", 80, "standard") == "\x1b[1;4mTitle\x1b[0m\n"
        assert render("### Part `x`", 80, "256") == "\x1b[1mPart \x1b[0m\x1b[1;36mx\x1b[0m\n"
        assert plain("## Title") == ["## Title"]

    def test_styles_of_words(self) -> None:
        text = render("a **b *c*** `d` ~~e~~", 80, "truecolor")
        assert text == "a \x1b[1mb \x1b[0m\x1b[1;3mc\x1b[0m \x1b[36md\x1b[0m \x1b[9me\x1b[0m\n"

    def test_code_can_be_copied_as_it_is(self) -> None:
        long = "x = " + " + ".join(str(n) for n in range(100))
        text = f"```python\ndef f():\n\n\tif 1:  # why\n        {long}\n```"
        assert plain(text, 40) == ["  def f():", "", "  \tif 1:  # why", f"          {long}"]
        coloured = render(text, 40, "standard")
        assert SGR.sub("", coloured).splitlines() == plain(text, 40)
        assert "\x1b[35mdef\x1b[0m" in coloured
        assert "\x1b[2m# why\x1b[0m" in coloured

    def test_code_in_an_unknown_language_and_minified_code_are_shown_plainly(self) -> None:
        assert render("```no-such-language\nif x:\n```", 80, "256") == "  if x:\n"
        assert render("```js\n" + "if(x){}" * 1000 + "\n```", 80, "256") == "  " + "if(x){}" * 1000 + "\n"

    def test_lists_are_indented_and_wrapped_under_their_text(self) -> None:
        text = "9. nine words that do not fit into one short line\n10. ten\n    - in\n      it"
        assert plain(text, 30) == [
            " 9. nine words that do not fit",
            "    into one short line",
            "10. ten",
            "    • in",
            "      it",
        ]
        assert render("- a\n- b", 30, None, is_unicode=False) == "- a\n- b\n"

    def test_a_loose_list_is_loose(self) -> None:
        assert plain("- a\n\n  b\n- c") == ["• a", "", "  b", "", "• c"]

    def test_a_table_fits_the_width_and_loses_nothing(self) -> None:
        text = "| name | what |\n|:--|--:|\n| `a` | " + "word " * 20 + "|\n| b | averyveryverylongwordindeed |"
        for width in (40, 60, 80):
            lines = plain(text, width)
            assert max(map(cell_len, lines)) <= width
            assert " ".join(lines).count("word") == 21
        assert plain("| a | b |\n|---|:-:|\n| xyz | 12345 |") == ["a      b", "──────────", "xyz  12345"]

    def test_a_table_with_more_columns_than_the_screen_has_room_for_still_shows_all(self) -> None:
        row = "|" + "abcdef|" * 20
        lines = plain(f"{row}\n{'|--' * 20}|\n{row}", 40)
        assert "".join(lines).count("abc") == 40

    def test_wide_characters_count_twice(self) -> None:
        lines = plain("- " + "漢字" * 30 + " 🚀🚀 e\u0301", 40)
        assert max(map(cell_len, lines)) <= 40
        assert all(line.startswith(("• ", "  ")) for line in lines)
        assert plain("|漢字|x|\n|-|-|\n|a|y|") == ["漢字  x", "───────", "a     y"]

    def test_a_quotation_has_a_bar(self) -> None:
        assert plain("> a\n> - b") == ["│ a", "│", "│ • b"]

    def test_a_long_url_is_not_broken(self) -> None:
        url = "https://example.com/" + "x" * 60
        assert plain(f"See {url} now", 40) == ["See", url, "now"]
        assert plain(f"[the page]({url})", 40) == ["the page", f"({url})"]
        assert plain(f"<{url}>", 40) == [url]

    def test_what_looks_like_html_or_an_entity_is_text(self) -> None:
        assert plain("Vec<String> &lt;b&gt; <b>x</b>\n\n<div>\n\n[a]: http://b") == [
            "Vec<String> <b> <b>x</b>",
            "",
            "<div>",
            "",
            "[a]: http://b",
        ]

    def test_lines_stay_lines(self) -> None:
        assert plain("Name: x\nAge: 7") == ["Name: x", "Age: 7"]

    def test_no_background_and_no_bright_colour_is_used(self) -> None:
        text = "# a\n\n`b` **c** [d](http://e)\n\n1. f\n\n> g\n\n|h|\n|-|\n|i|\n\n---\n\n```diff\n-j\n+k\n```"
        codes = {code for found in SGR.findall(render(text, 80, "truecolor")) for code in found.split(";")}
        assert codes <= {"0", "1", "2", "3", "4", "9", *map(str, range(31, 37))}


HOSTILE = [
    "\x1b[2J\x1b]0;title\x07",
    "\x9b31m",
    "\u202eevil",
    "&#27;[2J &#x9b; &#x202e; &#13;over",
    "[x](http://a&#27;b) ![y](&#7;)",
    "[x](<\x1b]8;;http://evil\x07>)",
    "```\n\x1b[31m\r\n```",
    "```\x1b[31m\nx\n```",
    "| \x1b[1m |\n|--|\n| &#155; |",
    "<a href='\x1b'>\x08\x0b\x0c",
]


class TestSafety:
    @pytest.mark.parametrize("text", HOSTILE, ids=ascii)
    @pytest.mark.parametrize("colour", [None, "256"])
    def test_no_control_of_the_model_reaches_the_terminal(self, text: str, colour: str | None) -> None:
        rest = SGR.sub("", render(text, 60, colour)) if colour else render(text, 60, None)
        assert all(character.isprintable() or character == "\n" for character in rest), ascii(rest)

    @given(st.text(alphabet=st.sampled_from("ab \n\x1b[]8;()*_`#>|-1.&<\t\\!~:/漢🚀\u0301"), max_size=80))
    @settings(max_examples=200, deadline=None)
    def test_any_text_can_be_set_at_any_width(self, text: str) -> None:
        for width in (1, 40):
            assert "\x1b" not in SGR.sub("", render(text, width, "standard"))
        assert "\x1b" not in shown(text)


def test_the_libraries_are_loaded_with_the_first_block_and_not_before() -> None:
    assert not loaded_by("import teamcli.ui.render.markdown") & {"rich", "markdown_it", "pygments"}
