"""The task board of a session, as the host program uses it: as the user, with the user's rights."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from teamcli.errors import UsageError
from teamcli.tasks.board import Board, Task, TaskChange, TaskStatus
from teamcli.team.message import USER


class Tasks:
    """All tasks, by number. Refusals are TeamErrors that say why."""

    def __init__(self, board: Board, check_in_use: Callable[[], object]) -> None:
        """`check_in_use` raises once the session is closed."""
        self._board = board
        self._check_in_use = check_in_use

    def list(self) -> tuple[Task, ...]:
        """All tasks, by number.

        Raises: StateError
        """
        return tuple(self._board.tasks())

    def get(self, id: int) -> Task:
        """Raises: TeamError, if there is no such task."""
        return self._board.get(id)

    def create(
        self, subject: str, description: str = "", *, blocked_by: Iterable[int] = (), owner: str | None = None
    ) -> Task:
        """Add a task. An owner gets it as a message.

        Raises: TeamError, StateError
        """
        self._check_in_use()
        return self._board.create(USER, subject, description, tuple(blocked_by), owner or None)

    def update(
        self,
        id: int,
        *,
        status: TaskStatus | str | None = None,
        owner: str | None = None,
        subject: str | None = None,
        description: str | None = None,
        blocked_by: Iterable[int] | None = None,
        result: str | None = None,
    ) -> Task:
        """Change what is given. An empty owner takes the task away from its owner.

        Raises: TeamError; UsageError, for a status that does not exist; StateError
        """
        self._check_in_use()
        blockers = None if blocked_by is None else tuple(blocked_by)
        change = TaskChange(_as_status(status), owner, subject, description, blockers, result)
        return self._board.update(USER, id, change)


def _as_status(status: TaskStatus | str | None) -> TaskStatus | None:
    try:
        return None if status is None else TaskStatus(status)
    except ValueError as e:
        known = ", ".join(TaskStatus)
        raise UsageError(f"there is no status '{status}' for a task (there are: {known})") from e
