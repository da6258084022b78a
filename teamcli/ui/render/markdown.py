"""Markdown that streams in: cut into blocks as they are finished, each block set as lines for the terminal.

Setting uses the 16 colours that every terminal theme adapts and no backgrounds, and passes code on as it is, so that it
can be copied. The parser and the highlighter (both are those that rich brings along) load with the first block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import count, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from teamcli.text.escaping import escape_controls
from teamcli.ui.render.blocks import BlockSplitter as BlockSplitter
from teamcli.ui.render.blocks import goes_on as goes_on
from teamcli.ui.render.columns import Alignment, set_table
from teamcli.ui.render.style import BOLD, CYAN, DIM, GREEN, MAGENTA, PLAIN, RED, Line, Piece
from teamcli.ui.render.wrapping import wrap

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.tree import SyntaxTreeNode

NARROWEST = 10
CODE_INDENT = "  "
LONGEST_HIGHLIGHTED_LINE = 2000
"""In code; a minified file costs the highlighter much and tells the reader nothing."""
LONGEST_RULE = 60
ITALIC, UNDERLINE, STRUCK = "3", "4", "9"
_MARKS = {"strong": BOLD, "em": ITALIC, "s": STRUCK, "link": UNDERLINE}
_HEADINGS = {"h1": f"{BOLD};{UNDERLINE}"}
_ALIGNMENTS: dict[Any, Alignment] = {"text-align:center": "center", "text-align:right": "right"}
# By kind of token. None is bright or yellow: they must be legible on white as well as on black.
_CODE_STYLES = {
    ("Comment",): DIM,
    ("Comment", "Preproc"): MAGENTA,
    ("Keyword",): MAGENTA,
    ("Keyword", "Constant"): CYAN,
    ("Operator", "Word"): MAGENTA,
    ("Literal", "String"): GREEN,
    ("Literal", "Number"): CYAN,
    ("Name", "Builtin"): CYAN,
    ("Name", "Function"): BOLD,
    ("Name", "Class"): BOLD,
    ("Name", "Decorator"): MAGENTA,
    ("Name", "Tag"): MAGENTA,
    ("Generic", "Deleted"): RED,
    ("Generic", "Inserted"): GREEN,
    ("Generic", "Heading"): BOLD,
    ("Generic", "Subheading"): MAGENTA,
    ("Generic", "Prompt"): DIM,
}


class _Page(NamedTuple):
    width: int
    has_style: bool
    is_unicode: bool

    def narrower(self, by: int) -> _Page:
        return self._replace(width=max(NARROWEST, self.width - by))


def render(block: str, width: int, colour: str | None, is_unicode: bool = True) -> str:
    """The block as lines of text with colour codes (without any where `colour` is None), each ended by a newline.

    Whatever the block holds, no escape sequence of its own gets through. Lines of code and long URLs may be longer than
    `width`: the terminal wraps them, and they are whole when copied.
    """
    page = _Page(max(NARROWEST, width), colour is not None, is_unicode)
    lines = _blocks(_parse(escape_controls(block)), page)
    return "".join(_painted(line, page) + "\n" for line in lines)


def _painted(line: Line, page: _Page) -> str:
    if not page.has_style:
        return "".join(text for text, _ in line).rstrip()
    painted = ""
    for style, pieces in groupby(_without_padding(line), key=itemgetter(1)):
        text = "".join(text for text, _ in pieces)
        painted += f"\x1b[{style}m{text}\x1b[0m" if style and text else text
    return painted


def _without_padding(line: Line) -> Line:
    kept = list(line)
    while kept:
        text, style = kept.pop()
        if text := text.rstrip():
            return [*kept, (text, style)]
    return kept


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    # What looks like HTML or a link definition would vanish from the screen, but `Vec<String>` is meant to be read.
    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable("reference")


def _parse(block: str) -> list[SyntaxTreeNode]:
    from markdown_it.tree import SyntaxTreeNode

    return SyntaxTreeNode(_parser().parse(block)).children


def _blocks(nodes: Iterable[SyntaxTreeNode], page: _Page) -> list[Line]:
    """Set one below the other, with a blank line between them, but for what stands close in a list."""
    lines: list[Line] = []
    for node in nodes:
        if lines and not _stands_close(node):
            lines.append([])
        lines += _block(node, page)
    return lines


def _stands_close(node: SyntaxTreeNode) -> bool:
    before = node.previous_sibling
    return before is not None and before.type == "paragraph" and before.hidden


def _block(node: SyntaxTreeNode, page: _Page) -> list[Line]:
    match node.type:
        case "heading":
            return _heading(node, page)
        case "fence" | "code_block":
            return _code(node.content, node.info.partition(" ")[0] if node.type == "fence" else "")
        case "bullet_list" | "ordered_list":
            return _list(node, page)
        case "blockquote":
            bar = "│ " if page.is_unicode else "| "
            return [[(bar, DIM), *line] for line in _blocks(node.children, page.narrower(len(bar)))]
        case "table":
            return _table(node, page)
        case "hr":
            return [[(("─" if page.is_unicode else "-") * min(page.width, LONGEST_RULE), DIM)]]
        case _:
            return wrap(_inline(node), page.width)


def _heading(node: SyntaxTreeNode, page: _Page) -> list[Line]:
    text = _inline(node, _HEADINGS.get(node.tag, BOLD))
    # Without style, nothing but the signs that the author wrote sets a heading off.
    signs = [] if page.has_style else [(f"{'#' * int(node.tag[1:])} ", PLAIN)]
    return wrap([*signs, *text], page.width)


def _list(node: SyntaxTreeNode, page: _Page) -> list[Line]:
    labels = _labels(node, page)
    indent = max(map(len, labels))
    is_loose = any(child.type == "paragraph" and not child.hidden for item in node.children for child in item.children)
    lines: list[Line] = []
    for label, item in zip(labels, node.children, strict=True):
        if is_loose and lines:
            lines.append([])
        first, *others = _blocks(item.children, page.narrower(indent)) or [[]]
        lines.append([(label.rjust(indent), CYAN), *first])
        lines += [[(" " * indent, PLAIN), *line] for line in others]
    return lines


def _labels(node: SyntaxTreeNode, page: _Page) -> list[str]:
    if node.type == "bullet_list":
        return ["• " if page.is_unicode else "- "] * len(node.children)
    numbers = count(int(node.attrs.get("start", 1)))
    return [f"{number}{node.markup} " for _, number in zip(node.children, numbers, strict=False)]


def _table(node: SyntaxTreeNode, page: _Page) -> list[Line]:
    head, *rows = [row.children for section in node.children for row in section.children]
    titles = [_inline(cell, BOLD) for cell in head]
    alignments = [_ALIGNMENTS.get(cell.attrs.get("style"), "left") for cell in head]
    cells = [[_inline(cell) for cell in row] for row in rows]
    return set_table(titles, cells, alignments, "─" if page.is_unicode else "-", page.width)


def _inline(node: SyntaxTreeNode, style: str = PLAIN) -> list[Piece]:
    """The text of a paragraph, heading or table cell."""
    # Once more neutralised: an entity may stand for anything.
    return [(escape_controls(text), its_style) for text, its_style in _pieces(node.children, style)]


def _pieces(nodes: Sequence[SyntaxTreeNode], style: str) -> Iterator[Piece]:
    for node in nodes:
        match node.type:
            case "softbreak" | "hardbreak":
                yield "\n", PLAIN
            case "code_inline":
                yield node.content, _both(style, CYAN)
            case "image":
                yield f"{node.content} ({node.attrs['src']})", style
            case "text" | "text_special":
                yield node.content, style
            case kind:
                yield from _pieces(node.children, _both(style, _MARKS.get(kind, PLAIN)))
        if node.type == "link" and _plain(node) != node.attrs["href"]:
            yield f" ({node.attrs['href']})", style


def _both(style: str, other: str) -> str:
    return f"{style};{other}" if style and other else style or other


def _plain(node: SyntaxTreeNode) -> str:
    return "".join(text for text, _ in _pieces(node.children, PLAIN))


def _code(code: str, language: str) -> list[Line]:
    plain = code.rstrip().split("\n")
    lexer = _lexer(language.lower()) if max(map(len, plain)) <= LONGEST_HIGHLIGHTED_LINE else None
    if lexer is None:
        return [[(CODE_INDENT + line, PLAIN)] for line in plain]
    lines: list[Line] = [[(CODE_INDENT, PLAIN)]]
    for kind, value in lexer.get_tokens("\n".join(plain)):
        style = _code_style(kind)
        first, *others = value.split("\n")
        lines[-1].append((first, style))
        lines += [[(CODE_INDENT, PLAIN), (other, style)] for other in others]
    return lines[: len(plain)]


@cache
def _lexer(language: str) -> Any:
    """None for a language that nobody knows."""
    if not language:
        return None
    from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]  # it comes without types

    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ValueError:
        return None


@cache
def _code_style(kind: tuple[str, ...]) -> str:
    """That of the kind, or else of the one which it is a special case of."""
    return _CODE_STYLES.get(kind) or (_code_style(kind[:-1]) if kind else PLAIN)
