"""The message that gives a task to its owner."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from teamcli.team.message import Message, MessageType, message_id

if TYPE_CHECKING:
    from teamcli.tasks.board import Task

TEAM = "team"
"""The sender of tasks, the program. Anyone can edit the board, so a task never speaks as an agent or the user."""
BEGUN_BY_USER = "begun_by_user"
"""The field of a task that the user assigned: its result is shown to the user, and does not wake the lead."""
LONGEST_DESCRIPTION = 20_000
"""Characters in a message. An inbox takes only so much."""
WHEN_DONE = "task_update status=completed"


def task_message(task: Task, fields: Mapping[str, Any] = MappingProxyType({})) -> Message:
    """The message that gives a task to its owner."""
    text = task.description
    if len(text) > LONGEST_DESCRIPTION:
        text = f"{text[:LONGEST_DESCRIPTION]} … (use task_list with id {task.id} to read all of it)"
    content = f"{task.subject}\n\n{text}" if text else task.subject
    about = {"task": task.id, "when_done": WHEN_DONE, **fields}
    return Message(MessageType.TASK, TEAM, str(task.owner), content, time.time(), assignment_id(task), about)


def assignment_id(task: Task) -> str:
    """The same for the same assignment, another for the next one. Numbers repeat if the board is deleted."""
    return message_id("task", str(task.id), repr(task.created), str(task.assigned))
