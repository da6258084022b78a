"""Markdown in the terminal: blocks come when they are complete, look right at every width, and drive nothing."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from teamcli.ui.render.blocks import LONG_LINES, LONGEST_LINE, Block, BlockSplitter, Code, Prose
from teamcli.ui.render.markdown import MarkdownRenderer
from tests.test_layers import loaded_by

SGR = re.compile(r"\x1b\[([0-9;]*)m")


def blocks_of(text: str, size: int = 1) -> list[Block]:
    splitter = BlockSplitter()
    finished = [b for at in range(0, len(text), size) for b in splitter.feed(text[at : at + size])]
    return finished + splitter.close()


def joined(blocks: list[Block]) -> list[Block]:
    """The blocks with the lines of a code block put together: how many come at once depends on when they arrive."""
    made: list[Block] = []
    for block in blocks:
        if isinstance(block, Code) and block.is_last:
            continue
        if isinstance(block, Code) and not block.is_first and isinstance(made[-1], Code):
            blank = "\n" * (1 + len(block.text) - len(block.text.lstrip("\n")))
            made[-1] = made[-1]._replace(text=made[-1].text + blank + block.text.lstrip("\n"))
        else:
            made.append(block)
    return made


def split(text: str, size: int = 1) -> list[str]:
    return [block.markdown if isinstance(block, Prose) else block.text for block in joined(blocks_of(text, size))]


def render(text: str, width: int, has_color: bool, is_unicode: bool = True) -> str:
    """A whole answer, rendered block by block as the terminal shows it."""
    renderer = MarkdownRenderer()
    shown = ""
    for block in blocks_of(text, 1000):
        shown += "\n" if shown and not block.continues else ""
        shown += renderer.render(block, width, has_color, is_unicode)
    return shown


def plain(text: str, width: int = 80) -> list[str]:
    return render(text, width, has_color=False).splitlines()


class TestBlocks:
    def test_a_blank_line_ends_a_paragraph_and_the_rest_is_the_tail(self) -> None:
        splitter = BlockSplitter()
        assert splitter.feed("one\ntwo\n") == []
        assert splitter.tail == "one\ntwo\n"
        assert splitter.feed("\nthr") == [Prose("one\ntwo")]
        assert splitter.tail == "thr"
        assert splitter.feed("ee") == []
        assert splitter.close() == [Prose("three")]
        assert splitter.tail == ""
        assert splitter.close() == []

    def test_a_heading_is_complete_with_its_line_and_ends_what_is_before_it(self) -> None:
        splitter = BlockSplitter()
        assert splitter.feed("text\n## Heading\n") == [Prose("text"), Prose("## Heading")]
        assert splitter.feed("#no heading\n\n") == [Prose("#no heading")]

    def test_each_line_of_code_is_handed_out_when_it_has_ended(self) -> None:
        splitter = BlockSplitter()
        assert splitter.feed("see\n```py title\n") == [Prose("see")]
        assert splitter.feed("a\n  b") == [Code("a", "```py title", is_first=True)]
        assert splitter.tail == "  b"
        assert splitter.feed("c\n\n") == [Code("  bc", "```py title", is_first=False, continues=True)]
        assert splitter.feed("d\n`") == [Code("\nd", "```py title", is_first=False, continues=True)]
        assert splitter.tail == ""
        assert splitter.feed("``\n\n") == [Code("", "```", is_first=False, continues=True, is_last=True)]
        assert not splitter.is_in_code

    def test_a_fence_ends_only_with_the_sign_that_opened_it(self) -> None:
        assert split("````python\na\n\n```\n~~~~\n````\nafter") == ["a\n\n```\n~~~~", "after"]

    def test_code_can_be_held_back_for_a_terminal_without_a_live_prompt(self) -> None:
        splitter = BlockSplitter(streams_code=False)
        assert splitter.feed("```\na\nb\n") == []
        assert joined(splitter.feed("```\n")) == [Code("a\nb", "```", is_first=True)]

    def test_back_ticks_inside_a_line_open_no_fence(self) -> None:
        assert split("```x``` is code\n\nnext\n") == ["```x``` is code", "next"]

    def test_a_fence_that_is_never_closed_ends_with_the_answer(self) -> None:
        assert split("```\na\n\nb") == ["a\n\nb"]

    def test_the_items_of_a_list_are_numbered_and_keep_what_is_nested(self) -> None:
        text = "1. a\n\n1. b\n\n   more of b\n\n   - inside\n\n1. c\n\nText.\n"
        assert split(text) == ["1. a", "2. b\n\n   more of b\n\n   - inside", "3. c", "Text."]

    def test_an_item_follows_another_without_a_blank_line_unless_there_is_one(self) -> None:
        assert [block.continues for block in blocks_of("- a\n- b\n\n- c\n")] == [False, True, False]

    def test_a_list_ends_before_text_that_does_not_belong_to_it_as_soon_as_that_is_clear(self) -> None:
        splitter = BlockSplitter()
        assert splitter.feed("- a\n- b\n\n") == [Prose("- a")]
        assert splitter.feed("T") == [Prose("- b", continues=True)]
        assert splitter.feed("his\n\n") == [Prose("This")]

    def test_a_list_may_follow_a_paragraph_at_once_and_a_list_of_another_kind_begins_anew(self) -> None:
        assert split("Do:\n- a\nlazy\n* b\n1) c\n") == ["Do:", "- a\nlazy", "* b", "1) c"]

    def test_a_year_at_the_beginning_of_a_line_begins_no_list(self) -> None:
        assert split("It was in\n1984. Then\n") == ["It was in\n1984. Then"]

    @pytest.mark.parametrize("code", ["   ```sh\n   make\n\n   x\n   ```\n", "   ```sh\nmake\n\nx\n```\n"])
    def test_code_in_an_item_stays_in_it_even_if_the_model_forgot_to_indent_it(self, code: str) -> None:
        assert joined(blocks_of(f"1. Run:\n{code}   and\n1. Done\n")) == [
            Prose("1. Run:"),
            Code("make\n\nx", "```sh", is_first=True, continues=True),
            Prose("and", continues=True, margin=4),
            Prose("2. Done", continues=True),
        ]

    def test_an_item_may_begin_with_code(self) -> None:
        assert split("- ```sh\n  make\n\n  x\n  ```\n- b\n") == ["-", "make\n\nx", "- b"]

    def test_a_rule_is_not_a_list(self) -> None:
        assert split("* * *\n\ntext\n") == ["* * *", "text"]

    def test_windows_line_ends_are_line_ends(self) -> None:
        assert split("a\r\n\r\nb\r\n") == ["a", "b"]

    @given(st.lists(st.sampled_from(["a", " ", "\n", "\n\n", "- ", "1. ", "```", "# ", "| ", "|--|", "   ", "> "])))
    @settings(max_examples=150, deadline=None)
    def test_how_the_text_arrives_makes_no_difference(self, parts: list[str]) -> None:
        text = "".join(parts)
        assert joined(blocks_of(text, 1)) == joined(blocks_of(text, 7))
        assert joined(blocks_of(text, 1)) == joined(blocks_of(text, len(text) or 1))

    @given(st.lists(st.sampled_from(["a", " ", "\n", "\n\n", "- ", "1. ", "```\n", "# ", "| ", "|--|", "   ", "> "])))
    @settings(max_examples=150, deadline=None)
    def test_nothing_is_lost(self, parts: list[str]) -> None:
        text = "".join(parts)
        assert "".join(split(text)).count("a") == text.count("a")


class TestLongBlocks:
    def test_little_code_is_held_back(self) -> None:
        lines = [f"x_{n} = {n}" for n in range(500)]
        splitter = BlockSplitter()
        shown: list[str] = []
        for line in ["```python title", *lines, "```"]:
            shown += [b.text for b in splitter.feed(line + "\n") if isinstance(b, Code) and not b.is_last]
            assert splitter.tail == ""
        assert shown == lines

    def test_code_that_arrives_at_once_comes_in_pieces(self) -> None:
        lines = [f"x_{n} = {n}" for n in range(500)]
        pieces = BlockSplitter().feed("\n".join(["```", *lines, "```", ""]))
        assert max(len(piece.text.split("\n")) for piece in pieces if isinstance(piece, Code)) <= LONG_LINES
        assert [piece.continues for piece in pieces] == [False] + [True] * (len(pieces) - 1)
        assert split("\n".join(["```", *lines, "```", ""])) == ["\n".join(lines)]

    def test_a_string_over_several_lines_keeps_its_color_line_by_line(self) -> None:
        renderer = MarkdownRenderer()
        code = '```python\ndef f():\n    """One.\n\n    if two:\n    """\n    if three: pass\n```\n'
        shown = "".join(renderer.render(block, 80, has_color=True) for block in blocks_of(code))
        assert "\x1b[32m    if two:\x1b[0m" in shown
        assert "\x1b[35mif\x1b[0m three" in shown

    def test_the_numbers_of_a_long_list_continue(self) -> None:
        text = "".join(f"1. item {n}\n   more\n" for n in range(1, 500))
        items = [line.split() for line in plain(text) if "item" in line]
        assert [number for number, _, _ in items] == [f"{n}." for _, _, n in items]
        assert len(items) == 499

    def test_an_endless_item_is_cut_and_stays_indented(self) -> None:
        text = "- begin\n" + "".join(f"  - line {n}\n" for n in range(1000))
        assert max(map(len, split(text))) < 10_000
        lines = [line for line in plain(text) if "line" in line]
        assert lines == [f"    • line {n}" for n in range(1000)]

    def test_each_piece_of_a_long_table_has_its_head(self) -> None:
        text = "| n | square |\n|---|---|\n" + "".join(f"| {n} | {n * n} |\n" for n in range(1000))
        blocks = split(text)
        assert len(blocks) > 2
        assert all(block.startswith("| n | square |\n|---|") for block in blocks)
        assert plain(text)[-1].split() == ["999", "998001"]

    def test_a_line_that_never_ends_is_cut_between_words(self) -> None:
        splitter = BlockSplitter()
        blocks = [block for _ in range(10_000) for block in splitter.feed("word ")]
        assert len(splitter.tail) <= 3 * LONGEST_LINE
        words = " ".join(block.markdown for block in blocks + splitter.close() if isinstance(block, Prose)).split()
        assert words == ["word"] * 10_000


class TestCutting:
    """A block of which more is held back than the prompt can show."""

    def test_a_long_line_is_cut_between_words_and_the_rest_joins_it(self) -> None:
        splitter = BlockSplitter()
        assert splitter.feed("one two three four five") == []
        assert splitter.cut(10, column=0) == [Prose("one two three four", is_open=True)]
        assert splitter.tail == "five"
        assert splitter.feed("\nsix\n\n") == [Prose("five\nsix", continues=True, joint=" ")]

    def test_no_place_is_cut_whose_look_may_change(self) -> None:
        splitter = BlockSplitter()
        splitter.feed("one two **three four five six")
        assert splitter.cut(10, column=0) == [Prose("one two", is_open=True)]
        assert splitter.tail == "**three four five six"

    def test_what_is_cut_off_does_not_begin_a_list_or_a_heading(self) -> None:
        splitter = BlockSplitter()
        splitter.feed("one two - 3. # four five")
        assert splitter.cut(18, column=0) == [Prose("one two - 3. #", is_open=True)]

    def test_if_we_wrap_the_rest_begins_a_line(self) -> None:
        splitter = BlockSplitter()
        splitter.feed("one two three four five")
        assert splitter.cut(10, column=None) == [Prose("one two three four")]
        assert splitter.close() == [Prose("five", continues=True)]

    def test_an_item_is_cut_and_the_rest_stays_indented(self) -> None:
        splitter = BlockSplitter()
        splitter.feed("- a\n- one two three four five")
        assert splitter.cut(11, column=0) == [Prose("- a"), Prose("- one two three four", continues=True)]
        assert splitter.close() == [Prose("five", continues=True, margin=3)]

    def test_the_rest_of_a_quotation_is_quoted(self) -> None:
        splitter = BlockSplitter()
        splitter.feed("> one two three four five")
        assert splitter.cut(10, column=0) == [Prose("> one two three four")]
        assert splitter.feed("\n> six\n") == []
        assert splitter.close() == [Prose("> five\n> six", continues=True)]

    def test_a_long_line_of_code_is_cut_anywhere(self) -> None:
        splitter = BlockSplitter()
        splitter.feed("```\n  one tw")
        assert splitter.cut(10, column=0) == [Code("  one tw", "```", is_first=True, is_open=True)]
        assert splitter.feed("o\n") == [Code("o", "```", is_first=False, continues=True, joint="")]

    def test_a_table_is_cut_between_rows_and_the_tail_does_not_repeat_the_head(self) -> None:
        splitter = BlockSplitter()
        splitter.feed("|a|\n|-|\n|b|\n|c")
        assert splitter.cut(10, column=0) == [Prose("|a|\n|-|\n|b|")]
        assert splitter.tail == "|c"
        assert splitter.feed("|\n\n") == [Prose("|a|\n|-|\n|c|", continues=True)]

    def test_text_without_spaces_is_cut_between_characters(self) -> None:
        splitter = BlockSplitter()
        splitter.feed("漢字" * 20)
        assert splitter.cut(30, column=0) == [Prose("漢字" * 14 + "漢", is_open=True)]
        assert splitter.close() == [Prose("字" + "漢字" * 5, continues=True, joint="")]


class TestLooks:
    def test_a_heading_is_bold_and_at_the_left(self) -> None:
        assert render("# Title", 80, True) == "\x1b[1;4mTitle\x1b[0m\n"
        assert render("### Part `x`", 80, True) == "\x1b[1mPart \x1b[0m\x1b[1;36mx\x1b[0m\n"
        assert plain("## Title") == ["## Title"]

    def test_styles_of_words(self) -> None:
        text = render("a **b *c*** `d` ~~e~~", 80, True)
        assert text == "a \x1b[1mb \x1b[0m\x1b[1;3mc\x1b[0m \x1b[36md\x1b[0m \x1b[9me\x1b[0m\n"

    def test_code_can_be_copied_as_it_is(self) -> None:
        long = "x = " + " + ".join(str(n) for n in range(100))
        text = f"```python\ndef f():\n\n\tif 1:  # why\n        {long}\n```"
        assert plain(text, 40) == ["```python", "def f():", "", "\tif 1:  # why", f"        {long}", "```"]
        colored = render(text, 40, True)
        assert SGR.sub("", colored).splitlines() == plain(text, 40)
        assert "\x1b[35mdef\x1b[0m" in colored
        assert "\x1b[2m# why\x1b[0m" in colored
        assert colored.startswith("\x1b[2m```python\x1b[0m\n")

    def test_code_in_an_unknown_language_and_minified_code_are_shown_plainly(self) -> None:
        assert "\nif x:\n" in render("```no-such-language\nif x:\n```", 80, True)
        assert "\n" + "if(x){}" * 1000 + "\n" in render("```js\n" + "if(x){}" * 1000 + "\n```", 80, True)

    def test_lists_are_indented_and_wrapped_under_their_text(self) -> None:
        text = "9. nine words that do not fit into one short line\n10. ten\n    - in\n      it"
        assert plain(text, 30) == [
            " 9. nine words that do not fit",
            "    into one short line",
            "10. ten",
            "     • in",
            "       it",
        ]
        assert render("- a\n- b", 30, False, is_unicode=False) == " - a\n - b\n"

    def test_a_loose_list_is_loose(self) -> None:
        assert plain("- a\n\n  b\n- c") == [" • a", "", "   b", " • c"]

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
        assert all(line.startswith((" • ", "   ")) for line in lines)
        assert plain("|漢字|x|\n|-|-|\n|a|y|") == ["漢字  x", "───────", "a     y"]

    def test_a_quotation_has_a_bar(self) -> None:
        assert plain("> a\n> - b") == ["│ a", "│", "│  • b"]

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

    def test_markup_of_rich_is_text(self) -> None:
        words = "[bold red]x[/bold red] [link=http://evil]y[/] :smile:"
        assert plain(words) == [words]
        assert plain(f"| {words} |\n|---|\n| {words} |")[-1] == words
        assert plain(f"```\n{words}\n```") == ["```", words, "```"]

    def test_an_underlined_heading_is_a_heading(self) -> None:
        assert plain("Title\n===") == ["# Title"]

    def test_lines_stay_lines(self) -> None:
        assert plain("Name: x\nAge: 7") == ["Name: x", "Age: 7"]

    def test_no_background_and_no_bright_color_is_used(self) -> None:
        text = "# a\n\n`b` **c** [d](http://e)\n\n1. f\n\n> g\n\n|h|\n|-|\n|i|\n\n---\n\n```diff\n-j\n+k\n```"
        codes = {code for found in SGR.findall(render(text, 80, True)) for code in found.split(";")}
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
    @pytest.mark.parametrize("has_color", [False, True])
    def test_no_control_of_the_model_reaches_the_terminal(self, text: str, has_color: bool) -> None:
        rest = render(text, 60, has_color)
        rest = SGR.sub("", rest) if has_color else rest
        assert all(character.isprintable() or character == "\n" for character in rest), ascii(rest)

    @given(st.text(alphabet=st.sampled_from("ab \n\x1b[]8;()*_`#>|-1.&<\t\\!~:/漢🚀\u0301"), max_size=80))
    @settings(max_examples=200, deadline=None)
    def test_any_text_can_be_set_at_any_width(self, text: str) -> None:
        for width in (1, 40):
            assert "\x1b" not in SGR.sub("", render(text, width, True))
        assert "\x1b" not in render(text, 80, False)


def test_rich_is_loaded_with_the_first_block_and_not_before() -> None:
    assert not loaded_by("import teamcli.ui.terminal.repl") & {"rich", "markdown_it", "pygments"}
