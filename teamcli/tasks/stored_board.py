"""The board over its storage, usually the files `.team/tasks/N.json`.

Every change is checked and made under one lock, so that of two agents, threads or processes only one can succeed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from teamcli.errors import TaskError
from teamcli.storage.files import Json
from teamcli.tasks.board import BoardChange, Gate, GateEvent, OnChange, Task, TaskChange, TaskStatus
from teamcli.tasks.rules import changed_task, claimed, find, new_task, open_blockers, released
from teamcli.tasks.storage import TaskStorage

T = TypeVar("T")


class StoredBoard:
    """A `Board`. Many threads can share one; each process has its own."""

    def __init__(
        self,
        storage: TaskStorage,
        names: Callable[[], Sequence[str]],
        on_change: OnChange = lambda change: None,
        gate: Gate = lambda event, task, actor: "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`names` are those who may own a task."""
        self._storage = storage
        self._names = names
        self._on_change = on_change
        self._gate = gate
        self._clock = clock
        self._seen: dict[int, Task] = {}
        """What was reported to `on_change`."""
        self._written: dict[int, Task] = {}
        """By the change that is being made."""

    def tasks(self) -> Sequence[Task]:
        return tuple(stored.task for stored in self._storage.all())

    def ready(self) -> Sequence[Task]:
        tasks = {task.id: task for task in self.tasks()}
        pending = (task for task in tasks.values() if task.status is TaskStatus.PENDING)
        return [task for task in pending if not open_blockers(tasks, task)]

    def get(self, id: int) -> Task:
        return find(self._storage, id)

    def documents(self) -> list[Json]:
        """The documents that are stored, by number.

        Raises: StateError
        """
        return [stored.to_json() for stored in self._storage.all()]

    def create(
        self,
        actor: str,
        subject: str,
        description: str = "",
        blocked_by: Sequence[int] = (),
        owner: str | None = None,
    ) -> Task:
        names, now = self._names(), self._clock()
        draft = Task(0, subject, description, TaskStatus.PENDING, owner, tuple(blocked_by), actor, now, now)
        new_task(self._storage, actor, draft, names)  # what the rules refuse takes no number
        draft = draft._replace(id=self._storage.change(actor, self._storage.next_id))
        try:
            self._pass_gate(GateEvent.CREATED, new_task(self._storage, actor, draft, names), actor)
        except BaseException:  # also Cancelled: the task was not created
            self._storage.change(actor, lambda: self._storage.give_back(draft.id))
            raise
        task = self._make(actor, lambda: self._write(new_task(self._storage, actor, draft, names)))
        return self._report(BoardChange(actor, None, task))

    def update(self, actor: str, id: int, change: TaskChange) -> Task:
        names = self._names()
        before, task = self._change(actor, id, change, names, may_complete=False)
        if _completes(before, task):
            self._pass_gate(GateEvent.COMPLETED, task, actor)
            before, task = self._change(actor, id, change, names, may_complete=True)
        return self._report(BoardChange(actor, before, task)) if task != before else task

    def claim_next(self, owner: str, but: frozenset[int] = frozenset()) -> Task | None:
        if not self._storage.may_have_free():
            return None
        change = self._make(owner, lambda: self._claim(owner, but))
        return self._report(change) if change is not None else None

    def start(self, task: Task) -> bool:
        change = self._make(str(task.owner), lambda: self._start(task))
        if change is not None:
            self._report(change)
        return change is not None

    def release(self, owner: str, id: int | None = None) -> Sequence[Task]:
        if not self._storage.exists:
            return ()
        return tuple(map(self._report, self._make(owner, lambda: self._release(owner, id))))

    def notice(self) -> None:
        """Another process says that it has changed something: the next look must not be skipped."""
        self._storage.notice()

    def look(self, is_first: bool = False) -> None:
        """Report what other processes have changed since the last look. The first look reports nothing.

        Raises: StateError
        """
        if not self._storage.has_news():
            return
        with self._storage.held():  # what is written here is not another process's change
            now = {task.id: task for task in self.tasks()}
            before, self._seen = self._seen, now
        for id, task in now.items() if not is_first else ():
            if before.get(id) != task:
                self._on_change(BoardChange(self._storage.outsider, before.get(id), task, is_outside=True))
        # If the whole directory is gone, the tasks are written again.
        for task in [before[id] for id in before.keys() - now.keys()] if self._storage.exists else ():
            self._on_change(BoardChange(self._storage.outsider, task, task, is_outside=True, is_deleted=True))

    def put_back(self) -> None:
        """Write the tasks again if they were deleted as a whole.

        Raises: StateError
        """
        self._storage.put_back()

    def _change(
        self, actor: str, id: int, change: TaskChange, names: Sequence[str], may_complete: bool
    ) -> tuple[Task, Task]:
        """The task before and after. One that completes is only written if it may."""

        def act() -> tuple[Task, Task]:
            before = find(self._storage, id)
            task = changed_task(self._storage, actor, id, change, names)
            if task != before and (may_complete or not _completes(before, task)):
                task = self._write(task._replace(updated=self._clock()))
            return before, task

        return self._make(actor, act)

    def _claim(self, owner: str, but: frozenset[int]) -> BoardChange | None:
        skipped = 0
        for before in self._storage.free():
            if before.id not in but and not open_blockers(self._storage, before):
                break
            skipped = skipped or before.id
        else:
            return None
        task = self._write(claimed(self._storage, before, owner)._replace(updated=self._clock()))
        self._storage.none_free_below(skipped or task.id + 1)
        return BoardChange(owner, before, task)

    def _start(self, task: Task) -> BoardChange | None:
        before = self._storage.get(task.id)
        if before is None or before.status is not TaskStatus.PENDING or _assignment(before) != _assignment(task):
            return None
        started = self._write(before._replace(status=TaskStatus.IN_PROGRESS, updated=self._clock()))
        return BoardChange(str(task.owner), before, started)

    def _release(self, owner: str, id: int | None) -> list[BoardChange]:
        held = [
            task for task in self.tasks() if task.owner == owner and not task.status.is_over and id in (None, task.id)
        ]
        return [BoardChange(owner, task, self._write(released(task)._replace(updated=self._clock()))) for task in held]

    def _make(self, actor: str, act: Callable[[], T]) -> T:
        def anew() -> T:
            self._written.clear()
            result = act()
            self._seen.update(self._written)  # here, or a look might take it for another process's change
            return result

        return self._storage.change(actor, anew)

    def _write(self, task: Task) -> Task:
        self._storage.write(task)
        self._written[task.id] = task
        return task

    def _pass_gate(self, event: GateEvent, task: Task, actor: str) -> None:
        if refusal := self._gate(event, task, actor):
            raise TaskError(refusal)

    def _report(self, change: BoardChange) -> Task:
        self._on_change(change)
        return change.after


def _completes(before: Task, after: Task) -> bool:
    return after.status is TaskStatus.COMPLETED and before.status is not TaskStatus.COMPLETED


def _assignment(task: Task) -> tuple[str | None, int, float]:
    return task.owner, task.assigned, task.created
