"""Walking a directory the way a developer sees it: in path order, without ignored files.

Symlinks are never followed; `.git` and `.team` are skipped unless the walk starts inside them.
"""

from __future__ import annotations

import codecs
import os
import re
import stat
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from teamcli.workspace.bounds import TEAM_DIR
from teamcli.workspace.open_file import open_directory

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

_SKIPPED = (".git", TEAM_DIR)
_GITIGNORE = ".gitignore"
MOST_STARS, MOST_STARS_IN_NAME = 3, 2
_MAX_GITIGNORE_BYTES = 1024 * 1024


class Ignores(NamedTuple):
    """The .gitignore files that apply to a directory, the outermost first, each with the directory it is in."""

    rules: tuple[tuple[str, GitIgnoreSpec], ...] = ()

    def within(self, directory: str, names: set[str]) -> Ignores:
        """What applies to the entries (`names`) of `directory`."""
        outer = () if ".git" in names else self.rules  # another repository: rules from outside do not apply
        spec = _read_gitignore(directory) if _GITIGNORE in names else None
        return Ignores((*outer, (directory, spec)) if spec else outer)

    def verdict(self, path: str, is_directory: bool) -> bool | None:
        """True: ignored. False: a rule includes it explicitly. None: no rule mentions it."""
        for directory, spec in reversed(self.rules):
            relative = path[len(directory.rstrip("/")) + 1 :]
            included = spec.check_file(f"{relative}/" if is_directory else relative).include
            if included is not None:
                return included
        return None


class Surroundings(NamedTuple):
    """What is above the directory where a walk starts."""

    ignores: Ignores
    is_ignored: bool
    """The start itself is ignored. Someone who names it wants to see it, so the rules above it do not apply."""
    repository: Path | None


def look_around(start: Path, top: Path) -> Surroundings:
    """Find the rules for a walk from `start`: those up to its git repository, or (outside of any) up to `top`."""
    chain = [start, *start.parents]
    repository = next((directory for directory in chain if (directory / ".git").exists()), None)
    outermost = repository or top
    above = [d for d in reversed(chain) if d.is_relative_to(outermost)] if start.is_relative_to(outermost) else [start]
    ignores = Ignores()
    for directory, child in pairwise(above):
        names = {_GITIGNORE} if (directory / _GITIGNORE).is_file() else set()
        ignores = ignores.within(str(directory), names)
        if ignores.verdict(str(child), is_directory=child.is_dir()):
            return Surroundings(Ignores(), True, repository)
    return Surroundings(ignores, False, repository)


class DirEntry(NamedTuple):
    """An entry of a directory, as it was when that was listed."""

    path: str
    name: str
    kind: int
    """The file type from `stat`; links are not followed."""

    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.kind)

    def is_regular(self) -> bool:
        return stat.S_ISREG(self.kind)

    def is_link(self) -> bool:
        return stat.S_ISLNK(self.kind)


def walk(start: Path, ignores: Ignores, hidden: bool, depth: int | None = None) -> Iterator[DirEntry]:
    """Every entry below `start`, directories before what is in them, at most `depth` levels down."""
    pending = [iter(_entries(str(start), ignores, hidden))]
    while pending:
        found = next(pending[-1], None)
        if found is None:
            pending.pop()
            continue
        entry, inner = found
        yield entry
        if entry.is_directory() and (depth is None or len(pending) < depth):
            pending.append(iter(_entries(entry.path, inner, hidden)))


def _entries(directory: str, outer: Ignores, hidden: bool) -> list[tuple[DirEntry, Ignores]]:
    try:
        entries = sorted(list_directory(directory), key=lambda entry: entry.name)
    except OSError:  # gone, replaced by a link, or not readable for this user: nothing in it can be shown
        return []
    ignores = outer.within(directory, {entry.name for entry in entries})
    return [(entry, ignores) for entry in entries if _is_wanted(entry, ignores, hidden)]


def list_directory(directory: str) -> list[DirEntry]:
    """Raises: OSError"""
    fd = open_directory(directory, Path(directory))
    try:
        with os.scandir(fd) as listing:
            parent = directory.rstrip("/")
            return [DirEntry(f"{parent}/{entry.name}", entry.name, _kind(entry)) for entry in listing]
    finally:
        os.close(fd)


def _kind(entry: os.DirEntry[str]) -> int:
    """Usually known from the listing, without another system call."""
    if entry.is_symlink():
        return stat.S_IFLNK
    if entry.is_dir(follow_symlinks=False):
        return stat.S_IFDIR
    return stat.S_IFREG if entry.is_file(follow_symlinks=False) else 0


def _is_wanted(entry: DirEntry, ignores: Ignores, hidden: bool) -> bool:
    if entry.name.casefold() in _SKIPPED:
        return False
    verdict = ignores.verdict(entry.path, entry.is_directory())
    if verdict is None:
        return hidden or not entry.name.startswith(".")
    return not verdict


def _read_gitignore(directory: str) -> GitIgnoreSpec | None:
    try:
        fd = os.open(f"{directory}/{_GITIGNORE}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        is_file = stat.S_ISREG(os.fstat(fd).st_mode)
        content = os.read(fd, _MAX_GITIGNORE_BYTES) if is_file else b""
    finally:
        os.close(fd)
    lines = os.fsdecode(content.removeprefix(codecs.BOM_UTF8)).replace("\r\n", "\n").split("\n")
    return _compile_rules([line for line in lines if not _is_costly(line)])


def _is_costly(rule: str) -> bool:
    """Whether a few long names could keep a rule, and the whole program, busy for hours.

    Each star may be tried at every position. Leaving out such a rule only shows what git would hide.
    """
    names = [len(re.findall(r"\*+", name)) for name in rule.split("/")]
    return sum(names) > MOST_STARS or max(names) > MOST_STARS_IN_NAME or rule.count("**") > MOST_STARS_IN_NAME


def _compile_rules(lines: list[str]) -> GitIgnoreSpec | None:
    """The rules of a file, without invalid ones, as in git."""
    from pathspec import GitIgnoreSpec  # costs more than starting Python, so only if there are rules

    try:
        return GitIgnoreSpec.from_lines(lines)
    except (ValueError, re.error):
        if len(lines) == 1:
            return None
    valid = [line for line in lines if _compile_rules([line])]
    return _compile_rules(valid) if valid else None
