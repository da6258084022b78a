"""What the team needs of a task board. Files hold it by default; another engine can implement the same protocol."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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

    @property
    def is_free(self) -> bool:
        """Whether nobody has it. It may still be blocked."""
        return self.status is TaskStatus.PENDING and self.owner is None

    @property
    def is_in_progress(self) -> bool:
        return self.status is TaskStatus.IN_PROGRESS


class TaskChange(NamedTuple):
    """What an update asks for; None for what stays."""

    status: TaskStatus | None = None
    owner: str | None = None
    """An empty name takes the owner away."""
    subject: str | None = None
    description: str | None = None
    blocked_by: tuple[int, ...] | None = None
    result: str | None = None


class BoardChange(NamedTuple):
    """What has changed, for those who act on it."""

    actor: str
    before: Task | None
    """None for a new task."""
    after: Task
    is_outside: bool = False
    """Another process made the change, and has put it on the timeline."""
    is_deleted: bool = False
    """Its file is gone; `after` is the task as it was."""

    @property
    def what(self) -> str:
        """One word for people, as in `TaskChanged`."""
        before, after = self.before, self.after
        if before is None or self.is_deleted:
            return "deleted" if self.is_deleted else "created"
        if before.status is not after.status and after.status.is_over:
            return str(after.status)
        if before.status.is_over and not after.status.is_over:
            return "reopened"
        if before.owner != after.owner:
            return "released" if after.owner is None else "claimed" if after.owner == self.actor else "assigned"
        return "started" if before.status is not after.status else "changed"


class GateEvent(StrEnum):
    """What a gate can refuse. The values are the names of the hooks."""

    CREATED = "TaskCreated"
    COMPLETED = "TaskCompleted"


Gate = Callable[[GateEvent, Task, str], str]
"""Takes the task as it would be and who asks; returns why not, or an empty text. Called without the board's lock."""
OnChange = Callable[[BoardChange], None]
"""Called after each change, in the thread that made it, without the board's lock."""


class Board(Protocol):
    """Every change is one compare-and-set: it is checked and made under one lock, by any number of processes.

    `actor` is who asks: an agent's name, or `user`. All changes raise TaskError, with the reason, and StateError.
    """

    def tasks(self) -> Sequence[Task]:
        """All, by number.

        Raises: StateError
        """

    def ready(self) -> Sequence[Task]:
        """The pending ones that are not blocked, by number.

        Raises: StateError
        """

    def get(self, id: int) -> Task:
        """Raises: TaskError, StateError"""

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
        """Claim the lowest free task that is not blocked and not in `but`; None if there is none."""

    def start(self, task: Task) -> bool:
        """Its owner has read about it: it is in progress, if it is still assigned as in `task`. Whether it is."""

    def release(self, owner: str, id: int | None = None) -> Sequence[Task]:
        """Put the unfinished tasks of an owner, or only this one, back to pending; never those of a new owner."""
