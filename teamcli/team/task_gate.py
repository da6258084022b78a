"""Hooks decide whether a task may be created or completed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from teamcli.agent.hooks import HookEvent, Hooks
from teamcli.cancel import CancelScope
from teamcli.team.message import LEAD, USER
from teamcli.team.roster import Roster
from teamcli.team.running_agents import RunningAgents

if TYPE_CHECKING:
    from teamcli.tasks.board import GateEvent, Task


class TaskGate:
    """A `Gate` that runs the hooks `TaskCreated` and `TaskCompleted`."""

    def __init__(self, hooks: Hooks, roster: Roster, agents: RunningAgents, cancel: CancelScope) -> None:
        self._hooks = hooks
        self._roster = roster
        self._agents = agents
        self._cancel = cancel

    def __call__(self, event: GateEvent, task: Task, actor: str) -> str:
        """Why not; empty if nothing objects.

        Raises: Cancelled
        """
        if not self._hooks.wants(event):
            return ""
        fields = {"task_id": str(task.id), "task_subject": task.subject, "team_name": self._roster.team_name}
        if task.description:
            fields["task_description"] = task.description
        if actor not in (LEAD, USER):
            fields["teammate_name"] = actor
        thread = self._agents.get(actor)
        cancel = thread.current_scope if thread else self._cancel
        return self._hooks.run(HookEvent(event, LEAD if actor == USER else actor, fields), cancel).objection or ""
