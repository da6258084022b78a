"""`task_list`: the board, or one task in full."""

from __future__ import annotations

from typing import NamedTuple

from teamcli.agent.tool import Display
from teamcli.tools.base.context import TaskPort
from teamcli.tools.base.tool import task_tool


class TaskListInput(NamedTuple):
    """The board; with an id, that task in full."""

    id: int | None = None


def run(args: TaskListInput, tasks: TaskPort, agent: str) -> str:
    return tasks.describe(agent, args.id)


def show(args: TaskListInput) -> Display:
    return Display("list tasks" if args.id is None else f"show task {args.id}")


TASK_LIST = task_tool("task_list", TaskListInput, run, show)
