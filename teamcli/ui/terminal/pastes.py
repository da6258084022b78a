"""Folds long pasted text into a short mark at the prompt, and unfolds it when the line is sent."""

from __future__ import annotations

FOLDED_LINES = 12
FOLDED_CHARACTERS = 2000


class Pastes:
    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def folded(self, pasted: str) -> str:
        """The mark for a long text; a short text as it is."""
        text = pasted.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.count("\n") + 1
        if lines <= FOLDED_LINES and len(text) <= FOLDED_CHARACTERS:
            return text
        size = f"{lines} lines" if lines > 1 else f"{len(text)} characters"
        mark = f"[pasted {size}, {len(self._texts) + 1}]"
        self._texts[mark] = text
        return mark

    def unfolded(self, line: str) -> str:
        """The line with every mark replaced by its text."""
        for mark, text in self._texts.items():
            line = line.replace(mark, text)
        return line
