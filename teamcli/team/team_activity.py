"""Who works right now. Looking needs no lock here: what moves between two looks is noticed."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from teamcli.team.message import LEAD
from teamcli.team.running_agents import RunningAgents


class BackgroundWork(Protocol):
    def running_detached(self) -> list[str]:
        """The background sub-agents that are running."""


class TeamActivity:
    def __init__(self, agents: RunningAgents, background: BackgroundWork) -> None:
        self._agents = agents
        self._background = background

    @property
    def are_teammates_working(self) -> bool:
        """Whether a teammate is not idle."""
        return any(not mate.is_idle for mate in self._agents.all_teammates) or not self._agents.is_current

    @property
    def is_any_in_turn(self) -> bool:
        """Whether anyone in this process works."""
        agents = [*self._agents.teammates, *([self._agents.lead] if self._agents.lead else [])]
        return bool(self._background.running_detached()) or any(agent.is_in_turn for agent in agents)

    def busy(self, waiting: Collection[str]) -> list[str]:
        """Who works or has mail to act on, the lead last, apart from those that wait for a message."""
        names = [mate.name for mate in self._agents.all_teammates if not mate.is_idle and mate.name not in waiting]
        lead = [] if LEAD in waiting or self._is_lead_idle() else [LEAD]
        return [*names, *self._background.running_detached(), *lead]

    def are_idle_except(self, waiting: Collection[str]) -> bool:
        """Whether everyone is idle, apart from those that wait for a message."""
        # Agents are looked at one after the other. One that was idle may get work from another that is idle a moment
        # later. If nobody has begun a turn since, a second look sees all the work that they gave each other.
        begun = self._turns_begun()
        return (
            self._look_idle(waiting)
            and self._agents.is_current  # if not, what is missing arrives in a moment
            and self._look_idle(waiting)
            and self._turns_begun() == begun
        )

    def _look_idle(self, waiting: Collection[str]) -> bool:
        # Background work first: if it ends now, its parent already has the report and is not idle.
        return (
            not self._background.running_detached()
            and (LEAD in waiting or self._is_lead_idle())
            # First without reading any inbox: while someone works, as is usual, the others do not matter.
            and not any(mate.is_in_turn and mate.name not in waiting for mate in self._agents.all_teammates)
            and all(mate.name in waiting or mate.is_idle for mate in self._agents.all_teammates)
        )

    def _turns_begun(self) -> int:
        lead = self._agents.lead
        return sum(mate.turns_begun for mate in self._agents.all_teammates) + (lead.turns_begun if lead else 0)

    def _is_lead_idle(self) -> bool:
        return self._agents.lead is None or self._agents.lead.is_idle
