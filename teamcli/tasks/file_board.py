"""The board as files: `.team/tasks/N.json`, one per task.

Every change is checked and made under one lock, so that of two agents, threads or processes only one can succeed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from teamcli.errors import TaskError
from teamcli.storage.files import Json
from teamcli.tasks.board import BoardChange, Gate, GateEvent, OnChange, Task, TaskChange, TaskStatus
from teamcli.tasks.rules import USER, changed_task, claimed, find, new_task, open_blockers, released
from teamcli.tasks.task_files import TaskFiles

_TICK_NS = 50_000_000


class FileBoard:
    """A `Board`. Many threads can share one; each process has its own."""

    def __init__(
        self,
        directory: Path,
        names: Callable[[], Sequence[str]],
        on_change: OnChange = lambda change: None,
        gate: Gate = lambda event, task, actor: "",
        warn: Callable[[str], None] = lambda text: None,
        clock: Callable[[], float] = time.time,
        only_reads: bool = False,
    ) -> None:
        """`names` are those who may own a task; `warn` reports a damaged file, once. With `only_reads`, it is not set
        aside."""
        self._files = TaskFiles(directory, warn, only_reads)
        self._names = names
        self._on_change = on_change
        self._gate = gate
        self._clock = clock
        self._seen: dict[int, Task] = {}
        """What was reported to `on_change`."""
        self._looked_at = 0

    def tasks(self) -> Sequence[Task]:
        return tuple(stored.task for stored in self._files.all())

    def ready(self) -> Sequence[Task]:
        tasks = {task.id: task for task in self.tasks()}
        pending = (task for task in tasks.values() if task.status is TaskStatus.PENDING)
        return [task for task in pending if not open_blockers(tasks, task)]

    def get(self, id: int) -> Task:
        return find(self._files, id)

    def documents(self) -> list[Json]:
        """The content of the files, by number.

        Raises: StateError
        """
        return [stored.to_json() for stored in self._files.all()]

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
        new_task(self._files, actor, draft, names)  # what the rules refuse takes no number
        with self._files.locked():
            draft = draft._replace(id=self._files.next_id())
        try:
            self._pass_gate(GateEvent.CREATED, new_task(self._files, actor, draft, names), actor)
        except BaseException:  # also Cancelled: the task was not created
            with self._files.locked():
                self._files.give_back(draft.id)
            raise
        with self._files.locked():
            task = new_task(self._files, actor, draft, names)
            self._write(task)
        return self._report(BoardChange(actor, None, task))

    def update(self, actor: str, id: int, change: TaskChange) -> Task:
        names = self._names()
        before, task = self._change(actor, id, change, names, may_complete=False)
        if _completes(before, task):
            self._pass_gate(GateEvent.COMPLETED, task, actor)
            before, task = self._change(actor, id, change, names, may_complete=True)
        return self._report(BoardChange(actor, before, task)) if task != before else task

    def claim_next(self, owner: str, but: frozenset[int] = frozenset()) -> Task | None:
        if not self._files.directory.is_dir():
            return None
        self._files.read_ahead()
        with self._files.locked():
            skipped = 0
            for before in self._files.free():
                if before.id not in but and not open_blockers(self._files, before):
                    break
                skipped = skipped or before.id
            else:
                return None
            task = claimed(self._files, before, owner)._replace(updated=self._clock())
            self._write(task)
            self._files.none_free_below(skipped or task.id + 1)
        return self._report(BoardChange(owner, before, task))

    def start(self, task: Task) -> bool:
        with self._files.locked():
            before = self._files.get(task.id)
            if before is None or before.status is not TaskStatus.PENDING or _assignment(before) != _assignment(task):
                return False
            started = before._replace(status=TaskStatus.IN_PROGRESS, updated=self._clock())
            self._write(started)
        self._report(BoardChange(str(task.owner), before, started))
        return True

    def release(self, owner: str, id: int | None = None) -> Sequence[Task]:
        if not self._files.directory.is_dir():
            return ()
        changes = []
        with self._files.locked():
            for before in self.tasks():
                if before.owner == owner and not before.status.is_over and id in (None, before.id):
                    task = released(before)._replace(updated=self._clock())
                    self._write(task)
                    changes.append(BoardChange(owner, before, task))
        return tuple(map(self._report, changes))

    def look(self, is_first: bool = False) -> None:
        """Report what other processes have changed since the last look. If nothing has, that is one system call, and
        one for each open task: some editors write a file in place, which does not change its directory.

        The first look reports nothing.

        Raises: StateError
        """
        now_ns = time.time_ns()
        try:
            modified = self._files.directory.lstat().st_mtime_ns
        except FileNotFoundError:
            modified = 0
        if modified == self._looked_at and not self._files.are_edited(now_ns - _TICK_NS):
            return
        # The clock of a file system ticks slowly: a second change may still get the same time.
        self._looked_at = modified if now_ns - modified > _TICK_NS else 0
        with self._files.held():  # what is written here is not another process's change
            now = {task.id: task for task in self.tasks()}
            before, self._seen = self._seen, now
        for id, task in now.items() if not is_first else ():
            if before.get(id) != task:
                self._on_change(BoardChange(USER, before.get(id), task, is_outside=True))
        # If the whole directory is gone, the tasks are written again.
        for task in [before[id] for id in before.keys() - now.keys()] if modified else ():
            self._on_change(BoardChange(USER, task, task, is_outside=True, is_deleted=True))

    def put_back(self) -> None:
        """Write the tasks again if their directory was deleted.

        Raises: StateError
        """
        self._files.put_back()

    def _change(
        self, actor: str, id: int, change: TaskChange, names: Sequence[str], may_complete: bool
    ) -> tuple[Task, Task]:
        """The task before and after. One that completes is only written if it may."""
        with self._files.locked():
            before = find(self._files, id)
            task = changed_task(self._files, actor, id, change, names)
            if task != before and (may_complete or not _completes(before, task)):
                task = task._replace(updated=self._clock())
                self._write(task)
        return before, task

    def _write(self, task: Task) -> None:
        self._files.write(task)
        self._seen[task.id] = task

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
