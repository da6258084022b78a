"""Cuts markdown that streams in into blocks: paragraphs, headings, lists, tables, fences.

What it holds back is bounded: a block that gets too long is handed out in pieces that are each valid by themselves. A
block ends in a newline; a piece that goes on in the next one does not.
"""

from __future__ import annotations

import re
from typing import NamedTuple

LONG_LINES = 60
"""After so many lines a block is cut at the next good place ..."""
LONGEST_LINES = 4 * LONG_LINES
"""... and after so many anywhere."""
LONG_CHARACTERS = 8 * 1024
LONGEST_LINE = 16 * 1024

_FENCE = re.compile(r"( *)(?:(`{3,})([^`]*)|(~{3,})(.*))")
_ITEM = re.compile(r"( *)([-+*]|\d{1,9}[.)])( +|$)(.*)")
_HEADING = re.compile(r" {0,3}#{1,6}(?:[ \t]|$)")
_RULE = re.compile(r" {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}")
_TABLE_RULE = re.compile(r" {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-*:?[ \t]*)*")
_WIDEST_INDENT = 3  # a line that stands further to the right is indented code
_WIDEST_GAP = 4  # between the sign of an item and its text


def goes_on(block: str) -> bool:
    """Whether it is a piece of a block that the next piece goes on with, so that no blank line belongs between them."""
    return not block.endswith("\n")


class BlockSplitter:
    """Takes text as it comes; each call costs what the new text costs."""

    def __init__(self) -> None:
        self._block: _Block | None = None
        self._line: list[str] = []
        """The pieces of the line that has no end yet."""
        self._line_length = 0

    @property
    def tail(self) -> str:
        """What is not finished."""
        lines = self._block.lines if self._block else []
        return "\n".join([*lines, "".join(self._line)])

    def feed(self, text: str) -> list[str]:
        """Take more text; returns the blocks that are finished with it."""
        finished: list[str] = []
        *ends, rest = text.split("\n")
        for end in ends:
            finished += self._take("".join((*self._line, end)).removesuffix("\r"))
            self._line.clear()
            self._line_length = 0
        if rest:
            finished += self._begin_line(rest)
        return finished

    def close(self) -> list[str]:
        """The rest, finished or not; afterwards it is as new."""
        finished = self._take("".join(self._line))
        finished += self._end_block()
        self._line.clear()
        self._line_length = 0
        return finished

    def _begin_line(self, text: str) -> list[str]:
        self._line.append(text)
        self._line_length += len(text)
        if self._line_length > LONGEST_LINE:
            return self._cut_line()
        if len(self._line) == 1 and isinstance(self._block, _List) and self._block.ends_before(text):
            return self._end_block()
        return []

    def _cut_line(self) -> list[str]:
        line = "".join(self._line)
        cut = line.rfind(" ") + 1 or len(line)
        self._line = [line[cut:]]
        self._line_length = len(line) - cut
        return self._take(line[:cut])

    def _take(self, line: str) -> list[str]:
        finished: list[str] = []
        if self._block is not None and not self._block.has(line):
            finished += self._end_block()
        if self._block is None:
            if line.strip():
                self._block = _begin(line)
        elif (following := self._block.cut_before(line)) is not None:
            finished.append(self._block.text(goes_on=True))
            self._block = following
            self._block.add(line)
        else:
            self._block.add(line)
        if self._block is not None and self._block.is_finished:
            finished += self._end_block()
        return finished

    def _end_block(self) -> list[str]:
        block, self._block = self._block, None
        return [block.text(goes_on=False)] if block else []


class _Block:
    """A paragraph or quotation, and what the others have in common."""

    def __init__(self, lines: list[str] | None = None) -> None:
        self.lines = lines or []
        self._size = sum(map(len, self.lines))
        self.is_finished = False

    def add(self, line: str) -> None:
        self.lines.append(line)
        self._size += len(line) + 1

    def has(self, line: str) -> bool:
        """Whether the line belongs to it."""
        return bool(line.strip()) and not _interrupts_paragraph(line)

    def cut_before(self, line: str) -> _Block | None:
        """What goes on with the line, where it is time to hand out what there is."""
        if self._is_table:
            return _Block(self.lines[:2]) if self._is_too_long else None
        return _Block() if self._is_long else None

    def text(self, goes_on: bool) -> str:
        return "\n".join(self.lines).rstrip() + "\n" * (not goes_on)

    @property
    def _is_table(self) -> bool:
        """Its columns get their widths from all rows, so that only a very long one is cut; each piece has the head."""
        return len(self.lines) > 1 and "|" in self.lines[0] and _TABLE_RULE.fullmatch(self.lines[1]) is not None

    @property
    def _is_long(self) -> bool:
        return len(self.lines) >= LONG_LINES or self._size >= LONG_CHARACTERS

    @property
    def _is_too_long(self) -> bool:
        return len(self.lines) >= LONGEST_LINES or self._size >= 4 * LONG_CHARACTERS


class _Heading(_Block):
    def __init__(self, line: str) -> None:
        super().__init__([line])
        self.is_finished = True


class _Open(NamedTuple):
    """The line that opened a fence, taken apart."""

    indent: int
    fence: str
    info: str

    @classmethod
    def read(cls, line: str) -> _Open | None:
        found = _FENCE.fullmatch(line)
        if not found:
            return None
        indent, ticks, info, tildes, other_info = found.groups()
        return cls(len(indent), ticks or tildes, (info if ticks else other_info).strip())

    @classmethod
    def read_in_item(cls, line: str) -> _Open | None:
        """The same, also where it stands right behind the sign of an item."""
        margin = 0
        while item := _Item.read(line):
            margin += item.content
            line = item.text
        opening = cls.read(line)
        return opening and opening._replace(indent=opening.indent + margin)

    def is_closed_by(self, line: str) -> bool:
        text = line.strip()
        is_fence = len(text) >= len(self.fence) and not text.strip(self.fence[0])
        return is_fence and _indent(line) <= self.indent + _WIDEST_INDENT

    def at_margin(self) -> _Open:
        return self._replace(indent=min(self.indent, _WIDEST_INDENT))

    @property
    def line(self) -> str:
        return f"{' ' * self.indent}{self.fence}{self.info}"

    @property
    def end(self) -> str:
        return " " * self.indent + self.fence


