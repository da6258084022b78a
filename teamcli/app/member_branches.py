"""The branches of members at the remote that all hosts of a team share: begun, followed, pushed, and removed.

A branch belongs to one incarnation of one member of one team. The roster knows it before it is pushed: a program that
is killed in between does not take its own branch for somebody else's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from teamcli.agent.events import Notice, Severity
from teamcli.app.command_hosts import plain_host
from teamcli.app.runtime import Runtime
from teamcli.cancel import CancelScope
from teamcli.errors import BranchTaken, Cancelled, GitError, StateError, ToolError
from teamcli.exec.command_host import CommandHost
from teamcli.team.message import LEAD
from teamcli.team.roster import Member
from teamcli.workspace.bounds import Workspace

if TYPE_CHECKING:
    from teamcli.worktrees.checkouts import Checkouts
    from teamcli.worktrees.shared_remote import SharedRemote


class MemberBranches:
    def __init__(
        self, runtime: Runtime, workspace: Workspace, open_checkouts: Callable[[], Checkouts], owns_process: bool
    ) -> None:
        """Reads where the remote is. Agents can change the configuration of a clone, so none may have run yet."""
        self._runtime = runtime
        self._open_checkouts = open_checkouts
        self._users_host: CommandHost | None = None
        self._warned: dict[str, str] = {}
        """What the user was told last of a member."""
        self.why_not = ""
        """Why there is no remote that branches could go to."""
        self.remote: SharedRemote | None = None
        if runtime.engine.host_name:
            try:
                self.remote = self._open(workspace, owns_process)
            except (GitError, StateError) as e:
                self.why_not = str(e)

    def _open(self, workspace: Workspace, owns_process: bool) -> SharedRemote:
        """Raises: GitError, StateError"""
        from teamcli.worktrees.git import Git  # late: only a team on several hosts needs them
        from teamcli.worktrees.private_repository import UsersGit, open_private_repository, place_of, read_address
        from teamcli.worktrees.shared_remote import SharedRemote

        runtime, root = self._runtime, workspace.root
        programs = runtime.host.programs
        self._users_host = plain_host(runtime.choices.settings, programs, owns_process)
        clone = UsersGit(self._users_host, root)
        address = read_address(clone)
        address.refuse_in_reach(programs.is_out_of_reach)
        place = place_of(runtime.project.home, root, runtime.engine.host_name)
        private = open_private_repository(self._users_host, clone, place, address)
        return SharedRemote(private, Git(runtime.host, root), address)

    def close(self) -> None:
        if self._users_host is not None:
            self._users_host.close()

    # On the host of the lead, at a spawn

    def announce(self, member: Member, cancel: CancelScope | None) -> tuple[str, str]:
        """Before a member is spawned that other hosts may run: what its branch at the remote is called, if it can have
        one, and what to say about that; often nothing.

        Raises: ToolError, if there is such a branch, which is not its own; Cancelled
        """
        if self.remote is None:
            return "", f"{self.why_not}. Its work stays on its host"
        branch = self._name_of(member)
        try:
            _refuse_taken(self.remote, branch, cancel)
        except BranchTaken:
            raise
        except GitError as e:
            _check(cancel)
            return branch, f"{e}. Its work stays on its host until it can be pushed"
        return branch, ""

    def begin(self, member: Member, cancel: CancelScope | None) -> str:
        """Push what the lead is at as the branch of a new member. Returns why that is not possible; often nothing."""
        if self.remote is None:
            return ""
        try:
            self.remote.create(member.remote_branch, self._open_checkouts().main.commit("HEAD"), cancel)
        except BranchTaken:  # created by its host, because the lead took long
            return ""
        except GitError as e:
            return f"{e}. Its work stays on its host until it can be pushed"
        return ""

    def _name_of(self, member: Member) -> str:
        from teamcli.worktrees.shared_remote import branch_at_remote

        return branch_at_remote(member.name, member.incarnation, self._runtime.engine.team_name)

    # On the host that runs the member

    def follow(self, member: Member, cancel: CancelScope | None = None) -> str:
        """Bring the checkout of a member that other hosts may have run to what they have pushed. What only this host
        has is kept, if it has run the member last. Returns what to say.

        Raises: ToolError, StateError, Cancelled
        """
        checkouts = self._open_checkouts()
        keeps = member.runs_on == self._runtime.engine.host_name and checkouts.find(member.name) is not None
        try:
            commit = self._last_pushed(member, cancel)
            if commit and member.runs_on not in ("", self._runtime.engine.host_name):
                commit = self._shut_out(member, commit, cancel)
        except BranchTaken:
            raise
        except GitError as e:
            _check(cancel)
            if not keeps:
                raise
            self._warn(member.name, f"{member.name} works with what this host has: {e}.")
            return checkouts.prepare(member.name, cancel)
        if keeps and not commit:
            said = checkouts.prepare(member.name, cancel)
        else:
            said = checkouts.follow(member.name, commit or self._usual_start(cancel), keeps, cancel)
        try:
            self._push(member.name, cancel, is_trial=not keeps)
        except ToolError as e:
            _check(cancel)
            self._warn(member.name, f"{member.name} cannot share its commits: {e}.")
        return said

    def _last_pushed(self, member: Member, cancel: CancelScope | None) -> str:
        """The commit of its branch at the remote; empty if it has none yet.

        Raises: BranchTaken, GitError, StateError
        """
        if self.remote is None:
            return ""
        if member.remote_branch:
            return self.remote.fetch(member.remote_branch, cancel)
        branch = self._name_of(member)
        _refuse_taken(self.remote, branch, cancel)
        self._runtime.roster.update(member.name, remote_branch=branch)
        return ""

    def _shut_out(self, member: Member, commit: str, cancel: CancelScope | None) -> str:
        """Another host has run this member, may be frozen in the middle of a push, and may wake at any time. Put a
        commit on the branch that its push does not have: the remote refuses it then. Returns that commit.

        Raises: GitError, StateError
        """
        remote, branch, host = self.remote, member.remote_branch, self._runtime.engine.host_name
        assert remote is not None  # the commit was fetched from there
        message = f"{_mark_of(member.name)}{host}\n\nAfter this, '{member.runs_on}' can no longer push what it has."
        while True:
            mark = self._open_checkouts().add_empty_commit(member.name, commit, message)
            self._runtime.engine.check_lease(member.name)
            try:
                remote.push(branch, mark, cancel)
            except GitError:
                _check(cancel)
                earlier, commit = commit, remote.fetch(branch, cancel) or commit
                if commit not in (earlier, mark):
                    continue  # the other host was faster: its work counts
                return commit  # this host may not push, which is said below
            return mark

    def _usual_start(self, cancel: CancelScope | None) -> str:
        """Where a member begins that has no branch yet: the newest commit of the shared branch that is checked out
        here, or this directory's own.

        Raises: GitError
        """
        main = self._open_checkouts().main
        here = main.text("symbolic-ref", "--quiet", "--short", "HEAD", check=False)
        shared = self.remote.fetch(here, cancel) if self.remote and here else ""
        return shared or main.commit("HEAD")

    def catch_up(self, member: str, cancel: CancelScope) -> str:
        """Before a piece of work of a member that this host runs: the lead may have merged its branch, and pushed it.
        Returns what to say; often nothing.

        Raises: ToolError, StateError, Cancelled
        """
        branch = self._runtime.roster.get(member).remote_branch
        if self.remote is None or not branch:
            return ""
        try:
            commit = self.remote.fetch(branch, cancel)
        except GitError as e:
            _check(cancel)
            self._warn(member, f"{member} works with what this host has: {e}.")
            return ""
        self._warned.pop(member, None)
        said = self._open_checkouts().follow(member, commit, True, cancel) if commit else ""
        return f"{member} works {said}." if said else ""

    def share(self, member: str, cancel: CancelScope | None = None) -> str:
        """Push the branch of a member. Returns what to say about it."""
        branch = self._runtime.roster.get(member).remote_branch
        try:
            if self.remote is not None:
                self._open_checkouts().commit_all(member)
            self._push(member, cancel)
        except (ToolError, StateError, Cancelled) as e:
            return f"not pushed: {e}"
        return "pushed" if branch == f"team/{member}" else f"pushed as {branch}"

    def _push(self, member: str, cancel: CancelScope | None, is_trial: bool = False) -> None:
        """A trial shows whether this host may push, also if there is nothing new.

        Raises: ToolError, StateError
        """
        if self.remote is None:
            raise GitError(self.why_not)
        checkouts, branch = self._open_checkouts(), self._runtime.roster.get(member).remote_branch
        tip, there = checkouts.bring(member), self.remote.fetch(branch, cancel)
        if not there:
            self._runtime.engine.check_lease(member)
            self.remote.create(branch, tip, cancel)
            return
        if not checkouts.main.succeeds("merge-base", "--is-ancestor", there, tip):
            # The lead has pushed a merge, or a host has pushed that ran the member before.
            if not checkouts.join(member, there):
                raise GitError(f"{branch} at '{self.remote.name}' is in conflict with the work here")
            tip = checkouts.bring(member)
        if tip != there or is_trial:
            # After the fetch: a host that was replaced has not merged what the next one has put there.
            self._runtime.engine.check_lease(member)
            self.remote.push(branch, tip, cancel)

    def _warn(self, member: str, text: str) -> None:
        """Tell the user once, until something else is wrong."""
        if self._warned.get(member) != text:
            self._warned[member] = text
            self._runtime.events(Notice(LEAD, text, Severity.WARNING))  # the text names the member

    # The end

    def end(self, member: Member) -> tuple[str, str]:
        """The member is gone: delete a branch at the remote that is merged. Returns the commit that it was at, and what
        to say; often nothing."""
        branch, remote, pushed = member.remote_branch, self.remote, ""
        if not branch or remote is None:
            return "", ""
        try:
            if not (pushed := remote.fetch(branch)):
                return "", ""
            if not self._is_merged(pushed, member):
                return pushed, f"Kept {branch} at '{remote.name}': not merged."
            remote.delete(branch, pushed)
        except GitError as e:
            return pushed, f"Kept {branch} at '{remote.name}': {e}."
        return pushed, f"Removed {branch} at '{remote.name}': everything is merged."

    def _is_merged(self, commit: str, member: Member) -> bool:
        """Whether the lead has merged it, or this host has everything that is in it anyway."""
        main = self._open_checkouts().main
        while self._is_mark(member.name, commit):
            commit = main.commit(f"{commit}^")
        known = [each for each in (member.merged_commit, main.commit("HEAD")) if each and main.commit(each)]
        return any(main.succeeds("merge-base", "--is-ancestor", commit, each) for each in known)

    def _is_mark(self, member: str, commit: str) -> bool:
        """Whether it only says that another host has taken the member over."""
        main = self._open_checkouts().main
        is_named_so = main.text("log", "-1", "--format=%s", commit).startswith(_mark_of(member))
        before = main.commit(f"{commit}^") if is_named_so else ""
        return bool(before) and main.succeeds("diff-tree", "--quiet", before, commit)

    def discard(self, member: Member) -> str:
        """Delete a branch at the remote, whatever is in it. Returns what to say; often nothing.

        Raises: GitError
        """
        branch, remote = member.remote_branch, self.remote
        if not branch or remote is None or not (pushed := remote.fetch(branch)):
            return ""
        remote.delete(branch, pushed)
        return f"Removed {branch} at '{remote.name}'."


def _refuse_taken(remote: SharedRemote, branch: str, cancel: CancelScope | None) -> None:
    """Before a branch is known as a member's: then one of that name is not its own.

    Raises: BranchTaken, GitError
    """
    if remote.tips(branch, cancel=cancel):
        raise BranchTaken(
            f"'{remote.name}' has a branch {branch}, of an earlier member or of another team: use another name,"
            f" or save what you need of it and delete it (git push {remote.name} --delete {branch})"
        )


def _mark_of(member: str) -> str:
    """How the subject of a commit begins that shuts out the earlier host; the name of the next one follows."""
    return f"{member} continues on "


def _check(cancel: CancelScope | None) -> None:
    """A git that was stopped fails."""
    if cancel is not None:
        cancel.check()
