"""What members on other hosts have recorded, for someone who watches one. Nothing is read while nobody does."""

from __future__ import annotations

from teamcli.session.watch_source import recorded
from teamcli.session.watching import Snapshot
from teamcli.storage.team_dir import TeamDir
from teamcli.store.mirror import Mirror
from teamcli.store.postgres.team_rows import Team


class RecordedElsewhere:
    """Each look brings what is new into a temporary directory. For one thread."""

    def __init__(self, team: Team) -> None:
        self._directory = TeamDir.temporary()
        self._mirror = Mirror(team, self._directory)

    def look(self, agent: str) -> Snapshot:
        """Raises: StateError"""
        self._mirror.bring_roster()
        self._mirror.bring_transcripts([agent])
        return next(recorded(self._directory, agent))

    def close(self) -> None:
        self._directory.discard()