class _Fence(_Block):
    def __init__(self, opening: _Open) -> None:
        super().__init__([opening.line])
        self._opening = opening

    def add(self, line: str) -> None:
        super().add(line)
        self.is_finished = self._opening.is_closed_by(line)

    def has(self, line: str) -> bool:
        return True

    def cut_before(self, line: str) -> _Block | None:
        # At a blank line nothing that spans lines, such as a long string, is likely to be torn for the highlighter.
        is_time = self._is_too_long or (self._is_long and not self.lines[-1].strip())
        return _Fence(self._opening) if is_time and not self._opening.is_closed_by(line) else None

    def text(self, goes_on: bool) -> str:
        return "\n".join([*self.lines, self._opening.end]) if goes_on else super().text(goes_on)


class _Item(NamedTuple):
    """The line that begins an item of a list, taken apart."""

    indent: int
    sign: str
    content: int
    """Where its text begins: what stands at least so far to the right belongs to it."""
    text: str

    @classmethod
    def read(cls, line: str) -> _Item | None:
        found = _ITEM.fullmatch(line)
        if not found or _RULE.fullmatch(line):
            return None
        indent, sign, gap, text = found.groups()
        width = len(gap) if 0 < len(gap) <= _WIDEST_GAP else 1
        return cls(len(indent), sign, len(indent) + len(sign) + width, text)

    @property
    def kind(self) -> str:
        return self.sign[-1]

    @property
    def number(self) -> int | None:
        return int(self.sign[:-1]) if len(self.sign) > 1 else None


class _List(_Block):
    """Stays together over blank lines, so that its numbers go on; cut only between two of its own items."""

    def __init__(self, first: _Item, number: int | None) -> None:
        super().__init__()
        self._kind = first.kind
        self._content = first.content
        self._next_number = number
        self._after_blank = False
        self._fence: _Open | None = None
        """A fence inside an item that is open."""

    def add(self, line: str) -> None:
        if self._fence is not None:
            line = self._indented(line, self._fence)
            self._fence = None if self._fence.is_closed_by(line) else self._fence
        else:
            line = self._numbered(line)
            self._fence = _Open.read_in_item(line)
        self._after_blank = not line.strip()
        super().add(line)

    def has(self, line: str) -> bool:
        if not line.strip() or self._fence:
            return True
        if _indent(line) >= self._content or self._own_item(line):
            return True
        return not (self._after_blank or _interrupts_list(line))

    def ends_before(self, beginning: str) -> bool:
        """Whether a line that begins so cannot belong to it; false where more must be seen."""
        return self._after_blank and not self._fence and beginning[0] not in " \t-+*0123456789"

    def cut_before(self, line: str) -> _Block | None:
        if self._fence is None:
            item = self._own_item(line)
            if item is not None and self._is_long:
                return _List(item, self._next_number)
            return _Block() if self._is_too_long else None
        if self._is_too_long and not self._fence.is_closed_by(line):
            return _Fence(self._fence.at_margin())
        return None

    def text(self, goes_on: bool) -> str:
        return super().text(goes_on) + (f"\n{self._fence.end}" if goes_on and self._fence else "")

    def _own_item(self, line: str) -> _Item | None:
        """An item of this list itself, not of one inside it."""
        item = _Item.read(line)
        return item if item and item.indent < self._content and item.kind == self._kind else None

    def _numbered(self, line: str) -> str:
        """Only the first number of a list counts in markdown; each is made right here, as any may begin a piece."""
        item = self._own_item(line)
        if item is None:
            return line
        self._content = item.content
        if item.number is None:
            return line
        number = item.number if self._next_number is None else self._next_number
        self._next_number = number + 1
        return f"{' ' * item.indent}{number}" + line[item.indent + len(item.sign) - 1 :]

    def _indented(self, line: str, fence: _Open) -> str:
        """Models forget to indent what is inside an item; strictly read, that would end the list and the code."""
        if not line.strip() or _indent(line) >= fence.indent:
            return line
        return fence.end if fence.is_closed_by(line) else " " * fence.indent + line


def _begin(line: str) -> _Block:
    """The block that begins with this line."""
    block = _empty_block(line)
    if not block.lines:
        block.add(line)
    return block


def _empty_block(line: str) -> _Block:
    if _HEADING.match(line):
        return _Heading(line)
    opening = _Open.read(line)
    if opening and opening.indent <= _WIDEST_INDENT:
        return _Fence(opening)
    item = _Item.read(line)
    if item and item.indent <= _WIDEST_INDENT:
        return _List(item, None)
    return _Block()


def _interrupts_paragraph(line: str) -> bool:
    opening = _Open.read(line)
    if _HEADING.match(line) or (opening and opening.indent <= _WIDEST_INDENT):
        return True
    item = _Item.read(line)
    return item is not None and item.indent <= _WIDEST_INDENT and item.text != "" and item.number in (None, 1)


def _interrupts_list(line: str) -> bool:
    """Of lines that are not indented as an item's own: all but those that go on with its paragraph."""
    begins_another = _HEADING.match(line) or _RULE.fullmatch(line) or line.lstrip().startswith(">")
    return bool(begins_another or _Open.read(line) or _Item.read(line))


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
