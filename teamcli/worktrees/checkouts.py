"""The checkouts of all isolated members: made, found again, brought back into the main repository, and removed.

A member can write its own `.git`, so git runs there only inside the member's sandbox. Git in the main directory never
reads that repository: commits cross as a pack, whose objects are checked.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from teamcli.cancel import CancelScope
from teamcli.errors import GitError, ToolError
from teamcli.storage.files import cannot, make_private_dir
from teamcli.text.counting import counted
from teamcli.worktrees.branches import Branches
from teamcli.worktrees.checkout import Checkout, Notes, checkouts_in
from teamcli.worktrees.crossing import carry, is_commit_id
from teamcli.worktrees.git import Git
from teamcli.worktrees.making import Main, copy_included, run_setup, write_repository
from teamcli.worktrees.member_hosts import MemberHosts, OpenHost
from teamcli.worktrees.removing import move_aside, remove_files

_STATUS = ("status", "--porcelain", "-z", "--untracked-files=all", "--no-renames", "--ignore-submodules=none")
_DIFF = ("diff", "--no-ext-diff", "--no-textconv", "--no-color", "--no-renames", "--ignore-submodules=dirty")


class BranchStatus(NamedTuple):
    """How far the work of a member is."""

    branch: str
    base: str
    """The last commit that it shares with the lead."""
    tip: str
    ahead: int
    """Commits that the lead does not have."""
    files: int
    """How many differ from the base, committed or not."""
    uncommitted: int

    def __str__(self) -> str:
        left = f"{counted(self.uncommitted, 'file')} uncommitted" if self.uncommitted else "nothing uncommitted"
        return f"{self.branch}: {counted(self.ahead, 'commit')} ahead, {counted(self.files, 'file')} changed, {left}"


class Checkouts:
    """Safe for the threads of the program, as long as each member's checkout is used by one at a time."""

    def __init__(self, main: Git, directory: Path, open_host: OpenHost, setup: str = "") -> None:
        """`main` is the git of the lead's directory, `directory` is `.team/worktrees`, `setup` a command."""
        self.main = main
        self.directory = directory
        self.hosts = MemberHosts(directory, open_host)
        self._branches = Branches(main)
        self._setup = setup

    def find(self, member: str) -> Checkout | None:
        """A member's checkout; None if it has none, or if what is there is not ours."""
        checkout = Checkout(member, self.directory / member)
        return checkout if Notes.read(checkout) else None

    def git(self, member: str) -> Git:
        """Git in a member's checkout, inside the member's sandbox."""
        return Git(self.hosts.of(member), self.directory / member)

    # Making

    def prepare(self, member: str, cancel: CancelScope | None = None) -> str:
        """Make a member's checkout, or find it again. Returns what to say about it, in a few words.

        Raises: ToolError, with the reason why there is none; StateError, Cancelled
        """
        try:
            return self._prepare(Checkout(member, self.directory / member), cancel or CancelScope())
        except BaseException:
            self.hosts.close(member)
            raise

    def _prepare(self, checkout: Checkout, cancel: CancelScope) -> str:
        main = Main.read(self.main)
        notes = Notes.read(checkout)
        if notes is not None and not notes.is_ready:  # the program was killed while it made this one
            self._undo(checkout, notes)
            notes = Notes.read(checkout)
        if notes is None:
            self._check_free(checkout)
            self._make(checkout, main, Notes(main.head, self.hosts.slot(checkout)), cancel)
            return f"in {checkout.shown} on {checkout.branch}"
        if checkout.exists:
            return f"in {checkout.shown}, which was there already, on {checkout.branch}"
        self.repair(checkout.member, cancel)
        return f"in {checkout.shown}, recreated, on {checkout.branch}"

    def follow(self, member: str, commit: str, keeps: bool, cancel: CancelScope | None = None) -> str:
        """Bring a member's checkout to a commit of its branch that another host has pushed. If it `keeps` what is only
        here, a checkout that has gone another way stays as it is. Returns what to say about it; often nothing.

        Raises: ToolError, StateError, Cancelled
        """
        checkout = Checkout(member, self.directory / member)
        notes = Notes.read(checkout)
        if notes is None:
            self._check_free(checkout)
            fresh = Notes(commit, self.hosts.slot(checkout), commit)
            self._make(checkout, Main.read(self.main), fresh, cancel or CancelScope())
            return f"in {checkout.shown} on {checkout.branch}"
        if checkout.exists and notes.is_ready:
            git, tip, has_more = self.git(member), self._tip(checkout), bool(self.uncommitted(member))
            if tip == commit and not has_more:
                return ""
            if git.succeeds("merge-base", "--is-ancestor", tip, commit) and not has_more:
                git.run("reset", "--hard", "--quiet", commit, seconds=600)
                self._branches.take(checkout, commit)
                notes._replace(tip=commit).write(checkout)
                return f"in {checkout.shown}, brought up to date, on {checkout.branch}"
            if keeps:
                return ""
        kept = move_aside(checkout)
        self._branches.take(checkout, commit)
        notes._replace(tip=commit).write(checkout)
        self._make(checkout, Main.read(self.main), notes._replace(tip=commit), cancel or CancelScope())
        said = f"in {checkout.shown}, recreated from what was pushed, on {checkout.branch}"
        return f"{said}; what was here before is in {kept}" if kept else said

    def commit_all(self, member: str) -> None:
        """Commit what is uncommitted, so that it can travel.

        Raises: GitError
        """
        git = self.git(member)
        git.run("add", "--all")
        if not git.succeeds("diff", "--cached", "--quiet", "--no-ext-diff"):
            git.run("commit", "--quiet", "--no-verify", f"--message=Work of {member}")

    def add_empty_commit(self, member: str, parent: str, message: str) -> str:
        """A commit on top of another one that changes nothing. No branch has it yet.

        Raises: GitError
        """
        identity = {"NAME": member, "EMAIL": f"{member}@teamcli.invalid"}
        env = {f"GIT_{who}_{key}": value for who in ("AUTHOR", "COMMITTER") for key, value in identity.items()}
        return self.main.text("commit-tree", f"{parent}^{{tree}}", "-p", parent, "-m", message, env=env)

    def join(self, member: str, commit: str) -> bool:
        """Merge a commit of the member's branch that another host has pushed; false if that is not possible.

        Raises: GitError
        """
        git = self.git(member)
        is_joined = git.succeeds("merge", "--quiet", "--no-edit", "--no-verify", commit)
        if not is_joined:
            git.succeeds("merge", "--abort")
        return is_joined

    def repair(self, member: str, cancel: CancelScope | None = None) -> str:
        """Before a piece of work. Makes a checkout that is not there yet, or was deleted by hand; says so then.

        Raises: ToolError, StateError, Cancelled
        """
        checkout = Checkout(member, self.directory / member)
        notes = Notes.read(checkout)
        if notes is None or not (notes.is_ready or notes.tip):  # it has not worked yet
            return f"{member} works {self._prepare(checkout, cancel or CancelScope())}."
        if checkout.exists and notes.is_ready:
            self._remove_locks(checkout)
            return ""
        if notes.is_ready and os.path.lexists(checkout.path):
            raise ToolError(f"{checkout.shown} has no .git anymore: save what you need from it, and delete it")
        remove_files(checkout)
        main = Main.read(self.main)
        start = self._branches.tip(checkout) or main.head
        self._make(checkout, main, notes._replace(tip=start), cancel or CancelScope())
        return f"{checkout.shown} was deleted. It was recreated from {checkout.branch}; what was not committed is lost."

    def _check_free(self, checkout: Checkout) -> None:
        """Raises: ToolError"""
        other = [each.member for each in checkouts_in(self.directory) if each.member != checkout.member]
        if same := next((name for name in other if name.casefold() == checkout.member.casefold()), None):
            raise ToolError(f"there is a checkout of '{same}', which differs only in case; use another name")
        if os.path.lexists(checkout.path):
            raise ToolError(f"{checkout.shown} is in the way, and teamcli did not create it; move or delete it")
        self._branches.refuse_taken(checkout)

    def _make(self, checkout: Checkout, main: Main, notes: Notes, cancel: CancelScope) -> None:
        """Raises: ToolError, StateError, Cancelled; nothing is left then"""
        if self.directory.is_symlink():  # a cloned repository could point it anywhere
            raise ToolError(f"{self.directory} is a symbolic link; remove it")
        make_private_dir(self.directory)
        start = notes.tip or notes.base
        notes._replace(is_ready=False).write(checkout)  # first: after a kill, they say what to undo
        try:
            write_repository(checkout, main, start)
            self.hosts.of(checkout.member).renew()  # its sandbox may be that of a directory that was deleted
            self.git(checkout.member).run("reset", "--hard", "--quiet", seconds=600)
            copy_included(checkout, main.git, self.hosts.of(checkout.member), cancel)
            if self._setup:
                run_setup(self._setup, checkout, self.hosts.of(checkout.member), cancel)
            if not self._branches.tip(checkout):
                self._branches.move(checkout, start, "")
            notes._replace(tip=start, is_ready=True).write(checkout)
        except BaseException as e:
            self._undo(checkout, notes)
            if isinstance(e, OSError):
                raise ToolError(cannot("write", checkout.path, e)) from e
            raise

    def _undo(self, checkout: Checkout, notes: Notes) -> None:
        remove_files(checkout)
        if notes.tip:  # the branch has work in it: only the files are missing
            notes._replace(is_ready=True).write(checkout)
            return
        if self._branches.tip(checkout) == notes.base:
            self._branches.delete(checkout, notes.base)
        checkout.notes.unlink(missing_ok=True)

    def _remove_locks(self, checkout: Checkout) -> None:
        """Of a git that was killed. Call this only while the member does nothing."""
        locks = (".git/*.lock", f".git/{checkout.ref}.lock")
        if any(True for name in locks for _ in checkout.path.glob(name)):
            # Inside the sandbox: `.git` may be a link to somewhere else.
            running = self.hosts.of(checkout.member).start(f"rm -f {' '.join(locks)}", checkout.path)
            running.follow(lambda text: None, lambda text: None)

    # Bringing commits into the main repository

    def bring(self, member: str) -> str:
        """Bring a member's branch into the main repository; returns its commit.

        Raises: ToolError, StateError
        """
        checkout, notes = self._ours(member)
        tip = self._tip(checkout)
        known = self._branches.tip(checkout)
        if tip == known:
            return tip
        self._branches.refuse_checked_out(checkout)
        if known not in ("", notes.tip) and not self.git(member).succeeds("merge-base", "--is-ancestor", known, tip):
            raise GitError(f"{checkout.branch} was changed in the main repository: merge or delete it there")
        if not self.main.commit(tip):
            carry(tip, self.git(member), self.main, [known, self.main.commit("HEAD")])
        self._branches.move(checkout, tip, known)
        notes._replace(tip=tip).write(checkout)
        return tip

    def _tip(self, checkout: Checkout) -> str:
        if not checkout.exists:
            raise GitError(f"{checkout.shown} is gone")
        tip = self.git(checkout.member).commit(checkout.ref)
        if not is_commit_id(tip):
            raise GitError(f"{checkout.shown} has no branch {checkout.branch}")
        return tip

    # Looking

    def status(self, member: str) -> BranchStatus:
        """Raises: ToolError"""
        checkout, notes = self._ours(member)
        git, tip = self.git(member), self._tip(checkout)
        base = git.text("merge-base", self.main.commit("HEAD"), tip, check=False) or notes.base
        changed = self.uncommitted(member)
        names = {*git.run(*_DIFF, "--name-only", "-z", base, "--").split(b"\0"), *changed} - {b""}
        ahead = int(git.text("rev-list", "--count", f"{base}..{tip}"))
        return BranchStatus(checkout.branch, base, tip, ahead, len(names), len(changed))

    def uncommitted(self, member: str) -> list[bytes]:
        """The files in a checkout that are not committed; ignored ones do not count.

        Raises: ToolError
        """
        return [entry[3:] for entry in self.git(member).run(*_STATUS).split(b"\0") if entry]

    def diff(self, member: str) -> tuple[str, list[str]]:
        """All changes of a member since its base, committed or not, and the files that git does not know yet.

        Raises: ToolError
        """
        git, base = self.git(member), self.status(member).base
        new = git.run("ls-files", "-z", "--others", "--exclude-standard").split(b"\0")
        text = git.run(*_DIFF, base, "--").decode("utf-8", "replace")
        return text, [os.fsdecode(name) for name in new if name]

    # The end

    def end(self, member: str, pushed: str = "") -> str:
        """The member is gone: remove a checkout that is clean and merged. Returns what to say; often nothing.

        `pushed` is a commit that the remote has, too, so nothing up to it is lost.
        """
        if (checkout := self.find(member)) is None:
            return ""
        try:
            if checkout.exists:
                self.bring(member)  # an interrupted piece of work may have committed
            kept_by = "merged"
            if (why := self._why_keep(checkout, self.main.commit("HEAD"))) and pushed:
                kept_by, why = "pushed", self._why_keep(checkout, pushed)
        except ToolError as e:
            why = str(e)
        if not why:
            self._remove_both(checkout)
            return f"Removed {checkout.shown} and {checkout.branch}: everything is {kept_by}."
        self.hosts.close(member)
        return f"Kept {checkout.shown} and {checkout.branch}: {why}. /merge {member} or /discard {member}"

    def discard(self, member: str) -> str:
        """Remove a member's checkout and branch, whatever is in them.

        Raises: ToolError
        """
        checkout, _ = self._ours(member)
        self._branches.refuse_checked_out(checkout)
        self._remove_both(checkout)
        return f"Removed {checkout.shown} and {checkout.branch}."

    def _why_keep(self, checkout: Checkout, safe: str) -> str:
        """`safe` is a commit that stays.

        Raises: ToolError
        """
        known = self._branches.tip(checkout)
        self._branches.refuse_checked_out(checkout)
        if known and not self._branches.is_in(known, safe):
            return "not merged"
        if not checkout.exists:
            return "it has no .git anymore" if os.path.lexists(checkout.path) else ""
        if changed := self.uncommitted(checkout.member):
            return f"{counted(len(changed), 'file')} uncommitted"
        if any((checkout.path / ".git" / "modules").glob("*")):
            return "it has submodules"
        # All branches and stashes of the checkout, not only the one that the program brings.
        ahead = self.git(checkout.member).text("rev-list", "--count", "HEAD", "--all", "--not", safe)
        return f"{counted(int(ahead), 'commit')} not merged" if ahead != "0" else ""

    def _remove_both(self, checkout: Checkout) -> None:
        self.hosts.close(checkout.member)
        if known := self._branches.tip(checkout):
            self._branches.delete(checkout, known)
        remove_files(checkout)
        checkout.notes.unlink(missing_ok=True)

    def _ours(self, member: str) -> tuple[Checkout, Notes]:
        checkout = Checkout(member, self.directory / member)
        if (notes := Notes.read(checkout)) is None:
            raise ToolError(f"'{member}' has no checkout")
        return checkout, notes
