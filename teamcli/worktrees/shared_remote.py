"""The repository that all hosts of a team share: the branches of members are pushed there, and fetched from there.

This is the one place where git reaches other machines. It runs with the rights of the user, outside the sandbox, since
it needs the user's keys. So nothing that the repository's own configuration names is run.
"""

from __future__ import annotations

import threading
from pathlib import Path

from teamcli.cancel import CancelScope
from teamcli.errors import GitError
from teamcli.exec.command_host import CommandHost
from teamcli.worktrees.git import Git, drop_stale_lock

REMOTE = "origin"
TRAVEL_SECONDS = 600.0
_BRANCHES = f"+refs/heads/*:refs/remotes/{REMOTE}/*"
_LISTED = ("config", "--global", "--get-all", "credential.helper")


_FETCHING = threading.Lock()
"""Two fetches into one repository at a time would refuse to update the same branch."""


class SharingGit(Git):
    """Git that may use the network and the user's keys."""

    def __init__(self, host: CommandHost, directory: Path) -> None:
        super().__init__(host, directory)
        self._variables = {**self._variables, "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh", "GIT_ASKPASS": "true"}
        self._options = (
            *self._options,
            *("-c", "core.sshCommand=ssh -oBatchMode=yes", "-c", "core.gitProxy=", "-c", "protocol.ext.allow=never"),
        )

    def travel(self, *arguments: str, cancel: CancelScope | None = None) -> bytes:
        """The same as `run`, with the credential helpers that the user has set up for all repositories.

        Raises: GitError
        """
        helpers = [line for line in self.text(*_LISTED, check=False).splitlines() if line]
        given = tuple(word for helper in helpers for word in ("-c", f"credential.helper={helper}"))
        return self.run(*given, *arguments, cancel=cancel, seconds=TRAVEL_SECONDS)


class SharedRemote:
    def __init__(self, git: SharingGit) -> None:
        self._git = git

    def why_not(self) -> str:
        """Why branches cannot travel; empty if nothing is known that would prevent it."""
        if not self._git.text("remote", "get-url", REMOTE, check=False):
            return f"the repository has no remote '{REMOTE}'"
        return ""

    def unpushed(self) -> str:
        """What other hosts do not have of the lead's branch, in words; empty if they have it all."""
        if self.why_not() or self._git.text("branch", "--remotes", "--contains", "HEAD", check=False):
            return ""
        return "the last commits here are not pushed, so other hosts do not have them"

    def fetch(self, branch: str, cancel: CancelScope | None = None) -> str:
        """Fetch all branches. Returns the commit of this one; empty if nobody has pushed it.

        Raises: GitError
        """
        options = ("--quiet", "--no-tags", "--prune", "--no-recurse-submodules", "--upload-pack=git-upload-pack")
        with _FETCHING:
            try:
                self._git.travel("fetch", *options, REMOTE, _BRANCHES, cancel=cancel)
            except GitError:
                if not self._drop_stale_locks():
                    raise
                self._git.travel("fetch", *options, REMOTE, _BRANCHES, cancel=cancel)
        return self._git.commit(f"refs/remotes/{REMOTE}/{branch}")

    def _drop_stale_locks(self) -> bool:
        """Remove what a git that was killed has left; false if it has left nothing."""
        packed, branches = (
            self._git.directory / self._git.text("rev-parse", "--git-path", name)
            for name in ("packed-refs.lock", f"refs/remotes/{REMOTE}")
        )
        left = [place for place in (packed, *branches.rglob("*.lock")) if place.exists()]
        for place in left:
            drop_stale_lock(place)
        return bool(left)

    def push(self, branch: str, cancel: CancelScope | None = None) -> None:
        """Push a branch. It only grows: a host that was replaced cannot take it back.

        Raises: GitError
        """
        options = ("--quiet", "--no-verify", "--no-recurse-submodules", "--receive-pack=git-receive-pack")
        self._git.travel("push", *options, REMOTE, f"refs/heads/{branch}:refs/heads/{branch}", cancel=cancel)

    def publish(self, branch: str) -> str:
        """Push the commit that is checked out here as a branch of that name, so that other hosts have it. Returns it.

        Raises: GitError
        """
        commit = self._git.commit("HEAD")
        options = ("--quiet", "--no-verify", "--no-recurse-submodules", "--receive-pack=git-receive-pack")
        self._git.travel("push", *options, REMOTE, f"+{commit}:refs/heads/{branch}")
        return commit

    def default_start(self) -> str:
        """Where a member begins that has pushed nothing: the newest commit of the shared branch that is checked out
        here, or of the remote's own.

        Raises: GitError
        """
        here = self._git.text("symbolic-ref", "--quiet", "--short", "HEAD", check=False)
        names = [f"refs/remotes/{REMOTE}/{here}"] if here else []
        found = (self._git.commit(name) for name in (*names, f"refs/remotes/{REMOTE}/HEAD", "HEAD"))
        commit = next(filter(None, found), "")
        if not commit:
            raise GitError("the repository has no commit yet: commit and push something first")
        return commit
