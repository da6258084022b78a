"""Commands that users write: Markdown files whose text becomes a task for the lead.

A file that cannot be used is reported once and stops nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from teamcli.config.claude_folders import claude_dirs
from teamcli.config.files_below import files_below
from teamcli.config.front_matter import (
    Covers,
    Folder,
    FrontMatter,
    NotAgreed,
    is_false,
    parse_if_there,
    read_document,
)
from teamcli.config.invocations import FIELDS, Behavior, Invocation, read_behavior
from teamcli.text.escaping import one_line
from teamcli.workspace.bounds import TEAM_DIR

MAX_FILES = 1000
DESCRIPTION_LIMIT = 100
"""In a list of commands."""
LONGEST_DESCRIPTION = 1536
SKILL_FILE = "SKILL.md"
# Compiled at first use: most starts do not need them.
_NAME = r"[\w.][\w.+-]{0,99}(:[\w.][\w.+-]{0,99})*"
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

    behavior: Behavior = Behavior()
    for_user: bool = True

    def invoke(self, arguments: str) -> Invocation:
        return self.behavior.invoke(self.text, arguments)


class FoundCommands(NamedTuple):
    commands: tuple[CustomCommand, ...]
    """Sorted by name, each name once."""
    problems: tuple[str, ...]
    """One sentence for each file that cannot be used."""


def command_dirs(directory: Path, home: Path, covers: Covers, plugins: Iterable[Folder] = ()) -> tuple[Folder, ...]:
    """Where commands are looked for: in `.team`, in the user's home, in the project's `.claude`, then in plugins."""
    ours = Folder(directory / TEAM_DIR / "commands", directory, covers)
    projects, users = claude_dirs("commands", directory, home, covers)
    return (ours, Folder(home / "commands"), *users, *projects, *plugins)


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
        files = [(folder, path) for folder in self._folders for path in _files(folder)]
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
                command = read_command(path, folder, self._shown(path), self._root)
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


def read_command(path: Path, folder: Folder, source: str, root: Path) -> CustomCommand:
    """`root` is the project.

    Raises: ValueError, with a message that names the line
    """
    name = _name(path.relative_to(folder.path), folder.is_claudes)
    text = read_document(path, folder)
    matter = parse_if_there(text, ("description", "user-invocable", *FIELDS), folder.is_claudes)
    return CustomCommand(
        f"{folder.plugin}:{name}" if folder.plugin else name,
        describe(matter, LONGEST_DESCRIPTION, folder.is_claudes),
        argument_hint(matter, text),
        matter.body.strip(),
        source,
        read_behavior(matter, folder, path.parent, root),
        not is_false(matter, "user-invocable"),
    )


def describe(matter: FrontMatter, limit: int, is_claudes: bool) -> str:
    """What the file is for, in one line: its description, or else the first line of its text.

    Raises: ValueError, if there is no text. For Claude Code, a description is enough.
    """
    body = matter.body.strip()
    if not body and not (is_claudes and matter.fields.get("description")):
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


def _files(folder: Folder) -> Iterator[Path]:
    if folder.only:
        return (path for name in folder.only if (path := folder.path / name).suffix == ".md")
    return (Path(entry.path) for entry in files_below(folder.path, ".md", follows_links=True))


def _state(path: Path) -> tuple[str, int, int]:
    try:
        found = path.stat()
    except OSError:  # for example a dangling link; reading it will report the problem
        return str(path), 0, 0
    return str(path), found.st_mtime_ns, found.st_size


def _name(path: Path, is_claudes: bool) -> str:
    """`a:b` for `a/b.md`. For Claude Code, a skill among commands has the name of its folder."""
    parts = path.with_suffix("").parts
    name = ":".join(parts[:-1] if is_claudes and len(parts) > 1 and path.name == SKILL_FILE else parts)
    if not re.fullmatch(_NAME, name):
        raise ValueError(f"{name!r:.80} is not a valid command name: use letters, digits, '_' and '-'")
    return name
