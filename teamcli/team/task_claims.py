"""Which tasks one member takes from the board by itself."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Protocol

from teamcli.agent.conversation import text_block
from teamcli.llm.types import Block
from teamcli.team.message import USER, frame
from teamcli.team.task_message import task_message
from teamcli.text.escaping import one_line

if TYPE_CHECKING:
    from teamcli.tasks.board import Task

MOST_NAMED, SUBJECT_LENGTH = 5, 80


class BoardPort(Protocol):
    def held(self, name: str) -> Sequence[Task]:
        """The member's tasks in progress."""

    def is_from_before(self, task: Task) -> bool:
        """Whether it was in progress when the program started."""

    def offers(self, name: str, given: Collection[int]) -> bool:
        """Whether there is a task for an idle member that was given these before. Cheap."""

    def take(self, name: str, given: frozenset[int]) -> Task | None:
        """The member's own unfinished task, or else a free one, which it claims; None if others were faster.

        Raises: StateError
        """

    def give_back(self, name: str, task: Task) -> None:
        """The member could not begin with a task: it is free again."""


class TaskClaims:
    """What a member was given in this run. Nothing is given to it twice, so that it cannot loop over the board."""

    def __init__(self, name: str, tasks: BoardPort) -> None:
        self._name = name
        self._tasks = tasks
        self._given: frozenset[int] = frozenset()
        self._has_failed = False
        self._taken: Task | None = None
        """A task that is not in its conversation yet."""
        self._handed_over: Task | None = None

    @property
    def has_taken(self) -> bool:
        return self._taken is not None

    @property
    def would_take(self) -> bool:
        """Whether there is a task for it. After a failure there is none until someone writes to it or resumes it."""
        return not self._has_failed and self._tasks.offers(self._name, self._given)

    def take(self) -> None:
        """Raises: StateError, which counts as a failure."""
        self._has_failed = True
        self._taken = self._tasks.take(self._name, self._given)
        self._has_failed = False
        self._given |= {self._taken.id} if self._taken else set()

    def hand_over(self) -> tuple[list[Block], bool]:
        """The task that was taken, for the conversation, and whether the user created it (true without a task)."""
        self._handed_over = task = self._taken
        self._taken = None
        if task is None:
            return [], True
        return [text_block(frame(task_message(task)))], task.created_by == USER

    def give_back(self) -> None:
        """What was handed over has not reached its conversation."""
        if task := self._handed_over:
            self._given -= {task.id}
            self._tasks.give_back(self._name, task)

    def allow(self) -> None:
        """Someone has written to it or resumed it."""
        self._has_failed = False

    def work_ended(self, is_done: bool) -> str:
        """Returns a line for the report about tasks that are still in progress; often nothing."""
        unfinished = self._tasks.held(self._name)
        # A crash may have come between the claim and the conversation: a task from before is given once, in any case.
        self._given |= {task.id for task in unfinished if not self._tasks.is_from_before(task)}
        self._has_failed = not is_done
        named = "; ".join(f"{task.id} ({one_line(task.subject, SUBJECT_LENGTH)})" for task in unfinished[:MOST_NAMED])
        more = f" and {left} more" if (left := len(unfinished) - MOST_NAMED) > 0 else ""
        return f"Still in progress: task {named}{more}" if unfinished else ""
