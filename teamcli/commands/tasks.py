"""`/tasks`: see the board, and change it as the user."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from teamcli.commands.base import ArgumentKind, CommandResult, Group, Option, command
from teamcli.commands.reports.tasks import busy_names, task_table, task_text
from teamcli.errors import UsageError
from teamcli.session.session import Session
from teamcli.tasks.board import TaskChange, TaskStatus
from teamcli.tasks.rules import find
from teamcli.team.message import USER


@command(
    "tasks",
    usage="[N | add TEXT]",
    arguments=(ArgumentKind.TASK_VERB, ArgumentKind.TASK, ArgumentKind.AGENT),
    group=Group.TEAM,
)
def tasks(session: Session, arguments: str) -> CommandResult:
    """Show the task board, add a task, or change one.

    /tasks 3                show task 3 in full
    /tasks add TEXT         add a task
    /tasks done 3           complete it
    /tasks cancel 3         cancel it
    /tasks assign 3 alice   give it to alice, who gets it as a message
    A task is stalled if it is in progress and its owner is idle. Ctrl-T shows and hides the board above the status bar.
    """
    verb, _, rest = arguments.partition(" ")
    if not verb or verb.lstrip("#").isdecimal():
        return _show(session, verb)
    if (act := VERBS.get(verb)) is None:
        known = ", ".join(VERBS)
        raise UsageError(f"/tasks has no '{verb}'; give the number of a task, or one of: {known}")
    return act(session, rest.strip())


def _show(session: Session, number: str) -> CommandResult:
    found = session.board.open().tasks() if session.board.exists else ()
    busy, now = busy_names(session.team.roster.members()), time.time()
    if not number:
        return task_table(found, busy, now)
    by_id = {task.id: task for task in found}
    return task_text(by_id, find(by_id, task_number(number)), busy, now)


def _add(session: Session, text: str) -> str:
    task = session.board.open().create(USER, text)
    return f"Added task {task.id}: {task.subject}"


def _set_status(status: TaskStatus) -> Callable[[Session, str], str]:
    def act(session: Session, arguments: str) -> str:
        task = session.board.open().update(USER, task_number(arguments), TaskChange(status=status))
        return f"Task {task.id} is {task.status}: {task.subject}"

    return act


def _assign(session: Session, arguments: str) -> str:
    number, _, name = arguments.partition(" ")
    id, name = task_number(number), name.strip().removeprefix("@")
    if not name:
        raise UsageError(f"say who gets task {id}: /tasks assign {id} NAME")
    task = session.board.open().update(USER, id, TaskChange(owner=name))
    why = session.team.tasks.why_unread(str(task.owner))
    return f"Task {task.id} is assigned to {task.owner}: {task.subject}" + (f" ({why})" if why else "")


def task_number(text: str) -> int:
    """Raises: UsageError"""
    digits = text.removeprefix("#")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 10):
        raise UsageError(f"'{text}' is not the number of a task; give one such as 3")
    return int(digits)


VERBS: Mapping[str, Callable[[Session, str], CommandResult]] = {
    "add": _add,
    "done": _set_status(TaskStatus.COMPLETED),
    "cancel": _set_status(TaskStatus.CANCELLED),
    "assign": _assign,
}
VERB_OPTIONS = (
    Option("add", "add a task"),
    Option("done", "complete a task"),
    Option("cancel", "cancel a task"),
    Option("assign", "give a task to someone"),
)
