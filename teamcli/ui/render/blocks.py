"""Splits streaming markdown into blocks that can be rendered one after the other.

A paragraph, a table, or a list item is held back until it is complete, because its last line may change how the first
one looks. Code is not: each line is handed out as soon as it has ended. What is held back is bounded. A block that gets
too long is handed out in pieces, each of which is valid markdown by itself.
"""

from __future__ import annotations

import re
from typing import NamedTuple

LONG_LINES = 60
"""A paragraph is cut after this many lines, a table or an item after four times as many."""
LONG_CHARACTERS = 8 * 1024
LONGEST_LINE = 16 * 1024
CODE_INDENT = 2

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


class Code(NamedTuple):
    """Some whole lines of a code block."""

    text: str
    language: str
    is_first: bool
    continues: bool = False
    margin: int = 0


Block = Prose | Code


class BlockSplitter:
    """Takes text as it arrives. The cost of a call depends only on the new text."""

    def __init__(self, streams_code: bool = True) -> None:
        self._streams_code = streams_code
        self._block: _Paragraph | _Fence | _List | None = None
        self._line: list[str] = []
        """The pieces of the line that has not ended."""
        self._line_length = 0

    @property
    def is_in_code(self) -> bool:
        """Whether the next lines are handed out as soon as they have ended."""
        return self._fence is not None and self._streams_code

    @property
    def tail(self) -> str:
        """The text that no block contains yet, as it should be shown."""
        line = "".join(self._line)
        if self._fence is not None:
            return self._fence.tail(line)
        return "\n".join([*(self._block.lines if self._block else []), line])

    @property
    def _fence(self) -> _Fence | None:
        block = self._block.fence if isinstance(self._block, _List) else self._block
        return block if isinstance(block, _Fence) else None

    def feed(self, text: str) -> list[Block]:
        """Take more text. Returns the blocks that are now complete."""
        finished: list[Block] = []
        *ends, rest = text.split("\n")
        for end in ends:
            finished += self._take("".join((*self._line, end)).removesuffix("\r"))
            self._line.clear()
            self._line_length = 0
        if self._fence is not None and self._streams_code:
            finished += self._fence.flush()
        if rest:
            finished += self._begin_line(rest)
        return finished

    def close(self) -> list[Block]:
        """The rest, complete or not. The splitter can then be used for another text."""
        finished = self._take("".join(self._line))
        finished += self._end_block()
        self._line.clear()
        self._line_length = 0
        return finished

    def _begin_line(self, text: str) -> list[Block]:
        self._line.append(text)
        self._line_length += len(text)
        if self._line_length > LONGEST_LINE:
            line = "".join(self._line)
            cut = line.rfind(" ") + 1 or len(line)
            self._line = [line[cut:]]
            self._line_length = len(line) - cut
            return self._take(line[:cut])
        # Without waiting for the end of the line: a long paragraph after a list would hold back its last item.
        if len(self._line) == 1 and isinstance(self._block, _List) and self._block.ends_before(text):
            return self._end_block()
        return []

    def _take(self, line: str) -> list[Block]:
        finished: list[Block] = []
        if self._block is not None and not self._block.has(line):
            finished += self._end_block()
        if self._block is not None:
            finished += self._block.add(line)
        elif line.strip():
            self._block, begun = _begin(line)
            finished += begun
        if self._block is not None and self._block.is_finished:
            finished += self._end_block()
        return finished

    def _end_block(self) -> list[Block]:
        block, self._block = self._block, None
        return block.flush() if block else []


