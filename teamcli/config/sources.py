"""Whose configuration counts."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple, TypeVar

from teamcli.config.front_matter import Folder
from teamcli.config.roles import BUILTIN_ROLES
from teamcli.config.skills import SkillsDir

AnyFolder = TypeVar("AnyFolder", Folder, SkillsDir)


class Sources(NamedTuple):
    """Whose configuration counts: the user's, except for `~/.teamcli/settings.json`, which always does, and the
    project's, in files that are shared and in those that belong to one person."""

    user: bool = True
    project: bool = True
    local: bool = True

    def among(self, folders: Iterable[AnyFolder], plugins: Collection[Folder] = ()) -> tuple[AnyFolder, ...]:
        """Of folders with roles, skills or commands, those that count. Roles that come with teamcli always do, and
        so do plugins that the command line names."""
        always = {BUILTIN_ROLES, *(each.path for each in plugins if each.root is None)}
        return tuple(
            each for each in folders if each.path in always or (self.user if each.root is None else self.project)
        )


ALL_SOURCES = Sources()
