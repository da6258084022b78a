"""The repository that all hosts of a team share: the branches of members are pushed there, and fetched from there.

This is the one place where git reaches other machines. It runs with the rights of the user, outside the sandbox, in a
repository of its own (`private_repository`), and never in one where agents can write.
"""

from __future__ import annotations

import logging
import tempfile
import threading
from urllib.parse import urlsplit

from teamcli.cancel import CancelScope
from teamcli.errors import BranchTaken, GitError
from teamcli.text.escaping import one_line
from teamcli.text.redaction import register_secrets
from teamcli.worktrees.crossing import carry, is_commit_id, known_to_both
from teamcli.worktrees.git import Git, drop_stale_lock
from teamcli.worktrees.private_repository import REMOTE, RemoteAddress, UsersGit

LOOK_SECONDS = 60.0
"""How long the remote may take to list its branches. Nothing else is tried if it does not answer."""
TRAVEL_SECONDS = 600.0
GATHER_SECONDS = 120.0
_REASON_LENGTH = 300
_PUSH = ("push", "--porcelain", "--no-verify", "--no-follow-tags", "--no-recurse-submodules", "--no-signed")
_FETCH = ("fetch", "--quiet", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head", "--refmap=")
# A pack as large as that of the first clone stays as it is, or this could take very long.
_GATHER = ("-c", "gc.bigPackThreshold=100m", "gc", "--auto", "--quiet")
_BEGUN = "refs/carried/HEAD"
_HINTS = ("Please make sure you have the correct access rights", "and the repository exists.", "hint:")
logger = logging.getLogger(__name__)


def branch_at_remote(member: str, incarnation: int, team: str) -> str:
    """What a member's branch is called where all teams and incarnations meet: `team/alice`, `team/alice.2` for the
    second alice, `team/alice@shop` in the team `shop`.

    No member's name has a dot or an at sign, so no two of them are the same, and none is a directory of another.
    """
    later = f".{incarnation}" if incarnation > 1 else ""
    # A dot could stand where git allows none, at the end for example.
    of_team = "" if team in ("", "default") else f"@{team.replace('.', '%2E')}"
    return f"team/{member}{later}{of_team}"


def target_of(branch: str) -> str:
    """The branch that brings a member what its work is in conflict with."""
    name, at, team = branch.partition("@")
    return f"{name}.target{at}{team}"


class SharedRemote:
    def __init__(self, private: UsersGit, main: Git, address: RemoteAddress) -> None:
        """`main` is the git of the clone, inside the sandbox."""
        self._private = private
        self._main = main
        self._address = address
        self._beginning = threading.Lock()
        self._fetching = threading.Lock()
        """Two fetches at a time would refuse to update the same branch."""
        register_secrets(filter(None, map(_password, (*address.urls, *address.push_urls))))

    @property
    def name(self) -> str:
        """What the clone calls it."""
        return self._address.name

    def tips(self, *branches: str, cancel: CancelScope | None = None) -> dict[str, str]:
        """The commits of those branches that there are at the remote.

        Raises: GitError
        """
        refs = {f"refs/heads/{branch}": branch for branch in branches}
        listed = self._travel("ls-remote", "--refs", REMOTE, *refs, cancel=cancel, seconds=LOOK_SECONDS)
        lines = (line.split("\t") for line in listed.decode("utf-8", "replace").splitlines())
        return {refs[ref]: commit for commit, ref in lines if ref in refs and is_commit_id(commit)}

    def fetch(self, branch: str, cancel: CancelScope | None = None) -> str:
        """Bring a branch into the clone, as commits without a name, together with what its member is to merge.
        Returns its commit; empty if it is not there.

        Raises: GitError
        """
        tips = self.tips(branch, target_of(branch), cancel=cancel)
        self._begin(cancel)
        with self._fetching:
            if missing := [name for name, commit in tips.items() if not self._private.commit(commit)]:
                self._fetch(missing, cancel)
        for name, commit in tips.items():
            if not self._private.commit(commit):  # it has moved since
                tips[name] = commit = self._private.commit(_fetched(name))
            if commit and not self._main.commit(commit):
                carry(commit, self._private, self._main, self._known_to_both(), cancel)
        return tips.get(branch, "")

    def _fetch(self, branches: list[str], cancel: CancelScope | None) -> None:
        wanted = [f"+refs/heads/{branch}:{_fetched(branch)}" for branch in branches]
        try:
            self._travel(*_FETCH, REMOTE, *wanted, cancel=cancel)
        except GitError:
            if not self._drop_locks():
                raise
            self._travel(*_FETCH, REMOTE, *wanted, cancel=cancel)

    def _drop_locks(self) -> bool:
        """Whether a git that was killed has left any.

        Raises: StateError
        """
        left = list(self._private.directory.rglob("*.lock"))
        for lock in left:
            drop_stale_lock(lock)
        return bool(left)

    def _gather(self, cancel: CancelScope | None) -> None:
        """Each push adds a pack. Git makes one of many, when there are enough."""
        try:
            self._private.run(*_GATHER, cancel=cancel, seconds=GATHER_SECONDS)
        except GitError as e:  # what was to be pushed is there
            logger.warning("the packs in %s were not gathered: %s", self._private.directory, e)
            self._drop_locks()

    def _begin(self, cancel: CancelScope | None) -> None:
        """A new repository gets what the clone has: that is faster than from the remote."""
        with self._beginning:
            head = self._main.commit("HEAD")
            if not head or self._private.commit(_BEGUN):
                return
            try:
                self._carry(head, _BEGUN, cancel)
            except GitError:  # a partial clone does not have everything itself
                self._travel(*_FETCH, REMOTE, f"+HEAD:{_BEGUN}", cancel=cancel)

    def _carry(self, commit: str, ref: str, cancel: CancelScope | None) -> None:
        """From the clone into the private repository."""
        if not self._private.commit(commit):
            # Old commits may have what git would not write today, and the remote has its own rules.
            carry(commit, self._main, self._private, self._known_to_both(), cancel, strict=False)
        self._private.run("update-ref", ref, commit)

    def _known_to_both(self) -> list[str]:
        # Git fails if it is to leave out a commit that it does not have.
        tips = self._private.text("for-each-ref", "--format=%(objectname)").splitlines()
        return known_to_both([*tips, self._main.commit("HEAD")], self._private, self._main)

    def create(self, branch: str, commit: str, cancel: CancelScope | None = None) -> None:
        """Push a commit of the clone as a branch that is not there yet.

        Raises: BranchTaken; GitError
        """
        self._push(branch, commit, "", cancel)

    def push(self, branch: str, commit: str, cancel: CancelScope | None = None) -> None:
        """Push a commit of the clone as a member's branch. It only grows: a host that was replaced cannot take it back.

        Raises: GitError
        """
        self._push(branch, commit, None, cancel)

    def publish(self, branch: str, commit: str) -> None:
        """Push what the work of a member is in conflict with, in place of what was in conflict before.

        Raises: GitError
        """
        target = target_of(branch)
        now = self.tips(target).get(target, "")
        if now != commit:
            self._push(target, commit, now, None)

    def withdraw(self, branch: str) -> None:
        """Delete what was published, since the conflict is resolved.

        Raises: GitError
        """
        target = target_of(branch)
        for tip in self.tips(target).values():
            self._delete(target, tip)
        self._forget(target)

    def delete(self, branch: str, commit: str) -> None:
        """Delete a branch that is still at this commit, and what was published for it.

        Raises: GitError
        """
        tips = self.tips(branch, target_of(branch))
        if tips.get(branch, commit) != commit:
            raise GitError("it has moved meanwhile")
        for name, tip in tips.items():
            self._delete(name, tip)
        for name in (branch, target_of(branch)):
            self._forget(name)

    def _forget(self, branch: str) -> None:
        """Let git remove the commits of a branch that is gone, in its own time. Nothing depends on it."""
        for ref in (_carried(branch), _fetched(branch)):
            self._private.run("update-ref", "-d", ref, check=False)

    def _delete(self, branch: str, tip: str) -> None:
        try:
            # Only if it is still at this commit: another host may have pushed since.
            self._send(branch, "", tip, None)
        except GitError:
            if self.tips(branch):  # else another host has just deleted it
                raise

    def _push(self, branch: str, commit: str, lease: str | None, cancel: CancelScope | None) -> None:
        """`lease` as of `_send`."""
        self._begin(cancel)
        self._carry(commit, _carried(branch), cancel)
        self._send(branch, commit, lease, cancel)
        self._gather(cancel)

    def _send(self, branch: str, commit: str, lease: str | None, cancel: CancelScope | None) -> None:
        """Without a commit, delete the branch. With a lease, only if the branch is at this commit there; empty if it
        must not be there. Without one, it can only grow."""
        ref = f"refs/heads/{branch}"
        options = () if lease is None else (f"--force-with-lease={ref}:{lease}",)
        with tempfile.TemporaryFile() as printed:
            try:
                push = (*_PUSH, *options, REMOTE, f"{commit}:{ref}")
                self._private.run(*push, output=printed, cancel=cancel, seconds=TRAVEL_SECONDS)
            except GitError as e:
                printed.seek(0)
                refused = _refusal(printed.read().decode("utf-8", "replace"), e.errors)
                # Git's words for a lease that does not hold, and the remote's if another push was quicker.
                if "stale info" in refused or "already exists" in refused:
                    raise BranchTaken(f"'{self.name}' has another branch {branch}") from e
                raise GitError(
                    f"'{self.name}' refused {branch}: {refused}" if refused else self._explain(e), e.exit_code
                ) from e

    def _travel(self, *arguments: str, cancel: CancelScope | None = None, seconds: float = TRAVEL_SECONDS) -> bytes:
        try:
            return self._private.run(*arguments, cancel=cancel, seconds=seconds)
        except GitError as e:
            raise GitError(self._explain(e), e.exit_code, e.errors) from e

    def _explain(self, error: GitError) -> str:
        """What the other side, or ssh, says comes before git's own line."""
        if not error.errors:
            return f"'{self.name}' does not answer ({error})"
        lines = (line.strip() for line in error.errors.splitlines())
        said = " ".join(line for line in lines if line and not line.startswith(_HINTS))
        return f"'{self.name}' cannot be reached: {one_line(said, _REASON_LENGTH)}"


def _carried(branch: str) -> str:
    return f"refs/carried/{branch}"


def _fetched(branch: str) -> str:
    return f"refs/remotes/shared/{branch}"


def _refusal(printed: str, errors: str) -> str:
    """Why the other side has refused a branch, with what its hooks have said; empty if it is not about the branch."""
    refused = [line.rpartition("\t")[2] for line in printed.splitlines() if line.startswith("!\t")]
    said = [line.removeprefix("remote:").strip() for line in errors.splitlines() if line.startswith("remote:")]
    return one_line(": ".join([*refused[:1], *([" ".join(said)] if said else [])]), _REASON_LENGTH) if refused else ""


def _password(url: str) -> str:
    try:
        return urlsplit(url).password or ""
    except ValueError:
        return ""
