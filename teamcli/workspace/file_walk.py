"""Walking a directory the way a developer looks at it: in path order, without what .gitignore leaves out.

Symlinks are never followed; `.git` and `.team` are passed over unless the walk starts inside them.
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
from teamcli.workspace.open_at import open_directory

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

_PASSED_OVER = (".git", TEAM_DIR)
_GITIGNORE = ".gitignore"
MOST_STARS, MOST_STARS_IN_NAME = 3, 2
_MAX_GITIGNORE_BYTES = 1024 * 1024


class Ignores(NamedTuple):
    """The .gitignore files that apply somewhere, the outermost first, each with the directory it stands in."""

    rules: tuple[tuple[str, GitIgnoreSpec], ...] = ()

    def within(self, directory: str, names: set[str]) -> Ignores:
        """What applies to the entries (`names`) of `directory`."""
        outer = () if ".git" in names else self.rules  # a repository of its own: what is around it does not count
        spec = _read_gitignore(directory) if _GITIGNORE in names else None
        return Ignores((*outer, (directory, spec)) if spec else outer)

    def verdict(self, path: str, is_directory: bool) -> bool | None:
        """True: ignored. False: a rule takes it in explicitly. None: no rule speaks of it."""
        for directory, spec in reversed(self.rules):
            relative = path[len(directory.rstrip("/")) + 1 :]
            included = spec.check_file(f"{relative}/" if is_directory else relative).include
            if included is not None:
                return included
        return None


class Surroundings(NamedTuple):
    """What lies above the directory where a walk starts."""

    ignores: Ignores
    is_ignored: bool
    """The start itself is ignored. Who names it wants to see it, so that the rules above it do not count."""
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


class Entry(NamedTuple):
    """What a directory holds, as it was when that was listed."""

    path: str
    name: str
    kind: int
    """The file type, as `stat` has it; of a link, that of the link itself."""

    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.kind)

    def is_regular(self) -> bool:
        return stat.S_ISREG(self.kind)

    def is_link(self) -> bool:
        return stat.S_ISLNK(self.kind)


def walk(start: Path, ignores: Ignores, hidden: bool, depth: int | None = None) -> Iterator[Entry]:
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


def _entries(directory: str, outer: Ignores, hidden: bool) -> list[tuple[Entry, Ignores]]:
    try:
        entries = sorted(list_directory(directory), key=lambda entry: entry.name)
    except OSError:  # gone meanwhile, swapped for a link, or not readable for this user: nothing in it can be shown
        return []
    ignores = outer.within(directory, {entry.name for entry in entries})
    return [(entry, ignores) for entry in entries if _is_wanted(entry, ignores, hidden)]


def list_directory(directory: str) -> list[Entry]:
    """Raises: OSError"""
    fd = open_directory(directory, Path(directory))
    try:
        with os.scandir(fd) as listing:
            parent = directory.rstrip("/")
            return [Entry(f"{parent}/{entry.name}", entry.name, _kind(entry)) for entry in listing]
    finally:
        os.close(fd)


def _kind(entry: os.DirEntry[str]) -> int:
    """Mostly known from the listing itself, without another look at the file."""
    if entry.is_symlink():
        return stat.S_IFLNK
    if entry.is_dir(follow_symlinks=False):
        return stat.S_IFDIR
    return stat.S_IFREG if entry.is_file(follow_symlinks=False) else 0


def _is_wanted(entry: Entry, ignores: Ignores, hidden: bool) -> bool:
    if entry.name.casefold() in _PASSED_OVER:
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
    """Whether a few long names could keep a rule busy for hours, with the whole program: each star may have to be tried
    at every place. To leave such a rule out only shows what git would hide."""
    names = [len(re.findall(r"\*+", name)) for name in rule.split("/")]
    return sum(names) > MOST_STARS or max(names) > MOST_STARS_IN_NAME or rule.count("**") > MOST_STARS_IN_NAME


def _compile_rules(lines: list[str]) -> GitIgnoreSpec | None:
    """The rules of a file; like git, without those that make no sense."""
    from pathspec import GitIgnoreSpec  # costs more than starting Python, so only where there are rules

    try:
        return GitIgnoreSpec.from_lines(lines)
    except (ValueError, re.error):
        if len(lines) == 1:
            return None
    valid = [line for line in lines if _compile_rules([line])]
    return _compile_rules(valid) if valid else None
