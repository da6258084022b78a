"""Skills: folders with a `SKILL.md` that explains how to do a kind of work, and the files that it needs.

System prompts list one line for each, and agents read the file when they need it; the user calls one as `/NAME`. Skills
are looked for once, at the start, so that system prompts stay the same during a session.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from teamcli.config.claude_folders import claude_dirs
from teamcli.config.custom_commands import SKILL_FILE, argument_hint, describe
from teamcli.config.descriptions import shortened
from teamcli.config.front_matter import (
    Folder,
    FrontMatter,
    NotAgreed,
    is_false,
    is_true,
    parse_if_there,
    read_document,
)
from teamcli.config.invocations import FIELDS, Invocation, read_behavior
from teamcli.config.trust import Agreement
from teamcli.errors import UsageError
from teamcli.storage.files import cannot
from teamcli.text.escaping import one_line
from teamcli.workspace.bounds import TEAM_DIR, USER_DIR

MOST_SHOWN, LONGEST_DESCRIPTION = 50, 300
"""The limits of the list in system prompts."""
MOST_FOUND = 1000
_LONGEST_READ = 4000
_FIELDS = ("name", "description", "when_to_use", "disable-model-invocation", "user-invocable")
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
_THEIR_NAME = r"[.+-]{0,9}\w[\w.+-]{0,99}"
"""In Claude Code a skill is called as its folder."""
OFFER = "Skills tell how a kind of work is done here. When one fits, read its file first, with read_file:"


class Skill(NamedTuple):
    name: str
    description: str
    folder: Path
    """Resolved."""
    shown: str
    """Its file, as the model should write it."""
    hint: str = ""
    """Its arguments, as the help shows them."""
    for_agents: bool = True
    for_user: bool = True
    source: Folder = Folder(Path())
    """Where it was found."""
    project: Path = Path()

    def body(self) -> str:
        """Its text. Reads the file now.

        Raises: UsageError
        """
        return self._read().body.strip()

    def _read(self) -> FrontMatter:
        try:
            text = read_document(self.source.path / SKILL_FILE, self.source)
            return parse_if_there(text, FIELDS, self.source.is_claudes)
        except ValueError as e:
            raise UsageError(f"the skill in {self.shown} can no longer be used: {e}") from e

    def invoke(self, arguments: str) -> Invocation:
        """The task for the lead when the user calls the skill.

        Raises: UsageError
        """
        matter = self._read()
        behavior = read_behavior(matter, self.source, self.folder, self.project)
        invocation = behavior.invoke(matter.body.strip(), arguments)
        where = self.shown.removesuffix(SKILL_FILE)
        note = f"<note>This is the skill {self.name}, called by the user; paths in it are relative to {where}</note>"
        return invocation._replace(text=f"{invocation.text}\n\n{note}")


class Skills(NamedTuple):
    found: tuple[Skill, ...] = ()
    """Each name once."""
    problems: tuple[str, ...] = ()
    """One sentence for each skill that cannot be used."""

    @property
    def folders(self) -> tuple[Path, ...]:
        return tuple(skill.folder for skill in self.found)

    def offer(self, is_in_root: bool = True) -> str:
        """The list for a system prompt; empty without skills. An agent that works outside the root needs full paths."""
        listed = [skill for skill in self.found if skill.for_agents]
        paths = [skill.shown if is_in_root else str(skill.folder / SKILL_FILE) for skill in listed]
        lines = [f"- {skill.name}: {skill.description} ({path})" for skill, path in zip(listed, paths, strict=True)]
        more = [f"({len(lines) - MOST_SHOWN} more are left out)"] if len(lines) > MOST_SHOWN else []
        return "\n".join([OFFER, *lines[:MOST_SHOWN], *more]) if lines else ""


class _Found(NamedTuple):
    path: Path
    is_link: bool
    """Whether the folder or the file in it is a link."""


class SkillsDir(NamedTuple):
    path: Path
    shown: str
    root: Path | None = None
    """The project, out of which no link may lead; None for the user's skills."""
    agreement: Agreement | None = None
    """For a project's skills: what the user has agreed to."""
    like: Folder = Folder(Path())
    """Says whose skills these are."""
    project: Path | None = None
    real: str = ""
    """Its path without links."""

    def source(self, folder: Path) -> Folder:
        covers = self.agreement.covers if self.agreement else None
        return self.like._replace(path=folder, root=self.root, covers=covers)


def skill_dirs(
    directory: Path, home: Path, agreement: Agreement, plugins: Iterable[Folder] = ()
) -> tuple[SkillsDir, ...]:
    """Where skills are looked for: in the project, in the user's home, then in plugins."""
    ours = SkillsDir(directory / TEAM_DIR / "skills", f"{TEAM_DIR}/skills", directory, agreement)
    projects, users = claude_dirs("skills", directory, home, agreement.covers)

    def place(folder: Folder) -> SkillsDir:
        shown = os.path.relpath(folder.path, directory) if folder.root else str(folder.path)
        return SkillsDir(folder.path, shown, folder.root, agreement if folder.covers else None, folder, directory)

    mine = SkillsDir(home / "skills", f"~/{USER_DIR}/skills")
    theirs = [place(each)._replace(shown="~/.claude/skills") for each in users]
    found = (ours, *map(place, projects), mine, *theirs, *map(place, plugins))
    return tuple(each._replace(project=directory) for each in found)


