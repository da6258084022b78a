"""Skills: folders with a `SKILL.md` that explains how to do a kind of work, and the files that it needs.

System prompts list one line for each, and agents read the file when they need it; the user calls one as `/NAME`. Skills
are looked for once, at the start, so that system prompts stay the same during a session.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from teamcli.config.claude_folders import claude_dirs
from teamcli.config.custom_commands import argument_hint, describe
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
from teamcli.config.invocations import FIELDS, Behavior, Invocation, read_behavior
from teamcli.config.trust import Agreement
from teamcli.errors import UsageError
from teamcli.storage.files import cannot
from teamcli.text.escaping import one_line
from teamcli.workspace.bounds import TEAM_DIR, USER_DIR

SKILL_FILE = "SKILL.md"
MOST_SHOWN, LONGEST_DESCRIPTION = 50, 300
"""The limits of the list in system prompts."""
MOST_FOUND = 1000
_LONGEST_READ = 4000
_FIELDS = ("name", "description", "when_to_use", "disable-model-invocation", "user-invocable", *FIELDS)
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
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
    behavior: Behavior = Behavior()

    def body(self) -> str:
        """Its text. Reads the file now.

        Raises: UsageError
        """
        try:
            text = read_document(self.source.path / SKILL_FILE, self.source)
            return parse_if_there(text, (), self.source.is_claudes).body.strip()
        except ValueError as e:
            raise UsageError(f"the skill in {self.shown} can no longer be used: {e}") from e

    def invoke(self, arguments: str) -> Invocation:
        """The task for the lead when the user calls the skill.

        Raises: UsageError
        """
        invocation = self.behavior.invoke(self.body(), arguments)
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

    def folder_of(self, name: str) -> Folder:
        covers = self.agreement.covers if self.agreement else None
        return self.like._replace(path=self.path / name, root=self.root, covers=covers)


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
    """All skills. If two have the same name, the first directory wins. A bad one does not stop the others."""
    found: dict[str, Skill] = {}
    problems: list[str] = []
    for place in places:
        in_place: dict[str, Skill] = {}
        place = place._replace(real=os.path.realpath(place.path))
        for folder in _folders(place, problems):
            shown = f"{place.shown}/{folder.name}/{SKILL_FILE}"
            try:
                skill = _read_skill(place, folder, shown, problems)
                if in_place.setdefault(skill.name.casefold(), skill) is not skill:
                    raise ValueError(f"there is a skill '{skill.name}' already in this folder")
            except NotAgreed:  # the start has said so
                pass
            except ValueError as e:
                problems.append(f"The skill in {one_line(shown)} is not used: {e}.")
        for key, skill in in_place.items():
            found.setdefault(key, skill)
    listed = sum(skill.for_agents for skill in found.values())
    if listed > MOST_SHOWN:
        problems.append(f"Agents see only {MOST_SHOWN} skills; the other {listed - MOST_SHOWN} can only be called.")
    return Skills(tuple(found.values()), tuple(problems))


def _folders(place: SkillsDir, problems: list[str]) -> list[Path]:
    try:
        folders = sorted(path for path in place.path.iterdir() if os.path.lexists(path / SKILL_FILE))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as e:
        problems.append(f"Skills: {cannot('read', place.path, e)}.")
        return []
    if len(folders) > MOST_FOUND:
        problems.append(f"Only the first {MOST_FOUND} skills in {place.shown} are used; there are {len(folders)}.")
    return folders[:MOST_FOUND]


def _read_skill(place: SkillsDir, folder: Path, shown: str, problems: list[str]) -> Skill:
    """Raises: ValueError, with a message that names the line."""
    if not folder.name.isprintable():
        raise ValueError("its folder's name cannot be typed")
    real = _real_folder(folder, place.root, place.real)
    source = place.folder_of(folder.name)
    known = place.agreement.content_at_start(folder / SKILL_FILE) if place.agreement else None
    text = read_document(folder / SKILL_FILE, source, known)
    if place.agreement is not None:  # SKILL.md may refer to any file next to it, so all of them must be agreed to
        place.agreement.check_folder(folder)
    matter = parse_if_there(text, _FIELDS, source.is_claudes)
    name = _name(matter, folder, shown, problems, source)
    return Skill(
        name,
        _description(matter),
        real,
        shown,
        argument_hint(matter, text),
        for_agents=not is_true(matter, "disable-model-invocation"),
        for_user=not is_false(matter, "user-invocable"),
        source=source,
        behavior=read_behavior(matter, source, real, place.project or real),
    )


def _real_folder(folder: Path, root: Path | None, real_parent: str) -> Path:
    """The folder's real path. A link in a project must lead neither out of the project nor to the team's state, since
    everything in the folder becomes readable.

    Raises: ValueError
    """
    links = (real_parent != str(folder.parent), os.path.islink(folder), os.path.islink(f"{folder}/{SKILL_FILE}"))  # noqa: PTH114 - much faster
    if not any(links):
        return folder
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


def _description(matter: FrontMatter) -> str:
    when = matter.fields.get("when_to_use", "")
    described = describe(matter, _LONGEST_READ) + (f" {one_line(when, _LONGEST_READ)}" if isinstance(when, str) else "")
    return shortened(described.strip(), LONGEST_DESCRIPTION)


def _name(matter: FrontMatter, folder: Path, shown: str, problems: list[str], source: Folder) -> str:
    """The name as written, or changed into one that can be typed. In Claude Code it is that of the folder."""
    written = "" if source.is_claudes else matter.fields.get("name")
    written = written or folder.name
    if isinstance(written, str) and re.fullmatch(_NAME, written):
        return f"{source.plugin}:{written}" if source.plugin else written
    words = " ".join(written) if isinstance(written, tuple) else written
    name = re.sub(r"[^A-Za-z0-9_]+", "-", words)[:64].strip("-_").lower()
    if not name:
        raise ValueError(f"{words!r:.80} is not a valid name: use letters, digits, '_' and '-'")
    problems.append(f"The skill in {shown} is called {name} here: {words!r:.80} is not a valid name.")
    return name
