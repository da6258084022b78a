"""What the team needs of a task board. Files hold it by default; another engine can implement the same protocol."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol


class TaskStatus(StrEnum):
    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    CANCELLED = "cancelled"

    @property
    def is_over(self) -> bool:
        return self in (TaskStatus.COMPLETED, TaskStatus.CANCELLED)


class Task(NamedTuple):
    id: int
    subject: str
    description: str = ""
    status: TaskStatus = TaskStatus.PENDING
    owner: str | None = None
    blocked_by: tuple[int, ...] = ()
    created_by: str = ""
    created: float = 0.0
    updated: float = 0.0
    result: str = ""
    assigned: int = 0
    """How often it was given to someone. The message about an assignment has its id from this, so none is repeated."""


class TaskChange(NamedTuple):
    """What an update asks for; None for what stays."""

    status: TaskStatus | None = None
    owner: str | None = None
    """An empty name takes the owner away."""
    subject: str | None = None
    description: str | None = None
    blocked_by: tuple[int, ...] | None = None
    result: str | None = None


class Board(Protocol):
    """Every change is one compare-and-set: it is checked and made under one lock, by any number of processes.

    `actor` is who asks: an agent's name, or `user`. All changes raise TaskError, with the reason, and StateError.
    """

    def tasks(self) -> Sequence[Task]:
        """All, by number."""

    def get(self, id: int) -> Task:
        """Raises: TaskError"""

    def create(
        self,
        actor: str,
        subject: str,
        description: str = "",
        blocked_by: Sequence[int] = (),
        owner: str | None = None,
    ) -> Task: ...

    def update(self, actor: str, id: int, change: TaskChange) -> Task: ...

    def claim_next(self, owner: str, but: frozenset[int] = frozenset()) -> Task | None:
        """Claim the lowest free task that is not in `but`; None if there is none."""

    def release(self, owner: str) -> Sequence[Task]:
        """Put the unfinished tasks of an owner that is gone back to pending. Never touches those of a new owner."""
