"""Splits streaming markdown into blocks that can be rendered one after the other.

A paragraph, a table, or a list item is held back until it is complete, because its last line may change how the first
one looks. Code is not: each line is handed out as soon as it has ended. What is held back is bounded. A block that gets
too long, or more of which is held back than the prompt can show, is handed out in pieces, each of which is valid
markdown by itself.
"""

from __future__ import annotations

from teamcli.ui.render.cuts import find_cut
from teamcli.ui.render.open_blocks import LONG_LINES as LONG_LINES
from teamcli.ui.render.open_blocks import Block as Block
from teamcli.ui.render.open_blocks import Code as Code
from teamcli.ui.render.open_blocks import FencedCode, ListBlock, Paragraph, begin_block
from teamcli.ui.render.open_blocks import Prose as Prose

LONGEST_LINE = 16 * 1024


class BlockSplitter:
    """Takes text as it arrives. The cost of a call depends only on the new text."""

    def __init__(self, streams_code: bool = True) -> None:
        self._streams_code = streams_code
        self._block: Paragraph | FencedCode | ListBlock | None = None
        self._line: list[str] = []
        """The pieces of the line that has not ended."""
        self._line_length = 0
        self._is_cut = False

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
        block = self._block
        lines = block.tail if isinstance(block, Paragraph) else block.lines if block else []
        return "\n".join([*lines, line])

    @property
    def is_in_table(self) -> bool:
        return isinstance(self._block, Paragraph) and self._block.is_table

    @property
    def continues(self) -> bool:
        """Whether no blank line belongs between what was handed out last and the tail."""
        return self._block is not None and self._block.continues

    @property
    def is_inside_block(self) -> bool:
        """Whether a part of a block was handed out, so that the rest should follow before anything else is shown."""
        return self.is_in_code or self._is_cut

    @property
    def _fence(self) -> FencedCode | None:
        block = self._block.fence if isinstance(self._block, ListBlock) else self._block
        return block if isinstance(block, FencedCode) else None

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

    def cut(self, width: int, column: int | None) -> list[Block]:
        """Hand out what is held back, apart from about the last row of `width` cells.

        `column` is where the last line ended that was handed out, or None if the terminal does not wrap paragraphs.
        """
        line = "".join(self._line)
        if self._fence is not None:
            self._line, self._line_length = [], 0
            return self._fence.cut(line)
        block = self._block if self._block is not None and self._block.has(line) else begin_block(line)[0]
        start = block.start(column) if isinstance(block, Paragraph) else None
        can_cut = isinstance(block, ListBlock) or (isinstance(block, Paragraph) and not block.has_whole_lines)
        finished: list[Block] = []
        found = find_cut(line, width, start) if can_cut else None
        if found:
            finished += self._take(line[: found.end])
            self._line, self._line_length = [line[found.start :]], len(line) - found.start
        if isinstance(self._block, Paragraph | ListBlock):
            joint = line[found.end : found.start] if found and start is not None else None
            finished += self._block.cut(found is not None, joint)
            self._is_cut = bool(finished)
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
        if len(self._line) == 1 and isinstance(self._block, ListBlock) and self._block.ends_before(text):
            return self._end_block()
        return []

    def _take(self, line: str) -> list[Block]:
        finished: list[Block] = []
        if self._block is not None and not self._block.has(line):
            finished += self._end_block()
        if self._block is not None:
            finished += self._block.add(line)
        elif line.strip():
            self._block, begun = begin_block(line)
            finished += begun
        if self._block is not None and self._block.is_finished:
            finished += self._end_block()
        return finished

    def _end_block(self) -> list[Block]:
        block, self._block, self._is_cut = self._block, None, False
        return list(block.end()) if block else []
