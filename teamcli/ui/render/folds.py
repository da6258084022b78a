"""What was shown in one line and can be read in full: `/expand`, Ctrl-O."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from teamcli.ui.render.layout import Layout, more_lines
from teamcli.ui.render.style import BOLD, DIM, PLAIN

EXPANDED_LINES = 2000
FOLDS = 200


class Fold(NamedTuple):
    """Something of which only a line was shown."""

    title: str
    body: str


class Folds:
    def __init__(self) -> None:
        self._folds: deque[Fold] = deque(maxlen=FOLDS)

    def add(self, title: str, body: str) -> None:
        self._folds.append(Fold(title, body))

    def expand(self, which: int, layout: Layout) -> str:
        """Fold number `which`, counted from the newest, in full."""
        if not self._folds:
            return layout.note("Nothing is folded.", DIM)
        if which > len(self._folds):
            return layout.note(f"Only {len(self._folds)} folded so far: the oldest is /expand {len(self._folds)}.", DIM)
        fold = self._folds[-which]
        lines = fold.body.splitlines()
        shown = [[("  " + line, PLAIN)] for line in lines[:EXPANDED_LINES]]
        return layout.block("expanded", [[(fold.title, BOLD)], *shown, *more_lines(len(lines) - EXPANDED_LINES, "")])
