"""`teamcli tasks`: the board from another shell, whether the team is running or not. A running team notices changes."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

from teamcli.agent.events import TaskChanged
from teamcli.cli.tables import print_table
from teamcli.cli.team import TeamSnapshot
from teamcli.commands.reports.tasks import busy_names, task_table, task_text
from teamcli.commands.tasks import task_number
from teamcli.config.options import ExitStatus
from teamcli.config.project import inspect_project
from teamcli.errors import UsageError
from teamcli.session.timeline import task_entry
from teamcli.tasks.board import BoardChange, Task, TaskChange, TaskStatus
from teamcli.tasks.rules import find
from teamcli.tasks.stored_board import StoredBoard
from teamcli.team.message import LEAD, USER
from teamcli.text.escaping import escape_controls


def show_tasks(snapshot: TeamSnapshot, number: str, as_json: bool) -> int:
    """Print the board, or one task; returns the exit code."""
    board = StoredBoard(snapshot.task_storage(only_reads=True), lambda: ())
    tasks = {task.id: task for task in board.tasks()}
    wanted = find(tasks, task_number(number)) if number else None
    busy = busy_names([member for member in snapshot.team.members if snapshot.runs(member)])
    if as_json:
        found = [each for each in board.documents() if wanted is None or each["id"] == wanted.id]
        print(json.dumps(found, indent=2))
    elif wanted is not None:
        print(escape_controls(task_text(tasks, wanted, busy, time.time())))
    elif not tasks:
        print("No tasks yet. Add one with teamcli tasks add TEXT.")
    else:
        print_table(task_table(tuple(tasks.values()), busy, time.time()))
    return ExitStatus.DONE


def add_task(snapshot: TeamSnapshot, text: str, owner: str, blocked_by: str) -> int:
    """Add a task as the user; returns the exit code."""
    if not text.strip():
        raise UsageError("say what is to be done: teamcli tasks add TEXT")
    if not snapshot.directory.has_state:
        inspect_project(Path.cwd()).claim()  # otherwise the next start would take the task for someone else's
    blockers = [task_number(word.strip()) for word in blocked_by.split(",") if word.strip()]
    task = _board(snapshot).create(USER, text, blocked_by=blockers, owner=owner or None)
    waits = task.owner and task.owner != USER and not snapshot.is_running
    later = f"; {snapshot.not_running}, so {task.owner} gets it when it starts" if waits else ""
    _say(f"Added task {task.id}{f' for {task.owner}' if task.owner else ''}", task, later)
    return ExitStatus.DONE


def finish_task(snapshot: TeamSnapshot, number: str) -> int:
    """Complete a task as the user; returns the exit code."""
    id = task_number(number)
    if not snapshot.directory.root.is_dir():
        raise UsageError(f"there is no team in {Path.cwd()}: start teamcli here first, or name a directory with --cwd")
    _say(f"Task {id} is completed", _board(snapshot).update(USER, id, TaskChange(status=TaskStatus.COMPLETED)))
    return ExitStatus.DONE


def run_tasks(snapshot: TeamSnapshot, words: Sequence[str], owner: str, blocked_by: str, as_json: bool) -> int:
    """Do what the words say: nothing or N, `add TEXT` or `done N`; returns the exit code."""
    verb, rest = "".join(words[:1]), words[1:]
    if verb != "add" and (owner or blocked_by):
        raise UsageError("--owner and --blocked-by go with teamcli tasks add TEXT (try teamcli tasks --help)")
    if verb == "add":
        return add_task(snapshot, " ".join(rest), owner, blocked_by)
    if verb == "done" and len(rest) == 1:
        return finish_task(snapshot, rest[0])
    if rest or verb == "done":
        raise UsageError("use teamcli tasks [N], teamcli tasks add TEXT or teamcli tasks done N")
    return show_tasks(snapshot, verb, as_json)


def _board(snapshot: TeamSnapshot) -> StoredBoard:
    def record(change: BoardChange) -> None:
        # A running lead reports the change too, but only this process knows that it is not a change by hand.
        task = change.after
        event = TaskChanged(change.actor, task.id, change.what, task.subject, task.status, task.owner)
        timeline = snapshot.timeline_log()
        try:
            timeline.append({"ts": time.time(), "agent": change.actor, **task_entry(event)})
        finally:
            timeline.close()

    names = [LEAD, *(member.name for member in snapshot.team.members if member.is_active)]
    return StoredBoard(snapshot.task_storage(), lambda: names, record)


def _say(what: str, task: Task, more: str = "") -> None:
    print(escape_controls(f"{what}: {task.subject}{more}"))
