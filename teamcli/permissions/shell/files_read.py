"""The files that a line names to programs that print them, for rules that ask or deny: `cat .env`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from teamcli.permissions.shell.commands import LineReading, read_commands
from teamcli.permissions.shell.scanner import names

READERS = names("cat head tail sed grep egrep fgrep less more tac nl")
_INPUT = re.compile(r"(?<!<)<\s*([^\s<>;|&()]+)")
_MOST_NAMES, _MOST_DIRECTORIES = 500, 8


def files_read(line: str, start: Path) -> set[Path]:
    """As written and with links resolved, wherever in the line a `cd` may have led."""
    reading = read_commands(line)
    found: set[Path] = set()
    for directory in [str(start), *islice(_entered(reading, start), _MOST_DIRECTORIES)]:
        for name in islice(_named(line, reading), _MOST_NAMES):
            path = os.path.join(directory, os.path.expanduser(os.path.expandvars(name)))  # noqa: PTH111, PTH118
            found |= {Path(os.path.normpath(path)), Path(os.path.realpath(path))}
    return found


def _entered(reading: LineReading, start: Path) -> Iterator[str]:
    for command in reading.commands:
        if len(command.words) == 2 and command.words[0].value == "cd":
            yield os.path.join(start, os.path.expanduser(command.words[1].value))  # noqa: PTH111, PTH118


def _named(line: str, reading: LineReading) -> Iterator[str]:
    yield from (each for each in _INPUT.findall(line) if "\0" not in each)
    for command in (*reading.commands, *reading.guesses):
        if command.words and command.words[0].value.rsplit("/", 1)[-1] in READERS:
            values = (word.value for word in command.words[1:])
            yield from (value.partition("=")[2] if value.startswith("-") else value for value in values if value)
