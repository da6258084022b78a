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
_OWN_SETTINGS = (
    "config",
    "--includes",
    "--show-scope",
    "--null",
    "--get-regexp",
    r"^credential\..*$|^core\.sshcommand$",
)
_URL = ("config", "--local", "--no-includes", "--get", f"remote.{REMOTE}.url")


_PUSH = ("--quiet", "--no-verify", "--no-follow-tags", "--no-recurse-submodules", "--receive-pack=git-receive-pack")
_TRUSTED = ("system", "global")
"""Where settings come from that no agent can write."""
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
            *("-c", "push.gpgSign=false", "-c", "core.alternateRefsCommand=true"),
        )

    def travel(self, *arguments: str, cancel: CancelScope | None = None) -> bytes:
        """The same as `run`, with the credentials that the user or the system has set up for all repositories.

        Raises: GitError
        """
        words = self.run(*_OWN_SETTINGS, check=False).decode("utf-8", "replace").split("\0")
        found = [
            entry.partition("\n") for scope, entry in zip(words[::2], words[1::2], strict=False) if scope in _TRUSTED
        ]
        given = tuple(word for name, _, value in found for word in ("-c", f"{name}={value}"))
        return self.run(*given, *arguments, cancel=cancel, seconds=TRAVEL_SECONDS)


class SharedRemote:
    def __init__(self, git: SharingGit) -> None:
        self._git = git

    def why_not(self) -> str:
        """Why branches cannot travel; empty if nothing is known that would prevent it."""
        url = self._url
        if not url:
            return f"the repository has no remote '{REMOTE}'"
        # Its hooks would run outside the sandbox.
        place = Path(url.removeprefix("file://")).expanduser()
        if place.is_absolute() and place.resolve().is_relative_to(self._git.directory.resolve()):
            return f"the remote '{REMOTE}' is in the directory of the team, where agents can write"
        return ""

    @property
    def _url(self) -> str:
        """From the repository's own configuration, which no agent can write; not from files that it includes, nor from
        `.git/remotes`, which an agent could."""
        url = self._git.text(*_URL, check=False)
        is_relative_path = "://" not in url and ":" not in url and not url.startswith("/")
        return str(self._git.directory / url) if url and is_relative_path else url

    def unpushed(self) -> str:
        """What other hosts do not have of the lead's branch, in words; empty if they have it all."""
        if self.why_not() or self._git.text("branch", "--remotes", "--contains", "HEAD", check=False):
            return ""
        return "the last commits here are not pushed, so other hosts do not have them"

    def fetch(self, branch: str, cancel: CancelScope | None = None) -> str:
        """Fetch all branches. Returns the commit of this one; empty if nobody has pushed it.

        Raises: GitError
        """
        options = (
            *("--quiet", "--no-tags", "--prune", "--no-recurse-submodules", "--upload-pack=git-upload-pack"),
            *("--no-write-fetch-head", "--refmap="),
        )
        with _FETCHING:
            try:
                self._git.travel("fetch", *options, self._url, _BRANCHES, cancel=cancel)
            except GitError:
                if not self._drop_stale_locks():
                    raise
                self._git.travel("fetch", *options, self._url, _BRANCHES, cancel=cancel)
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
        self._git.travel("push", *_PUSH, self._url, f"refs/heads/{branch}:refs/heads/{branch}", cancel=cancel)

    def publish(self, branch: str) -> str:
        """Push the commit that is checked out here as a branch of that name, so that other hosts have it. Returns it.

        Raises: GitError
        """
        commit = self._git.commit("HEAD")
        self._git.travel("push", *_PUSH, self._url, f"+{commit}:refs/heads/{branch}")
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
