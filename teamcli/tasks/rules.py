"""Who may change what on the board, and what a change makes of a task. Pure functions: no files, no lock, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from teamcli.errors import TaskError
from teamcli.tasks.board import Task, TaskChange, TaskStatus

LEAD, USER = "lead", "user"
LONGEST_SUBJECT = 500
LONGEST_TEXT = 100_000
MOST_BLOCKERS = 1_000
_MOST_RANGES = 5

Tasks = Mapping[int, Task]


def new_task(tasks: Tasks, actor: str, draft: Task, names: Sequence[str]) -> Task:
    """The draft as a task. One that is created for oneself is in progress, unless it is blocked.

    Raises: TaskError
    """
    wanted = TaskChange(None, None, draft.subject, draft.description, draft.blocked_by)
    task = _edited(tasks, draft._replace(blocked_by=()), wanted)
    if not draft.owner:
        return task._replace(owner=None)
    task = task._replace(owner=_owner(draft.owner, actor, names), assigned=1)
    starts = task.owner == actor and not open_blockers(tasks, task)
    return task._replace(status=TaskStatus.IN_PROGRESS) if starts else task


def changed_task(tasks: Tasks, actor: str, id: int, change: TaskChange, names: Sequence[str]) -> Task:
    """The task after the change; the same one if nothing changes.

    Raises: TaskError
    """
    old = find(tasks, id)
    task = _edited(tasks, old, change)
    if change.status is TaskStatus.PENDING and task.status is not TaskStatus.PENDING:
        task = task._replace(status=TaskStatus.PENDING, owner=None)
    task = _with_owner(tasks, task, actor, change, names)
    task = _with_status(tasks, task, actor, change)
    if task != old and not may_change(old, actor):
        _refuse_unless_claimed(tasks, old, task, actor)
    return task


def claimed(tasks: Tasks, task: Task, actor: str) -> Task:
    """Raises: TaskError, if it is not free for this actor."""
    if task.status.is_over:
        raise TaskError(f"already {task.status}")
    if task.owner not in (None, actor):
        raise TaskError(f"already claimed by {task.owner}")
    if task.status is TaskStatus.IN_PROGRESS:
        return task
    _refuse_blocked(tasks, task)
    return task._replace(status=TaskStatus.IN_PROGRESS, owner=actor, assigned=task.assigned + (task.owner is None))


def _refuse_unless_claimed(tasks: Tasks, old: Task, task: Task, actor: str) -> None:
    """A teammate may change a task that is not its own if it claims it. What else it changes must not help with that:
    neither reopening it nor removing its blockers."""
    if task.owner == actor:
        claimed(tasks, old, actor)
    else:
        whose = f"belongs to {old.owner}" if old.owner else "is not yours; claim it with status in_progress"
        raise TaskError(f"task {old.id} {whose}")


def released(task: Task) -> Task:
    return task._replace(status=TaskStatus.PENDING, owner=None)


def may_change(task: Task, actor: str) -> bool:
    """Lead and user may change every task; a teammate its own, and those that it created and nobody has."""
    return actor in (LEAD, USER) or task.owner == actor or (task.owner is None and task.created_by == actor)


def open_blockers(tasks: Tasks, task: Task) -> list[int]:
    """What it waits for. A task whose file is gone can never be done, so it blocks nothing."""
    blockers = ((id, tasks.get(id)) for id in task.blocked_by)
    return [id for id, blocker in blockers if blocker is not None and not blocker.status.is_over]


def find(tasks: Tasks, id: int) -> Task:
    """Raises: TaskError"""
    task = tasks.get(id)
    if task is None:
        raise TaskError(f"no task {id} ({_which(tasks)})")
    return task


def _edited(tasks: Tasks, task: Task, change: TaskChange) -> Task:
    if change.subject is not None:
        task = task._replace(subject=_checked("subject", " ".join(change.subject.split()), LONGEST_SUBJECT))
    if change.description is not None:
        task = task._replace(description=_checked("description", change.description, LONGEST_TEXT))
    if change.result is not None:
        task = task._replace(result=_checked("result", change.result, LONGEST_TEXT))
    if change.blocked_by is not None:
        task = task._replace(blocked_by=_checked_blockers(tasks, task, change.blocked_by))
    return task


def _checked(field: str, text: str, longest: int) -> str:
    if len(text) > longest:
        raise TaskError(f"the {field} has {len(text):,} characters; at most {longest:,} are allowed")
    if field == "subject" and not text:
        raise TaskError("the subject is empty; say in a few words what is to be done")
    return text


def _checked_blockers(tasks: Tasks, task: Task, wanted: Iterable[int]) -> tuple[int, ...]:
    blockers = tuple(sorted(set(wanted)))
    if len(blockers) > MOST_BLOCKERS:
        raise TaskError(f"blocked_by has {len(blockers):,} tasks; at most {MOST_BLOCKERS:,} are allowed")
    for id in blockers:
        if id != task.id and id not in task.blocked_by:
            find(tasks, id)
    _refuse_cycle(tasks, task.id, blockers)
    return blockers


def _refuse_cycle(tasks: Tasks, id: int, blockers: tuple[int, ...]) -> None:
    paths: list[tuple[int, ...]] = [(each,) for each in blockers]
    seen = set(blockers)
    while paths:
        path = paths.pop()
        if path[-1] == id:
            shown = " → ".join(map(str, (id, *path)))
            raise TaskError(f"a cycle: {shown}; a task cannot wait for itself")
        task = tasks.get(path[-1])
        following = [each for each in (task.blocked_by if task else ()) if each == id or each not in seen]
        seen.update(following)
        paths += [(*path, each) for each in following]


def _with_owner(tasks: Tasks, task: Task, actor: str, change: TaskChange, names: Sequence[str]) -> Task:
    if change.owner is None:
        return task
    if change.owner == "":
        if task.status.is_over:
            raise TaskError(f"already {task.status}")
        return released(task) if task.owner is not None else task
    owner = _owner(change.owner, actor, names)
    if owner == actor:
        taken = claimed(tasks, task, actor)
        return taken._replace(status=TaskStatus.PENDING) if change.status is TaskStatus.PENDING else taken
    if task.status.is_over:
        raise TaskError(f"already {task.status}")
    if owner == task.owner:
        return task
    # Pending until the message about it has reached the new owner.
    return task._replace(status=TaskStatus.PENDING, owner=owner, assigned=task.assigned + 1)


def _with_status(tasks: Tasks, task: Task, actor: str, change: TaskChange) -> Task:
    if change.status is TaskStatus.IN_PROGRESS:
        return task if change.owner else claimed(tasks, task, actor)
    if change.status in (None, TaskStatus.PENDING, task.status):
        return task
    if task.status.is_over:
        raise TaskError(f"already {task.status}")
    if change.status is TaskStatus.COMPLETED and actor not in (LEAD, USER) and task.status is TaskStatus.PENDING:
        _refuse_blocked(tasks, task)
    return task._replace(status=change.status or task.status)


def _refuse_blocked(tasks: Tasks, task: Task) -> None:
    if blockers := open_blockers(tasks, task):
        raise TaskError(f"blocked by {', '.join(map(str, blockers))}")


def _owner(wanted: str, actor: str, names: Sequence[str]) -> str:
    """The name as the team spells it."""
    found = next((name for name in (actor, *names) if name.casefold() == wanted.casefold()), None)
    if found is None:
        raise TaskError(f"there is no '{wanted:.40}' who could own a task (there are: {', '.join(names)})")
    if found != actor and actor not in (LEAD, USER):
        raise TaskError(f"only lead and user give tasks to others; ask lead to give it to {found}")
    return found


def _which(tasks: Tasks) -> str:
    """`there are 1–7`: the numbers that exist."""
    ranges: list[list[int]] = []
    for id in sorted(tasks):
        if ranges and ranges[-1][1] == id - 1:
            ranges[-1][1] = id
        else:
            ranges.append([id, id])
    shown = [f"{first}–{last}" if first < last else str(first) for first, last in ranges]
    if len(shown) > _MOST_RANGES:
        shown = [*shown[: _MOST_RANGES - 1], "…", shown[-1]]
    verb = "is" if ranges and ranges[0][0] == ranges[-1][1] else "are"
    return f"there {verb} {', '.join(shown) or 'none'}"
