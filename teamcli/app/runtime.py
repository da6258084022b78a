"""What all agents of a program share."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from teamcli.agent.budgets import Budgets
from teamcli.agent.hooks import Hooks
from teamcli.agent.permission_question import Ask
from teamcli.app.choices import Choices
from teamcli.app.engine import Engine
from teamcli.app.lazy_board import LazyBoard
from teamcli.app.lazy_mcp import LazyMcp
from teamcli.cancel import CancelScope
from teamcli.config.options import Options
from teamcli.config.project import Project
from teamcli.exec.command_host import CommandHost
from teamcli.exec.job_list import JobList
from teamcli.session.event_bus import EventBus
from teamcli.session.live_policy import LivePolicy
from teamcli.session.watching import Watching
from teamcli.storage.team_dir import TeamDir
from teamcli.team.message_bus import MessageBus
from teamcli.team.roster import Roster
from teamcli.workspace.changes import Changes


class Runtime(NamedTuple):
    choices: Choices
    options: Options
    project: Project
    state: TeamDir
    engine: Engine
    events: EventBus
    roster: Roster
    bus: MessageBus
    board: LazyBoard
    host: CommandHost
    jobs: JobList
    live_policy: LivePolicy
    budgets: Budgets
    ask: Ask
    hooks: Hooks
    changes: Changes
    watching: Watching
    cancel: CancelScope
    mcp: LazyMcp
    prelude: Callable[[], str] = str
    """Returns what runs before each command of an agent."""

    @property
    def has_team(self) -> bool:
        return not self.state.is_private
