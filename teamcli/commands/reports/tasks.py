"""The task board for people: as a table, one task in full, and what to note about each."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from teamcli.commands.reports.team import age
from teamcli.tasks.board import Task, TaskStatus
from teamcli.tasks.rules import LEAD, USER, open_blockers
from teamcli.tasks.tool_port import blocked_by_it
from teamcli.team.roster import Member, Status
from teamcli.text.escaping import one_line
from teamcli.text.table import Cell, Column, Style, Table

COLUMNS = (
    Column("N", right=True),
    Column("TASK", shrinks=True),
    Column("STATUS"),
    Column("OWNER", "name"),
    Column("SINCE", "dim", right=True, may_go=True),
    Column("", "warn", goes_below=True),
)
STATUS_STYLES: Mapping[TaskStatus, Style] = {
    TaskStatus.IN_PROGRESS: "good",
    TaskStatus.COMPLETED: "dim",
    TaskStatus.CANCELLED: "dim",
}
NO_TASKS = "No tasks yet. Add one with /tasks add TEXT, or ask the lead to plan."
MOST_OVER = 10
_SUBJECT_LIMIT, _MOST_NUMBERS = 200, 10


def busy_names(members: Iterable[Member]) -> set[str]:
    """Those whose tasks make progress. Lead and user are never idle in this sense: nobody waits for them."""
    return {LEAD, USER, *(each.name for each in members if each.status in (Status.WORKING, Status.SPAWNING))}


def is_stalled(task: Task, busy: Collection[str]) -> bool:
    return task.status is TaskStatus.IN_PROGRESS and task.owner not in busy


def in_order(tasks: Iterable[Task]) -> list[Task]:
    """The open ones first, then the newest of the others."""
    return sorted(tasks, key=lambda task: (task.status.is_over, -task.id if task.status.is_over else task.id))


def by_urgency(tasks: Sequence[Task]) -> list[Task]:
    """In progress, ready, blocked; then the newest of those that are over."""
    by_id = {task.id: task for task in tasks}

    def urgency(task: Task) -> int:
        if task.status.is_over:
            return 3
        if task.status is TaskStatus.IN_PROGRESS:
            return 0
        return 2 if open_blockers(by_id, task) else 1

    return sorted(in_order(tasks), key=urgency)


def task_table(tasks: Sequence[Task], busy: Collection[str], now: float) -> Table:
    by_id, over = {task.id: task for task in tasks}, sum(task.status.is_over for task in tasks)
    shown = in_order(tasks)[: len(tasks) - max(0, over - MOST_OVER)]
    rows = tuple(_row(by_id, task, busy, now) for task in shown)
    notes = [f"{over - MOST_OVER} older tasks are over and not shown."] if over > MOST_OVER else []
    return Table("" if tasks else NO_TASKS, COLUMNS, rows, tuple(notes))


def _row(tasks: Mapping[int, Task], task: Task, busy: Collection[str], now: float) -> tuple[str | Cell, ...]:
    return (
        str(task.id),
        one_line(task.subject, _SUBJECT_LIMIT),
        Cell(task.status, STATUS_STYLES.get(task.status, "")),
        one_line(task.owner or "", 32),
        age(now - task.updated) if task.updated else "",
        note(tasks, task, busy),
    )


def note(tasks: Mapping[int, Task], task: Task, busy: Collection[str]) -> str:
    if is_stalled(task, busy):
        return "stalled"
    blockers = [] if task.status.is_over else open_blockers(tasks, task)
    return f"blocked by {_numbers(blockers)}" if blockers else ""


def task_text(tasks: Mapping[int, Task], task: Task, busy: Collection[str], now: float) -> str:
    """One task in full."""
    blocked = blocked_by_it(tasks.values(), task.id)
    facts = [
        f"{task.status}, owner {task.owner}" if task.owner else str(task.status),
        note(tasks, task, busy),
        f"blocks {_numbers(blocked)}" if blocked else "",
        f"created by {task.created_by}" if task.created_by else "",
        f"changed {age(now - task.updated)} ago" if task.updated else "",
    ]
    parts = [f"Task {task.id}: {task.subject}", "; ".join(filter(None, facts))]
    parts += [f"\n{task.description}"] if task.description else []
    parts += [f"\nResult: {task.result}"] if task.result else []
    return "\n".join(parts)


def _numbers(ids: Sequence[int]) -> str:
    more = f" and {len(ids) - _MOST_NUMBERS} more" if len(ids) > _MOST_NUMBERS else ""
    return ", ".join(map(str, ids[:_MOST_NUMBERS])) + more
