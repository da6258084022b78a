"""Where each command of a line runs, and which files its redirections write there."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from teamcli.permissions.shell.scanner import names
from teamcli.permissions.shell.strict import Command, NotUnderstood

_MOST_DIRECTORIES = 8
_FREE = names("echo true")


class Step(NamedTuple):
    command: Command
    directories: tuple[str, ...]
    """Where it may run: a `cd` before it may have failed. The first is where the line starts; empty for anywhere."""

    @property
    def is_at_start(self) -> bool:
        return len(self.directories) == 1

    @property
    def written(self) -> list[Path]:
        """The files that its redirections write, links resolved.

        Raises: NotUnderstood
        """
        relative = [file for file in self.command.writes if not file.startswith("/")]
        if relative and not self.directories:
            raise NotUnderstood(f"the directory in which it writes {relative[0]} is not known: write the whole path")
        # absolute paths do not depend on the directory, so any will do
        bases = self.directories or ("/",)
        return [Path(base, file).resolve() for file in self.command.writes for base in bases]

    def needs_no_rule(self, root: Path) -> bool:
        """`echo`, `true`, and `cd` to a directory of the workspace."""
        if self.command.words[0] in _FREE:
            return True
        targets, top = _targets(self), os.path.realpath(root)
        return bool(targets) and all(Path(target).is_relative_to(top) for target in targets)


def steps(commands: Iterable[Command], start: Path) -> list[Step]:
    directories: tuple[str, ...] = (os.path.realpath(start),)
    found = []
    for command in commands:
        found.append(Step(command, directories))
        if command.words[0] in ("cd", "pushd", "popd"):
            targets = _targets(found[-1])
            directories = tuple(dict.fromkeys((*directories, *targets))) if targets else ()
            # Each `cd` can double the possibilities; beyond a few, the directory counts as unknown.
            directories = directories if len(directories) <= _MOST_DIRECTORIES else ()
    return found


def _targets(step: Step) -> list[str]:
    """Where a `cd` may lead; nothing if that is not known. bash drops `..` before it follows links."""
    words = step.command.words
    if len(words) != 2 or words[0] != "cd" or not words[1] or words[1].startswith("-"):
        return []
    joined = [words[1] if words[1].startswith("/") else f"{each}/{words[1]}" for each in step.directories]
    return [os.path.realpath(way) for path in joined for way in (path, os.path.normpath(path))]
