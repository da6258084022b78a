"""The branches of isolated members in the main repository. Only the program moves them, by compare-and-swap."""

from __future__ import annotations

from teamcli.errors import GitError, ToolError
from teamcli.worktrees.checkout import Checkout
from teamcli.worktrees.git import Git, drop_stale_lock


class Branches:
    def __init__(self, main: Git) -> None:
        """`main` is the git of the lead's directory."""
        self._main = main

    def tip(self, checkout: Checkout) -> str:
        """The commit of the member's branch; empty if there is none."""
        return self._main.commit(checkout.ref)

    def refuse_taken(self, checkout: Checkout) -> None:
        """Raises: ToolError, if a new branch would meet one that is not ours"""
        taken = self._main.text("for-each-ref", "--format=%(refname:short)", "refs/heads/team")
        for branch in taken.splitlines():
            # A branch is a file or a directory: git cannot have `team` and `team/alice` at once.
            if branch == "team" or f"{branch}/".casefold().startswith(f"{checkout.branch}/".casefold()):
                raise ToolError(
                    f"the branch {branch} is in the way, and teamcli did not create it; rename or delete it"
                )

    def refuse_checked_out(self, checkout: Checkout) -> None:
        """Git does not notice if the branch of a directory moves, and takes the difference for changes of its files.

        Raises: GitError
        """
        if where := self._main.text("for-each-ref", "--format=%(worktreepath)", checkout.ref):
            raise GitError(f"{checkout.branch} is checked out in {where}: switch to another branch there")

    def move(self, checkout: Checkout, commit: str, known: str) -> None:
        """From `known`, which is empty if there is no branch yet.

        Raises: GitError
        """
        self._update(checkout, checkout.ref, commit, known or "0" * len(commit))

    def delete(self, checkout: Checkout, known: str) -> None:
        """Raises: GitError"""
        self._update(checkout, "-d", checkout.ref, known)

    def take(self, checkout: Checkout, commit: str) -> None:
        """Move it to a commit that another host has pushed. What only this host has of it stays in the repository.

        Raises: GitError
        """
        known = self.tip(checkout)
        if known == commit:
            return
        self.refuse_checked_out(checkout)
        if known and not self.is_in(known, commit):
            # Without a ref, git would remove these commits in time.
            self._main.run("update-ref", f"refs/teamcli/left/{checkout.member}/{known[:12]}", known)
        self.move(checkout, commit, known)

    def is_in(self, commit: str, other: str) -> bool:
        """Whether the history of `other` has this commit."""
        return self._main.succeeds("merge-base", "--is-ancestor", commit, other)

    def _update(self, checkout: Checkout, *arguments: str) -> None:
        """Only the program moves this branch, so a lock that does not go away is that of a git that was killed."""
        try:
            self._main.run("update-ref", "--no-deref", *arguments)
        except GitError:
            lock = self._main.text("rev-parse", "--git-path", f"{checkout.ref}.lock")
            drop_stale_lock(self._main.directory / lock)
            self._main.run("update-ref", "--no-deref", *arguments)
