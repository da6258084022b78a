"""Where agents work: all in the directory of the team, except members that have their own checkout."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from teamcli.app.choices import find_hook_files
from teamcli.app.command_hosts import open_member_host
from teamcli.app.member_branches import MemberBranches
from teamcli.app.runtime import Runtime
from teamcli.exec.command_host import CommandHost
from teamcli.team.message import LEAD
from teamcli.team.roster import Member
from teamcli.workspace.bounds import TEAM_DIR, Workspace

if TYPE_CHECKING:
    from teamcli.worktrees.checkouts import Checkouts


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
        self._lock = threading.Lock()
        self.branches = MemberBranches(runtime, workspace, self.open, owns_process)

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

    def leave(self, member: Member) -> str:
        """This process runs the member no more. Returns what is left of one that is shut down; often nothing."""
        known = self._runtime.roster.find(member.name)
        if known is not None and not known.is_active:
            try:
                return self.end(known)
            finally:  # not before: the next incarnation may get the same directory
                self._runtime.engine.give_up(known.name)
        if member.worktree:
            self.open().hosts.close(member.name)  # another host has it now
        return ""

    def end(self, member: Member) -> str:
        """The member is gone. Returns what is to say about its checkout and its branch; often nothing."""
        pushed, said = self.branches.end(member)
        has_checkout = (self._directory / f"{member.name}.json").exists()
        local = self.open().end(member.name, pushed) if has_checkout else ""
        return " ".join(filter(None, (local, said)))

    def discard(self, member: str) -> str:
        """Remove a member's checkout, and its branch here and at the remote, whatever is in them.

        Raises: ToolError, StateError
        """
        local = self.open().discard(member) if self.open().find(member) else ""
        known = self._runtime.roster.find(member)
        return " ".join(filter(None, (local, self.branches.discard(known) if known else "")))

    def of(self, member: Member) -> Workplace:
        if not member.worktree:
            return self.shared
        root = self._directory / member.name  # the roster may not know it yet
        # What a role learns in this project is not part of the checkout: it must outlive it.
        memory = self.shared.workspace.root / TEAM_DIR / "memory"
        workspace = self.shared.workspace._replace(root=root, extra=(memory,))
        hook_files = find_hook_files(self._runtime.choices.settings, root)
        return Workplace(workspace, self.open().hosts.of(member.name), hook_files)

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
            self._checkouts.hosts.close_all()
        self.branches.close()

    def _open_host(self, checkout: Path, variables: Mapping[str, str]) -> CommandHost:
        runtime, settings = self._runtime, self._runtime.choices.settings
        root, programs = self.shared.workspace.root, runtime.host.programs
        return open_member_host(
            settings, root, runtime.project, programs, checkout, variables, owns_process=self._owns_process
        )
