"""What both readers of command lines share: a position in a text."""

from __future__ import annotations

import re


def names(text: str) -> frozenset[str]:
    return frozenset(text.split())


class Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def _next(self) -> str:
        """The next character; empty at the end."""
        return self.text[self.at : self.at + 1]

    def _skip(self, blanks: re.Pattern[str]) -> bool:
        """Whether anything follows the blanks."""
        self._take(blanks)
        return self.at < len(self.text)

    def _take(self, token: re.Pattern[str]) -> str:
        """The token at this position, which is passed; empty if there is none."""
        found = token.match(self.text, self.at)
        self.at = found.end() if found else self.at
        return found[0] if found else ""
