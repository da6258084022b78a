"""What differs between two commits, file by file, as git lists it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from teamcli.worktrees.git import Git

_GITLINK = "160000"
_NOTHING = "000000"


class Entry(NamedTuple):
    """What a commit or an index has at a path."""

    mode: str
    id: str


class TreeChange(NamedTuple):
    path: str
    old: Entry | None
    """None for a file that is added."""
    new: Entry | None
    """None for a file that is removed."""

    @property
    def is_submodule(self) -> bool:
        return any(entry is not None and entry.mode == _GITLINK for entry in (self.old, self.new))


def changes_between(git: Git, old: str, new: str) -> list[TreeChange]:
    """Raises: GitError"""
    listed = git.run("diff-tree", "-r", "-z", "--no-renames", "--ignore-submodules=none", old, new)
    return list(_parse(listed))


def _parse(listed: bytes) -> Iterator[TreeChange]:
    fields = iter(os.fsdecode(listed).split("\0"))
    for meta in fields:
        if meta:
            old_mode, new_mode, old_id, new_id, _ = meta.removeprefix(":").split(" ")
            yield TreeChange(next(fields), _entry(old_mode, old_id), _entry(new_mode, new_id))


def _entry(mode: str, id: str) -> Entry | None:
    return None if mode == _NOTHING else Entry(mode, id)
