"""What hooks learn from a session, and do to it. Called only while it runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from teamcli.app.command_reports import report_hook
from teamcli.session.live_policy import LivePolicy
from teamcli.storage.team_dir import TeamDir
from teamcli.team.message import LEAD, is_subagent
from teamcli.team.outbox import Outbox
from teamcli.team.roster import Roster
from teamcli.team.running_agents import RunningAgents

if TYPE_CHECKING:
    from teamcli.app.agent_factory import AgentFactory
    from teamcli.llm.types import Message


class SessionForHooks:
    def __init__(
        self,
        dir: TeamDir,
        roster: Roster,
        agents: RunningAgents,
        outbox: Outbox,
        live_policy: LivePolicy,
        factory: Callable[[], AgentFactory],
        session_id: Callable[[], str],
    ) -> None:
        """`session_id` returns that of the lead's conversation; empty until there is one."""
        self._dir = dir
        self._roster = roster
        self._agents = agents
        self._outbox = outbox
        self._live_policy = live_policy
        self._factory = factory
        self.session_id = session_id

    def facts(self, agent: str) -> dict[str, Any]:
        """The fields that every event of an agent has."""
        transcripts = self._dir.subagent_transcripts if is_subagent(agent) else self._dir.transcripts
        return {
            "session_id": self.session_id(),
            "transcript_path": str(transcripts / f"{agent}.jsonl"),
            "cwd": str(self.root_of(agent)),
            "permission_mode": str(self._live_policy.policy.mode),
            **self._identity(agent),
        }

    def _identity(self, agent: str) -> dict[str, str]:
        """Who an agent is that is not the lead."""
        if agent == LEAD:
            return {}
        member = self._roster.find(agent)
        if member is None:
            return {"agent_id": agent, "agent_type": self._factory().subagents.type_of(agent)}
        names = {"teammate_name": agent, "team_name": self._roster.team_name}
        return {"agent_id": agent, "agent_type": member.role, **names}

    def root_of(self, agent: str) -> Path:
        factory = self._factory()
        return factory.places.root_of(factory.subagents.parent_of(agent))

    def messages_of(self, agent: str) -> tuple[Message, ...]:
        thread = self._agents.get(agent)
        return tuple(thread.agent.conversation.messages) if thread else ()

    def wake(self, agent: str, text: str) -> bool:
        """Send a hook's text to an agent; false if it cannot get one."""
        return report_hook(self._agents, self._outbox, agent, text)
