"""The ways in which a command can run another one, as `command_runners` and `git_commands` tell them."""

from __future__ import annotations

import re
from typing import NamedTuple

from teamcli.agent.shell_words import SimpleCommand, Word


class Runs(NamedTuple):
    command: SimpleCommand
    """Surely, if the command itself runs."""


class Line(NamedTuple):
    line: Word
    """A command line, given to a shell."""


class Guess(NamedTuple):
    """Perhaps: enough to refuse, never to allow."""

    command: SimpleCommand | None = None
    line: str = ""
    is_text: bool = False
    """The line may as well be no command line at all, so that it says nothing where it cannot be read."""


class Unknown(NamedTuple):
    why: str
    reads_input: bool = False
    """It runs what it reads."""
    anything: bool = True
    """It may run whatever there is; false where only what stands in the line can be meant."""
    text: str = ""
    """Words in which commands may be hidden."""
    evaluates: bool = False
    """It takes text for arithmetic, in which `a[$(command)]` runs."""


Run = Runs | Line | Guess | Unknown


def known_only_when_it_runs(name: str) -> str:
    return f"what `{name}` runs is known only when it runs"


def is_one_word(word: Word) -> bool:
    """It stays one word, whatever its expansion turns out to be."""
    return word.is_static or re.fullmatch(r'"[^"@*]*"', word.source) is not None


def is_open_word(word: Word) -> bool:
    return not word.is_static


def may_be_option(word: Word) -> bool:
    """An expansion that may begin with a dash: in a directory of a stranger, so may `*`."""
    return not word.is_static and word.value[:1] in ("$", "`", "*", "?", "[", "{", "")
