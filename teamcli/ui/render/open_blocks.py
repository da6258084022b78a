"""Blocks of markdown that are not complete yet: what belongs to each, and what of it can be handed out."""

from __future__ import annotations

import re
from typing import NamedTuple

LONG_LINES = 60
"""A paragraph is cut after this many lines, a table or an item after four times as many."""
LONG_CHARACTERS = 8 * 1024

_FENCE = re.compile(r"( *)(?:(`{3,})([^`]*)|(~{3,})(.*))")
_ITEM = re.compile(r"( *)([-+*]|\d{1,9}[.)])( +|$)(.*)")
_HEADING = re.compile(r" {0,3}#{1,6}(?:[ \t]|$)")
_RULE = re.compile(r" {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}")
_TABLE_RULE = re.compile(r" {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-*:?[ \t]*)*")
_MAX_INDENT = 3  # a line indented further is indented code
_MAX_GAP = 4  # between the marker of an item and its text
_LABEL_WIDTH = 3
"""Cells that the label of an item takes on the screen; that of a number takes one more."""


class Prose(NamedTuple):
    markdown: str
    continues: bool = False
    """It belongs to the block before it: no blank line between them."""
    margin: int = 0
    """How far it is indented, because it is part of an item that was begun earlier."""
    joint: str | None = None
    """It continues the last line of the block before it, after this space."""
    is_open: bool = False
    """The next block continues its last line."""


class Code(NamedTuple):
    """Some lines of a code block, or with `is_last` its end."""

    text: str
    fence: str
    """The line that opens the code, or at the end the one that closes it."""
    is_first: bool
    continues: bool = False
    joint: str | None = None
    is_open: bool = False
    is_last: bool = False

    @property
    def language(self) -> str:
        return self.fence.strip("`~ ").partition(" ")[0]


Block = Prose | Code


class Paragraph:
    """A paragraph, a heading, a quotation, or a table."""

    def __init__(self, line: str) -> None:
        self.lines = [line]
        self.continues = False
        self.is_finished = _HEADING.match(line) is not None
        self._size = len(line)
        self.is_mid_line = False
        """The rest of a line follows, of which the beginning was handed out."""
        self._joint: str | None = None
        self._is_code = indent_of(line) > _MAX_INDENT
        self._quote = "> " if line.lstrip().startswith(">") else ""

    def start(self, column: int | None) -> int | None:
        """In which column its next words begin, if what is printed ends in `column`. None if words are wrapped."""
        if column is None or self._quote or self._is_code:
            return None
        return column + 1 if self.is_mid_line else 0

    @property
    def is_table(self) -> bool:
        return len(self.lines) > 1 and "|" in self.lines[0] and _TABLE_RULE.fullmatch(self.lines[1]) is not None

    @property
    def has_whole_lines(self) -> bool:
        """Whether its lines must not be cut."""
        return self._is_code or self.is_table

    @property
    def tail(self) -> list[str]:
        return self.lines[2:] if self.is_table and self.continues else self.lines

    def has(self, line: str) -> bool:
        return bool(line.strip()) and (self.is_mid_line or not _interrupts_paragraph(line))

    def add(self, line: str) -> list[Block]:
        # All rows decide how wide a column is, so a table is cut late, and then each piece gets the head.
        limit = 4 if self.is_table else 1
        is_long = len(self.lines) >= limit * LONG_LINES or self._size >= limit * LONG_CHARACTERS
        finished = self.cut() if is_long else []
        self.lines.append(self._quote + line if self.is_mid_line else line)
        self.is_mid_line = False
        self._size += len(line) + 1
        return finished

    def cut(self, is_mid_line: bool = False, joint: str | None = None) -> list[Block]:
        """Hand out its lines. What is added next may be the rest of the last one, which it joins on the screen."""
        head = self.lines[:2] if self.is_table else []
        finished: list[Block] = [block._replace(is_open=joint is not None) for block in self.end()]
        self.lines, self._size, self.continues = head, sum(map(len, head)), True
        self.is_mid_line, self._joint = is_mid_line, joint
        return finished

    def end(self) -> list[Prose]:
        has_text = len(self.lines) > (2 if self.is_table and self.continues else 0)
        return [Prose("\n".join(self.lines).rstrip(), self.continues, joint=self._joint)] if has_text else []


