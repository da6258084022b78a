"""The team file in a session, and `teamcli up`. Its reader is loaded only if there is such a file."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from teamcli.app.engine import Engine
from teamcli.cancel import CancelScope
from teamcli.config.project import Project
from teamcli.config.roles import Role, load_roles, role_dirs
from teamcli.errors import ConfigError, TeamError, ToolError
from teamcli.team.bring_up import STANDING_TERMS
from teamcli.team.mailbox import Mailbox
from teamcli.team.message import check_name
from teamcli.team.message_bus import MessageBus
from teamcli.team.roster import Member, Roster
from teamcli.team.roster_file import TEAM_NAME
from teamcli.tools.catalog import TEAMMATE_TOOLS, ToolDefinition
from teamcli.workspace.bounds import Workspace

if TYPE_CHECKING:
    from teamcli.config.team_file import PlannedMember, Rule, TeamFile

CHANGING_TOOLS = ("bash", "write_file", "edit_file")


def load_team_file(
    project: Project, workspace: Workspace, own_tools: Sequence[ToolDefinition] = (), *rules: Rule
) -> TeamFile | None:
    """The project's team; None without a file that the user has agreed to.

    Raises: ConfigError
    """
    path = project.team.team_toml
    if not os.path.lexists(path):
        return None
    from teamcli.config.team_file import read_team_file

    known = [tool.name for tool in (*TEAMMATE_TOOLS, *own_tools)]
    own_rules = (_check_name, partial(_check_tools, known), partial(_check_claims, project))
    rules = (*own_rules, partial(_check_cwd, workspace), *rules)
    return read_team_file(path, project.directory, project.agreement, rules)


def _check_name(member: PlannedMember) -> None:
    try:
        check_name(member.name)
    except TeamError as e:
        raise TeamError(f"name: {e}") from e


def _check_tools(known: Sequence[str], member: PlannedMember) -> None:
    for name in member.tools or ():
        if name not in known:
            raise ConfigError(f"tools: a teammate has no tool {name!r:.80} (there are: {', '.join(known)})")


def _check_claims(project: Project, member: PlannedMember) -> None:
    if not member.claims:
        return
    roles = load_roles(role_dirs(project.directory, project.home, project.agreement.covers))
    if not can_change(member.tools, roles.match(member.role)):
        raise ConfigError("claims: its tools cannot change anything, so it cannot take tasks")


def can_change(tools: Sequence[str] | None, role: Role | None) -> bool:
    """Whether a member that was given these tools (None: those of its role) can do a task."""
    allowed = tools if tools is not None else role.tools if role else None
    denied = role.disallowed_tools if role else ()
    return any((allowed is None or name in allowed) and name not in denied for name in CHANGING_TOOLS)


def _check_cwd(workspace: Workspace, member: PlannedMember) -> None:
    try:
        is_there = workspace.resolve(member.cwd).is_dir()
    except ToolError as e:
        raise ConfigError(f"cwd: {e}") from e
    if not is_there:
        raise ConfigError(f"cwd: {member.cwd!r} is not a directory in the workspace")


class ProjectTeamFile:
    """The team file during one session."""

    def __init__(self, project: Project, file: TeamFile | None) -> None:
        self._project = project
        self._members = _by_name(file)

    def find(self, name: str) -> PlannedMember | None:
        return self._members.get(name.casefold())

    def save(self, team_name: str, members: Sequence[Member], replaces: bool) -> str:
        from teamcli.config.team_file import PlannedMember, TeamFile, save_team_file

        def planned(member: Member) -> PlannedMember:
            terms = {term: getattr(member, term) for term in STANDING_TERMS}
            return PlannedMember(member.name, budget_usd=member.budget.get("usd") or None, **terms)

        file = TeamFile("" if team_name == TEAM_NAME else team_name, tuple(map(planned, members)))
        saved = save_team_file(self._project.team.team_toml, self._project.agreement, file, replaces)
        self._members = _by_name(file)
        return saved


def _by_name(file: TeamFile | None) -> dict[str, PlannedMember]:
    return {member.name.casefold(): member for member in file.members} if file else {}


def begin_planned(engine: Engine, roster: Roster, bus: MessageBus, planned: PlannedMember) -> Mapping[str, Any]:
    """Give a member of the team file an empty conversation. Returns its incarnation, and where it works, if another
    host may run it."""
    placement, earlier = engine.placement(bus), roster.find(planned.name)
    incarnation = placement.next_incarnation(planned.name, earlier.incarnation if earlier else 0)
    if host := placement.choose("", planned.host):
        placement.begin(planned.name, incarnation, CancelScope())
        placement.release(planned.name)
        return {"incarnation": incarnation, "host": host, "worktree": True}
    start_over(engine, bus, planned.name, incarnation)
    return {"incarnation": incarnation}


def start_over(engine: Engine, bus: MessageBus, name: str, incarnation: int) -> None:
    """Give a member an empty conversation: an old one is archived, and old mail counts as read.

    Raises: StateError
    """
    engine.archive_log(name)
    log = engine.open_log(name, incarnation)
    try:
        log.append({"kind": "joined", "ts": time.time(), "marks": Mailbox(bus, name, {}).skip_all()})
    finally:
        log.close()
