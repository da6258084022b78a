"""The files of a project that instruct agents: found, read within bounds, and identified by their digest.

To add a kind of file that is trusted by its content, add an entry to SOURCES, and ask `Agreement.covers` in its reader
about the bytes that were read.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from teamcli.config.files_below import MAX_DIRECTORIES, files_below
from teamcli.storage.files import TooLarge, leads_out, read_regular
from teamcli.workspace.bounds import TEAM_DIR
from teamcli.workspace.git_files import listed_below, named_directory, text_of

TEAM_FILE = f"{TEAM_DIR}/team.toml"
MAX_FILES = 5000
"""Per source, like the numbers below."""
LARGEST_SOURCE = 64 * 1024 * 1024
"""Bytes of all its files."""
LARGEST_KEPT = 64 * 1024
"""Bytes of a file up to which its content is kept, to show later what changed in it."""


class TrustedSource(NamedTuple):
    """A directory, or a file, that is trusted by its content."""

    kind: str
    path: str
    suffix: str = ""
    in_groups: bool = False
    """Whether the user is asked about each folder in it as a whole: a skill, the memory of a role."""

    def group_of(self, name: str) -> str:
        return "/".join(name.split("/")[: self.path.count("/") + 2]) if self.in_groups else name


SOURCES = (
    TrustedSource("role", f"{TEAM_DIR}/agents", ".md"),
    TrustedSource("role", ".claude/agents", ".md"),
    TrustedSource("command", f"{TEAM_DIR}/commands", ".md"),
    TrustedSource("command", ".claude/commands", ".md"),
    TrustedSource("skill", f"{TEAM_DIR}/skills", in_groups=True),
    TrustedSource("skill", ".claude/skills", in_groups=True),
    TrustedSource("plugin", ".claude/plugins", in_groups=True),
    TrustedSource("memory", f"{TEAM_DIR}/memory", in_groups=True),
    TrustedSource("members", TEAM_FILE),
)
_ALSO_ABOVE = ("role", "command", "skill")


class FoundFile(NamedTuple):
    source: TrustedSource
    name: str
    """Relative to the project, with slashes."""
    digest: str
    """Empty if the file exceeds the bounds: then the user cannot agree to it."""
    content: bytes = b""
    """Empty for a large file."""

    @property
    def group(self) -> str:
        return self.source.group_of(self.name)


def content_digest(name: str, content: bytes) -> str:
    """Includes the name, so that text that was agreed to as memory is not agreed to as a command."""
    return hashlib.sha256(os.fsencode(name) + b"\0" + content).hexdigest()


def kept_part(content: bytes) -> bytes:
    return content if len(content) <= LARGEST_KEPT else b""


def find_files(root: Path) -> list[FoundFile]:
    """All usable files of SOURCES. The readers report the others, since they know the reason.

    Those for Claude Code are also looked for above, up to the root of the repository; their names begin with `../`.
    """
    found = [file for source in SOURCES for file in _files_of(root, source)]
    for level, parent in enumerate(parents_in_repository(root), start=1):
        above = (source for source in SOURCES if source.kind in _ALSO_ABOVE and source.path.startswith(".claude/"))
        found += [file for source in above for file in _files_of(parent, source, "../" * level)]
    return found


def parents_in_repository(directory: Path) -> list[Path]:
    """The directories above, up to the root of the repository, nearest first; empty outside of one."""
    above: list[Path] = []
    for parent in (directory, *directory.parents):
        if os.path.lexists(parent / ".git"):
            return [*above, parent][1:]
        above.append(parent)
    return []


def brought_state(root: Path) -> str:
    """A digest of the team, mail and conversations in `.team/` that are in git's index; empty if there are none.

    What teamcli writes is ignored by git, so these came from someone else.
    """
    for parent in (root, *root.parents):
        entry = parent / ".git"
        # not Path.is_file, which raises if a directory above cannot be read
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
    files = (".gitignore", "readme.md", "settings.json", "settings.local.json", "team.toml")
    return name in files or name.startswith(folders)


def _files_of(root: Path, source: TrustedSource, above: str = "") -> Iterator[FoundFile]:
    """`above` is how the project would reach the root, if that is another directory."""
    top = root / source.path
    named = source._replace(path=f"{above}{source.path}")
    if not os.path.lexists(top) or leads_out(top, root):
        return
    left = LARGEST_SOURCE
    paths = [(str(top), True)] if top.is_file() else _paths(root, top, source)
    start = len(str(root).rstrip("/")) + 1
    for count, (path, is_link) in enumerate(islice(paths, MAX_FILES + 1)):
        if is_link and leads_out(path, root):
            continue
        name = path[start:]
        try:
            content = read_regular(path, left if count < MAX_FILES else 0)
        except TooLarge:
            yield FoundFile(named, f"{above}{name}", "")
            continue
        except (OSError, ValueError):  # the reader reports why
            continue
        left -= len(content)
        yield FoundFile(named, f"{above}{name}", content_digest(f"{above}{name}", content), kept_part(content))


def _paths(root: Path, top: Path, source: TrustedSource) -> Iterator[tuple[str, bool]]:
    """As texts, because creating many Paths takes longer than reading the files; and whether it is a link."""
    for entry in _entries(top):
        if entry.is_dir():
            if entry.is_symlink() and leads_out(entry.path, root):
                continue
            # A link to a folder is followed only at this level, so that links inside it cannot form a loop.
            yield from ((file.path, file.is_symlink()) for file in files_below(entry.path, source.suffix))
        elif entry.name.endswith(source.suffix):
            yield entry.path, entry.is_symlink()


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return sorted(islice(entries, MAX_DIRECTORIES), key=lambda entry: entry.name)
    except OSError:
        return []
