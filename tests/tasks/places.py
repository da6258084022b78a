"""Opens the tasks of a test in another process. Loads little, because each process pays for it."""

from __future__ import annotations

from pathlib import Path

from teamcli.tasks.storage import TaskStorage


def open_storage(place: str) -> TaskStorage:
    """For a process that may write for everyone, if there are leases."""
    if not place.startswith("postgresql:"):
        from teamcli.tasks.task_files import TaskFiles

        return TaskFiles(Path(place))
    from teamcli.cancel import CancelScope
    from teamcli.store.postgres.database import Database
    from teamcli.store.postgres.newest import Newest
    from teamcli.store.postgres.tasks import TaskRows
    from teamcli.store.postgres.team_rows import Fence, Team

    url, id, uid, epoch = place.split()
    team = Team(Database(url, CancelScope()), int(id), uid, b"the key of the team, for tests. ")
    fence = Fence(team)
    fence.hold("lead", int(epoch))
    return TaskRows(team, fence, Newest())