class Opening(NamedTuple):
    """The line that opens a fence, taken apart."""

    indent: int
    fence: str
    info: str

    @classmethod
    def read(cls, line: str) -> Opening | None:
        found = _FENCE.fullmatch(line)
        if not found:
            return None
        indent, ticks, info, tildes, other_info = found.groups()
        return cls(len(indent), ticks or tildes, (info if ticks else other_info).strip())

    def is_closed_by(self, line: str) -> bool:
        text = line.strip()
        is_fence = len(text) >= len(self.fence) and not text.strip(self.fence[0])
        return is_fence and indent_of(line) <= self.indent + _MAX_INDENT


class FencedCode:
    """Code. Nothing that follows changes how its lines look, so they need not wait for the end."""

    def __init__(self, opening: Opening, continues: bool = False) -> None:
        self.lines: list[str] = []
        self.is_finished = False
        self.continues = continues
        self._opening = opening
        self._is_first = True
        self._is_mid_line = False
        """The rest of a line follows, of which the beginning was handed out."""

    def has(self, line: str) -> bool:
        return True

    def add(self, line: str) -> list[Block]:
        is_rest, self._is_mid_line = self._is_mid_line, False
        self.is_finished = not is_rest and self._opening.is_closed_by(line)
        if is_rest:
            return self._hand_out(line, joint="") if line else []
        if not self.is_finished:
            # Models forget to indent the code in an item. Strictly read, that would end the list and the code.
            self.lines.append(self._dedented(line))
        return self.flush() if len(self.lines) >= LONG_LINES else []

    def flush(self) -> list[Block]:
        """The whole lines. Blank ones wait for another line: at the end they are dropped."""
        count = len(self.lines)
        while count and not self.lines[count - 1].strip():
            count -= 1
        text = "\n".join(self.lines[:count])
        del self.lines[:count]
        return self._hand_out(text) if count else []

    def cut(self, line: str) -> list[Block]:
        """Hand out its lines, and the beginning of one that has not ended."""
        joint = "" if self._is_mid_line else None
        text = line if self._is_mid_line else "\n".join([*self.lines, self._dedented(line)])
        self.lines.clear()
        self._is_mid_line = True
        return self._hand_out(text, joint, is_open=True)

    def end(self) -> list[Block]:
        finished = self.flush()
        return finished if self._is_first else [*finished, Code("", self._opening.fence, False, True, is_last=True)]

    def tail(self, line: str) -> str:
        # What may become the closing fence would flash up for a moment.
        may_close = bool(line.strip()) and not line.strip().strip(self._opening.fence[0]) and not self._is_mid_line
        lines = self.lines if may_close else [*self.lines, line if self._is_mid_line else self._dedented(line)]
        return "\n".join(lines) if any(lines) else ""

    def _hand_out(self, text: str, joint: str | None = None, is_open: bool = False) -> list[Block]:
        fence = self._opening.fence + self._opening.info
        block = Code(text, fence, self._is_first, self.continues, joint, is_open)
        self._is_first, self.continues = False, True
        return [block]

    def _dedented(self, line: str) -> str:
        return line[min(indent_of(line), self._opening.indent) :]


class Item(NamedTuple):
    """The line that begins an item of a list, taken apart."""

    indent: int
    marker: str
    content: int
    """The column of its text. Lines that are indented at least this far belong to the item."""
    text: str

    @classmethod
    def read(cls, line: str) -> Item | None:
        found = _ITEM.fullmatch(line)
        if not found or _RULE.fullmatch(line):
            return None
        indent, marker, gap, text = found.groups()
        width = len(gap) if 0 < len(gap) <= _MAX_GAP else 1
        return cls(len(indent), marker, len(indent) + len(marker) + width, text)

    @property
    def number(self) -> int | None:
        return int(self.marker[:-1]) if len(self.marker) > 1 else None


