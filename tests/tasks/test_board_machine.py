"""The board against a plain model, whatever agents, people, other processes and damage do in whatever order."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from teamcli.errors import TaskError
from teamcli.tasks.board import BoardChange, Task, TaskChange, TaskStatus
from teamcli.tasks.stored_board import StoredBoard
from tests.tasks.engines import FileTasks, RowTasks, Tasks

SOAK = bool(os.environ.get("TEAMCLI_SOAK"))
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # where syncing costs nothing
PENDING, IN_PROGRESS, COMPLETED, CANCELLED = TaskStatus
MEMBERS = ("alice", "bob")
OWNERS = ("lead", *MEMBERS)
ACTORS = ("user", *OWNERS)
actors, members, ids = st.sampled_from(ACTORS), st.sampled_from(MEMBERS), st.integers(0, 20)


class Entry:
    """A task of the model. Written independently of the rules: plain fields, one method per promise."""

    def __init__(self, creator: str, blocked_by: tuple[int, ...]) -> None:
        self.creator = creator
        self.status, self.owner, self.blocked_by = "pending", "", set(blocked_by)
        self.assigned = 0

    @property
    def is_over(self) -> bool:
        return self.status in ("completed", "cancelled")

    def belongs_to(self, actor: str) -> bool:
        return actor in ("lead", "user") or actor == self.owner or (not self.owner and actor == self.creator)

    def give(self, owner: str, status: str = "pending") -> None:
        self.assigned += bool(owner) and owner != self.owner
        self.owner, self.status = owner, status


class BoardMachine(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.open()
        self.changes: list[BoardChange] = []
        self.warnings: list[str] = []
        # Two boards on one directory, as two processes have them: what one has read must not mislead the other.
        self.boards = [self.new_board(), self.new_board()]
        self.model: dict[int, Entry] = {}
        self.last = 0
        self.expected_changes = 0
        self.damaged = 0
        for _ in range(6):
            self.create(0, "lead", set(), "")

    def open(self) -> None:
        self.directory = tempfile.TemporaryDirectory(prefix="board-machine-", dir=MEMORY)
        self.path = Path(self.directory.name) / "tasks"
        self.tasks: Tasks = FileTasks(self.path)

    def new_board(self) -> StoredBoard:
        return StoredBoard(self.tasks.storage(self.warnings.append), lambda: OWNERS, self.changes.append)

    def statuses(self) -> dict[int, str]:
        """As they are stored."""
        return {id: json.loads((self.path / f"{id}.json").read_bytes())["status"] for id in self.model}

    def teardown(self) -> None:
        self.directory.cleanup()

    def near(self, number: int) -> int:
        """A number that exists, if there is one; now and then one that was or will be used."""
        return sorted(self.model)[number % len(self.model)] if self.model and number else self.last

    def open_blockers(self, id: int) -> list[int]:
        found = sorted(self.model[id].blocked_by)
        return [each for each in found if each in self.model and not self.model[each].is_over]

    def refusal_of_claim(self, actor: str, id: int) -> str:
        entry = self.model[id]
        if entry.is_over:
            return f"already {entry.status}"
        if entry.owner not in ("", actor):
            return f"already claimed by {entry.owner}"
        if entry.status == "pending" and (blockers := self.open_blockers(id)):
            return f"blocked by {', '.join(map(str, blockers))}"
        return ""

    def waits_for(self, id: int, wanted: int) -> bool:
        seen, todo = set[int](), [id]
        while todo:
            each = todo.pop()
            if each == wanted:
                return True
            if each in self.model and each not in seen:
                seen.add(each)
                todo += self.model[each].blocked_by
        return False

    def change(self, which: int, actor: str, id: int, change: TaskChange, refusal: str | None, changes: bool) -> None:
        """Make the change. `refusal` is the reason that is expected: None for any, empty for success."""
        if id not in self.model:
            refusal = None
        try:
            self.boards[which].update(actor, id, change)
        except TaskError as e:
            assert refusal is None or str(e) == refusal
            assert refusal != ""
        else:
            assert refusal == ""
            self.expected_changes += changes

    @rule(
        which=st.integers(0, 1), actor=actors, blockers=st.sets(ids, max_size=3), owner=st.sampled_from(("", *OWNERS))
    )
    def create(self, which: int, actor: str, blockers: set[int], owner: str) -> None:
        blockers = {each for each in blockers if each in self.model or each > 15}
        is_allowed = blockers <= self.model.keys() and (owner in ("", actor) or actor in ("lead", "user"))
        try:
            task = self.boards[which].create(actor, "work", blocked_by=tuple(blockers), owner=owner)
        except TaskError:
            assert not is_allowed
            return
        assert is_allowed
        self.last += 1
        assert task.id == self.last
        self.model[task.id] = Entry(actor, tuple(blockers))
        if owner:
            starts = owner == actor and not self.open_blockers(task.id)
            self.model[task.id].give(owner, "in_progress" if starts else "pending")
        self.expected_changes += 1

    @rule(which=st.integers(0, 1), actor=actors, id=ids, by_owner=st.booleans())
    def claim(self, which: int, actor: str, id: int, by_owner: bool) -> None:
        id = self.near(id)
        refusal = self.refusal_of_claim(actor, id) if id in self.model else None
        held = id in self.model and self.model[id].status == "in_progress"
        change = TaskChange(owner=actor) if by_owner else TaskChange(status=IN_PROGRESS)
        self.change(which, actor, id, change, refusal, changes=not held)
        if refusal == "" and not held:
            self.model[id].give(actor, "in_progress")

    @rule(which=st.integers(0, 1), actor=actors, id=ids, status=st.sampled_from((COMPLETED, CANCELLED)))
    def finish(self, which: int, actor: str, id: int, status: TaskStatus) -> None:
        id = self.near(id)
        entry = self.model.get(id)
        refusal: str | None = ""
        if entry is not None and entry.status == status:
            self.change(which, actor, id, TaskChange(status=status), "", changes=False)
            return
        if entry is not None and entry.is_over:
            refusal = f"already {entry.status}"
        elif entry is not None and not entry.belongs_to(actor):
            refusal = None
        elif entry is not None and status is COMPLETED and actor in MEMBERS and entry.status == "pending":
            blockers = self.open_blockers(id)
            refusal = f"blocked by {', '.join(map(str, blockers))}" if blockers else ""
        self.change(which, actor, id, TaskChange(status=status), refusal, changes=True)
        if entry is not None and refusal == "":
            entry.status = str(status)

    @rule(which=st.integers(0, 1), actor=actors, id=ids)
    def reopen(self, which: int, actor: str, id: int) -> None:
        id = self.near(id)
        entry = self.model.get(id)
        is_pending = entry is not None and entry.status == "pending"
        refusal = "" if entry and (is_pending or entry.belongs_to(actor)) else None
        self.change(which, actor, id, TaskChange(status=PENDING), refusal, changes=not is_pending)
        if entry and refusal == "" and not is_pending:
            entry.give("")

    @rule(which=st.integers(0, 1), actor=actors, id=ids, owner=st.sampled_from(OWNERS))
    def assign(self, which: int, actor: str, id: int, owner: str) -> None:
        id = self.near(id)
        entry = self.model.get(id)
        if owner == actor:
            return
        refusal: str | None = ""
        if entry is None or actor in MEMBERS:
            refusal = None
        elif entry.is_over:
            refusal = f"already {entry.status}"
        changes = entry is not None and entry.owner != owner
        self.change(which, actor, id, TaskChange(owner=owner), refusal, changes)
        if entry is not None and refusal == "" and changes:
            entry.give(owner)

    @rule(which=st.integers(0, 1), actor=actors, id=ids, blockers=st.sets(ids, max_size=3))
    def block(self, which: int, actor: str, id: int, blockers: set[int]) -> None:
        id = self.near(id)
        entry, blockers = self.model.get(id), set(map(self.near, blockers))
        refusal: str | None = None
        if entry is not None:
            unknown = blockers - self.model.keys() - entry.blocked_by
            has_cycle = any(self.waits_for(each, id) for each in blockers)
            is_same = blockers == entry.blocked_by
            refusal = "" if not unknown and not has_cycle and (is_same or entry.belongs_to(actor)) else None
            self.change(which, actor, id, TaskChange(blocked_by=tuple(blockers)), refusal, changes=not is_same)
            if refusal == "":
                entry.blocked_by = set(blockers)
        else:
            self.change(which, actor, id, TaskChange(blocked_by=tuple(blockers)), None, changes=False)

    @rule(which=st.integers(0, 1), owner=members, but=st.sets(ids, max_size=2))
    def claim_next(self, which: int, owner: str, but: set[int]) -> None:
        but = set(map(self.near, but))
        free = [
            id
            for id, entry in self.model.items()
            if entry.status == "pending" and not entry.owner and not self.open_blockers(id) and id not in but
        ]
        task = self.boards[which].claim_next(owner, frozenset(but))
        assert (task.id if task else 0) == min(free, default=0)
        if task is not None:
            self.model[task.id].give(owner, "in_progress")
            self.expected_changes += 1

    @rule(which=st.integers(0, 1), owner=members)
    def release(self, which: int, owner: str) -> None:
        released = [task.id for task in self.boards[which].release(owner)]
        expected = [id for id, entry in sorted(self.model.items()) if entry.owner == owner and not entry.is_over]
        assert released == expected
        for id in expected:
            self.model[id].give("")
        self.expected_changes += len(expected)

    @rule(which=st.integers(0, 1), id=ids, is_deleted=st.booleans())
    def lose_a_file(self, which: int, id: int, is_deleted: bool) -> None:
        id = self.near(id)
        if id not in self.model:
            return
        path = self.path / f"{id}.json"
        if is_deleted:
            path.unlink()
        else:
            path.write_text("damaged")
            self.damaged += 1
        self.boards[which].tasks()
        del self.model[id]

    @rule(which=st.integers(0, 1))
    def start_again(self, which: int) -> None:
        self.boards[which] = self.new_board()

    @invariant()
    def what_is_stored_agrees_with_the_model(self) -> None:
        expected = {
            id: (e.status, e.owner or None, tuple(sorted(e.blocked_by)), e.assigned) for id, e in self.model.items()
        }
        # Looked at through a third one: the two keep what they have read, which may be old.
        assert {task.id: _state(task) for task in self.new_board().tasks()} == expected
        assert self.statuses() == {id: entry.status for id, entry in self.model.items()}

    @invariant()
    def every_change_and_every_damage_is_reported_once(self) -> None:
        assert (len(self.changes), len(self.warnings)) == (self.expected_changes, self.damaged)


def _state(task: Task) -> tuple[str, str | None, tuple[int, ...], int]:
    return str(task.status), task.owner, task.blocked_by, task.assigned


@pytest.mark.soak
@pytest.mark.timeout(3600 if SOAK else 120)
class TestBoardMachine(BoardMachine.TestCase):  # type: ignore[misc]  # made by hypothesis at run time
    settings = settings(
        max_examples=500 if SOAK else 50,
        stateful_step_count=40,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )


class RowBoardMachine(BoardMachine):
    url = ""

    def open(self) -> None:
        self.rows = RowTasks(self.url)
        self.tasks = self.rows

    def statuses(self) -> dict[int, str]:
        sql = "select id, status from task where team = %s"
        return dict(self.rows.team.database.run(lambda cursor: cursor.execute(sql, (self.rows.team.id,)).fetchall()))

    def teardown(self) -> None:
        self.rows.close()

    def lose_a_file(self, which: int, id: int, is_deleted: bool) -> None:
        """Not a rule here: there are no files."""


@pytest.mark.soak
@pytest.mark.timeout(3600 if SOAK else 120)
class TestRowBoardMachine(RowBoardMachine.TestCase):  # type: ignore[misc]  # made by hypothesis at run time
    settings = settings(TestBoardMachine.settings, max_examples=500 if SOAK else 10)

    @pytest.fixture(autouse=True)
    def _database(self, postgres_url: str) -> None:
        RowBoardMachine.url = postgres_url
