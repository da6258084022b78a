"""Where agents work: all in the directory of the team, except members that have their own checkout."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from teamcli.app.choices import find_hook_files
from teamcli.app.hosts import open_member_host, plain_host
from teamcli.app.runtime import Runtime
from teamcli.cancel import CancelScope
from teamcli.errors import GitError, StateError, ToolError
from teamcli.exec.command_host import CommandHost
from teamcli.team.message import LEAD
from teamcli.team.roster import Member
from teamcli.workspace.bounds import TEAM_DIR, Workspace

if TYPE_CHECKING:
    from teamcli.worktrees.checkouts import Checkouts
    from teamcli.worktrees.shared_remote import SharedRemote


class Workplace(NamedTuple):
    """The files that an agent works on, and what runs its commands."""

    workspace: Workspace
    host: CommandHost
    hook_files: tuple[Path, ...]
    """In this workspace: changing one always asks."""


class Workplaces:
    def __init__(self, runtime: Runtime, workspace: Workspace, owns_process: bool = True) -> None:
        """`workspace` is that of the team."""
        self.shared = Workplace(workspace, runtime.host, runtime.choices.policy.hook_files)
        self._runtime = runtime
        self._owns_process = owns_process
        self._directory = runtime.state.worktrees.resolve()
        self._checkouts: Checkouts | None = None
        self._users_host: CommandHost | None = None
        self._lock = threading.Lock()

    def open(self) -> Checkouts:
        """All checkouts. What they need is loaded when the first is wanted."""
        with self._lock:
            if self._checkouts is None:
                from teamcli.worktrees.checkouts import Checkouts
                from teamcli.worktrees.git import Git

                git = Git(self._runtime.host, self.shared.workspace.root)
                setup = self._runtime.choices.settings.worktree.setup or ""
                self._checkouts = Checkouts(git, self._directory, self._open_host, setup)
        return self._checkouts

    def remote(self) -> SharedRemote:
        """Where the branches of members travel, of a team on several hosts."""
        from teamcli.worktrees.shared_remote import SharedRemote, SharingGit

        with self._lock:
            if self._users_host is None:
                runtime = self._runtime
                self._users_host = plain_host(runtime.choices.settings, runtime.host.programs, self._owns_process)
        return SharedRemote(SharingGit(self._users_host, self.shared.workspace.root))

    def follow(self, member: Member, cancel: CancelScope | None = None) -> str:
        """Bring the checkout of a member that other hosts may have run to what they have pushed. What only this host
        has is kept, if it has run the member last. Returns what to say.

        Raises: ToolError, StateError, Cancelled
        """
        remote, checkouts = self.remote(), self.open()
        if why := remote.why_not():
            return f"{checkouts.prepare(member.name, cancel)} ({why}, so its work stays on this host)"
        commit = remote.fetch(f"team/{member.name}", cancel)
        if not commit and checkouts.find(member.name) is not None:
            return checkouts.prepare(member.name, cancel)
        keeps = member.runs_on == self._runtime.engine.host_name
        return checkouts.follow(member.name, commit or remote.default_start(), keeps, cancel)

    def catch_up(self, member: str, cancel: CancelScope) -> str:
        """Before a piece of work of a member that this host runs: the lead may have merged its branch, and pushed it.
        Returns what to say; often nothing.

        Raises: ToolError, StateError, Cancelled
        """
        remote = self.remote()
        if remote.why_not():
            return ""
        try:
            commit = remote.fetch(f"team/{member}", cancel)
        except GitError as e:
            return f"{member} works with what this host has: {e}."
        said = self.open().follow(member, commit, True, cancel) if commit else ""
        return f"{member} works {said}." if said else ""

    def share(self, member: str) -> str:
        """Push the branch of a member. Returns what to say about it."""
        remote = self.remote()
        if remote.why_not():
            return ""
        try:
            self.open().commit_all(member)
            self._push(remote, member)
        except (ToolError, StateError) as e:
            return f"not pushed: {e}"
        return "pushed"

    def _push(self, remote: SharedRemote, member: str) -> None:
        """Raises: ToolError, StateError"""
        checkouts, branch = self.open(), f"team/{member}"
        checkouts.bring(member)
        try:
            remote.push(branch)
        except GitError:  # another host was faster: the one that ran the member before, or the lead with a merge
            if not (commit := remote.fetch(branch)) or not checkouts.join(member, commit):
                raise
            checkouts.bring(member)
            remote.push(branch)

    def end(self, member: str) -> str:
        """The member is gone. Returns what is to say about its checkout; empty if it has none."""
        return self.open().end(member) if (self._directory / f"{member}.json").exists() else ""

    def of(self, member: Member) -> Workplace:
        if not member.worktree:
            return self.shared
        root = self._directory / member.name  # the roster may not know it yet
        # What a role learns in this project is not part of the checkout: it must outlive it.
        memory = self.shared.workspace.root / TEAM_DIR / "memory"
        workspace = self.shared.workspace._replace(root=root, extra=(memory,))
        hook_files = find_hook_files(self._runtime.choices.settings, root)
        return Workplace(workspace, self.open().host(member.name), hook_files)

    def named(self, agent: str) -> Workplace:
        """That of the lead or a teammate."""
        member = None if agent == LEAD else self._runtime.roster.find(agent)
        return self.of(member) if member else self.shared

    def root_of(self, agent: str) -> Path:
        """The directory of that, whether or not it is open."""
        member = None if agent == LEAD else self._runtime.roster.find(agent)
        return self._directory / agent if member and member.worktree else self.shared.workspace.root

    def close(self) -> None:
        if self._checkouts is not None:
            self._checkouts.close_all()
        if self._users_host is not None:
            self._users_host.close()

    def _open_host(self, checkout: Path, variables: Mapping[str, str]) -> CommandHost:
        runtime, settings = self._runtime, self._runtime.choices.settings
        root, programs = self.shared.workspace.root, runtime.host.programs
        return open_member_host(
            settings, root, runtime.project, programs, checkout, variables, owns_process=self._owns_process
        )