class ListBlock:
    """Hands out one item after the other, and the code in an item line by line."""

    is_finished = False

    def __init__(self, first: Item) -> None:
        self.lines: list[str] = []
        self.fence: FencedCode | None = None
        """The code block inside an item that is open."""
        self._size = 0
        self._kind = first.marker[-1]
        self._content = first.content
        self._next_number = first.number
        self._after_blank = False
        self._is_first = True
        self.continues = False
        self._is_inside_item = False
        """The lines continue an item that was handed out in part."""

    def has(self, line: str) -> bool:
        if not line.strip() or self.fence:
            return True
        if indent_of(line) >= self._content or self._own_item(line):
            return True
        if self._after_blank:
            return False
        # Without an indent, a line ends the list if it begins another block. If not, it continues an item's paragraph.
        is_other = _HEADING.match(line) or _RULE.fullmatch(line) or line.lstrip().startswith(">")
        return not (is_other or Opening.read(line) or Item.read(line))

    def ends_before(self, beginning: str) -> bool:
        """Whether a line that begins like this cannot belong to the list. False if that is not clear yet."""
        return self._after_blank and not self.fence and beginning[0] not in " \t-+*0123456789"

    def add(self, line: str) -> list[Block]:
        if self.fence is not None:
            finished = self.fence.add(line)
            return finished + self._end_fence() if self.fence.is_finished else finished
        finished = []
        item = self._own_item(line)
        if item or self._size > 4 * LONG_CHARACTERS or len(self.lines) >= 4 * LONG_LINES:
            finished = self.end()
            self._is_inside_item = item is None
        if item:
            line = self._numbered(line, item)
        text, margin = line, 0
        while inner := Item.read(text):
            margin += inner.content
            text = inner.text
        opening = Opening.read(text)
        if opening is None:
            self._append(line)
            return finished
        if margin:  # the item begins with the fence, so its label gets a line
            self._append(line[:margin])
        finished += self.end()
        self.fence = FencedCode(opening._replace(indent=opening.indent + margin), not self._after_blank)
        return finished

    def cut(self, is_mid_line: bool = False, joint: str | None = None) -> list[Block]:
        """Hand out its lines. What is added next may be the rest of the last one."""
        return self.end()

    def end(self) -> list[Block]:
        if self.fence is not None:
            return self._end_fence()
        lines, self.lines, self._size = self.lines, [], 0
        if not any(line.strip() for line in lines):
            return []
        margin = 0
        if self._is_inside_item:
            lines = [line[min(indent_of(line), self._content) :] for line in lines]
            margin = _LABEL_WIDTH if self._next_number is None else max(_LABEL_WIDTH + 1, self._content)
        self._is_inside_item = True
        return [Prose("\n".join(lines).rstrip(), self.continues, margin)]

    def _end_fence(self) -> list[Block]:
        assert self.fence is not None
        finished = self.fence.end()
        self.fence, self._after_blank, self._is_inside_item = None, False, True
        return finished

    def _append(self, line: str) -> None:
        if line.strip() and not self.lines:
            self.continues = not (self._is_first or self._after_blank)
            self._is_first = False
        self._after_blank = not line.strip()
        if line.strip() or self.lines:
            self.lines.append(line)
        self._size += len(line) + 1

    def _own_item(self, line: str) -> Item | None:
        """An item of this list itself, not of one inside it."""
        item = Item.read(line)
        return item if item and item.indent < self._content and item.marker[-1] == self._kind else None

    def _numbered(self, line: str, item: Item) -> str:
        """Give the item its number: in markdown only the first number of a list counts, and each item is a piece."""
        self._content = item.content
        self._is_inside_item = False
        if self._next_number is None:
            return line
        number, self._next_number = self._next_number, self._next_number + 1
        return f"{' ' * item.indent}{number}" + line[item.indent + len(item.marker) - 1 :]


def begin_block(line: str) -> tuple[Paragraph | FencedCode | ListBlock, list[Block]]:
    """The block that begins with this line, and what is complete of it."""
    opening = Opening.read(line)
    if opening and opening.indent <= _MAX_INDENT:
        return FencedCode(opening), []
    item = Item.read(line)
    if item and item.indent <= _MAX_INDENT:
        block = ListBlock(item)
        return block, block.add(line)
    return Paragraph(line), []


def _interrupts_paragraph(line: str) -> bool:
    opening = Opening.read(line)
    if _HEADING.match(line) or (opening and opening.indent <= _MAX_INDENT):
        return True
    item = Item.read(line)
    return item is not None and item.indent <= _MAX_INDENT and item.text != "" and item.number in (None, 1)


def indent_of(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
