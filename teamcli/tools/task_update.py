"""`task_update`: claim, finish, give away, reopen or edit a task."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from teamcli.agent.tool import Display
from teamcli.tools.base.context import TaskPort
from teamcli.tools.base.tool import task_tool


class TaskUpdateInput(NamedTuple):
    """Change a task: in_progress claims it, pending reopens it."""

    id: int
    status: Literal["pending", "in_progress", "completed", "cancelled"] | None = None
    owner: Annotated[str | None, "Empty: nobody"] = None
    subject: str | None = None
    description: str | None = None
    blocked_by: tuple[int, ...] | None = None
    result: str | None = None


def run(args: TaskUpdateInput, tasks: TaskPort, agent: str) -> str:
    return tasks.update(agent, args.id, args._asdict())


def show(args: TaskUpdateInput) -> Display:
    words = [f"task {args.id}", args.status or "", f"for {args.owner}" if args.owner else ""]
    return Display(" ".join(filter(None, words)))


TASK_UPDATE = task_tool("task_update", TaskUpdateInput, run, show)
