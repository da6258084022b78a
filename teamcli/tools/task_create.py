"""`task_create`: put a task on the board."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from teamcli.agent.tool import Display
from teamcli.tools.base.context import TaskPort
from teamcli.tools.base.tool import show_words, task_tool
from teamcli.tools.base.tool_input import Words


class TaskCreateInput(NamedTuple):
    """Add a task to the team's board, with all its owner must know."""

    subject: Words
    description: str | None = None
    blocked_by: Annotated[tuple[int, ...] | None, "Ids to wait for"] = None
    owner: Annotated[str | None, "Gets it as mail"] = None


def run(args: TaskCreateInput, tasks: TaskPort, agent: str) -> str:
    return tasks.create(agent, args.subject, args.description or "", args.blocked_by or (), args.owner or "")


def show(args: TaskCreateInput) -> Display:
    return show_words(f"new task{f' for {args.owner}' if args.owner else ''}", args.subject)


TASK_CREATE = task_tool("task_create", TaskCreateInput, run, show)
