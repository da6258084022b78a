"""How the options of a program are read, so that it is known where its operands begin.

An option that is not in the table is never skipped on a guess: the word behind it may be its value or the command that
is run, and both readings are handed back.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from teamcli.agent.shell_words import Word

Words = tuple[Word, ...]

FLAG, VALUE, ATTACHED, LINE = "", ":", "?", "!"
"""What follows an option: nothing, a value, a value only if it is attached, a command line."""


class OptionTable(NamedTuple):
    short: dict[str, str]
    long: dict[str, str]

    def long_name(self, name: str) -> str | None:
        """GNU programs take any beginning of a long option that fits only one."""
        fitting = [name] if name in self.long else [known for known in self.long if known.startswith(name)]
        return fitting[0] if len(fitting) == 1 else None


@cache
def option_table(text: str) -> OptionTable:
    """From `-i -u: --unset: --default-signal? -S!`; made when it is needed, as most starts run no wrapper."""
    table = OptionTable({}, {})
    for option in text.split():
        kind = option[-1] if option[-1] in (VALUE, ATTACHED, LINE) else FLAG
        name = option.removesuffix(kind) if kind else option
        (table.long if name.startswith("--") else table.short)[name.lstrip("-")] = kind
    return table


class Options(NamedTuple):
    end: int
    """Where the operands begin."""
    unknown: tuple[int, ...] = ()
    """The positions of options that are in no table."""
    lines: Words = ()
    """Values that are command lines."""
    letters: frozenset[str] = frozenset()
    values: tuple[tuple[str, Word], ...] = ()
    """What options were given, by name."""


def read_options(words: Words, known: str, start: int = 1) -> Options:
    """The options of a command; they end at `--`, or at the first word that is none."""
    table = option_table(known)
    position = start
    unknown: list[int] = []
    lines: list[Word] = []
    letters: set[str] = set()
    values: list[tuple[str, Word]] = []
    while position < len(words):
        text = words[position].value
        if text == "--":
            return Options(position + 1, tuple(unknown), tuple(lines), frozenset(letters), tuple(values))
        if not text.startswith("-"):
            break
        following = words[position + 1] if position + 1 < len(words) else None
        found = _read_option(words[position], table)
        if found is None:
            unknown.append(position)
            position += 1
            continue
        kind, name, attached = found
        letters |= set(text[1:]) if not text.startswith("--") else set()
        value = attached if attached is not None else following if kind in (VALUE, LINE) else None
        position += 2 if attached is None and kind in (VALUE, LINE) else 1
        if value is not None:
            values.append((name, value))
            lines += [value] if kind == LINE else []
    return Options(min(position, len(words)), tuple(unknown), tuple(lines), frozenset(letters), tuple(values))


def _read_option(word: Word, table: OptionTable) -> tuple[str, str, Word | None] | None:
    """Kind, name and attached value of an option; None where the table lacks it."""
    text = word.value
    if text == "-" or (text[1:].isdecimal() and "#" in table.short):
        return FLAG, text, None
    if text.startswith("--"):
        written, equals, value = text[2:].partition("=")
        name = table.long_name(written)
        return (table.long[name], name, _part(word, value) if equals else None) if name else None
    for position, letter in enumerate(text[1:], 2):
        kind = table.short.get(letter)
        if kind is None:
            return None
        if kind != FLAG:
            return kind, letter, _part(word, text[position:]) if text[position:] else None
    return FLAG, text[1:], None


def _part(word: Word, value: str) -> Word:
    return Word(value, "" if word.is_static else value)
