"""Answers as they stream in: complete blocks are printed, the incomplete end is shown at the prompt."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING

from teamcli.text.console import cell_width, column_after, wrap
from teamcli.text.escaping import escape_controls
from teamcli.ui.render.blocks import Block, BlockSplitter
from teamcli.ui.render.folds import Fold, Folds
from teamcli.ui.render.layout import Layout
from teamcli.ui.render.style import DIM, PLAIN, AgentColors, Line, TerminalStyle

if TYPE_CHECKING:
    from teamcli.ui.render.markdown import MarkdownRenderer

TAIL_CHARACTERS = 8000
TAIL_LINES = 12
"""How much is shown of the output of a running command."""
HELD_ROWS = 4
"""How much of a paragraph or an item is held back. Little, because a terminal that is made narrower may push what is
shown at the prompt into its history, where nothing can be erased."""


class _Answer:
    """An agent's answer as it streams in."""

    def __init__(self, streams: bool) -> None:
        self.splitter = BlockSplitter(streams)
        self.thought = ""

    @cached_property
    def renderer(self) -> MarkdownRenderer:
        from teamcli.ui.render.markdown import MarkdownRenderer

        return MarkdownRenderer()


class Answers:
    """The answers of all agents. The words of `focus` are printed without its name."""

    def __init__(
        self,
        layout: Layout,
        colors: AgentColors,
        folds: Folds,
        focus: str,
        streams: bool = True,
        wraps_words: bool = False,
    ) -> None:
        """Without `streams`, only complete blocks are printed. With `wraps_words`, the terminal need not wrap prose."""
        self._layout = layout
        self._colors = colors
        self._folds = folds
        self._focus = focus
        self._speaker = focus
        self._streams = streams
        self._wraps_words = wraps_words
        self._answers: dict[str, _Answer] = defaultdict(lambda: _Answer(streams))

    @property
    def is_inside_block(self) -> bool:
        """Whether a part of a block of the focused agent is printed: the rest of it must follow first."""
        return self._answers[self._focus].splitter.is_inside_block

    def growing(self) -> list[Line]:
        """The end of the focused agent's answer that is not printed yet, and a blank line before a new block. Without
        a focus, of the last that wrote."""
        speaker = self._focus or self._speaker
        splitter = self._answers[speaker].splitter
        text = splitter.tail
        text = f"{speaker} │ {text.strip()}" if text.strip() and speaker != self._focus else text
        lines = tail_lines(text, PLAIN, self._layout.style, self._layout.style.height())
        return [[], *lines] if lines and not splitter.continues else lines

    def add_text(self, agent: str, text: str, is_verbose: bool) -> str:
        self._speaker = agent
        splitter = self._answers[agent].splitter
        shown = self._thought(agent, is_verbose) + self._markdown(agent, splitter.feed(text))
        if self._streams and agent == self._focus and self._holds_much(splitter):
            width = self._layout.style.width()
            column = None if self._wraps_words else column_after(self._layout.open_line, width)
            shown += self._markdown(agent, splitter.cut(width, column))
        return shown

    def _holds_much(self, splitter: BlockSplitter) -> bool:
        """Whether the tail is too long for the prompt. All rows of a table are needed to tell how wide it is."""
        tail, width = splitter.tail, self._layout.style.width() - 1
        limit = max(HELD_ROWS, self._layout.style.height() // 2 - 1) if splitter.is_in_table else HELD_ROWS
        if len(tail) * 2 <= width and tail.count("\n") < limit:
            return False
        return sum(1 + max(0, cell_width(line) - 1) // width for line in tail.split("\n")) > limit

    def add_thought(self, agent: str, text: str) -> None:
        self._answers[agent].thought += text

    def finish(self, agent: str, is_verbose: bool) -> str:
        """The rest of an answer that is over."""
        return self._thought(agent, is_verbose) + self._markdown(agent, self._answers[agent].splitter.close())

    def finish_all(self, is_verbose: bool) -> str:
        return "".join(self.finish(agent, is_verbose) for agent in tuple(self._answers))

    def drop(self, agent: str) -> None:
        """The part of the answer that is not printed is void."""
        self._answers.pop(agent, None)

    def _thought(self, agent: str, is_verbose: bool) -> str:
        answer = self._answers[agent]
        thought, answer.thought = answer.thought.strip(), ""
        if not thought:
            return ""
        self._folds.add(Fold(f"{agent}: thoughts", thought, is_thought=True))
        lines = wrap([(escape_controls(thought), DIM)], self._layout.style.width() - 3) if is_verbose else []
        shown: list[Line] = [[("  ", PLAIN), *line] for line in lines]
        who: Line = [(f"{agent} ", self._colors.of(agent))] if agent != self._focus else []
        return self._layout.block("tool", [[("  ", PLAIN), *who, ("✻ thought", DIM)], *shown])

    def _markdown(self, agent: str, blocks: Iterable[Block]) -> str:
        shown, style = "", self._layout.style
        name = "" if agent == self._focus else style.paint([(f"{agent} │ ", self._colors.of(agent))])
        width = style.width() - 1 - (len(agent) + 3 if name else 0)
        wraps = self._wraps_words or bool(name)
        for block in blocks:
            text = self._answers[agent].renderer.render(block, width, style.has_color, style.is_unicode, wraps)
            # The blocks of an answer have a blank line between them, the pieces of one block do not.
            if agent == self._focus and not block.continues:
                self._layout.set_off()
            text = "\n".join(name + line for line in text.splitlines())
            shown += self._layout.prose(text, f"text of {agent}", block.joint is not None, block.is_open)
        return shown


def tail_lines(text: str, color: str, style: TerminalStyle, limit: int = TAIL_LINES) -> list[Line]:
    """The end of an unfinished text, in lines that fit the terminal."""
    text = escape_controls(text[-TAIL_CHARACTERS:].strip("\n")).expandtabs(4)
    if not text.strip():
        return []
    width = style.width() - 1
    # Only the end is wrapped, because this is done again for every word.
    lines = wrap([(text[-(limit + 1) * width :], color)], width, keeps_urls=False)
    return [[("…", DIM)], *lines[1 - limit :]] if len(lines) > limit else lines
