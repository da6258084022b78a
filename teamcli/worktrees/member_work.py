"""The part of a merge that happens in the member's checkout: committing, and merging the target into the branch.

Git does not write files in one step, and half a file must never be taken for the member's work. So a journal says from
which commit a merge began, when everything was committed. After a kill, the checkout goes back to that commit.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from teamcli.cancel import CancelScope
from teamcli.errors import GitError, MergeBlocked, MergeRefused
from teamcli.storage.files import as_state_error, read_json, write_json
from teamcli.worktrees.checkout import Checkout
from teamcli.worktrees.checkouts import Checkouts
from teamcli.worktrees.git import Git
from teamcli.worktrees.main_checkout import name_some

CUT_OFF = "refs/teamcli/cut-off"
"""In a checkout: what was there when a merge that was cut off was undone."""
_MOST_DETAILS = 20


class MemberWork(NamedTuple):
    git: Git
    checkout: Checkout
    target: str
    journal: Path

    def commit(self, message: str) -> None:
        """Commit what is uncommitted.

        Raises: MergeBlocked, MergeRefused, GitError
        """
        here = self.git.text("symbolic-ref", "--quiet", "HEAD", check=False)
        if here != self.checkout.ref:
            where = here.removeprefix("refs/heads/") or "a detached HEAD"
            raise MergeRefused(f"{self.checkout.shown} is on {where}, not on {self.checkout.branch}; switch back there")
        if conflicts := self._unmerged():
            raise self._blocked(conflicts, "")
        self.git.run("add", "--all")
        if self.git.commit("MERGE_HEAD") or not self.git.succeeds("diff", "--cached", "--quiet", "--no-ext-diff"):
            text = message.strip() or f"Work of {self.checkout.member}"
            self.git.run("commit", "--quiet", "--no-verify", f"--message={text}")

    def merge(self, old: str, cancel: CancelScope) -> None:
        """Merge the target into the branch, all of which is committed. A conflict stays in the checkout.

        Raises: MergeBlocked, StateError, Cancelled; MergeRefused, and then the merge is still to be undone
        """
        if self.git.succeeds("merge-base", "--is-ancestor", old, "HEAD"):
            return
        write_json(self.journal, {"v": 1, "member": self.checkout.member, "head": self.git.commit("HEAD")})
        message = f"Merge {self.target} into {self.checkout.branch}"
        options = ("--ff", "--no-edit", "--no-stat", "--no-verify", "--no-autostash", f"-m{message}")
        with tempfile.TemporaryFile() as printed:
            try:
                # Not to be cancelled: it would be killed.
                self.git.run("merge", *options, old, output=printed)
            except GitError as e:
                if e.exit_code == 1 and (conflicts := self._unmerged()):
                    _forget(self.journal)
                    printed.seek(0)
                    raise self._blocked(conflicts, printed.read().decode("utf-8", "replace")) from e
                raise MergeRefused(f"{self.target} cannot be merged into {self.checkout.branch}: {e}") from e
        _forget(self.journal)
        cancel.check()

    def _unmerged(self) -> list[str]:
        entries = os.fsdecode(self.git.run("ls-files", "--unmerged", "-z")).split("\0")[:-1]
        return list(dict.fromkeys(entry.partition("\t")[2] for entry in entries))

    def _blocked(self, conflicts: Sequence[str], printed: str) -> MergeBlocked:
        """Git says what kind of conflict each is: in a binary file, of a rename, of a deletion."""
        kinds = ("CONFLICT", "warning: Cannot merge binary")
        details = [line for line in printed.splitlines() if line.startswith(kinds)]
        found = f"{self.target} and {self.checkout.branch} are in conflict: {name_some(conflicts)}"
        advice = (
            f"Your work was not merged: {found}. Both versions are in your checkout. Resolve the conflicts, add these"
            " files with `git add`, and commit with `git commit`."
        )
        advice = "\n".join([advice, *details[:_MOST_DETAILS]])
        return MergeBlocked(f"{found}; {self.target} is as it was", "conflict", self.target, advice, tuple(conflicts))


def undo_cut_off(checkouts: Checkouts, journal: Path) -> str:
    """Take a checkout back to where a merge began that was cut off there. Returns what to tell the user, if anything.

    What is in the files now is kept as a commit: someone may have written there since.

    Raises: ToolError, StateError
    """
    if (raw := read_json(journal)) is None:
        return ""
    member, head = str(raw.get("member")), str(raw.get("head"))
    checkout = checkouts.find(member)
    if checkout is not None and checkout.exists:
        checkouts.repair(member)
        git = checkouts.git(member)
        # A conflict has no tree that could be kept: its files are added as they are.
        git.run("add", "--all")
        found = git.text("commit-tree", git.text("write-tree"), "-p", head, "-m", "A merge that was cut off")
        git.run("update-ref", CUT_OFF, found)
        git.run("symbolic-ref", "HEAD", checkout.ref)
        git.run("reset", "--hard", "--quiet", head)
    _forget(journal)
    return f"The merge of {member} was cut off in its checkout, which is as it was before. Merge again."


def _forget(journal: Path) -> None:
    with as_state_error("remove", journal):
        journal.unlink(missing_ok=True)
