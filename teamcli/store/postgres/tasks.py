"""The tasks of a board as rows.

A change takes a lock on the team's row and has a number, so a process that asks for the changes after the last one that
it knows misses none. The rules then work on what it has in memory, as they do for files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from psycopg import Cursor

from teamcli.errors import StateError, TaskError
from teamcli.store.postgres.team_rows import Fence, Team
from teamcli.tasks.board import Task
from teamcli.tasks.rules import USER
from teamcli.tasks.storage import TaskStorage
from teamcli.tasks.task_file import LARGEST_FILE, LARGEST_ID, Damaged, StoredTask, parse_task

T = TypeVar("T")
_NEWS = """
    select task.id, version, least(change, task_changes), task.doc, sig from task join team on team.id = task.team
    where task.team = %(team)s and change > %(known)s order by change
"""
"""The number of a change is not signed. A forged one must not hide those that follow."""
_NO_FILE = (0, 0, 0, 0)


class _Known(NamedTuple):
    """A row as this process knows it."""

    version: int
    doc: str
    stored: StoredTask


class TaskRows(TaskStorage):
    exists = True
    outsider = ""

    def __init__(self, team: Team, fence: Fence, warn: Callable[[str], None] = lambda text: None) -> None:
        """`warn` reports a row that does not count, once."""
        self._team = team
        self._fence = fence
        super().__init__(warn)
        self._reported: set[int] = set()
        self._rows: dict[int, _Known] = {}
        self._free: set[int] = set()
        self._last_change = -1
        """The last one that this process has read."""
        self._is_noticed = True
        # Inside a change:
        self._cursor: Cursor[Any] | None = None
        self._change = 0
        self._last_id = self._locked_id = 0
        self._written: dict[int, _Known] = {}

    def __getitem__(self, id: int) -> Task:
        with self.held():
            self._refresh()
            return (self._written.get(id) or self._rows[id]).stored.task

    def __iter__(self) -> Iterator[int]:
        return iter([stored.task.id for stored in self.all()])

    def __len__(self) -> int:
        return len(self.all())

    def all(self) -> list[StoredTask]:
        with self.held():
            self._refresh()
            rows = self._rows | self._written
            return [rows[id].stored for id in sorted(rows)]

    def change(self, actor: str, act: Callable[[], T]) -> T:
        done: list[T] = []  # what the last attempt has returned

        def attempt(cursor: Cursor[Any]) -> T:
            self._lock(cursor, actor)
            if done and self._written and self._is_written():  # only the answer to its commit was lost
                self._change = self._last_change
                return done[-1]
            self._written = {}
            self._cursor = cursor
            try:
                done.append(act())
            finally:
                self._cursor = None
            self._count(cursor)
            return done[-1]

        with self.held():
            try:
                result = self._team.database.run(attempt)
                for id, known in self._written.items():
                    self._put(id, known)
                has_written = bool(self._written)
                self._last_change = self._change if has_written else self._last_change
            finally:
                self._written = {}
        if has_written:
            self._team.database.notify(self._team.topic("task"))
        return result

    def may_have_free(self) -> bool:
        with self.held():
            self._refresh()
            return bool(self._free)

    def notice(self) -> None:
        self._is_noticed = True

    def has_news(self) -> bool:
        is_noticed, self._is_noticed = self._is_noticed, False
        return is_noticed

    def put_back(self) -> None:
        """Rows are not deleted with the directory."""

    def free(self) -> Iterator[Task]:
        for id in sorted(self._free):
            yield self._rows[id].stored.task

    def none_free_below(self, id: int) -> None:
        """Nothing to note: the free ones are known."""

    def next_id(self) -> int:
        self._last_id = max(self._last_id, *self._rows, 0) + 1
        if self._last_id > LARGEST_ID:
            raise TaskError(f"the board is full: there is a task {LARGEST_ID}")
        return self._last_id

    def give_back(self, id: int) -> None:
        if self._last_id == id:
            self._last_id = id - 1

    def write(self, task: Task) -> None:
        assert self._cursor is not None, "only inside a change"
        known = self._rows.get(task.id)
        stored = StoredTask(task, _NO_FILE, known.stored.unknown if known else {})
        version, doc = (known.version if known else 0) + 1, _doc(stored)
        sig = self._team.sign("task", task.id, version, doc)
        self._cursor.execute(
            "insert into task (team, id, version, change, status, owner, doc, sig)"
            " values (%s, %s, %s, %s, %s, %s, %s, %s)"
            " on conflict (team, id) do update set version = excluded.version, change = excluded.change,"
            " status = excluded.status, owner = excluded.owner, doc = excluded.doc, sig = excluded.sig",
            (self._team.id, task.id, version, self._change, str(task.status), task.owner, doc, sig),
        )
        self._written[task.id] = _Known(version, doc, stored)

    def _lock(self, cursor: Cursor[Any], actor: str) -> None:
        """Keep all others out, and read what they have changed.

        Raises: LeaseLost
        """
        if actor != USER or self._fence.agents:  # the user may change tasks from any shell
            self._fence.check(cursor, self._fence.holder(actor)[0])
        # Unlike an update of the key, this lets others insert rows that refer to the team.
        cursor.execute("select last_task, task_changes from team where id = %s for no key update", (self._team.id,))
        row = cursor.fetchone()
        if row is None:
            raise StateError("the team is not in the database any more")
        self._last_id, last_change = row
        if last_change > self._last_change:
            self._take(cursor.execute(_NEWS, self._known_changes).fetchall())
            self._last_change = last_change
        self._change = last_change + 1
        self._locked_id = self._last_id

    def _count(self, cursor: Cursor[Any]) -> None:
        if self._written or self._last_id != self._locked_id:
            cursor.execute(
                "update team set last_task = %s, task_changes = task_changes + %s where id = %s",
                (self._last_id, int(bool(self._written)), self._team.id),
            )

    def _refresh(self) -> None:
        """Inside a change, nothing can be newer."""
        if self._cursor is None:
            self._take(self._team.database.fetch(_NEWS, self._known_changes))

    @property
    def _known_changes(self) -> dict[str, int]:
        return {"team": self._team.id, "known": self._last_change}

    def _take(self, rows: Sequence[tuple[Any, ...]]) -> None:
        for id, version, change, doc, sig in rows:
            self._last_change = max(self._last_change, change)
            try:
                if not self._team.is_signed(sig, "task", id, version, doc):
                    raise Damaged("it is not signed with the team's key")
                if len(doc) > LARGEST_FILE:
                    raise Damaged(f"it is larger than {LARGEST_FILE:,} bytes")
                stored = parse_task(doc.encode(), id, Path(f"tasks/{id}.json"))
            except Damaged as e:
                self._report(id, f"the row of task {id} in the database does not count ({e})")
            else:
                self._put(id, _Known(version, doc, stored))

    def _report(self, id: int, problem: str) -> None:
        if id not in self._reported:
            self._reported.add(id)
            self._to_report.append(problem)

    def _put(self, id: int, known: _Known) -> None:
        self._rows[id] = known
        (self._free.add if known.stored.task.is_free else self._free.discard)(id)

    def _is_written(self) -> bool:
        """Whether what the last attempt has written is there."""
        return all(id in self._rows and self._rows[id][:2] == known[:2] for id, known in self._written.items())


def _doc(stored: StoredTask) -> str:
    text = json.dumps(stored.to_json(), ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # half a pair can only be kept as an escape
        return json.dumps(stored.to_json())
    return text
