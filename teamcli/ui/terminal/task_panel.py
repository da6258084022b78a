"""The board above the status bar, which Ctrl-T shows and hides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from teamcli.agent import events
from teamcli.agent.events import Event
from teamcli.commands.reports.tasks import busy_names, by_urgency, is_stalled, note
from teamcli.errors import StateError
from teamcli.session.session import Session
from teamcli.tasks.board import Task, TaskStatus
from teamcli.text.console import shorten
from teamcli.text.escaping import one_line
from teamcli.ui.render.style import BOLD, DIM, GREEN, PLAIN, RED, YELLOW, Line
from teamcli.ui.terminal.background_read import BackgroundRead
from teamcli.ui.terminal.fragments import clipped, width_of

MOST_LINES = 10
"""With the title."""
FEWEST_LINES = 3
_MARKS = {TaskStatus.PENDING: "○", TaskStatus.IN_PROGRESS: "●", TaskStatus.COMPLETED: "✓", TaskStatus.CANCELLED: "✗"}


def lines_for_board(screen_rows: int, has_questions: bool) -> int:
    """How much of the screen it may take. A question must be read, so then it takes less.

    This does not depend on how long the question is, which itself depends on what is left.
    """
    return screen_rows // 5 if has_questions else screen_rows * 2 // 5


class _Drawn(NamedTuple):
    title: Line
    rows: tuple[Line, ...] = ()
    total: int = 0
    """Of all tasks. There are not more rows than can be shown."""


class TaskPanel:
    def __init__(self, session: Session, redraw: Callable[[], None]) -> None:
        self._session = session
        self._reading = BackgroundRead(self._update, redraw)
        self._is_shown = False
        self._drawn = _Drawn([])

    def toggle(self) -> None:
        self._is_shown = not self._is_shown
        self._reading.again()

    def note(self, event: Event) -> None:
        """Keep it current. Each drawing would be too often to read the board."""
        if self._is_shown and isinstance(event, events.TaskChanged | events.StatusChanged):
            self._reading.again()

    def lines(self, width: int, room: int = MOST_LINES) -> list[Line]:
        """In at most `room` lines, but never fewer than a title, a task, and how many more there are."""
        if not self._is_shown:
            return []
        room = max(FEWEST_LINES, min(room, MOST_LINES)) - 1
        title, rows, total = self._drawn
        shown = rows if total <= room else rows[: room - 1]
        more: list[Line] = [[(f"    … {total - len(shown)} more (/tasks)", DIM)]] if total > len(shown) else []
        return [clipped(_fitted(line, width), width) for line in (title, *shown, *more)]

    def _update(self) -> None:
        board = self._session.board
        try:
            self._drawn = self._draw(list(board.open().tasks()) if board.exists else [])
        except StateError as e:
            self._drawn = _Drawn([(f"Tasks: {one_line(str(e), 300)}", RED)])

    def _draw(self, tasks: list[Task]) -> _Drawn:
        counts = Counter(task.status for task in tasks)
        summary = ", ".join(f"{counts[status]} {status.replace('_', ' ')}" for status in TaskStatus if counts[status])
        by_id, busy = {task.id: task for task in tasks}, busy_names(self._session.team.roster.members())
        title: Line = [("Tasks", BOLD), (f": {summary or 'none yet'}", DIM)]
        rows = (self._row(by_id, task, busy) for task in by_urgency(tasks)[:MOST_LINES])
        return _Drawn(title, tuple(rows), len(tasks))

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
