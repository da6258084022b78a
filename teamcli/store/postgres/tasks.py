"""The tasks of a board as rows.

A change takes a lock on the team's row and has a number, so a process that asks for the changes after the last one that
it knows misses none. The rules then work on what it has in memory, as they do for files.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from psycopg import Cursor

from teamcli.errors import StateError, TaskError
from teamcli.store.postgres.newest import Newest
from teamcli.store.postgres.team_rows import Fence, Team
from teamcli.store.row_limits import LARGEST_NUMBER, LARGEST_SIGNATURE, LARGEST_TASK, bounded, page
from teamcli.tasks.board import Task
from teamcli.tasks.rules import USER
from teamcli.tasks.storage import TaskStorage
from teamcli.tasks.task_file import LARGEST_FILE, LARGEST_ID, Damaged, StoredTask, parse_task

T = TypeVar("T")
_PAGE_ROWS = 1_000
_DOC, _SIG = bounded("doc", LARGEST_TASK), bounded("sig", LARGEST_SIGNATURE)
_NEWS = page(
    f"id, version, change, task_changes, {_DOC}, {_SIG}, counted",
    f"""
        select task.id, version, change, task_changes, task.doc, sig from task join team on team.id = task.team
        where task.team = %(team)s and (change > %(known)s or task_changes < %(known)s)
        and (change, task.id) > (%(change)s, %(id)s) and (task.id, version, change) not in (
            select * from unnest(%(ids)s::bigint[], %(versions)s::bigint[], %(changes)s::bigint[])
        )
        order by change, task.id limit {_PAGE_ROWS}
    """,
    "doc",
    "change, id",
)
"""The number of a change is not signed. A forged one must not hide those that follow, and one that went back hides
nothing: then all are read. Whether a task was changed meanwhile is decided by its version."""
_STORE = """
    insert into task as t (team, id, version, change, status, owner, doc, sig)
    values (%(team)s, %(id)s, %(version)s, %(change)s, %(status)s, %(owner)s, %(doc)s, %(sig)s)
    on conflict (team, id) do update set version = excluded.version, change = excluded.change,
        status = excluded.status, owner = excluded.owner, doc = excluded.doc, sig = excluded.sig
    where t.version = %(there)s or %(is_sure)s
"""
_ROW = f"select id, version, 0, {_DOC}, {_SIG} from task where team = %s and id = %s"
_COUNT = """
    with noted as (
        insert into task_commit (team, slot, token) select %(team)s, %(slot)s, %(token)s where %(has_written)s
        on conflict (team, slot) do update set token = excluded.token
    )
    update team set last_task = %(last_task)s, task_changes = %(changes)s where id = %(team)s
"""
_SLOTS = 4096
"""How many commits are remembered. A commit in doubt is looked for before the team has made that many more."""
_MOST_ATTEMPTS = 3
_NO_FILE = (0, 0, 0, 0)
_FIRST = -(1 << 63)


class _KnownTask(NamedTuple):
    """A row as this process knows it."""

    version: int
    doc: str
    stored: StoredTask


class _Behind(Exception):
    """A task has changed, and this process did not hear of it."""


class _Transaction:
    """One attempt to make a change of the board. It has locked the team's row."""

    def __init__(self, cursor: Cursor[Any], team: int, last_id: int, number: int) -> None:
        self.cursor = cursor
        self._team = team
        self.number = number
        """Of the change."""
        self.written: dict[int, _KnownTask] = {}
        self.last_id = self._locked_id = last_id

    def is_committed(self, token: str) -> bool:
        """Whether an earlier attempt with this token was."""
        query = "select from task_commit where team = %s and token = %s"
        return self.cursor.execute(query, (self._team, token)).fetchone() is not None

    def count(self, token: str) -> None:
        """Note what it has used up: the number of the change, and those of tasks."""
        if self.written or self.last_id != self._locked_id:
            values = {"team": self._team, "slot": self.number % _SLOTS, "token": token}
            values |= {"has_written": bool(self.written), "last_task": self.last_id}
            self.cursor.execute(_COUNT, {**values, "changes": self.number - (not self.written)})


