"""Moves the branch of the main checkout forward, with its index and files. A SIGKILL at any moment is repaired.

The steps are: a journal; our lock on the index, so that no other git gets in between; a look at whether anything of the
user's is in the way; the new files, in a directory next to the index; the branch, by compare-and-swap; the files, each
by one rename; the index, by one rename; then lock and journal are removed. After a crash the journal says what to do:
if the branch has not moved, nothing has happened. Otherwise the same steps are taken again, and those that were done
before change nothing.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from teamcli.cancel import CancelScope
from teamcli.errors import GitError, MergeRefused
from teamcli.storage.files import as_state_error, read_json, read_regular, write_json
from teamcli.text.escaping import one_line
from teamcli.workspace.open_file import open_parent
from teamcli.worktrees.changes import Entry, TreeChange, changes_between
from teamcli.worktrees.git import Git, drop_stale_lock
from teamcli.worktrees.working_files import CHANGED, Signature, move, obstacle, signature, update_files

LOCK_TRIES, LOCK_SECONDS = 20, 0.1
"""Editors and prompts look at the repository all the time, and git locks the index for that."""
LARGEST_INDEX = 1 << 30
MOST_NAMED = 20
_BRANCHES = "refs/heads/"
_BUSY = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "rebase-apply")


class TargetMoved(Exception):
    """Raised when the branch is no longer at the commit that the merge began with."""


class MergeStep(NamedTuple):
    """One move of the branch; what the journal holds."""

    member: str
    branch: str
    """Its full name, `refs/heads/main`."""
    old: str
    new: str

    @property
    def target(self) -> str:
        return self.branch.removeprefix(_BRANCHES)

    @property
    def lock_text(self) -> bytes:
        """The content of our lock on the index, which tells it from that of any other program."""
        return f"teamcli merge {self.member} {self.old} {self.new}\n".encode()


class _Look(NamedTuple):
    """The main checkout, compared with the old commit."""

    unchanged: Mapping[str, Signature | None]
    """Files that are as in the old commit, in the index and on disk, and how they looked; None for nothing there."""
    to_do: Sequence[TreeChange]
    """What the index has as in the old commit."""
    foreign: Sequence[str]
    """What the index has neither as in the old nor as in the new commit."""


class MainCheckout:
    def __init__(self, git: Git, journal: Path) -> None:
        self._git = git
        self._root = git.directory
        self._journal = journal

    def head(self) -> tuple[str, str]:
        """The full name of the branch that is checked out, and its commit.

        Raises: MergeRefused, GitError
        """
        branch = self._git.text("symbolic-ref", "--quiet", "HEAD", check=False)
        if not branch.startswith(_BRANCHES):
            raise MergeRefused("the main directory is on no branch (detached HEAD); check one out with `git switch`")
        busy = next((name for name in _BUSY if (self._git_dir / name).exists()), "")
        if busy:
            raise MergeRefused(f"the main directory is in the middle of another merge or rebase ({busy}); finish it")
        return branch, self._git.commit(branch)

    def check(self, changes: Sequence[TreeChange]) -> None:
        """Raises: MergeRefused, naming what is in the way; GitError, StateError"""
        with self._workplace():
            self._refuse_obstacles(changes, self._look(changes))

    def advance(self, step: MergeStep, changes: Sequence[TreeChange], cancel: CancelScope) -> dict[str, str]:
        """Move the branch, the index and the files. Returns the files that someone changed just then and that were left
        as they are, with the reason.

        Raises: MergeRefused, TargetMoved, GitError, Cancelled, with everything as it was; StateError
        """
        write_json(self._journal, {"v": 1, **step._asdict()})
        with self._workplace():
            try:
                self._lock_index(step, cancel)
                if self.head() != (step.branch, step.old):
                    raise TargetMoved
                look = self._look(changes)
                self._refuse_obstacles(changes, look)
                env = self._stage(look)
                self._refuse_filters(step, changes, env)
                self._move_branch(step)
            except BaseException:
                if self._git.commit(step.branch) != step.new:  # otherwise the journal stays, and `recover` continues
                    self._unlock(step)
                raise
            return self._finish(step, look, env)

    def recover(self, cancel: CancelScope) -> str:
        """Finish or undo a step that was cut off. Returns what to tell the user; usually nothing.

        Raises: MergeRefused, GitError, StateError
        """
        if (raw := read_json(self._journal)) is None:
            return ""
        step = MergeStep(*(str(raw.get(name, "")) for name in MergeStep._fields))
        self._drop_stale_locks(step)
        where = self._git.commit(step.branch)
        is_here = self._git.text("symbolic-ref", "--quiet", "HEAD", check=False) == step.branch
        with self._workplace():
            if where != step.new or not is_here:
                self._unlock(step)
                nothing = f"{step.target} and your files are as they were. Merge again"
                moved = f"the branch or HEAD has moved since. Look at `git log {step.target}` and `git status`"
                return f"The merge of {step.member} was cut off: {nothing if where == step.old else moved}."
            self._lock_index(step, cancel)
            look = self._look(changes_between(self._git, step.old, step.new))
            kept = self._finish(step, look, self._stage(look))
        done = f"The merge of {step.member} into {step.target} was cut off, and is complete now"
        return f"{done}; {describe_kept(kept)}." if kept else f"{done}."

    @cached_property
    def _git_dir(self) -> Path:
        return Path(os.path.realpath(self._git.text("rev-parse", "--absolute-git-dir")))

    @property
    def _work(self) -> Path:
        return self._git_dir / "teamcli-merge"

    @property
    def _staged(self) -> Path:
        return self._work / "files"

    @contextlib.contextmanager
    def _workplace(self) -> Iterator[None]:
        """An empty directory next to the index, for the time of the block. A crash leaves it to the next one."""
        with as_state_error("prepare", self._work):
            self._clear()
            self._staged.mkdir(parents=True)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # the next one tries again
                self._clear()

    def _clear(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self._work)

    def _lock_index(self, step: MergeStep, cancel: CancelScope) -> None:
        """The lock appears with its content in one step, so it is always recognized as ours."""
        lock = self._git_dir / "index.lock"
        self._put("lock", step.lock_text)
        for tries_left in reversed(range(LOCK_TRIES)):
            try:
                # A rename would replace the lock of another git. A link fails if there is one.
                move(self._work / "lock", lock, self._git_dir, how=os.link)
                return
            except FileExistsError as e:
                if self._is_ours(step):
                    return
                if not tries_left:
                    raise MergeRefused(f"another git is at work here; if none is, remove {lock}") from e
                cancel.wait(LOCK_SECONDS)
                cancel.check()

    def _is_ours(self, step: MergeStep) -> bool:
        try:
            return read_regular(self._git_dir / "index.lock", 1000, os.O_NOFOLLOW) == step.lock_text
        except (OSError, ValueError):
            return False

    def _unlock(self, step: MergeStep) -> None:
        with as_state_error("remove", self._git_dir / "index.lock"):
            if self._is_ours(step):
                (self._git_dir / "index.lock").unlink()
            self._clear()
            self._journal.unlink(missing_ok=True)

    def _put(self, name: str, data: bytes, like: os.stat_result | None = None) -> Path:
        path = self._work / name
        with open_parent(path, self._git_dir) as parent:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(name, flags, 0o600, dir_fd=parent), "wb") as file:
                file.write(data)
                file.flush()
                if like is not None:
                    os.fchmod(file.fileno(), stat.S_IMODE(like.st_mode))
                    os.utime(file.fileno(), ns=(like.st_atime_ns, like.st_mtime_ns))
        return path

    def _copy_of_index(self, name: str) -> dict[str, str]:
        """Variables with which git uses a copy of the index.

        The copy has the time of the original: git distrusts entries that are as new as the file itself.
        """
        index = self._git_dir / "index"
        if not index.exists():
            raise MergeRefused(f"{self._root} has no files checked out (is it bare?): merge in a clone that has them")
        with as_state_error("copy", index):
            found = index.lstat()
            copy = self._put(name, read_regular(index, LARGEST_INDEX, os.O_NOFOLLOW), found)
        return {**self._git.filters_off(), "GIT_INDEX_FILE": str(copy)}

    def _look(self, changes: Sequence[TreeChange]) -> _Look:
        # Before git looks: a file that is changed later no longer has this signature.
        signatures = {change.path: signature(self._root / change.path) for change in changes}
        env = self._copy_of_index("index")
        self._git.run("update-index", "-q", "--refresh", check=False, env=env)
        index = dict(map(_listed, _split(self._git.run("ls-files", "-v", "-s", "-z", env=env))))
        dirty = set(_split(self._git.run("diff-files", "--name-only", "-z", env=env)))
        to_do = [change for change in changes if index.get(change.path) == change.old]
        removed = {change.path for change in changes if change.new is None}
        unchanged = {
            change.path: signatures[change.path] if change.old else None
            for change in to_do
            if (change.path not in dirty if change.old else not obstacle(self._root, change.path, removed))
        }
        foreign = [each.path for each in changes if index.get(each.path) not in (each.old, each.new)]
        return _Look(unchanged, to_do, foreign)

    def _refuse_obstacles(self, changes: Sequence[TreeChange], look: _Look) -> None:
        blocked = [change for change in changes if change.path not in look.unchanged]
        if not blocked:
            return
        removed = {change.path for change in changes if change.new is None}
        names = [(each.old is None and obstacle(self._root, each.path, removed)) or each.path for each in blocked]
        are_new = all(each.old is None for each in blocked)
        what = (
            "untracked files where the merge has new ones" if are_new else "uncommitted changes in files of the merge"
        )
        raise MergeRefused(f"the main directory has {what}: {name_some(names)}; commit or move them, then merge again")

    def _stage(self, look: _Look) -> dict[str, str]:
        """Write the next index, and the new files with the line ends and modes that they will have.

        Returns the variables with which git uses that index.
        """
        env = self._copy_of_index("next")
        lines = [_index_line(change) for change in sorted(look.to_do, key=lambda each: each.new is not None)]
        self._git.run("-c", "core.splitIndex=false", "update-index", "-z", "--index-info", input=_join(lines), env=env)
        new = [change.path for change in look.to_do if change.new]
        # Into an empty directory, so that the attributes that count are those of the new commit.
        checkout = (f"--work-tree={self._staged}", "checkout-index", "-q", "-z", "--stdin")
        self._git.run(*checkout, input=_join(new), env=env)
        return env

    def _refuse_filters(self, step: MergeStep, changes: Sequence[TreeChange], env: Mapping[str, str]) -> None:
        """A filter is a program of the repository's choice, and files without it may be wrong."""
        keys = [value for name, value in env.items() if name.startswith("GIT_CONFIG_KEY_")]
        names = {key.removeprefix("filter.").rpartition(".")[0] for key in keys}
        paths = [change.path for change in changes if change.new]
        fields = _split(self._git.run("check-attr", "--cached", "-z", "--stdin", "filter", input=_join(paths), env=env))
        filtered = [path for path, value in zip(fields[::3], fields[2::3], strict=True) if value in names]
        if filtered:
            yourself = f"merge it yourself: git merge team/{step.member}"
            raise MergeRefused(f"git runs a filter for {name_some(filtered)}, and teamcli does not; {yourself}")

    def _move_branch(self, step: MergeStep) -> None:
        try:
            message = f"merge team/{step.member}: Fast-forward"
            self._git.run("update-ref", "-m", message, step.branch, step.new, step.old)
        except GitError as e:
            where = self._git.commit(step.branch)
            if where == step.old:
                raise
            if where != step.new:  # otherwise git was ended only after it had moved the branch
                raise TargetMoved from e

    def _finish(self, step: MergeStep, look: _Look, env: Mapping[str, str]) -> dict[str, str]:
        kept = update_files(self._root, self._staged, look.to_do, look.unchanged)
        self._git.run("update-index", "-q", "--refresh", check=False, env=env)
        with as_state_error("write", self._git_dir / "index"):
            move(self._work / "next", self._git_dir / "index", self._git_dir)
        self._unlock(step)
        return {**kept, **dict.fromkeys(look.foreign, CHANGED)}

    def _drop_stale_locks(self, step: MergeStep) -> None:
        """Of a git that was killed while it moved the branch. They hold the new commit, or not even that yet."""
        branch_lock = self._git.text("rev-parse", "--git-path", f"{step.branch}.lock")
        for lock in (self._root / branch_lock, self._git_dir / "HEAD.lock"):
            drop_stale_lock(lock, f"{step.new}\n".encode().startswith)


def describe_kept(kept: Mapping[str, str]) -> str:
    """What a person should know about files that were left as they are."""
    named = name_some([f"{path} ({reason})" for path, reason in kept.items()])
    return f"left as they are, see `git diff`: {named}"


def name_some(names: Sequence[str]) -> str:
    shown = ", ".join(one_line(name, 200) for name in names[:MOST_NAMED])
    return f"{shown} and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else shown


def _listed(line: str) -> tuple[str, Entry | None]:
    """Path and content of a line of `ls-files`. Entries that git does not compare with the file are like no other."""
    fields, _, path = line.partition("\t")
    tag, mode, id, stage = fields.split(" ")
    return path, Entry(mode, id) if (tag, stage) == ("H", "0") else Entry(tag, stage)


def _index_line(change: TreeChange) -> str:
    mode, id = change.new or ("0", "0" * len(change.old.id if change.old else ""))
    return f"{mode} {id}\t{change.path}"


def _split(output: bytes) -> list[str]:
    return os.fsdecode(output).split("\0")[:-1]


def _join(lines: Sequence[str]) -> bytes:
    return b"".join(os.fsencode(line) + b"\0" for line in lines)
