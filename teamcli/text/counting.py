"""Numbers with the right form of the word after them: `1 line`, `2 lines`."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str = "") -> str:
    """`plural` is for nouns that do not just get an s."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
