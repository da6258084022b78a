"""The sub-agents of the program, loaded when the first is wanted."""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import TYPE_CHECKING

from teamcli.team.manager import TeammateManager
from teamcli.team.message import LEAD

if TYPE_CHECKING:
    from teamcli.app.agent_factory import AgentFactory
    from teamcli.subagents.manager import SubAgentManager


class LazySubAgents:
    """All sub-agents of the program. What they need is loaded when the first is wanted."""

    def __init__(self, factory: AgentFactory) -> None:
        self._factory = factory
        self._manager: SubAgentManager | None = None
        self._lock = threading.Lock()

    @property
    def existing(self) -> SubAgentManager | None:
        return self._manager

    def open(self, team: TeammateManager) -> SubAgentManager:
        with self._lock:
            if self._manager is None:
                from teamcli.app.subagent_factory import open_subagents

                self._manager = open_subagents(self._factory, team)
        return self._manager

    def report_lost(self, team: TeammateManager) -> None:
        runtime = self._factory.runtime
        if runtime.state.subagents.exists():
            self.open(team).report_lost()
        here = [member.name for member in runtime.roster.members() if runtime.engine.is_here(member)]
        self.report_left(team, [*([LEAD] if team.agents.lead else []), *here])

    def report_left(self, team: TeammateManager, parents: Collection[str]) -> None:
        """Report to agents that run here now the background sub-agents that an earlier host of theirs had.

        Raises: StateError
        """
        if (shared := self._factory.runtime.engine.shared_ledger()) is not None:
            shared.take_left(parents, lambda rows: self.open(team).report_left(rows) if rows else None)

    def parent_of(self, agent: str) -> str:
        """Who started a sub-agent; the name itself for any other agent."""
        return self._manager.parent_of(agent) if self._manager else agent

    def type_of(self, agent: str) -> str:
        """What a sub-agent is, for hooks; empty for any other agent."""
        return self._manager.type_of(agent) if self._manager else ""

    def running_detached(self) -> list[str]:
        return self._manager.running_detached() if self._manager else []
