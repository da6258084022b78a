"""Markdown as rich renders it, with our looks: the 16 theme colors, no backgrounds, code that can be copied.

This module loads rich and its parser, so it is imported when the first answer is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, ClassVar

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import (
    BlockQuote,
    CodeBlock,
    Heading,
    HorizontalRule,
    ListElement,
    Markdown,
    Paragraph,
    TableElement,
)
from rich.segment import Segment
from rich.style import Style
from rich.syntax import ANSISyntaxTheme, Syntax
from rich.table import Table
from rich.text import Text

from teamcli.text.console import render_lines, urls_apart
from teamcli.text.escaping import escape_controls
from teamcli.ui.render.open_blocks import Block, Code

MIN_WIDTH = 10
LONGEST_HIGHLIGHTED_LINE = 2000
"""Highlighting a minified file is slow and does not help the reader."""
LONGEST_RULE = 60
CONTEXT_LINES = 20
"""How much of the code before a line is highlighted again with it, in addition to the first line."""
MIN_COLUMN = 5
"""Columns that are narrower on average cannot be read: each cell gets a line."""
# Bright colors and yellow are missing: they must be legible on white as well as on black.
_CODE_STYLES: dict[tuple[str, ...], str] = {
    ("Comment",): "dim",
    ("Comment", "Preproc"): "magenta",
    ("Keyword",): "magenta",
    ("Keyword", "Constant"): "cyan",
    ("Operator", "Word"): "magenta",
    ("Literal", "String"): "green",
    ("Literal", "Number"): "cyan",
    ("Name", "Builtin"): "cyan",
    ("Name", "Function"): "bold",
    ("Name", "Class"): "bold",
    ("Name", "Decorator"): "magenta",
    ("Name", "Tag"): "magenta",
    ("Generic", "Deleted"): "red",
    ("Generic", "Inserted"): "green",
    ("Generic", "Heading"): "bold",
    ("Generic", "Subheading"): "magenta",
    ("Generic", "Prompt"): "dim",
}
_CODE_THEME = ANSISyntaxTheme({kind: Style.parse(style) for kind, style in _CODE_STYLES.items()})
_NESTED_LANGUAGES = frozenset({"css", "html", "less", "markdown", "php", "scss", "svelte", "vue", "xml"})
"""In these, what a line means depends on lines far above it."""
_ASCII_BOX = box.Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)
# HTML and link definitions would vanish from the screen, but `Vec<String>` is meant to be read.
_PARSER = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable("reference")


class MarkdownRenderer:
    """Renders the blocks of one answer, one after the other."""

    def __init__(self) -> None:
        self._context: list[str] = []
        """Code that was rendered already, without which the next lines cannot be highlighted."""

    def render(self, block: Block, width: int, has_color: bool, is_unicode: bool = True, wraps: bool = True) -> str:
        """The block as lines of text, each ended by a newline unless the next block continues the last one.

        No escape sequence in the text gets through. Lines of code and long URLs may be wider than `width`, and without
        `wraps` paragraphs as well: the terminal wraps them, and they are whole when copied.
        """
        if isinstance(block, Code):
            lines = render_lines(_Lines(self._highlight(block)), width, has_color) if not block.is_last else []
            fence = render_lines(
                Text(escape_controls(block.fence), "dim", no_wrap=True, overflow="ignore"), None, has_color
            )
            lines = [*(fence if block.is_first else []), *lines, *(fence if block.is_last else [])]
            margin = 0
        else:
            margin = block.margin
            inner = max(MIN_WIDTH, width - margin)
            markdown = _Markdown(block.markdown, not has_color)
            lines = render_lines(markdown, inner, has_color, is_unicode, no_wrap=not wraps and not margin)
            lines = lines[not lines[0] :]  # rich begins some elements with a blank line
        text = "".join(f"{' ' * margin if line else ''}{line}\n" for line in lines)
        return (block.joint or "") + (text.removesuffix("\n") if block.is_open else text)

    def _highlight(self, block: Code) -> Text:
        before = [] if block.is_first else self._context
        lines = escape_controls(block.text).split("\n")
        text = _highlighted("\n".join([*before, *lines]) + "\n", block.language.lower())
        # A string or a comment that includes the last line break continues in the lines to come.
        is_open = any(span.end == len(text) for span in text.spans)
        keeps_context = is_open or block.language.lower() in _NESTED_LANGUAGES
        self._context = [*before[:1], *[*before[1:], *lines][-CONTEXT_LINES:]] if keeps_context else []
        return Text("\n").join(text.split("\n")[len(before) : len(before) + len(lines)])


class _Lines:
    """Lines of code as they are: rich would wrap them and replace their tabs."""

    def __init__(self, code: Text) -> None:
        self._code = code

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self._code.split("\n"):
            yield from line.render(console, end="\n")


def _highlighted(code: str, language: str) -> Text:
    if max(map(len, code.split("\n"))) > LONGEST_HIGHLIGHTED_LINE:
        return Text(code)
    return _highlighter(language).highlight(code)


@lru_cache(maxsize=64)  # the model chooses the names
def _highlighter(language: str) -> Syntax:
    """With a tab size, pygments would replace tabs. An unknown language is shown plainly."""
    lexer = Syntax("", language, tab_size=0).lexer  # which rich would look up again for each line
    return Syntax("", lexer or "text", theme=_CODE_THEME, tab_size=0)


class _WrappedParagraph(Paragraph):
    is_tight = False
    """It is in a list without blank lines between the items."""

    @classmethod
    def create(cls, markdown: Markdown, token: Token) -> _WrappedParagraph:
        made = cls("left")
        made.is_tight = token.hidden
        return made

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from _wrapped(self.text, options)


class _Heading(Heading):
    """At the left and without a frame, unlike rich's own."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from _wrapped(self.text, options)


