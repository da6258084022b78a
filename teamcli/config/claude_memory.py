"""Instructions as Claude Code reads them: `CLAUDE.md` and its like with what they import, and `.claude/rules`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from teamcli.config.claude_settings import FOLDER
from teamcli.config.front_matter import parse_if_there, words_of

LIMIT = 40_000
"""Characters of one file."""
MOST_RULES, MOST_IMPORTS, MOST_HOPS = 200, 50, 4
MOST_LOOKED_FOR = 1000
"""Words that could name a file to import."""
LOCAL = "CLAUDE.local.md"
RULES = f"{FOLDER}/rules"
LEFT_OUT = "\n[... the rest of this file is left out ...]"
# Compiled at first use: most files have none of them.
_FENCE = r"`{3,}|~{3,}"
_COMMENT_BEGINS = r"(?m)^[ \t]*<!--"
_COMMENT_ENDS = r"-->[ \t]*\n?"
_SPAN = r"`[^`\n]*`"
_IMPORT = r"(?m)(?:^|(?<=\s))@((?:[^\s\\]|\\ )+)"


class Place(NamedTuple):
    """A directory that has instructions."""

    path: Path
    shown: str
    """As messages name it, with a slash at the end; empty for the project."""
    bound: Path
    """What its files import must be below this directory."""


class Reader:
    """Reads each file once, whatever imports it."""

    def __init__(self, excludes: Iterable[str] = ()) -> None:
        """`excludes` are patterns of whole paths."""
        self.found: list[tuple[str, str]] = []
        """(source, text)"""
        self.problems: list[str] = []
        self._excludes = tuple(excludes)
        self._seen: set[Path] = set()
        self._imports = self._looked_for = 0

    def read(self, place: Place, name: str) -> None:
        """Read a file, if it is there."""
        source = f"{place.shown}{name}"
        try:
            path = (place.path / name).resolve()
            if path.exists() and not path.is_relative_to(place.bound):
                self.problems.append(f"{source} is a link that leads out of the workspace and is left out")
                return
            text = self._text(path)
        except (OSError, RuntimeError) as e:
            self.problems.append(f"{source} cannot be read ({getattr(e, 'strerror', None) or e}) and is left out")
            return
        self._add(source, text, path, place)

    def read_rules(self, place: Place, folder: str = RULES) -> None:
        """Read the rules below a directory. Of those for certain files, the project's are only named: agents read them
        when they need them."""
        later: list[str] = []
        for path in islice(_markdown_files(place.path / folder), MOST_RULES):
            name = path.relative_to(place.path).as_posix()
            paths = self._paths_of(path)
            if not paths:
                self.read(place, name)
            elif not place.shown:
                later.append(f"- {', '.join(paths)}: {name}")
            else:
                self.found.append((f"{place.shown}{name}, for {', '.join(paths)}", self._text(path)))
        if later:
            text = "\n".join(["Before you work with files that match, read the rules for them:", *later])
            self.found.append((f"{place.shown}{folder}", text))

    def _paths_of(self, path: Path) -> tuple[str, ...]:
        try:
            return words_of(parse_if_there(_read(path), ("paths",), is_claudes=True).fields.get("paths", ""))
        except OSError:  # reading it reports why
            return ()

    def _add(self, source: str, text: str, path: Path, place: Place, hop: int = 0) -> None:
        if not text:
            return
        position = len(self.found)
        included, imported = self._with_imports(text, path, place, hop)
        if included.strip() and all(included.strip() != other for _, other in self.found):
            self.found.insert(position, (source, included.strip()))
        for each in imported:
            shown = each.relative_to(place.path).as_posix() if each.is_relative_to(place.path) else each.name
            self._add(f"{place.shown}{shown}", self._text(each), each, place, hop + 1)

    def _with_imports(self, text: str, path: Path, place: Place, hop: int) -> tuple[str, list[Path]]:
        """The text, with lines that only import a file replaced by that file; and the other files that it imports."""
        parts: list[str] = []
        imported: list[Path] = []
        for is_code, part in _parts(text):
            parts.append(part if is_code else self._replaced(part, path, place, hop, imported))
        return "".join(parts), imported

    def _replaced(self, text: str, path: Path, place: Place, hop: int, imported: list[Path]) -> str:
        lines = []
        for line in _without_comments(text).splitlines(keepends=True):
            for found in re.finditer(_IMPORT, re.sub(_SPAN, "", line)) if "@" in line and hop < MOST_HOPS else ():
                target = self._target(found[1], path, place)
                if target is None:
                    continue
                if found[0].strip() == line.strip():
                    below, more = self._with_imports(self._text(target), target, place, hop + 1)
                    line = f"{below}\n"
                    imported += more
                else:
                    imported.append(target)
            lines.append(line)
        return "".join(lines)

    def _target(self, written: str, importer: Path, place: Place) -> Path | None:
        """The file that is imported; None if there is none, or it must not be."""
        self._looked_for += 1
        if self._looked_for > MOST_LOOKED_FOR:
            return None
        name = written.replace("\\ ", " ").split("#", 1)[0].rstrip(".,;:)")
        try:
            target = (importer.parent / Path(name).expanduser()).resolve()
            if not name or not target.is_file() or self._imports >= MOST_IMPORTS:
                return None
        except (OSError, RuntimeError, ValueError):
            return None
        if not target.is_relative_to(place.bound):
            self.problems.append(f"{place.shown}{importer.name} imports {name}, which is outside and is left out")
            return None
        self._imports += 1
        return target

    def _text(self, path: Path) -> str:
        """A file's text without its front matter; empty if it is not there, was read before or is excluded."""
        if path in self._seen or not path.is_file() or any(fnmatch(str(path), each) for each in self._excludes):
            return ""
        self._seen.add(path)
        text = _read(path)
        return parse_if_there(text, (), is_claudes=True).body if RULES in path.as_posix() else text


def _parts(text: str) -> Iterator[tuple[bool, str]]:
    """The text in parts: (whether it is a block of code, text)."""
    part: list[str] = []
    fence = ""
    for line in text.splitlines(keepends=True):
        found = re.match(_FENCE, line.lstrip())
        if found and not fence:
            yield False, "".join(part)
            part, fence = [line], found[0]
        elif found and found[0].startswith(fence):
            yield True, "".join([*part, line])
            part, fence = [], ""
        else:
            part.append(line)
    yield bool(fence), "".join(part)


def _without_comments(text: str) -> str:
    kept, end = [], 0
    while begin := re.compile(_COMMENT_BEGINS).search(text, end):
        closed = re.compile(_COMMENT_ENDS).search(text, begin.end())
        if closed is None:
            break
        kept.append(text[end : begin.start()])
        end = closed.end()
    return "".join([*kept, text[end:]])


def _read(path: Path) -> str:
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        text = file.read(LIMIT + 1)
    return text if len(text) <= LIMIT else text[:LIMIT] + LEFT_OUT


def _markdown_files(directory: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(directory):
        folders.sort()
        yield from (Path(parent, name) for name in sorted(names) if name.endswith(".md"))


def places_above(workspace: Path) -> list[Place]:
    """The directories above, from the root down, whose instructions only the user or the system can have written."""
    return [Place(each, f"{each}/", each) for each in reversed(workspace.parents) if is_users(each)]


def is_users(directory: Path) -> bool:
    try:
        state = directory.stat()
    except OSError:
        return False
    return state.st_uid in (os.getuid(), 0) and not state.st_mode & 0o022
