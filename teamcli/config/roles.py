"""Roles: Markdown files that say how a kind of teammate works, with which tools and which model.

Four come with the package, so that a new project has useful roles and nothing to agree to.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from teamcli.claude_code.names import INHERIT, our_tool
from teamcli.config.front_matter import Covers, Folder, FrontMatter, NotAgreed, parse, read_document
from teamcli.storage.files import cannot
from teamcli.workspace.bounds import TEAM_DIR

BUILTIN_ROLES = Path(__file__).with_name("builtin_roles")
_FIELDS = ("name", "description", "tools", "disallowedTools", "model", "cwd", "isolation")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_TOOL = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
WORKTREE = "worktree"
"""The one kind of `isolation`."""


class Role(NamedTuple):
    name: str
    description: str = ""
    prompt: str = ""
    tools: tuple[str, ...] | None = None
    """None for the default tools."""
    disallowed_tools: tuple[str, ...] = ()
    model: str = ""
    """Empty for the team's model."""
    cwd: str = ""
    """The directory in the workspace where its sub-agents work; empty for the root."""
    is_isolated: bool = False
    """Its teammates have their own checkout."""


class Roles(NamedTuple):
    found: dict[str, Role]
    """By name, in lower case."""
    problems: list[str]
    """One sentence for each file that cannot be used."""

    def match(self, role: str) -> Role | None:
        """The role with that name, regardless of case."""
        return self.found.get(role.strip().casefold())


def role_dirs(directory: Path, home: Path, covers: Covers) -> tuple[Folder, ...]:
    """Where roles are looked for: in the project, in the user's home, and last among those that come with teamcli."""
    projects = (directory / TEAM_DIR / "agents", directory / ".claude" / "agents")
    return (*(Folder(path, directory, covers) for path in projects), Folder(home / "agents"), Folder(BUILTIN_ROLES))


def load_roles(folders: Iterable[Folder]) -> Roles:
    """All roles. If two have the same name, the first folder wins. A bad file does not stop the others."""
    roles = Roles({}, [])
    for folder in folders:
        in_directory: dict[str, Role] = {}
        for path in _role_files(folder.path, roles.problems):
            try:
                role = read_role(path, folder)
                if in_directory.setdefault(role.name.casefold(), role) is not role:
                    raise ValueError(f"there is a role '{role.name}' already in this folder")
            except NotAgreed:  # the start has reported it
                pass
            except ValueError as e:
                roles.problems.append(f"the role in {path} is not used: {e}")
        for key, role in in_directory.items():
            roles.found.setdefault(key, role)
    return roles


def read_role(path: Path, folder: Folder | None = None) -> Role:
    """Raises: ValueError, with a message that names the line."""
    matter = parse(read_document(path, folder), _FIELDS)
    name = _text(matter, "name") or path.stem
    if not _NAME.fullmatch(name):
        raise ValueError(f"{_at(matter, 'name')}{name!r:.80} is not a valid name: use letters, digits, '_' and '-'")
    model = _text(matter, "model")
    return Role(
        name,
        _text(matter, "description"),
        matter.body,
        _tools(matter, "tools"),
        _tools(matter, "disallowedTools") or (),
        "" if model == INHERIT else model,
        _text(matter, "cwd"),
        _is_isolated(matter),
    )


def _role_files(directory: Path, problems: list[str]) -> list[Path]:
    try:
        return sorted(path for path in directory.iterdir() if path.suffix == ".md" and path.is_file())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as e:
        problems.append(cannot("read", directory, e))
        return []


def _text(matter: FrontMatter, field: str) -> str:
    value = matter.fields.get(field, "")
    if not isinstance(value, str):
        raise ValueError(f"{_at(matter, field)}{field} must be a text, not a list")
    return value


def _is_isolated(matter: FrontMatter) -> bool:
    isolation = _text(matter, "isolation")
    if isolation not in ("", WORKTREE):
        raise ValueError(f"{_at(matter, 'isolation')}isolation: {isolation!r:.80} is not known; there is: {WORKTREE}")
    return bool(isolation)


def _tools(matter: FrontMatter, field: str) -> tuple[str, ...] | None:
    """A comma-separated text or a list. An empty value is an error, since it could mean all tools or none."""
    if field not in matter.fields:
        return None
    value = matter.fields[field]
    if value == "":
        raise ValueError(f"{_at(matter, field)}{field} is empty; leave it out, or write [] for none")
    names = [name.strip() for name in value.split(",")] if isinstance(value, str) else value
    for name in names:
        if not _TOOL.fullmatch(name):
            raise ValueError(f"{_at(matter, field)}{name!r:.80} is not a valid tool name")
    return tuple(dict.fromkeys(our_tool(name) for name in names))


def _at(matter: FrontMatter, field: str) -> str:
    return f"line {matter.line_of[field]}: " if field in matter.line_of else ""
