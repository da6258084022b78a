"""What was shown in a few lines and can be read in full: `/expand`, Ctrl-O."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from teamcli.text.console import wrap
from teamcli.ui.render.layout import Layout
from teamcli.ui.render.style import BOLD, DIM, PLAIN, Line, diff_lines

FOLDS = 200
MOST_CHARACTERS = 32 * 1024 * 1024
"""Of all folds together. The newest is always kept."""


class Fold(NamedTuple):
    """Something of which only a part was shown."""

    title: str
    text: str
    diff: str = ""
    result: str = ""
    is_thought: bool = False

    @property
    def length(self) -> int:
        return len(self.text) + len(self.diff) + len(self.result)

    def lines(self, width: int) -> list[Line]:
        """Without an indent, so that it can be copied."""
        if self.is_thought:
            return wrap([(self.text, PLAIN)], width)
        text, result = ([[(line, PLAIN)] for line in part.splitlines()] for part in (self.text, self.result))
        return [*text, *diff_lines(self.diff, indent=""), *result]


class Folds:
    def __init__(self) -> None:
        self._folds: deque[Fold] = deque(maxlen=FOLDS)

    def add(self, fold: Fold) -> None:
        self._folds.append(fold)
        while len(self._folds) > 1 and sum(each.length for each in self._folds) > MOST_CHARACTERS:
            self._folds.popleft()

    def expand(self, which: int, layout: Layout) -> str:
        """Fold number `which`, counted from the newest, in full; 0 for the newest that is not a thought."""
        count = len(self._folds)
        if not count:
            return layout.note("Nothing is folded.", DIM)
        if which > count:
            return layout.note(f"Only {count} folded so far: the oldest is /expand {count}.", DIM)
        if which == 0:  # people look at a call, and thoughts come right after it
            which = next((n for n in range(1, count + 1) if not self._folds[-n].is_thought), 1)
        fold = self._folds[-which]
        title: Line = [(fold.title, BOLD), (f"  (/expand {which} of {count})", DIM)]
        return layout.block("expanded", [title, *fold.lines(layout.style.width() - 1)])