class _Paragraph:
    """A paragraph, a heading, a quotation, or a table."""

    def __init__(self, line: str) -> None:
        self.lines = [line]
        self._size = len(line)
        self._continues = False
        self.is_finished = _HEADING.match(line) is not None

    def has(self, line: str) -> bool:
        return bool(line.strip()) and not _interrupts_paragraph(line)

    def add(self, line: str) -> list[Block]:
        # All rows decide how wide a column is, so a table is cut late, and then each piece gets the head.
        is_table = len(self.lines) > 1 and "|" in self.lines[0] and _TABLE_RULE.fullmatch(self.lines[1]) is not None
        limit = 4 if is_table else 1
        finished: list[Block] = []
        if len(self.lines) >= limit * LONG_LINES or self._size >= limit * LONG_CHARACTERS:
            head = self.lines[:2] if is_table else []
            finished = self.flush()
            self.lines, self._size, self._continues = head, sum(map(len, head)), True
        self.lines.append(line)
        self._size += len(line) + 1
        return finished

    def flush(self) -> list[Block]:
        return [Prose("\n".join(self.lines).rstrip(), self._continues)]


class _Opening(NamedTuple):
    """The line that opens a fence, taken apart."""

    indent: int
    fence: str
    info: str

    @classmethod
    def read(cls, line: str) -> _Opening | None:
        found = _FENCE.fullmatch(line)
        if not found:
            return None
        indent, ticks, info, tildes, other_info = found.groups()
        return cls(len(indent), ticks or tildes, (info if ticks else other_info).strip())

    def is_closed_by(self, line: str) -> bool:
        text = line.strip()
        is_fence = len(text) >= len(self.fence) and not text.strip(self.fence[0])
        return is_fence and _indent(line) <= self.indent + _MAX_INDENT


class _Fence:
    """Code. Nothing that follows changes how its lines look, so they need not wait for the end."""

    def __init__(self, opening: _Opening, continues: bool = False, margin: int = 0) -> None:
        self.lines: list[str] = []
        self.is_finished = False
        self._opening = opening
        self._is_first = True
        self._continues = continues
        self._margin = margin

    def has(self, line: str) -> bool:
        return True

    def add(self, line: str) -> list[Block]:
        self.is_finished = self._opening.is_closed_by(line)
        if not self.is_finished:
            # Models forget to indent the code in an item. Strictly read, that would end the list and the code.
            self.lines.append(self._dedented(line))
        return self.flush() if len(self.lines) >= LONG_LINES else []

    def flush(self) -> list[Block]:
        """The whole lines. Blank ones wait for another line: at the end they are dropped."""
        count = len(self.lines)
        while count and not self.lines[count - 1].strip():
            count -= 1
        if not count:
            return []
        text = "\n".join(self.lines[:count])
        block = Code(text, self._opening.info.partition(" ")[0], self._is_first, self._continues, self._margin)
        del self.lines[:count]
        self._is_first, self._continues = False, True
        return [block]

    def tail(self, line: str) -> str:
        # What may become the closing fence would flash up for a moment.
        may_close = bool(line.strip()) and not line.strip().strip(self._opening.fence[0])
        lines = self.lines if may_close else [*self.lines, self._dedented(line)]
        return "\n".join(" " * (self._margin + CODE_INDENT) + each for each in lines) if any(lines) else ""

    def _dedented(self, line: str) -> str:
        return line[min(_indent(line), self._opening.indent) :]


class _Item(NamedTuple):
    """The line that begins an item of a list, taken apart."""

    indent: int
    marker: str
    content: int
    """The column of its text. Lines that are indented at least this far belong to the item."""
    text: str

    @classmethod
    def read(cls, line: str) -> _Item | None:
        found = _ITEM.fullmatch(line)
        if not found or _RULE.fullmatch(line):
            return None
        indent, marker, gap, text = found.groups()
        width = len(gap) if 0 < len(gap) <= _MAX_GAP else 1
        return cls(len(indent), marker, len(indent) + len(marker) + width, text)

    @property
    def number(self) -> int | None:
        return int(self.marker[:-1]) if len(self.marker) > 1 else None


