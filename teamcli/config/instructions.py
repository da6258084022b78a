"""Instructions to agents from the project and the user: AGENTS.md, CLAUDE.md and the like. `#line` at the prompt adds
to them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from teamcli.config.claude_memory import LOCAL, Place, Reader, places_above
from teamcli.config.claude_settings import FOLDER
from teamcli.errors import ConfigError
from teamcli.text.tags import one_fact, tagged

INSTRUCTION_FILES = ("AGENTS.md", "CLAUDE.md")


class Instructions(NamedTuple):
    found: list[tuple[str, str]]
    """(source, text)"""
    problems: list[str]
    """One sentence for each file that exists but cannot be used."""


def find_instructions(
    workspace: Path, homes: Iterable[Path], excludes: Iterable[str] = (), reads_project: bool = True
) -> Instructions:
    """The user's instructions, those of the directories above, then the project's. A text that several files share is
    used once. `excludes` are patterns of whole paths that Claude Code's settings leave out."""
    reader = Reader(excludes)
    for home in homes:
        place = Place(home, f"~/{home.name}/", Path("/"))  # the user may keep these files anywhere
        for name in INSTRUCTION_FILES:
            reader.read(place, name)
        reader.read_rules(place, "rules")
    if reads_project:
        _read_projects(reader, workspace)
    return Instructions(reader.found, reader.problems)


def _read_projects(reader: Reader, workspace: Path) -> None:
    for place in places_above(workspace):
        _read_claudes(reader, place)
    project = Place(workspace, "", workspace.resolve())
    reader.read(project, INSTRUCTION_FILES[0])
    _read_claudes(reader, project)


def _read_claudes(reader: Reader, place: Place) -> None:
    for name in (INSTRUCTION_FILES[1], f"{FOLDER}/{INSTRUCTION_FILES[1]}"):
        reader.read(place, name)
    reader.read_rules(place)
    reader.read(place, LOCAL)


class InstructionsBelow:
    """Those of directories below the workspace, which an agent gets when it first reads a file there. One for each
    agent. Safe for threads."""

    def __init__(self, workspace: Path, excludes: Iterable[str], may_see: Callable[[Path], bool]) -> None:
        self._workspace = workspace
        self._excludes = tuple(excludes)
        self._may_see = may_see
        self._lock = threading.Lock()
        self._known: set[Path] = {workspace}

    def new_for(self, file: Path) -> str:
        """What the agent has not read yet and concerns this file, in frames; empty if there is nothing."""
        below = [each for each in reversed(file.parents) if each.is_relative_to(self._workspace)]
        with self._lock:
            new = [each for each in below if each not in self._known]
            self._known |= set(new)
        return "\n".join(tagged("note", text) for each in new for text in self._texts(each, file))

    def _texts(self, directory: Path, file: Path) -> Iterator[str]:
        shown = f"{directory.relative_to(self._workspace).as_posix()}/"
        for name in (INSTRUCTION_FILES[1], LOCAL):
            path = directory / name
            if path == file or not path.is_file() or not self._may_see(path):
                continue
            reader = Reader(self._excludes)
            reader.read(Place(directory, shown, self._workspace), name)
            for source, text in reader.found:
                yield f"Instructions for files in {one_fact(shown)}, from {one_fact(source)}:\n{text}"


def add_instruction(workspace: Path, line: str) -> str:
    """Append a line to the project's instructions. Returns the name of the file, which is created if needed.

    Raises: ConfigError
    """
    existing = [name for name in INSTRUCTION_FILES if (workspace / name).exists()]
    name = existing[0] if existing else INSTRUCTION_FILES[0]
    path = workspace / name
    if path.exists() and not path.is_file():
        raise ConfigError(f"{name} is not a regular file: nothing can be added to it")
    if not path.resolve().is_relative_to(workspace):
        raise ConfigError(f"{name} is a link that leads out of the workspace: add the line there yourself")
    try:
        before = path.read_bytes() if existing else b""
        end = b"\r\n" if b"\r\n" in before else b"\n"  # keep the line ends of the file
        with path.open("ab") as file:
            file.write((end if before and not before.endswith(b"\n") else b"") + f"- {line}".encode() + end)
    except OSError as e:
        raise ConfigError(f"{name} cannot be changed: {e.strerror or e}") from e
    return name