def find_skills(places: Iterable[SkillsDir]) -> Skills:
    """All skills. A bad one does not stop the others.

    If two have the same name, the first directory wins. But as in Claude Code, a skill of the user's own wins over one
    in the project's `.claude`.
    """
    found: dict[str, Skill] = {}
    problems: list[str] = []
    for place in places:
        in_place: dict[str, Skill] = {}
        place = place._replace(real=os.path.realpath(place.path))
        for folder, is_link in _folders(place, problems):
            shown = f"{place.shown}/{folder.name}/{SKILL_FILE}"
            try:
                real = _real_folder(folder, place) if is_link or place.real != str(place.path) else folder
                skill = _read_skill(place, folder, real, shown, problems)
                if in_place.setdefault(skill.name.casefold(), skill) is not skill:
                    raise ValueError(f"there is a skill '{skill.name}' already in this folder")
            except NotAgreed:  # the start has said so
                pass
            except ValueError as e:
                problems.append(f"The skill in {one_line(shown)} is not used: {e}.")
        for key, skill in in_place.items():
            if (other := found.setdefault(key, skill)).source.is_claudes and other.source.root and not place.root:
                found[key] = skill
    listed = sum(skill.for_agents for skill in found.values())
    if listed > MOST_SHOWN:
        problems.append(f"Agents see only {MOST_SHOWN} skills; the other {listed - MOST_SHOWN} can only be called.")
    return Skills(tuple(found.values()), tuple(problems))


def _folders(place: SkillsDir, problems: list[str]) -> list[_Found]:
    try:
        with os.scandir(place.path) as entries:
            named = (entry for entry in entries if not place.like.only or entry.name in place.like.only)
            found = [each for entry in sorted(named, key=attrgetter("name")) if (each := _skill_in(entry))]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as e:
        problems.append(f"Skills: {cannot('read', place.path, e)}.")
        return []
    if len(found) > MOST_FOUND:
        problems.append(f"Only the first {MOST_FOUND} skills in {place.shown} are used; there are {len(found)}.")
    return found[:MOST_FOUND]


def _skill_in(entry: os.DirEntry[str]) -> _Found | None:
    try:
        mode = os.lstat(f"{entry.path}/{SKILL_FILE}").st_mode
    except OSError:
        return None
    return _Found(Path(entry.path), entry.is_symlink() or stat.S_ISLNK(mode))


def _read_skill(place: SkillsDir, folder: Path, real: Path, shown: str, problems: list[str]) -> Skill:
    """Raises: ValueError, with a message that names the line."""
    if not folder.name.isprintable():
        raise ValueError("its folder's name cannot be typed")
    source, file = place.source(folder), f"{folder}/{SKILL_FILE}"
    known = place.agreement.content_at_start(file) if place.agreement else None
    text = read_document(file, source, known)
    if place.agreement is not None:  # SKILL.md may refer to any file next to it, so all of them must be agreed to
        place.agreement.check_folder(folder)
    matter = parse_if_there(text, _FIELDS, source.is_claudes)
    name = _name(matter, folder, shown, problems, source)
    return Skill(
        name,
        _description(matter, source.is_claudes),
        real,
        shown,
        argument_hint(matter, text),
        for_agents=not is_true(matter, "disable-model-invocation"),
        for_user=not is_false(matter, "user-invocable"),
        source=source,
        project=place.project or real,
    )


def _real_folder(folder: Path, place: SkillsDir) -> Path:
    """The folder's real path. A link in a project must lead neither out of the project nor to the team's state, since
    everything in the folder becomes readable.

    Raises: ValueError
    """
    root = place.root
    try:
        real = folder.resolve(strict=True)
        file = (real / SKILL_FILE).resolve(strict=True)
    except (OSError, RuntimeError) as e:
        raise ValueError("it is a broken link") from e
    if not file.is_relative_to(real) or (root is not None and not _is_in_project(real, root)):
        raise ValueError(f"it is a link that leads out of {'its folder' if root is None else 'the project'}")
    return real


def _is_in_project(folder: Path, root: Path) -> bool:
    state = root / TEAM_DIR
    is_state = folder.is_relative_to(state) and not folder.is_relative_to(state / "skills")
    return folder.is_relative_to(root) and not is_state and not state.is_relative_to(folder)


def _description(matter: FrontMatter, is_claudes: bool) -> str:
    described, when = describe(matter, _LONGEST_READ, is_claudes), matter.fields.get("when_to_use")
    return shortened(f"{described} {when}" if isinstance(when, str) else described, LONGEST_DESCRIPTION)


def _name(matter: FrontMatter, folder: Path, shown: str, problems: list[str], source: Folder) -> str:
    """The name as written, or changed into one that can be typed. In Claude Code it is that of the folder."""
    written = "" if source.is_claudes else matter.fields.get("name")
    written = written or folder.name
    prefix = f"{source.plugin}:" if source.plugin else ""
    if isinstance(written, str) and re.fullmatch(_THEIR_NAME if source.is_claudes else _NAME, written):
        return prefix + written
    words = " ".join(written) if isinstance(written, tuple) else written
    name = re.sub(r"[^A-Za-z0-9_]+", "-", words)[:64].strip("-_").lower()
    if not name:
        raise ValueError(f"{words!r:.80} is not a valid name: use letters, digits, '_' and '-'")
    problems.append(f"The skill in {shown} is called {prefix}{name} here: {words!r:.80} is not a valid name.")
    return prefix + name
