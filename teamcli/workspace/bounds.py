"""Where file tools may read and write: the workspace, directories the user added, the memory of the agent's role.

In `.team/` all memory is open, in the user's `~/.teamcli/` only that of the role. Skills can be read anywhere and
changed nowhere. Nothing in a `.git` can be changed either: a line in `config` could make the user's next git command
run a program.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from teamcli.errors import ToolError

TEAM_DIR = ".team"
USER_DIR = ".teamcli"
OWNER_TOKEN = ".owner"
"""In a `.team/` that teamcli has worked in."""
_GIT_DIR = ".git"
_MEMORY = "memory"
CHECKOUTS = "worktrees"
"""In `.team/`: each member that works isolated has its own directory there."""


class Workspace(NamedTuple):
    root: Path
    """The directory the user started in, resolved."""
    extra: tuple[Path, ...] = ()
    """Directories from `--add-dir`, resolved."""
    memory: Path | None = None
    """What the agent's role has learned in all projects, in the user's home directory."""
    skills: tuple[Path, ...] = ()
    """The folders of the skills that agents know about, resolved."""
    start: Path | None = None
    """The directory of the workspace that an agent works in, if not the root; resolved."""

    @property
    def cwd(self) -> Path:
        """Commands start here; relative paths are relative to it."""
        return self.start or self.root

    def resolve(self, path: str) -> Path:
        """The real path behind `path`, every symlink followed.

        Raises: ToolError
        """
        if "\0" in path:
            raise ToolError("path: contains a NUL character")
        try:
            native = Path(native_spelling(path))
            is_in_home = native.parts[:1] == ("~",)  # a file may be called `~x`, so `~user` is not looked up
            resolved = (self.cwd / (native.expanduser() if is_in_home else native)).resolve()
        except (OSError, RuntimeError, UnicodeError) as e:
            raise ToolError(f"path: cannot resolve {path!r}: {e}") from e
        if not self.contains(resolved):
            raise ToolError(
                f"Path escapes workspace: {path} (the workspace is {self.root}; "
                f"the user can add directories with --add-dir)"
            )
        if self.is_team_state(resolved) and not self._is_in_checkout(resolved):
            raise ToolError(f"{path} is teamcli's own state: file tools may use only {TEAM_DIR}/{_MEMORY}/ there")
        return resolved

    def resolve_to_change(self, path: str) -> Path:
        """Like `resolve`, for a file to be written.

        Raises: ToolError
        """
        resolved = self.resolve(path)
        if self.is_team_state(resolved):
            raise ToolError(f"{path} is in the checkout of a teammate, which only that teammate changes")
        if self._is_skill(resolved):
            raise ToolError(f"{path} belongs to a skill: file tools only read those; the user can change them")
        if self._is_in_git(resolved):
            raise ToolError(f"{path} belongs to git: file tools only read that; change it with a git command")
        return resolved

    def can_change(self, path: Path) -> bool:
        """Whether file tools may write this file."""
        try:
            self.resolve_to_change(str(path))
        except ToolError:
            return False
        return True

    def contains(self, resolved: Path) -> bool:
        return any(resolved.is_relative_to(top) for top in self._tops())

    def top_of(self, resolved: Path) -> Path:
        """The directory of this workspace that `resolved` is in."""
        return next((top for top in self._tops() if resolved.is_relative_to(top)), self.root)

    def is_team_state(self, resolved: Path) -> bool:
        """Whether file tools must leave it alone: `.team/` of any directory here, and the user's own `~/.teamcli/`."""
        is_memory = self.memory is not None and resolved.is_relative_to(self.memory.resolve())
        if is_memory or self._is_skill(resolved):
            return False
        # Compare both the path and what it resolves to: `.team` itself may be a link.
        states = [directory / TEAM_DIR for directory in (self.root, *self.extra)]
        states += [state for state in _states_above(resolved) if not self.root.is_relative_to(state)]
        if any(_is_in(each, resolved, _MEMORY) for state in states for each in (state, state.resolve())):
            return True
        try:
            user_dir = Path.home() / USER_DIR
        except RuntimeError:  # this user has no home directory, so there is nothing to guard
            return False
        return any(_is_in(each, resolved) for each in (user_dir, user_dir.resolve()))

    def _tops(self) -> tuple[Path, ...]:
        return (self.root, *self.extra, *([self.memory.resolve()] if self.memory else []), *self.skills)

    def _is_in_checkout(self, resolved: Path) -> bool:
        """Whether it is a file of a member that works isolated: others may read it."""
        checkouts = self.root.resolve() / TEAM_DIR / CHECKOUTS
        return len(resolved.parts) > len(checkouts.parts) + 1 and resolved.is_relative_to(checkouts)

    def _is_skill(self, resolved: Path) -> bool:
        return any(resolved.is_relative_to(folder) for folder in self.skills)

    def _is_in_git(self, resolved: Path) -> bool:
        top = self.top_of(resolved)
        inside = resolved.relative_to(top)
        if any(part.casefold() == _GIT_DIR for part in inside.parts):
            return True
        return any(_is_git_directory(above) for above in resolved.parents if above != top and above.is_relative_to(top))

    def relative(self, path: Path) -> str:
        """As the agent would write it: relative to where it works, absolute elsewhere."""
        shown = path.relative_to(self.cwd) if path.is_relative_to(self.cwd) else path
        return os.fsencode(shown).decode("utf-8", "backslashreplace")


def _is_git_directory(path: Path) -> bool:
    """Whether git takes it for a repository, whatever its name: made with `--separate-git-dir`, or bare."""
    return (path / "HEAD").exists() and ((path / "objects").is_dir() or (path / "commondir").exists())


def _states_above(resolved: Path) -> list[Path]:
    """`.team/` of other projects inside this one: an agent here must not loosen the rules there."""
    if TEAM_DIR not in str(resolved).casefold():  # hardly any path has one, and searches check thousands
        return []
    found = [path for path in (resolved, *resolved.parents) if path.name.casefold() == TEAM_DIR]
    return [path for path in found if os.path.lexists(path / OWNER_TOKEN)]


def native_spelling(name: str) -> str:
    """`name` as Python spells it for the file system, whose names are in UTF-8 whatever the locale.

    Raises: UnicodeEncodeError
    """
    return os.fsdecode(name.encode("utf-8"))


def _is_in(directory: Path, resolved: Path, but: str = "") -> bool:
    """Whether `resolved` is in `directory`, outside the part `but`. `.TEAM` may be the same directory."""
    above = [part.casefold() for part in directory.parts]
    parts = [part.casefold() for part in resolved.parts]
    return parts[: len(above)] == above and parts[len(above) : len(above) + 1] != [but]
