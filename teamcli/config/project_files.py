"""The files of a project that instruct agents, as they are now: found, read within bounds, and known by their digest.

A new kind of file that is trusted by its content is one more entry in SOURCES; its reader asks `Agreement.covers` about
the very bytes that it has read.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from teamcli.storage.files import TooLarge, leads_out, read_regular
from teamcli.workspace.bounds import TEAM_DIR
from teamcli.workspace.git_files import listed_below, named_directory, text_of

MAX_FILES = 500
MAX_DIRECTORIES = 1000
"""Of one source."""
LARGEST_SOURCE = 64 * 1024 * 1024
"""Bytes of all files of one source."""
LARGEST_KEPT = 64 * 1024
"""Bytes of a file that are kept to show what changed in it."""


class Source(NamedTuple):
    """One place with files that are trusted by their content."""

    kind: str
    path: str
    """A folder, or a single file."""
    suffix: str = ""
    is_deep: bool = True
    in_groups: bool = False
    """Whether each folder in it is one thing: a skill, the memory of a role."""

    def group_of(self, name: str) -> str:
        """What the user is asked about as one thing."""
        return "/".join(name.split("/")[: self.path.count("/") + 2]) if self.in_groups else name


SOURCES = (
    Source("role", f"{TEAM_DIR}/agents", ".md", is_deep=False),
    Source("role", ".claude/agents", ".md", is_deep=False),
    Source("command", f"{TEAM_DIR}/commands", ".md"),
    Source("command", ".claude/commands", ".md"),
    Source("skill", f"{TEAM_DIR}/skills", in_groups=True),
    Source("skill", ".claude/skills", in_groups=True),
    Source("memory", f"{TEAM_DIR}/memory", in_groups=True),
)


class FoundFile(NamedTuple):
    source: Source
    name: str
    """Relative to the project, with slashes."""
    digest: str
    """Empty for what exceeds the bounds: nobody can agree to it."""
    content: bytes = b""
    """Empty for a large one."""

    @property
    def group(self) -> str:
        return self.source.group_of(self.name)


def content_digest(name: str, content: bytes) -> str:
    """Bound to the place, so that what was agreed to as memory is not agreed to as a command."""
    return hashlib.sha256(os.fsencode(name) + b"\0" + content).hexdigest()


def kept_part(content: bytes) -> bytes:
    return content if len(content) <= LARGEST_KEPT else b""


def find_files(root: Path) -> list[FoundFile]:
    """All files of SOURCES that could be used. Readers report those that cannot be, as they know the reason."""
    return [found for source in SOURCES for found in _files_of(root, source)]


def brought_state(root: Path) -> str:
    """A digest of the team, mail and conversations in `.team/` that git has brought; empty if it brought none.

    teamcli keeps its own out of git.
    """
    for parent in (root, *root.parents):
        entry = parent / ".git"
        # not Path.is_file, which fails where a directory above is closed to us
        directory = named_directory(entry) if os.path.isfile(entry) else entry  # noqa: PTH113
        if directory is not None and os.path.isfile(directory / "index"):  # noqa: PTH113
            folder = (root.relative_to(parent) / TEAM_DIR).as_posix()
            hash_size = 32 if "sha256" in text_of(directory / "config") else 20
            found = sorted(each for each in listed_below(directory, folder, hash_size) if not _is_shared(each[0]))
            return hashlib.sha256(repr(found).encode()).hexdigest() if found else ""
    return ""


def _is_shared(name: str) -> bool:
    """Whether a name, in lower case, has its own question or means nothing to teamcli."""
    folders = tuple(f"{source.path.partition('/')[2]}/" for source in SOURCES)
    return name in (".gitignore", "readme.md", "settings.json", "settings.local.json") or name.startswith(folders)


def _files_of(root: Path, source: Source) -> Iterator[FoundFile]:
    top = root / source.path
    if not os.path.lexists(top) or leads_out(top, root):
        return
    left = LARGEST_SOURCE
    names = [source.path] if top.is_file() else (f"{source.path}/{name}" for name in _names(root, top, source))
    for count, name in enumerate(islice(names, MAX_FILES + 1)):
        path = os.path.join(root, name)  # noqa: PTH118 - a Path for each of many files takes longer than to read them
        if os.path.islink(path) and leads_out(path, root):  # noqa: PTH114
            continue
        try:
            content = read_regular(path, left if count < MAX_FILES else 0)
        except TooLarge:
            yield FoundFile(source, name, "")
            continue
        except (OSError, ValueError):  # the reader says why
            continue
        left -= len(content)
        yield FoundFile(source, name, content_digest(name, content), kept_part(content))


def _names(root: Path, top: Path, source: Source) -> Iterator[str]:
    for entry in _entries(top):
        if entry.is_dir() and source.is_deep:
            if entry.is_symlink() and leads_out(entry.path, root):
                continue
            # Only here a link to a folder is followed: what is in it cannot lead back to it.
            for parent, folders, files in islice(os.walk(entry.path), MAX_DIRECTORIES):
                folders.sort()
                inside = parent.removeprefix(f"{top}/")
                yield from (f"{inside}/{file}" for file in sorted(files) if file.endswith(source.suffix))
        elif entry.name.endswith(source.suffix):
            yield entry.name


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return sorted(islice(entries, MAX_DIRECTORIES), key=lambda entry: entry.name)
    except OSError:
        return []
