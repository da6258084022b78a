"""Roles: Markdown files that say how a kind of teammate works, with which tools and which model.

Four come with the package, so that a new project has useful roles and nothing to agree to. Those of Claude Code, which
calls them agents, are read as they are: what means nothing here is noted and left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from teamcli.claude_code.flags import mode_of
from teamcli.claude_code.names import ABSENT_TOOLS, INHERIT, MCP, OUR_TOOLS, our_tool
from teamcli.claude_code.unused import Unused
from teamcli.config.claude_folders import claude_dirs
from teamcli.config.files_below import files_below, is_existing_file
from teamcli.config.front_matter import (
    Covers,
    Folder,
    FrontMatter,
    Nested,
    NotAgreed,
    has_front_matter,
    parse,
    read_document,
    words_of,
)
from teamcli.config.options import Mode
from teamcli.config.role_hooks import FIELD as HOOKS
from teamcli.config.role_hooks import read_role_hooks
from teamcli.config.role_servers import FIELD as MCP_SERVERS
from teamcli.config.role_servers import read_role_servers
from teamcli.config.settings import HookGroup
from teamcli.storage.files import cannot
from teamcli.workspace.bounds import TEAM_DIR

BUILTIN_ROLES = Path(__file__).with_name("builtin_roles")
MAX_FILES = 2000
"""Of one folder."""
_MODE, _TURNS = "permissionMode", "maxTurns"
_FIELDS = ("name", "description", "tools", "disallowedTools", "model", "cwd", "isolation", "skills", _MODE, _TURNS)
UNUSED_FIELDS = ("initialPrompt", "effort")
"""Fields of Claude Code that change what an agent does there, and have no effect here."""
_NAME = re.compile(r"[^\W_][\w .&+,'()-]{0,99}")
_THEIR_NAME = r"[^:]{1,200}"
_TOOL = r"[A-Za-z_][A-Za-z0-9_-]*"
ALL = "*"
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
    skills: tuple[str, ...] = ()
    """Those that it knows from the start."""
    mcp_servers: Mapping[str, Any] = MappingProxyType({})
    """MCP servers that only agents with this role see, by name."""
    max_turns: int = 0
    """How many model calls it may make for one piece of work; 0 for the team's limit."""
    mode: Mode = Mode.DEFAULT
    """The permission mode of its agents, while that of the session is `default`."""
    hooks: Mapping[str, tuple[HookGroup, ...]] = MappingProxyType({})
    """Hooks that run for its agents only, by event."""


class Roles(NamedTuple):
    found: dict[str, Role]
    """By name, in lower case."""
    problems: list[str]
    """One sentence for each file that cannot be used."""

    def match(self, role: str) -> Role | None:
        """The role with that name, regardless of case."""
        return self.found.get(role.strip().casefold())


def role_dirs(directory: Path, home: Path, covers: Covers, plugins: Iterable[Folder] = ()) -> tuple[Folder, ...]:
    """Where roles are looked for: in the project, in the user's home, in plugins, and last among those that come with
    teamcli."""
    ours = Folder(directory / TEAM_DIR / "agents", directory, covers)
    projects, users = claude_dirs("agents", directory, home, covers)
    return (ours, *projects, Folder(home / "agents"), *users, *plugins, Folder(BUILTIN_ROLES))


def load_roles(
    folders: Iterable[Folder], unused: Unused | None = None, known: Callable[[str], bytes | None] = lambda path: None
) -> Roles:
    """All roles. If two have the same name, the first folder wins. A bad file does not stop the others.

    `unused` gathers what of Claude Code's roles is not used. `known` returns the content of a file that was read and
    checked a moment ago.
    """
    reader = _RoleReader(Unused() if unused is None else unused, known)
    for folder in folders:
        reader.read(folder)
    return reader.roles


class _RoleReader:
    def __init__(self, unused: Unused, known: Callable[[str], bytes | None]) -> None:
        self.roles = Roles({}, [])
        self._known = known
        self._unused = unused

    def read(self, folder: Folder) -> None:
        in_folder: dict[str, Role] = {}
        for path in _role_files(folder, self.roles.problems):
            try:
                # Only what needs the user's agreement was read at the start, to find out what has changed.
                known = self._known(path) if folder.covers else None
                role = read_role(path, folder, self._unused, known)
                # The same role twice, such as a file and a link to it, is not a mistake.
                if role and in_folder.setdefault(role.name.casefold(), role) != role:
                    raise ValueError(f"there is a role '{role.name}' already in this folder")
            except NotAgreed:  # the start has reported it
                pass
            except ValueError as e:
                if folder.is_claudes:
                    self._unused.add("role", path, str(e))
                else:
                    self.roles.problems.append(f"the role in {path} is not used: {e}")
        for key, role in in_folder.items():
            self.roles.found.setdefault(key, role)


