"""Answers as they stream in: complete blocks are printed, the incomplete end is shown at the prompt."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING

from teamcli.text.console import wrap
from teamcli.text.escaping import escape_controls
from teamcli.ui.render.blocks import Block, BlockSplitter
from teamcli.ui.render.folds import Fold, Folds
from teamcli.ui.render.layout import Layout
from teamcli.ui.render.style import DIM, PLAIN, AgentColors, Line, TerminalStyle

if TYPE_CHECKING:
    from teamcli.ui.render.markdown import MarkdownRenderer

TAIL_CHARACTERS = 8000
TAIL_LINES = 12


class _Answer:
    """An agent's answer as it streams in."""

    def __init__(self, streams_code: bool) -> None:
        self.splitter = BlockSplitter(streams_code)
        self.thought = ""

    @cached_property
    def renderer(self) -> MarkdownRenderer:
        from teamcli.ui.render.markdown import MarkdownRenderer

        return MarkdownRenderer()


class Answers:
    """The answers of all agents. The words of `focus` are printed without its name."""

    def __init__(self, layout: Layout, colors: AgentColors, folds: Folds, focus: str, streams_code: bool) -> None:
        self._layout = layout
        self._colors = colors
        self._folds = folds
        self._focus = focus
        self._speaker = focus
        self._answers: dict[str, _Answer] = defaultdict(lambda: _Answer(streams_code))

    @property
    def is_in_code(self) -> bool:
        """Whether the focused agent writes code right now: nothing must be printed between two lines of it."""
        return self._answers[self._focus].splitter.is_in_code

    @property
    def tail(self) -> str:
        """The end of the focused agent's answer that is not printed yet; without a focus, of the last that wrote."""
        speaker = self._focus or self._speaker
        text = self._answers[speaker].splitter.tail
        return f"{speaker} │ {text.strip()}" if text.strip() and speaker != self._focus else text

    def add_text(self, agent: str, text: str, is_verbose: bool) -> str:
        self._speaker = agent
        return self._thought(agent, is_verbose) + self._markdown(agent, self._answers[agent].splitter.feed(text))

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
        shown = [[("  " + line, DIM)] for line in thought.splitlines()] if is_verbose else []
        who: Line = [(f"{agent} ", self._colors.of(agent))] if agent != self._focus else []
        return self._layout.block("tool", [[("  ", PLAIN), *who, ("✻ thought", DIM)], *shown])

    def _markdown(self, agent: str, blocks: Iterable[Block]) -> str:
        shown, style = "", self._layout.style
        name = "" if agent == self._focus else style.paint([(f"{agent} │ ", self._colors.of(agent))])
        width = style.width() - 1 - (len(agent) + 3 if name else 0)
        for block in blocks:
            lines = self._answers[agent].renderer.render(block, width, style.has_color, style.is_unicode)
            # The blocks of an answer have a blank line between them, the pieces of one block do not.
            if agent == self._focus and not block.continues:
                self._layout.set_off()
            shown += self._layout.prose("\n".join(name + line for line in lines.splitlines()), f"text of {agent}")
        return shown


def tail_lines(text: str, color: str, style: TerminalStyle) -> list[Line]:
    """The end of an unfinished text, in lines that fit the terminal."""
    text = escape_controls(text[-TAIL_CHARACTERS:].strip("\n")).expandtabs(4)
    if not text.strip():
        return []
    width = style.width() - 1
    # Only the end is wrapped, because this is done again for every word.
    lines = wrap([(text[-(TAIL_LINES + 1) * width :], color)], width, keeps_urls=False)
    return [[("…", DIM)], *lines[1 - TAIL_LINES :]] if len(lines) > TAIL_LINES else lines
