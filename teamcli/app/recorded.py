"""What a member on another host has recorded, for someone who watches it. Nothing is read while nobody does."""

from __future__ import annotations

from teamcli.agent.events import Event
from teamcli.session.follower import Follower
from teamcli.session.watch_source import recorded
from teamcli.session.watching import AgentSnapshot
from teamcli.storage.team_dir import TeamDir
from teamcli.store.mirror import Mirror
from teamcli.store.postgres.team_rows import Team


class RecordedElsewhere:
    """Each look brings what is new into a temporary directory. For one thread."""

    def __init__(self, team: Team, agent: str) -> None:
        self._agent = agent
        self._follower = Follower(agent)
        self._directory = TeamDir.temporary()
        self._mirror = Mirror(team, self._directory)

    def begin(self) -> AgentSnapshot:
        """Raises: StateError"""
        snapshot = self._look()
        self._follower.begin([snapshot])  # those are shown
        return snapshot

    def new_steps(self) -> list[Event]:
        """Raises: StateError"""
        return self._follower.begin([self._look()])

    def _look(self) -> AgentSnapshot:
        self._mirror.bring_roster()
        self._mirror.bring_transcripts([self._agent])
        return next(recorded(self._directory, self._agent))

    def close(self) -> None:
        self._directory.discard()