def read_role(
    path: Path | str, folder: Folder | None = None, unused: Unused | None = None, known: bytes | None = None
) -> Role | None:
    """None if the file is not a role, such as a README next to those of Claude Code.

    Raises: ValueError, with a message that names the line
    """
    text = read_document(path, folder, known)
    is_claudes = folder is not None and folder.is_claudes
    if is_claudes and not has_front_matter(text):
        return None
    matter = parse(text, _FIELDS)
    name = _text(matter, "name") or Path(path).stem
    if not (_NAME.fullmatch(name) or (is_claudes and re.fullmatch(_THEIR_NAME, name) and name.isprintable())):
        raise ValueError(f"{_at(matter, 'name')}{name!r:.80} is not a valid name: use letters, digits, '_' and '-'")
    unused = Unused() if unused is None else unused
    is_plugins = bool(folder and folder.plugin)
    for field in (*UNUSED_FIELDS, *((_MODE, HOOKS) if is_plugins else ())):
        if field in matter.line_of:
            unused.add("role field", field, f"in {path}")
    model = _text(matter, "model")
    return Role(
        f"{folder.plugin}:{name}" if folder and is_plugins else name,
        _text(matter, "description"),
        matter.body,
        _tools(matter, "tools", unused),
        _tools(matter, "disallowedTools", unused) or (),
        "" if model == INHERIT else model,
        _text(matter, "cwd"),
        _text(matter, "isolation") == WORKTREE,
        words_of(matter.fields.get("skills", "")),
        _servers(text, path, unused) if MCP_SERVERS in matter.line_of else {},
        read_turns(_text(matter, _TURNS)),
        Mode.DEFAULT if is_plugins else read_mode(_text(matter, _MODE), unused),
        {} if is_plugins or HOOKS not in matter.line_of else read_role_hooks(text, name, str(path), unused),
    )


def turns_of(role: Role | None, limit: int) -> int:
    """How many model calls an agent may make for one piece of work, if `limit` is what all may."""
    return min(role.max_turns, limit) if role and role.max_turns else limit


def read_turns(written: str) -> int:
    """`maxTurns`; 0 if it says nothing."""
    return int(written) if written.isascii() and written.isdecimal() and len(written) < 9 else 0


def read_mode(written: str, unused: Unused) -> Mode:
    """`permissionMode` in our words."""
    mode = mode_of(written)
    if written and mode not in list(Mode):
        unused.add("role field", f"{_MODE} {written}", "there is no such mode here")
    return Mode(mode) if mode in list(Mode) else Mode.DEFAULT


def _servers(text: str, path: Path | str, unused: Unused) -> Mapping[str, Any]:
    """Its own servers. The names of configured ones need nothing: all agents see these."""
    try:
        return read_role_servers(text)[1]
    except ValueError as e:
        unused.add("role field", MCP_SERVERS, f"in {path}: {e}")
        return {}


def _role_files(folder: Folder, problems: list[str]) -> list[str]:
    def report(e: OSError) -> None:
        if not isinstance(e, FileNotFoundError | NotADirectoryError):
            problems.append(cannot("read", folder.path, e))

    found = files_below(folder.path, ".md", follows_links=True, report=report)
    named = (entry for entry in found if not folder.only or entry.name in folder.only)
    files = (entry.path for entry in named if is_existing_file(entry))
    return sorted(islice(files, MAX_FILES))


def _text(matter: FrontMatter, field: str) -> str:
    value = matter.fields.get(field, "")
    if isinstance(value, Nested):
        raise ValueError(f"{_at(matter, field)}{field} must be a text")
    return value if isinstance(value, str) else ", ".join(value)


def _tools(matter: FrontMatter, field: str, unused: Unused) -> tuple[str, ...] | None:
    """Names in a text or a list, in our words. Those that mean nothing here are noted and left out."""
    value = matter.fields.get(field)
    return None if value is None else named_tools(words_of(value), unused)


def named_tools(names: Sequence[str], unused: Unused) -> tuple[str, ...] | None:
    """The tools that names of Claude Code or of ours mean, in our words; None for all."""
    if ALL in names:
        return None
    known = [tool for name in names if (tool := _tool(name, unused))]
    return tuple(dict.fromkeys(known))


def _tool(name: str, unused: Unused) -> str:
    """Our name for a tool; empty if there is none. `Bash(git:*)` and `Agent(x)` mean the whole tool."""
    name = name.partition("(")[0]
    if name in OUR_TOOLS or name.startswith(MCP):
        return our_tool(name)
    # A program that uses the library may have tools of its own, with names such as ours.
    if name in ABSENT_TOOLS or not re.fullmatch(_TOOL, name) or name[0].isupper():
        unused.add("role tool", name, "there is no such tool here")
        return ""
    return name


def _at(matter: FrontMatter, field: str) -> str:
    return f"line {matter.line_of[field]}: " if field in matter.line_of else ""
