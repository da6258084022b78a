"""Builds what merges the work of members: for a session, and for `teamcli merge` from another shell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from teamcli.agent.events import Notice, Severity
from teamcli.app.choices import find_hook_files, read_settings
from teamcli.app.command_hosts import open_host, open_member_host
from teamcli.app.runtime import Runtime
from teamcli.app.workplaces import Workplaces
from teamcli.cancel import CancelScope
from teamcli.config.project import inspect_project
from teamcli.errors import GitError, MergeBlocked, MergeRefused, UnknownTeammate, UsageError
from teamcli.exec.command_host import CommandHost
from teamcli.session.timeline import Timeline
from teamcli.storage.append_log import AppendLog
from teamcli.storage.team_dir import TeamDir, lock_holder
from teamcli.team.message import LEAD, WAITED, Message, find_name
from teamcli.team.message_bus import FileBus
from teamcli.team.outbox import Outbox
from teamcli.team.roster_file import Member, Status, read_team
from teamcli.team.running_agents import RunningAgents
from teamcli.team.signing import load_key
from teamcli.workspace.bounds import Workspace

if TYPE_CHECKING:
    from teamcli.team.merging import Merging


def open_merging(runtime: Runtime, agents: RunningAgents, outbox: Outbox, places: Workplaces) -> Merging:
    """For the members of a session. Called when the first merge is wanted, so it loads what that needs."""
    from teamcli.team.merging import Merging
    from teamcli.worktrees.merge import Merger

    def find(name: str) -> Member:
        member = runtime.roster.get(name)
        if running := agents.find(member.name):
            running.wait_until_reported()  # who has read its result finds it idle
        return runtime.roster.get(member.name)

    gate = runtime.choices.settings.worktree.gate or ""
    is_trusted = not runtime.project.has_pending_setting("worktree", "gate")
    merger = Merger(places.open(), runtime.state, gate, places.shared.hook_files, is_trusted)
    travel = None if not runtime.engine.host_name else Travel(runtime, places)
    return Merging(merger, find, outbox.post, runtime.events, travel)


class Travel:
    """A `TravelPort`: the work of members that other hosts run comes and goes by the shared remote."""

    def __init__(self, runtime: Runtime, places: Workplaces) -> None:
        self._runtime = runtime
        self._places = places

    def fetch(self, member: Member, cancel: CancelScope | None = None) -> None:
        if not member.host or self._runtime.engine.is_here(member):
            return
        remote = self._places.branches.remote
        if remote is None:
            raise MergeRefused(f"the work of '{member.name}' cannot be fetched: {self._places.branches.why_not}")
        commit = remote.fetch(member.remote_branch, cancel) if member.remote_branch else ""
        if commit:
            self._places.open().follow(member.name, commit, False, cancel)
        elif not member.merged_commit:  # else its branch was removed because everything is merged
            raise MergeRefused(f"'{member.name}' has pushed nothing yet")

    def send(self, member: Member, blocked: MergeBlocked | None) -> str:
        if not member.host or self._runtime.engine.is_here(member):
            return blocked.advice if blocked else ""
        remote, checkouts = self._places.branches.remote, self._places.open()
        assert remote is not None  # the work was fetched from there
        tip = checkouts.main.commit(f"refs/heads/team/{member.name}")
        if blocked is None:
            self._runtime.roster.update(member.name, merged_commit=tip)
            try:
                remote.withdraw(member.remote_branch)
                if member.is_active:
                    remote.push(member.remote_branch, tip)
                else:
                    self._places.branches.end(self._runtime.roster.get(member.name))
            except GitError as e:  # what it pushes next is merged with this
                warning = f"The merge of {member.name} is done here, and not pushed to {member.remote_branch}: {e}."
                self._runtime.events(Notice(LEAD, warning, Severity.WARNING))
            return ""
        checkouts.git(member.name).run("reset", "--hard", "--quiet", tip)
        target = checkouts.main.commit("HEAD")
        remote.publish(member.remote_branch, target)
        merging = f"Merge {target} into your branch with `git merge {target}`, resolve what is in conflict, and commit."
        return f"Your work was not merged: {blocked}. {merging}"


@contextmanager
def merging_from_outside(directory: Path) -> Iterator[Merging]:
    """For the team of a directory, whether it is running or not.

    Raises: ConfigError, UsageError
    """
    from teamcli.team.merging import Merging
    from teamcli.worktrees.checkouts import Checkouts
    from teamcli.worktrees.git import Git
    from teamcli.worktrees.merge import Merger

    project, state = inspect_project(directory), TeamDir.of(directory)
    if project.offers:  # a gate might be among it, and no work must get past it
        raise UsageError(f"this directory is not trusted ({project.offers[0]}): start teamcli here, and agree first")
    settings, workspace = read_settings(project), Workspace(project.directory)
    root = workspace.root
    with ExitStack() as resources:
        host = open_host(settings, workspace, project)
        resources.callback(host.close)

        def open_member(checkout: Path, variables: Mapping[str, str]) -> CommandHost:
            return open_member_host(settings, root, project, host.programs, checkout, variables)

        checkouts = Checkouts(Git(host, root), state.worktrees.resolve(), open_member)
        resources.callback(checkouts.hosts.close_all)
        bus = FileBus(state.inbox, load_key(project.home))
        resources.callback(bus.close)
        timeline = Timeline(AppendLog(state.events, durable=False), lambda text: None)
        resources.callback(timeline.close)

        def post(message: Message) -> None:
            bus.send(message if lock_holder(state.lock) else message._replace(fields={WAITED: True}))

        merger = Merger(checkouts, state, settings.worktree.gate or "", find_hook_files(settings, root))
        yield Merging(merger, lambda name: _member(state, name), post, timeline)


def _member(state: TeamDir, name: str) -> Member:
    """Raises: UnknownTeammate, StateError"""
    members = {member.name: member for member in read_team(state.config).members}
    if (found := find_name(name, members)) is None:
        raise UnknownTeammate(f"there is no teammate '{name}'; there are: {', '.join(members) or 'none'}")
    member = members[found]
    if lock_holder(state.lock) is None and member.is_active:  # one that worked was killed with the program
        return member._replace(status=Status.IDLE)
    return member