class TaskRows(TaskStorage):
    exists = True
    outsider = ""

    def __init__(
        self,
        team: Team,
        fence: Fence,
        newest: Newest,
        warn: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`warn` reports a row that does not count, once."""
        self._newest = newest
        self._team = team
        self._fence = fence
        super().__init__(warn)
        self._reported: set[int] = set()
        self._rows: dict[int, _KnownTask] = {}
        self._free: set[int] = set()
        self._seen: dict[int, tuple[int, int]] = {}
        """Version and number of the change of rows that would come again at each look: forged ones, for example."""
        self._last_change = -1
        """The last one that this process has read."""
        self._is_noticed = True
        self._transaction: _Transaction | None = None
        """Inside a change."""

    def __getitem__(self, id: int) -> Task:
        with self.held():
            self._refresh()
            written = self._transaction.written if self._transaction else {}
            return (written.get(id) or self._rows[id]).stored.task

    def __iter__(self) -> Iterator[int]:
        return iter([stored.task.id for stored in self.all()])

    def __len__(self) -> int:
        return len(self.all())

    def all(self) -> list[StoredTask]:
        with self.held():
            self._refresh()
            rows = self._rows | (self._transaction.written if self._transaction else {})
            return [rows[id].stored for id in sorted(rows)]

    def change(self, actor: str, act: Callable[[], T]) -> T:
        token = secrets.token_hex(8)
        result: T
        has_written = False

        def attempt(cursor: Cursor[Any]) -> None:
            nonlocal result, has_written
            transaction = self._transaction = self._lock(cursor, actor)
            # If only the answer to its commit was lost, others may have changed the same task since.
            if has_written and transaction.is_committed(token):
                return
            result = act()
            has_written = bool(transaction.written)
            transaction.count(token)

        # A claim cannot be one statement: this process signs its row, and needs to know the whole task for that.
        with self.held():
            try:
                self._up_to_date(attempt)
                committed = self._in_change
                for id, known in committed.written.items():
                    self._newest.admits(_name(id), known.version)
                    self._put(id, known)
                if committed.written:
                    self._last_change = committed.number
            finally:
                self._transaction = None
        if has_written:
            self._team.database.notify(self._team.topic("task"))
        return result

    @property
    def _in_change(self) -> _Transaction:
        assert self._transaction is not None, "only inside a change"
        return self._transaction

    def _up_to_date(self, attempt: Callable[[Cursor[Any]], None]) -> None:
        for _ in range(_MOST_ATTEMPTS):
            try:
                self._team.database.run(attempt)
                return
            except _Behind:
                self._last_change = -1  # read all
                self._seen.clear()
        raise StateError("the tasks in the database change in a way that the team does not; see who writes to it")

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
        transaction = self._in_change
        transaction.last_id = max(transaction.last_id, *self._rows, 0) + 1
        if transaction.last_id > LARGEST_ID:
            raise TaskError(f"the board is full: there is a task {LARGEST_ID}")
        return transaction.last_id

    def give_back(self, id: int) -> None:
        if self._in_change.last_id == id:
            self._in_change.last_id = id - 1

    def write(self, task: Task) -> None:
        transaction = self._in_change
        cursor = transaction.cursor
        known = transaction.written.get(task.id) or self._rows.get(task.id)
        stored = StoredTask(task, _NO_FILE, known.stored.unknown if known else {})
        version, doc = self._newest.next(_name(task.id)), _doc(stored)
        values: dict[str, Any] = {
            "team": self._team.id,
            "id": task.id,
            "version": version,
            "change": transaction.number,
        }
        values |= {"status": str(task.status), "owner": task.owner, "doc": doc}
        values |= {"sig": self._team.sign("task", task.id, version, doc), "there": known.version if known else 0}
        cursor.execute(_STORE, {**values, "is_sure": False})
        if not cursor.rowcount:  # what is there is newer, or not of this team
            if self._is_newer(cursor, task.id, version):
                raise _Behind
            cursor.execute(_STORE, {**values, "is_sure": True})
        transaction.written[task.id] = _KnownTask(version, doc, stored)

    def _is_newer(self, cursor: Cursor[Any], id: int, version: int) -> bool:
        _, there, _, doc, sig = cursor.execute(_ROW, (self._team.id, id)).fetchone() or (id, 0, 0, "", "")
        return bool(doc) and there >= version and self._team.is_signed(sig or "", "task", id, there, doc)

    def _lock(self, cursor: Cursor[Any], actor: str) -> _Transaction:
        """Keep all others out, and read what they have changed.

        Raises: LeaseLost
        """
        if actor != USER or self._fence.held():  # the user may change tasks from any shell
            self._fence.check(cursor, self._fence.holder(actor)[0])
        # Unlike an update of the key, this lets others insert rows that refer to the team.
        cursor.execute("select last_task, task_changes from team where id = %s for no key update", (self._team.id,))
        row = cursor.fetchone()
        if row is None:
            raise StateError("the team is no longer in the database")
        last_id, last_change = row
        if last_id >= LARGEST_ID:  # forged: the numbers that are used are known
            last_id = 0
        last_change = last_change if last_change < LARGEST_NUMBER else 0
        if last_change != self._last_change:
            self._take_news(lambda values: cursor.execute(_NEWS.encode(), values).fetchall())
        self._last_change = max(last_change, self._last_change)
        return _Transaction(cursor, self._team.id, last_id, self._last_change + 1)

    def _refresh(self) -> None:
        """Inside a change, nothing can be newer."""
        if self._transaction is None:
            self._take_news(lambda values: self._team.database.fetch(_NEWS, values))

    def _take_news(self, fetch: Callable[[dict[str, Any]], Sequence[tuple[Any, ...]]]) -> None:
        values: dict[str, Any] = {"team": self._team.id, "known": self._last_change, "ids": list(self._seen)}
        values["versions"] = [version for version, _ in self._seen.values()]
        values["changes"] = [change for _, change in self._seen.values()]
        values |= {"change": _FIRST, "id": _FIRST}
        while rows := fetch(values):
            self._take(rows)
            values |= {"id": rows[-1][0], "change": rows[-1][2]}
            counted = rows[0][-1]
            if len(rows) == counted < _PAGE_ROWS:
                break

    def _take(self, rows: Sequence[tuple[Any, ...]]) -> None:
        for id, version, change, last, doc, sig, _ in rows:
            if min(change, last) < LARGEST_NUMBER:
                self._last_change = max(self._last_change, min(change, last))
            if change > self._last_change:
                self._seen[id] = version, change
            try:
                stored = self._checked(id, version, doc, sig)
            except Damaged as e:
                self._seen[id] = version, change
                self._report(id, f"the row of task {id} in the database does not count ({e})")
            else:
                self._put(id, _KnownTask(version, doc, stored))

    def _checked(self, id: int, version: int, doc: str | None, sig: str | None) -> StoredTask:
        """Raises: Damaged"""
        if doc is None or not self._team.is_signed(sig or "", "task", id, version, doc):
            raise Damaged("it is not signed with the team's key")
        if len(doc) > LARGEST_FILE:
            raise Damaged(f"it is larger than {LARGEST_FILE:,} bytes")
        if not self._newest.admits(_name(id), version):
            raise Damaged(f"it is older than one that was here; {self._newest.remedy}")
        return parse_task(doc.encode(), id, Path(f"tasks/{id}.json"))

    def _report(self, id: int, problem: str) -> None:
        if id not in self._reported:
            self._reported.add(id)
            self._to_report.append(problem)

    def _put(self, id: int, known: _KnownTask) -> None:
        self._rows[id] = known
        (self._free.add if known.stored.task.is_free else self._free.discard)(id)


def _name(id: int) -> str:
    """What a host remembers a row as."""
    return f"task/{id}"


def _doc(stored: StoredTask) -> str:
    text = json.dumps(stored.to_json(), ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # half a pair can only be kept as an escape
        return json.dumps(stored.to_json())
    return text
