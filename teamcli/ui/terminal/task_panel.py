"""The board above the status bar, which Ctrl-T shows and hides."""

from __future__ import annotations

from collections import Counter

from teamcli.agent import events
from teamcli.agent.events import Event
from teamcli.commands.reports.tasks import busy_names, in_order, is_stalled, note
from teamcli.errors import StateError
from teamcli.session.session import Session
from teamcli.tasks.board import Task, TaskStatus
from teamcli.text.console import shorten
from teamcli.text.escaping import one_line
from teamcli.ui.render.style import BOLD, DIM, GREEN, PLAIN, RED, YELLOW, Line
from teamcli.ui.terminal.fragments import clipped, width_of

MOST_LINES = 8
_MARKS = {TaskStatus.PENDING: "○", TaskStatus.IN_PROGRESS: "●", TaskStatus.COMPLETED: "✓", TaskStatus.CANCELLED: "✗"}


class TaskPanel:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._is_shown = False
        self._lines: list[Line] = []

    def toggle(self) -> None:
        self._is_shown = not self._is_shown
        self._update()

    def note(self, event: Event) -> None:
        """Keep it current. Each drawing would be too often to read the board."""
        if self._is_shown and isinstance(event, events.TaskChanged | events.StatusChanged):
            self._update()

    def lines(self, width: int) -> list[Line]:
        return [clipped(_fitted(line, width), width) for line in self._lines] if self._is_shown else []

    def _update(self) -> None:
        board = self._session.board
        try:
            self._lines = self._drawn(list(board.open().tasks()) if board.exists else [])
        except StateError as e:
            self._lines = [[(f"Tasks: {one_line(str(e), 300)}", RED)]]

    def _drawn(self, tasks: list[Task]) -> list[Line]:
        counts = Counter(task.status for task in tasks)
        summary = ", ".join(f"{counts[status]} {status.replace('_', ' ')}" for status in TaskStatus if counts[status])
        shown = in_order(tasks)[:MOST_LINES]
        more = f" (the first {MOST_LINES})" if len(tasks) > MOST_LINES else ""
        by_id, busy = {task.id: task for task in tasks}, busy_names(self._session.team.roster.members())
        title: Line = [("Tasks", BOLD), (f": {summary or 'none yet'}{more}", DIM)]
        return [title, *(self._row(by_id, task, busy) for task in shown)]

    def _row(self, tasks: dict[int, Task], task: Task, busy: set[str]) -> Line:
        color = YELLOW if is_stalled(task, busy) else GREEN if task.status is TaskStatus.IN_PROGRESS else DIM
        remark = note(tasks, task, busy)
        # The subject comes third: it gives way to what follows.
        return [
            (f"  {_MARKS[task.status]} ", color),
            (f"{task.id} ", DIM),
            (one_line(task.subject, 120), DIM if task.status.is_over else PLAIN),
            (f"  {one_line(task.owner, 32)}" if task.owner else "", BOLD),
            (f"  {remark}" if remark else "", YELLOW),
        ]


def _fitted(line: Line, width: int) -> Line:
    if len(line) < 3:
        return line
    room = width - width_of([*line[:2], *line[3:]])
    return [*line[:2], (shorten(line[2][0], max(8, room)), line[2][1]), *line[3:]]
