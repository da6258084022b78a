"""Carries commits from one repository to another as a pack. Neither git reads the other's files or configuration."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable

from teamcli.cancel import CancelScope
from teamcli.errors import GitError
from teamcli.worktrees.git import Git

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
# A thin pack refers to objects that the other side has, and `index-pack --fix-thin` adds them there.
_PACK = ("pack-objects", "--revs", "--thin", "--stdout", "--quiet", "--delta-base-offset")
CARRY_SECONDS = 600.0


def is_commit_id(text: str) -> bool:
    return _COMMIT.fullmatch(text) is not None


def carry(
    commit: str, source: Git, target: Git, known: Iterable[str], cancel: CancelScope | None = None, strict: bool = True
) -> None:
    """Bring a commit, and what it is made from, into the repository of `target`, which has all of `known`.

    If it is `strict`, it fails for objects that git itself would never write: a path such as `.git/x` or `..`, say.

    Raises: GitError
    """
    wanted = "\n".join([commit, *(f"^{each}" for each in known if each), ""])
    with tempfile.TemporaryFile() as pack:
        source.run(*_PACK, input=wanted.encode(), output=pack, cancel=cancel, seconds=CARRY_SECONDS)
        pack.seek(0)
        checks = ("--strict",) if strict else ()
        target.run("index-pack", "--stdin", "--fix-thin", *checks, input=pack, cancel=cancel, seconds=CARRY_SECONDS)
    if not target.commit(commit):
        raise GitError(f"the commit {commit[:12]} has not arrived in {target.directory}")


def known_to_both(names: Iterable[str], one: Git, other: Git) -> list[str]:
    """Those of these commits that both repositories have.

    Raises: GitError
    """
    found = list(dict.fromkeys(name for name in names if name))
    for git in (one, other):
        listed = git.text("cat-file", "--batch-check=%(objectname) %(objecttype)", input="\n".join([*found, ""]))
        found = [line.partition(" ")[0] for line in listed.splitlines() if line.endswith(" commit")]
    return found
