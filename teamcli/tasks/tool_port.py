"""The board as models see it: a few lines for each call of a task tool, bounded however large the board is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from teamcli.errors import TaskError
from teamcli.tasks.board import Board, Task, TaskChange, TaskStatus
from teamcli.tasks.rules import find, open_blockers
from teamcli.text.escaping import one_line

MOST_LISTED = 50
_SUBJECT_LENGTH = 100


class BoardTools:
    """A `TaskPort`."""

    def __init__(self, board: Board, why_unread: Callable[[str], str] = lambda name: "") -> None:
        """`why_unread` says what keeps an owner from reading about its task yet; empty if nothing does."""
        self._board = board
        self._why_unread = why_unread

    def create(self, agent: str, subject: str, description: str, blocked_by: tuple[int, ...], owner: str) -> str:
        task = self._board.create(agent, subject, description, blocked_by, owner or None)
        return f"Created task {self._line(task)}"

    def update(self, agent: str, id: int, fields: Mapping[str, Any]) -> str:
        wanted = {name: value for name in TaskChange._fields if (value := fields.get(name)) is not None}
        if not wanted:
            raise TaskError(f"nothing to change in task {id}: give a status, an owner, a text or blocked_by")
        if "status" in wanted:
            wanted["status"] = TaskStatus(wanted["status"])
        return f"Task {self._line(self._board.update(agent, id, TaskChange(**wanted)))}"

    def describe(self, agent: str, id: int | None) -> str:
        tasks = {task.id: task for task in self._board.tasks()}
        return describe_task(tasks, find(tasks, id)) if id is not None else _list(tasks, agent)

    def _line(self, task: Task) -> str:
        line = describe_line({each.id: each for each in self._board.tasks()}, task)
        why = self._why_unread(task.owner) if task.owner and task.status is TaskStatus.PENDING else ""
        return f"{line} ({why})" if why else line


def _list(tasks: Mapping[int, Task], agent: str) -> str:
    """The open ones, with those of the agent first; all others are only counted."""
    open_tasks = sorted(
        (task for task in tasks.values() if not task.status.is_over), key=lambda task: (task.owner != agent, task.id)
    )
    lines = [describe_line(tasks, task) for task in open_tasks[:MOST_LISTED]]
    if (left := len(open_tasks) - MOST_LISTED) > 0:
        lines.append(f"… and {left:,} more that are open")
    over = Counter(task.status for task in tasks.values() if task.status.is_over)
    if over:
        lines.append(", ".join(f"{count:,} {status}" for status, count in sorted(over.items())))
    return "\n".join(lines) or "There are no tasks."


def describe_line(tasks: Mapping[int, Task], task: Task) -> str:
    """`3 (pending, owner alice, blocked by 1, 2): Write the tests`"""
    return f"{task.id} ({', '.join(_facts(tasks, task))}): {one_line(task.subject, _SUBJECT_LENGTH)}"


def describe_task(tasks: Mapping[int, Task], task: Task) -> str:
    """All there is to know about a task."""
    blocked = blocked_by_it(tasks.values(), task.id)
    lines = [
        f"Task {task.id}: {one_line(task.subject, 1000)}",
        "; ".join(
            [
                *_facts(tasks, task),
                *([f"blocks {_numbers(blocked)}"] if blocked else []),
                *([f"created by {one_line(task.created_by, 64)}"] if task.created_by else []),
            ]
        ),
        *(["", task.description] if task.description else []),
        *(["", f"Result: {task.result}"] if task.result else []),
    ]
    return "\n".join(lines)


def blocked_by_it(tasks: Iterable[Task], id: int) -> list[int]:
    return sorted(task.id for task in tasks if id in task.blocked_by and not task.status.is_over)


def _facts(tasks: Mapping[int, Task], task: Task) -> list[str]:
    facts = [str(task.status)]
    if task.owner:
        facts.append(f"owner {one_line(task.owner, 64)}")
    if not task.status.is_over and (blockers := open_blockers(tasks, task)):
        facts.append(f"blocked by {_numbers(blockers)}")
    return facts


def _numbers(ids: Sequence[int]) -> str:
    shown = ", ".join(map(str, ids[:20]))
    return f"{shown} and {len(ids) - 20} more" if len(ids) > 20 else shown
