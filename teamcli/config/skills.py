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

from teamcli.config.custom_commands import argument_hint, describe, with_arguments
from teamcli.config.front_matter import Folder, FrontMatter, NotAgreed, parse_if_there, read_document
from teamcli.config.trust import Agreement
from teamcli.errors import UsageError
from teamcli.storage.files import cannot
from teamcli.text.escaping import one_line
from teamcli.workspace.bounds import TEAM_DIR, USER_DIR

SKILL_FILE = "SKILL.md"
MOST_SHOWN, LONGEST_DESCRIPTION = 50, 300
"""The limits of the list in system prompts."""
MOST_FOUND = 200
_FIELDS = ("name", "description", "disable-model-invocation", "user-invocable")
_NAME = r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}"
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

    def prompt(self, arguments: str) -> str:
        """The task for the lead when the user calls the skill. Reads the file now.

        Raises: UsageError
        """
        try:
            body = parse_if_there(read_document(self.source.path / SKILL_FILE, self.source), ()).body.strip()
        except ValueError as e:
            raise UsageError(f"the skill in {self.shown} can no longer be used: {e}") from e
        where = self.shown.removesuffix(SKILL_FILE)
        note = f"<note>This is the skill {self.name}, called by the user; paths in it are relative to {where}</note>"
        return f"{with_arguments(body, arguments)}\n\n{note}"


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

    def folder_of(self, name: str) -> Folder:
        return Folder(self.path / name, self.root, self.agreement.covers if self.agreement else None)


def skill_dirs(directory: Path, home: Path, agreement: Agreement) -> tuple[SkillsDir, ...]:
    """Where skills are looked for: in the project, then in the user's home."""
    names = (TEAM_DIR, ".claude")
    projects = [SkillsDir(directory / name / "skills", f"{name}/skills", directory, agreement) for name in names]
    claude = home.parent / ".claude" / "skills"
    return (*projects, SkillsDir(home / "skills", f"~/{USER_DIR}/skills"), SkillsDir(claude, "~/.claude/skills"))


def find_skills(places: Iterable[SkillsDir]) -> Skills:
    """All skills. If two have the same name, the first directory wins. A bad one does not stop the others."""
    found: dict[str, Skill] = {}
    problems: list[str] = []
    for place in places:
        in_place: dict[str, Skill] = {}
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
    real = _real_folder(folder, place.root)
    source = place.folder_of(folder.name)
    text = read_document(folder / SKILL_FILE, source)
    if place.agreement is not None:  # SKILL.md may refer to any file next to it, so all of them must be agreed to
        place.agreement.check_folder(folder)
    matter = parse_if_there(text, _FIELDS)
    name = _name(matter, folder, shown, problems)
    return Skill(
        name,
        describe(matter, LONGEST_DESCRIPTION),
        real,
        shown,
        argument_hint(matter, text),
        for_agents=matter.fields.get("disable-model-invocation") != "true",
        for_user=matter.fields.get("user-invocable") != "false",
        source=source,
    )


def _real_folder(folder: Path, root: Path | None) -> Path:
    """The folder's real path. A link in a project must lead neither out of the project nor to the team's state, since
    everything in the folder becomes readable.

    Raises: ValueError
    """
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


def _name(matter: FrontMatter, folder: Path, shown: str, problems: list[str]) -> str:
    """The name as written, or changed into one that can be typed."""
    written = matter.fields.get("name") or folder.name
    if isinstance(written, str) and re.fullmatch(_NAME, written):
        return written
    words = " ".join(written) if isinstance(written, tuple) else written
    name = re.sub(r"[^A-Za-z0-9_]+", "-", words)[:64].strip("-_").lower()
    if not name:
        raise ValueError(f"{words!r:.80} is not a valid name: use letters, digits, '_' and '-'")
    problems.append(f"The skill in {shown} is called {name} here: {words!r:.80} is not a valid name.")
    return name
