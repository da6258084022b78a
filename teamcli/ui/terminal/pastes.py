"""Folds long pasted text into a short mark at the prompt, and unfolds it when the line is sent."""

from __future__ import annotations

import re

from teamcli.exec.command_output import BoundedText

FOLDED_LINES = 12
FOLDED_CHARACTERS = 2000
STORED_CHARACTERS = 100_000
"""Of one paste; the middle of a longer one is not kept in the history."""
# What a terminal sends around a paste, so a pasted text never contains the end.
_BEGIN, _END = "\x1b[200~", "\x1b[201~"
_STORED = re.compile(f"{re.escape(_BEGIN)}(.*?){re.escape(_END)}", re.DOTALL)


class Pastes:
    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._earlier: dict[str, str] = {}
        """Those of earlier sessions, which the history knows."""

    def folded(self, pasted: str) -> str:
        """The mark for a long text; a short text as it is."""
        text = pasted.replace("\r\n", "\n").replace("\r", "\n")
        if text.count("\n") < FOLDED_LINES and len(text) <= FOLDED_CHARACTERS:
            return text
        mark = f"[pasted {_size(text)}, {len(self._texts) + 1}]"
        self._texts[mark] = text
        return mark

    def folded_again(self, line: str) -> str:
        """A line that was sent and comes back: as it was at the prompt."""
        for mark, text in self._all():
            # Space around a line is not sent.
            line = line.replace(text, mark).replace(text.strip(), mark)
        return line

    def unfolded(self, line: str) -> str:
        """The line with every mark replaced by its text."""
        for mark, text in self._all():
            line = line.replace(mark, text)
        return line

    def stored(self, line: str) -> str:
        """For the history: each text, bounded, between signs that `restored` finds again."""
        for mark, text in self._all():
            if mark in line:
                bounded = BoundedText(STORED_CHARACTERS)
                bounded.add(text)
                line = line.replace(mark, f"{_BEGIN}{bounded}{_END}")
        return line

    def restored(self, line: str) -> str:
        """A line from the history, with marks."""

        def mark(found: re.Match[str]) -> str:
            name = f"[pasted {_size(found[1])}, earlier {len(self._earlier) + 1}]"
            self._earlier[name] = found[1]
            return name

        return _STORED.sub(mark, line)

    def _all(self) -> list[tuple[str, str]]:
        return [*self._texts.items(), *self._earlier.items()]


def _size(text: str) -> str:
    lines = text.removesuffix("\n").count("\n") + 1
    return f"{lines} lines" if lines > 1 else f"{len(text)} characters"
