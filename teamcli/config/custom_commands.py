"""Commands that users write: Markdown files whose text becomes a task for the lead.

`$ARGUMENTS` is replaced by everything typed after the name, `$1` to `$9` by single words. A file that cannot be used is
reported once and stops nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from teamcli.config.front_matter import Covers, Folder, FrontMatter, NotAgreed, parse_if_there, read_document
from teamcli.text.escaping import one_line
from teamcli.workspace.bounds import TEAM_DIR

MAX_FILES = 1000
MAX_DIRECTORIES = 1000
DESCRIPTION_LIMIT = 100
# Compiled at first use: most starts do not need them.
_NAME = r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}(:[A-Za-z0-9][A-Za-z0-9_-]{0,63})*"
_PLACEHOLDER = r"\$(ARGUMENTS\b|[1-9](?!\d))"
_QUOTES = "\"'"


class CustomCommand(NamedTuple):
    name: str
    """`directory:name` for a file in a subdirectory."""
    description: str
    hint: str
    """Its arguments, as the help shows them."""
    text: str
    source: str
    """The file, relative to the project if it is there."""

    def prompt(self, arguments: str) -> str:
        return with_arguments(self.text, arguments)


class FoundCommands(NamedTuple):
    commands: tuple[CustomCommand, ...]
    """Sorted by name, each name once."""
    problems: tuple[str, ...]
    """One sentence for each file that cannot be used."""


def with_arguments(text: str, arguments: str) -> str:
    """The task with its placeholders filled, or with the arguments after it if it has none."""
    if not re.search(_PLACEHOLDER, text):
        return "\n\n".join(filter(None, (text, arguments)))
    words = _split(arguments)

    def fill(placeholder: re.Match[str]) -> str:
        if placeholder[1] == "ARGUMENTS":
            return arguments
        number = int(placeholder[1])
        return words[number - 1] if number <= len(words) else ""

    return re.sub(_PLACEHOLDER, fill, text)


def command_dirs(directory: Path, home: Path, covers: Covers) -> tuple[Folder, ...]:
    """Where commands are looked for: in the project, then in the user's home."""
    projects = (directory / TEAM_DIR / "commands", directory / ".claude" / "commands")
    return (*(Folder(path, directory, covers) for path in projects), Folder(home / "commands"))


class CustomCommands:
    """The commands in some directories, read again only when a file was added, removed or changed."""

    def __init__(self, folders: tuple[Folder, ...], root: Path) -> None:
        """If two commands have the same name, the one in the first folder is used."""
        self._folders = folders
        self._root = root
        self._seen: list[tuple[str, int, int]] | None = None
        self._found = FoundCommands((), ())
        self._reported: set[str] = set()

    def find(self) -> FoundCommands:
        files = [(folder, path) for folder in self._folders for path in _files(folder.path)]
        seen = [_state(path) for _, path in files]
        if seen != self._seen:
            is_first = self._seen is None
            self._seen, self._found = seen, self._read(files, is_first)
        return self._found

    def new_problems(self) -> tuple[str, ...]:
        """Problems that this method has not returned before."""
        fresh = tuple(problem for problem in self.find().problems if problem not in self._reported)
        self._reported.update(fresh)
        return fresh

    def _read(self, files: list[tuple[Folder, Path]], is_first: bool) -> FoundCommands:
        commands: dict[str, CustomCommand] = {}
        problems = []
        for folder, path in files[:MAX_FILES]:
            try:
                command = read_command(path, folder, self._shown(path))
                commands.setdefault(command.name, command)
            except ValueError as e:
                if not (is_first and isinstance(e, NotAgreed)):  # the start has reported it
                    problems.append(f"The command in {self._shown(path)} is not used: {e}.")
        if len(files) > MAX_FILES:
            problems.append(f"Only the first {MAX_FILES} command files are used; there are {len(files)}.")
        return FoundCommands(tuple(commands[name] for name in sorted(commands)), tuple(problems))

    def _shown(self, path: Path) -> str:
        shown = path.relative_to(self._root) if path.is_relative_to(self._root) else path
        return one_line(str(shown))


def read_command(path: Path, folder: Folder, source: str) -> CustomCommand:
    """Raises: ValueError, with a message that names the line."""
    name = _name(path.relative_to(folder.path))
    text = read_document(path, folder)
    matter = parse_if_there(text, ("description",))
    description, hint = describe(matter, DESCRIPTION_LIMIT), argument_hint(matter, text)
    return CustomCommand(name, description, hint, matter.body.strip(), source)


def describe(matter: FrontMatter, limit: int) -> str:
    """What the file is for, in one line: its description, or else the first line of its text.

    Raises: ValueError
    """
    body = matter.body.strip()
    if not body:
        raise ValueError("it has no text")
    described = matter.fields.get("description") or body.splitlines()[0]
    return one_line((described if isinstance(described, str) else ", ".join(described)).lstrip("# "), limit)


def argument_hint(matter: FrontMatter, text: str) -> str:
    """The field as written in the file: people write `[file] [line]`, which is not valid YAML."""
    if "argument-hint" not in matter.line_of:
        return ""
    value = text.splitlines()[matter.line_of["argument-hint"] - 1].partition(":")[2].strip()
    is_quoted = len(value) > 1 and value[0] == value[-1] and value[0] in _QUOTES
    return one_line(value[1:-1] if is_quoted else value, DESCRIPTION_LIMIT)


def _files(directory: Path) -> Iterator[Path]:
    for parent, directories, names in islice(
        os.walk(directory), MAX_DIRECTORIES
    ):  # does not follow links to directories
        directories.sort()
        yield from (Path(parent, name) for name in sorted(names) if name.endswith(".md"))


def _state(path: Path) -> tuple[str, int, int]:
    try:
        found = path.stat()
    except OSError:  # for example a dangling link; reading it will report the problem
        return str(path), 0, 0
    return str(path), found.st_mtime_ns, found.st_size


def _name(path: Path) -> str:
    name = ":".join(path.with_suffix("").parts)
    if not re.fullmatch(_NAME, name):
        raise ValueError(f"{name!r:.80} is not a valid command name: use letters, digits, '_' and '-'")
    return name


def _split(arguments: str) -> list[str]:
    import shlex  # late: most starts do not need it

    try:
        return shlex.split(arguments)
    except ValueError:  # most likely an apostrophe
        return arguments.split()
