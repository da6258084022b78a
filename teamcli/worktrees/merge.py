"""Merges the branch of a member into the branch that is checked out in the main directory.

What can fail happens in the member's checkout, inside its sandbox: committing, merging the target into the branch, the
gate. Only then the target is moved to exactly the commit that has passed, which contains everything the target has.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from teamcli.agent.tool import Progress
from teamcli.cancel import CancelScope, run_abandonable
from teamcli.errors import MergeBlocked, MergeRefused
from teamcli.exec.commands import Commands
from teamcli.exec.running_command import describe_exit
from teamcli.storage.files import as_state_error, open_private
from teamcli.storage.team_dir import TeamDir
from teamcli.text.counting import counted
from teamcli.text.escaping import one_line
from teamcli.worktrees.changes import TreeChange, changes_between
from teamcli.worktrees.checkout import Checkout
from teamcli.worktrees.checkouts import Checkouts
from teamcli.worktrees.main_checkout import MainCheckout, MergeStep, TargetMoved, describe_kept, name_some
from teamcli.worktrees.member_work import MemberWork, undo_cut_off

GATE_SECONDS = 1800.0
TRIES = 5
"""How often a merge starts over because the target has moved meanwhile."""
_OBEYED = (".team", ".claude")
"""What is in there decides what agents may do, and what runs outside the sandbox."""
_GATE_OUTPUT = 4_000
_MOST_COMMITS = 20


class Merged(NamedTuple):
    """A merge that is done."""

    member: str
    branch: str
    target: str
    commit: str = ""
    """Where the target is now; empty if it had everything already."""
    commits: tuple[str, ...] = ()
    """Short id and subject of those that the target did not have, newest first."""
    files: tuple[str, ...] = ()
    gate: str = ""
    """The command that passed; empty without a gate."""
    kept: Mapping[str, str] = {}
    """Files that someone changed in the meantime and that were left as they are, with the reason."""

    @property
    def text(self) -> str:
        count = len(self.commits)
        if not self.commit:
            return f"Nothing to merge: {self.target} has everything of {self.branch}."
        lines = [
            f"Merged {self.branch} into {self.target}: {counted(count, 'commit')}, {counted(len(self.files), 'file')},"
            f" {f'gate passed (`{one_line(self.gate)}`)' if self.gate else 'no gate is set'}.",
            *(f"  {commit}" for commit in self.commits[:_MOST_COMMITS]),
            *([f"Files: {name_some(self.files)}"] if self.files else []),
        ]
        return "\n".join([*lines, *([f"Careful, {describe_kept(self.kept)}"] if self.kept else [])])


class Merger:
    def __init__(
        self,
        checkouts: Checkouts,
        state: TeamDir,
        gate: str = "",
        hook_files: Sequence[Path] = (),
        is_trusted: bool = True,
    ) -> None:
        """The command `gate` must succeed before the target is moved. `hook_files` run outside the sandbox.

        Unless it `is_trusted`, the project has another gate, which the user has not agreed to: nothing gets past it.
        """
        self._checkouts = checkouts
        self._lock = state.merge_lock
        of_main, self._work_journal = state.merge_journals
        self._main = MainCheckout(checkouts.main, of_main)
        self._gate = gate
        self._hook_files = hook_files
        self._is_trusted = is_trusted

    def knows(self, member: str) -> bool:
        """Whether there is a checkout of that member. It may be all that is left of it."""
        return self._checkouts.find(member) is not None

    def preview(self, member: str) -> str:
        """What a merge would bring, as far as the main repository knows it.

        Raises: GitError, MergeRefused
        """
        branch, old = self._main.head()
        checkout = self._checkout(member)
        git, target = self._checkouts.main, branch.removeprefix("refs/heads/")
        base = git.text("merge-base", old, checkout.ref)
        committed = [change.path for change in changes_between(git, base, checkout.ref)]
        waiting = [os.fsdecode(path) for path in self._checkouts.uncommitted(member)]
        files = {**dict.fromkeys(committed, ""), **dict.fromkeys(waiting, " (uncommitted)")}
        lines = [f"{checkout.branch} into {target}: {counted(len(files), 'file')}"]
        return "\n".join([*lines, *(f"  {one_line(path, 200)}{note}" for path, note in sorted(files.items()))])

    def recover(self, cancel: CancelScope) -> str:
        """Complete or undo a merge that was cut off. Returns what to tell the user; usually nothing.

        Raises: MergeRefused, GitError, StateError, Cancelled
        """
        with self._alone(cancel, lambda text: None):
            return self._recover(cancel)

    def _recover(self, cancel: CancelScope) -> str:
        return undo_cut_off(self._checkouts, self._work_journal) or self._main.recover(cancel)

    def merge(
        self, member: str, message: str, cancel: CancelScope, progress: Progress, why_busy: Callable[[], str]
    ) -> Merged:
        """`why_busy` says why the member's work cannot be merged now; empty if it can.

        Raises: MergeRefused, MergeBlocked, GitError, Cancelled, with the target as it was; StateError
        """
        checkout = self._checkout(member)
        if not self._is_trusted:
            raise MergeRefused(
                "the project's gate is not trusted, so it is not used: agree to it at the start, or use --trust"
            )
        with self._alone(cancel, progress):
            if note := self._recover(cancel):
                progress(f"{note}\n")
            for _ in range(TRIES):
                if busy := why_busy():
                    raise MergeRefused(busy)
                try:
                    return self._try(checkout, message, cancel, progress, why_busy)
                except TargetMoved:
                    progress("The target has moved meanwhile; starting over.\n")
        raise MergeRefused(f"the target has moved {TRIES} times during the merge; try again when it is quiet")

    def _try(
        self, checkout: Checkout, message: str, cancel: CancelScope, progress: Progress, why_busy: Callable[[], str]
    ) -> Merged:
        branch, old = self._main.head()
        target, main = branch.removeprefix("refs/heads/"), self._checkouts.main
        self._checkouts.repair(checkout.member, cancel)
        work = MemberWork(self._checkouts.git(checkout.member), checkout, target, self._work_journal)
        work.commit(message)
        try:
            work.merge(old, cancel)
        finally:
            undo_cut_off(self._checkouts, work.journal)
        new = self._checkouts.bring(checkout.member)
        if main.succeeds("merge-base", "--is-ancestor", new, old):
            return Merged(checkout.member, checkout.branch, target)
        if not main.succeeds("merge-base", "--is-ancestor", old, new):
            raise MergeRefused(f"{checkout.branch} does not contain {target}: look at {checkout.shown}")
        changes = changes_between(main, old, new)
        self._refuse_unmergeable(checkout, changes)
        self._main.check(changes)  # before the gate, which may take half an hour; `advance` looks again
        self._run_gate(checkout, target, cancel, progress)
        if busy := why_busy():  # again: someone may have given it work during the gate
            raise MergeRefused(busy)
        cancel.check()
        kept = self._main.advance(MergeStep(checkout.member, branch, old, new), changes, cancel)
        commits = main.text("log", "--no-merges", "--no-show-signature", "--format=%h %s", f"{old}..{new}").splitlines()
        files = tuple(change.path for change in changes)
        return Merged(checkout.member, checkout.branch, target, new, tuple(commits), files, self._gate, kept)

    def _checkout(self, member: str) -> Checkout:
        if (checkout := self._checkouts.find(member)) is None:
            raise MergeRefused(f"'{member}' has no checkout, so there is nothing to merge")
        return checkout

    def _refuse_unmergeable(self, checkout: Checkout, changes: Sequence[TreeChange]) -> None:
        root, paths = self._checkouts.main.directory, [change.path for change in changes]
        yourself = f"look at it, and merge it yourself: git merge {checkout.branch}"
        # Without regard to case: `.TEAM` may be the same directory.
        obeyed = [each for each in paths if each.split("/")[0].casefold() in _OBEYED or root / each in self._hook_files]
        if obeyed:
            what = "which decides what agents may do or what runs on its own"
            raise MergeRefused(f"{checkout.branch} changes {name_some(obeyed)}, {what}; {yourself}")
        if modules := [change.path for change in changes if change.is_submodule]:
            raise MergeRefused(f"{checkout.branch} changes the submodule {name_some(modules)}; {yourself}")
        spelled = Counter(path.casefold() for path in paths)
        twice = [path for path in paths if spelled[path.casefold()] > 1]
        if twice and self._checkouts.main.text("config", "--type=bool", "core.ignorecase", check=False) == "true":
            raise MergeRefused(f"names that differ only in case: {name_some(twice)}; {yourself}")

    def _run_gate(self, checkout: Checkout, target: str, cancel: CancelScope, progress: Progress) -> None:
        if not self._gate:
            return
        commands = Commands(self._checkouts.hosts.of(checkout.member))
        finished = commands.run(self._gate, checkout.path, GATE_SECONDS, cancel, progress)
        if not finished.ended.exit_code and not finished.ended.timed_out:
            return
        ending = describe_exit(finished.ended.exit_code)
        ending = f"took longer than {GATE_SECONDS / 60:.0f} minutes" if finished.ended.timed_out else ending
        output = finished.output[-_GATE_OUTPUT:]
        failed = f"the gate `{one_line(self._gate)}` failed ({ending}) on {checkout.branch} with {target} merged in"
        advice = f"Your work was not merged: {failed}. Fix it in your checkout. The end of its output:\n{output}"
        raise MergeBlocked(f"{failed}; {target} is as it was\n{output}", "gate_failed", target, advice)

    @contextlib.contextmanager
    def _alone(self, cancel: CancelScope, progress: Progress) -> Iterator[None]:
        """One merge at a time, in all processes."""
        fd = open_private(self._lock, os.O_RDWR | os.O_CREAT)
        try:
            with as_state_error("lock", self._lock):
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    progress("Waiting for another merge.\n")
                    # Nothing interrupts a thread in flock, so a cancelled merge leaves it behind.
                    run_abandonable(lambda: fcntl.flock(fd, fcntl.LOCK_EX), cancel, "merge lock")
            yield
        finally:
            os.close(fd)