class _List:
    """Hands out one item after the other, and the code in an item line by line."""

    is_finished = False

    def __init__(self, first: _Item) -> None:
        self.lines: list[str] = []
        self.fence: _Fence | None = None
        """The code block inside an item that is open."""
        self._size = 0
        self._kind = first.marker[-1]
        self._content = first.content
        self._next_number = first.number
        self._after_blank = False
        self._is_first = True
        self._continues = False
        self._is_inside_item = False
        """The lines continue an item that was handed out in part."""

    def has(self, line: str) -> bool:
        if not line.strip() or self.fence:
            return True
        if _indent(line) >= self._content or self._own_item(line):
            return True
        if self._after_blank:
            return False
        # Without an indent, a line ends the list if it begins another block. If not, it continues an item's paragraph.
        is_other = _HEADING.match(line) or _RULE.fullmatch(line) or line.lstrip().startswith(">")
        return not (is_other or _Opening.read(line) or _Item.read(line))

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
            finished = self.flush()
            self._is_inside_item = item is None
        if item:
            line = self._numbered(line, item)
        text, margin = line, 0
        while inner := _Item.read(text):
            margin += inner.content
            text = inner.text
        opening = _Opening.read(text)
        if opening is None:
            self._append(line)
            return finished
        if margin:  # the item begins with the fence, so its label gets a line
            self._append(line[:margin])
        finished += self.flush()
        indent = opening.indent + margin
        nested = max(0, indent - self._content)
        self.fence = _Fence(opening._replace(indent=indent), not self._after_blank, self._margin + nested)
        return finished

    def flush(self) -> list[Block]:
        if self.fence is not None:
            return self._end_fence()
        lines, self.lines, self._size = self.lines, [], 0
        if not any(line.strip() for line in lines):
            return []
        margin = 0
        if self._is_inside_item:
            lines = [line[min(_indent(line), self._content) :] for line in lines]
            margin = self._margin
        self._is_inside_item = True
        return [Prose("\n".join(lines).rstrip(), self._continues, margin)]

    def _end_fence(self) -> list[Block]:
        assert self.fence is not None
        finished = self.fence.flush()
        self.fence, self._after_blank, self._is_inside_item = None, False, True
        return finished

    def _append(self, line: str) -> None:
        if line.strip() and not self.lines:
            self._continues = not (self._is_first or self._after_blank)
            self._is_first = False
        self._after_blank = not line.strip()
        if line.strip() or self.lines:
            self.lines.append(line)
        self._size += len(line) + 1

    @property
    def _margin(self) -> int:
        return _LABEL_WIDTH if self._next_number is None else max(_LABEL_WIDTH + 1, self._content)

    def _own_item(self, line: str) -> _Item | None:
        """An item of this list itself, not of one inside it."""
        item = _Item.read(line)
        return item if item and item.indent < self._content and item.marker[-1] == self._kind else None

    def _numbered(self, line: str, item: _Item) -> str:
        """Give the item its number: in markdown only the first number of a list counts, and each item is a piece."""
        self._content = item.content
        self._is_inside_item = False
        if self._next_number is None:
            return line
        number, self._next_number = self._next_number, self._next_number + 1
        return f"{' ' * item.indent}{number}" + line[item.indent + len(item.marker) - 1 :]


def _begin(line: str) -> tuple[_Paragraph | _Fence | _List, list[Block]]:
    """The block that begins with this line, and what is complete of it."""
    opening = _Opening.read(line)
    if opening and opening.indent <= _MAX_INDENT:
        return _Fence(opening), []
    item = _Item.read(line)
    if item and item.indent <= _MAX_INDENT:
        block = _List(item)
        return block, block.add(line)
    return _Paragraph(line), []


def _interrupts_paragraph(line: str) -> bool:
    opening = _Opening.read(line)
    if _HEADING.match(line) or (opening and opening.indent <= _MAX_INDENT):
        return True
    item = _Item.read(line)
    return item is not None and item.indent <= _MAX_INDENT and item.text != "" and item.number in (None, 1)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