def _wrapped(text: Text, options: ConsoleOptions) -> Iterable[Text]:
    if not options.no_wrap:
        return urls_apart(text, options.max_width)
    text.no_wrap, text.overflow = True, "ignore"
    return [text]


class _Code(CodeBlock):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = self.text.plain.rstrip()
        text = _highlighted(code + "\n", self.lexer_name.lower())
        text.right_crop(1)
        yield _Lines(text)


class _Rule(HorizontalRule):
    new_line = True

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        sign = "-" if options.ascii_only else "─"
        yield Text(sign * min(options.max_width, LONGEST_RULE), "markdown.hr")


class _Quote(BlockQuote):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        bar = "| " if options.ascii_only else "│ "
        yield from _labeled(bar, bar, "dim", self.elements, console, options)


class _TightList(ListElement):
    """Loose if the author wrote it so, with the author's sign behind the numbers."""

    mark = ""

    @classmethod
    def create(cls, markdown: Markdown, token: Token) -> _TightList:
        made = cls(token.type, int(token.attrs.get("start", 1)))
        made.mark = token.markup
        return made

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        items: list[Any] = self.items
        is_loose = any(
            isinstance(each, _WrappedParagraph) and not each.is_tight for item in items for each in item.elements
        )
        first = self.list_start or 0
        digits = max(2, len(str(first + len(self.items) - 1)))
        for number, item in enumerate(items, start=first):
            if is_loose and number > first:
                yield Segment.line()
            if self.list_type == "bullet_list_open":
                label, style = " - " if options.ascii_only else " • ", "markdown.item.bullet"
            else:
                label, style = f"{number:>{digits}}{self.mark} ", "markdown.item.number"
            yield from _labeled(label, " " * len(label), style, item.elements, console, options)


def _labeled(
    label: str, other: str, style: str, elements: Any, console: Console, options: ConsoleOptions
) -> Iterator[Segment]:
    """The elements one below the other, with a label on the first line. Unlike rich's own, never cropped."""
    inner = options.update(width=max(MIN_WIDTH, options.max_width - len(label)), no_wrap=False)
    lines: list[list[Segment]] = []
    is_close = True
    for element in elements:
        lines += [] if is_close else [[]]
        lines += Segment.split_lines(console.render(element, inner))
        is_close = isinstance(element, _WrappedParagraph) and element.is_tight
    for line in lines or [[]]:
        yield Segment(label, console.get_style(style))
        yield from line
        yield Segment.line()
        label = other


class _Table(TableElement):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        assert self.header is not None
        assert self.header.row is not None
        heads = [cell.content for cell in self.header.row.cells]
        rows = [[cell.content for cell in row.cells] for row in self.body.rows] if self.body else []
        if MIN_COLUMN * len(heads) > options.max_width:  # rich would leave columns out
            cells = (Text.assemble(head, ": ", cell) for row in rows for head, cell in zip(heads, row, strict=True))
            yield from (part for cell in cells for part in _wrapped(cell, options))
            return
        table = Table(
            box=_ASCII_BOX if options.ascii_only else box.SIMPLE_HEAD,
            show_edge=False,
            pad_edge=False,
            collapse_padding=True,
            border_style="markdown.table.border",
            header_style="markdown.table.header",
        )
        for head in heads:
            table.add_column(head, overflow="fold")
        for row in rows:
            table.add_row(*row)
        yield table


class _Markdown(Markdown):
    elements: ClassVar = {
        **Markdown.elements,
        "paragraph_open": _WrappedParagraph,
        "heading_open": _Heading,
        "fence": _Code,
        "code_block": _Code,
        "blockquote_open": _Quote,
        "hr": _Rule,
        "bullet_list_open": _TightList,
        "ordered_list_open": _TightList,
        "table_open": _Table,
    }

    def __init__(self, markup: str, shows_signs: bool) -> None:
        # Not `super().__init__`, which makes a parser for each block: that takes as long as rendering it.
        self.justify, self.style, self.hyperlinks = None, "none", False
        self.inline_code_lexer, self.inline_code_theme = None, ""
        self.code_theme = ""
        self.inlines = {*Markdown.inlines, "a"}
        self.parsed = list(_prepared(_PARSER.parse(escape_controls(markup)), shows_signs))


def _prepared(tokens: Iterable[Token], shows_signs: bool) -> Iterator[Token]:
    """The tokens as rich should see them."""
    heading = href = label = ""
    for token in tokens:
        # Escaped once more: an entity may stand for any character.
        token.content = escape_controls(token.content)
        token.children = token.children and list(_prepared(token.children, shows_signs))
        match token.type:
            case "softbreak":
                token.type = "hardbreak"  # lines stay lines
            case "image":
                yield _text(f"{token.content} ({escape_controls(str(token.attrs['src']))})")
                continue
            case "heading_open" if shows_signs:
                heading = "#" * int(token.tag[1:])  # without any style, only the signs set a heading off
            case "inline" if heading:
                token.children, heading = [_text(f"{heading} "), *(token.children or [])], ""
            case "link_open":
                token.type = "a_open"  # our own style: rich's links lose the styles inside them
                href, label = escape_controls(str(token.attrs["href"])), ""
            case "link_close":
                token.type = "a_close"
        label += token.content
        yield token
        if token.type == "a_close" and label != href:
            yield _text(f" ({href})")


def _text(content: str) -> Token:
    return Token("text", "", 0, content=content)
