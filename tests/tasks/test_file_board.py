"""The board and its files: what they hold, and what happens to damaged, strange and hostile ones.

What does not belong to files is tested with a database, too.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from teamcli.errors import StateError, TaskError
from teamcli.tasks.board import BoardChange, GateEvent, Task, TaskChange, TaskStatus
from teamcli.tasks.stored_board import StoredBoard
from teamcli.tasks.task_files import TaskFiles
from tests.support.waiting import DEADLINE_SECONDS, wait_until
from tests.tasks.engines import FileTasks, RowTasks, Tasks, tasks_in

PENDING, IN_PROGRESS, COMPLETED, CANCELLED = TaskStatus
NAMES = ("lead", "alice", "bob")


class Outcome:
    """A board, and what it reported."""

    def __init__(self, tasks: Tasks) -> None:
        self.tasks = tasks
        self.directory = tasks.directory if isinstance(tasks, FileTasks) else Path()
        self.changes: list[BoardChange] = []
        self.warnings: list[str] = []
        self.refusal = ""
        self.gated: list[tuple[GateEvent, Task, str]] = []
        self.storage = tasks.storage(self.warnings.append)
        self.board = StoredBoard(self.storage, lambda: NAMES, self.changes.append, self.gate, lambda: 5.0)

    def gate(self, event: GateEvent, task: Task, actor: str) -> str:
        self.gated.append((event, task, actor))
        return self.refusal

    def read(self, id: int) -> dict[str, Any]:
        return json.loads((self.directory / f"{id}.json").read_bytes())  # type: ignore[no-any-return]

    def edit(self, id: int, /, **fields: Any) -> None:
        (self.directory / f"{id}.json").write_text(json.dumps({**self.read(id), **fields}))

    def another(self) -> Outcome:
        """As another process sees it."""
        return Outcome(self.tasks)

    def look(self, is_first: bool = False) -> None:
        if isinstance(self.tasks, RowTasks):
            self.storage.notice()  # type: ignore[attr-defined]  # as the listener does
        self.board.look(is_first)

    def fill(self, count: int) -> None:
        for _ in range(count):
            self.board.create("lead", "work")


@pytest.fixture
def out(tmp_path: Path) -> Outcome:
    return Outcome(FileTasks(tmp_path / "tasks"))


@pytest.fixture(params=["files", "postgres"])
def each(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Outcome]:
    """A board of each engine."""
    with tasks_in(request.param, tmp_path / "tasks", request) as tasks:
        yield Outcome(tasks)


def test_a_task_is_a_file_that_anyone_can_read(out: Outcome) -> None:
    out.board.create("user", "Build it", "with care")
    assert out.read(1) == {
        "v": 1,
        "id": 1,
        "subject": "Build it",
        "description": "with care",
        "status": "pending",
        "owner": None,
        "blocked_by": [],
        "created_by": "user",
        "created": 5.0,
        "updated": 5.0,
        "result": "",
        "assigned": 0,
    }


def test_only_the_user_can_read_the_files(out: Outcome) -> None:
    out.fill(1)
    modes = [path.stat().st_mode & 0o777 for path in (out.directory, *sorted(out.directory.iterdir()))]
    assert modes == [0o700, 0o600, 0o600]


def test_looking_at_a_board_creates_nothing(out: Outcome) -> None:
    assert (out.board.tasks(), out.board.claim_next("bob"), out.board.release("bob")) == ((), None, ())
    assert not out.directory.exists()


def test_tasks_are_sorted_as_numbers(each: Outcome) -> None:
    each.fill(11)
    assert [task.id for task in each.board.tasks()] == list(range(1, 12))


@pytest.mark.parametrize("damage", [b"{", b"[]", b"\xff\xfe", b"", b"[" * 100_000, b"x" * 2_000_001])
def test_a_damaged_file_is_set_aside_and_reported_once_and_the_rest_works(out: Outcome, damage: bytes) -> None:
    out.fill(3)
    (out.directory / "2.json").write_bytes(damage)
    assert [task.id for task in out.board.tasks()] == [1, 3]
    assert [task.id for task in out.another().board.tasks()] == [1, 3]
    assert (out.directory / "2.bad.json").read_bytes() == damage
    assert [text.split(";")[-1] for text in out.warnings] == [" it is now 2.bad.json"]


def test_a_file_that_an_editor_is_still_writing_is_not_set_aside(out: Outcome, monkeypatch: pytest.MonkeyPatch) -> None:
    out.fill(2)
    path = out.directory / "2.json"
    whole = path.read_text().replace("task 2", "edited")
    monkeypatch.setattr("time.sleep", lambda seconds: path.write_text(whole))
    path.write_text("")
    assert [task.subject for task in out.board.tasks()][1] == json.loads(whole)["subject"]
    assert (out.warnings, list(out.directory.glob("*.bad.json"))) == ([], [])


def test_a_file_that_is_written_without_end_is_not_waited_for(out: Outcome, monkeypatch: pytest.MonkeyPatch) -> None:
    out.fill(1)
    path = out.directory / "1.json"
    monkeypatch.setattr("time.sleep", lambda seconds: path.write_text("{"))
    path.write_text("{")
    assert out.board.tasks() == ()
    assert path.with_suffix(".bad.json").exists()


def test_a_damaged_file_is_reported_while_other_threads_can_read_the_board(tmp_path: Path) -> None:
    """What reports it may wait for a thread that reads."""
    read: list[list[int]] = []

    def warn(problem: str) -> None:
        reader = threading.Thread(target=lambda: read.append([task.id for task in board.tasks()]), daemon=True)
        reader.start()
        reader.join(DEADLINE_SECONDS)

    board = StoredBoard(TaskFiles(tmp_path, warn), lambda: NAMES)
    board.create("lead", "work")
    board.create("lead", "work")
    (tmp_path / "1.json").write_text("{")
    board.tasks()
    assert read == [[2]]


@pytest.mark.parametrize(
    "fields",
    [
        {"id": 7},
        {"id": True},
        {"id": "1"},
        {"status": "done"},
        {"status": ["pending"]},
        {"owner": 5},
        {"owner": "x" * 100},
        {"subject": None},
        {"description": {}},
        {"blocked_by": "2"},
        {"blocked_by": [True]},
        {"blocked_by": [0]},
        {"result": 1},
    ],
)
def test_a_file_with_a_value_of_the_wrong_type_is_set_aside(out: Outcome, fields: dict[str, Any]) -> None:
    out.fill(1)
    out.edit(1, **fields)
    with pytest.raises(TaskError, match=r"^no task 1 "):
        out.board.get(1)
    assert len(out.warnings) == 1


@pytest.mark.parametrize("fields", [{"created": float("nan")}, {"updated": 10**400}, {"assigned": float("inf")}])
def test_a_number_that_makes_no_sense_counts_as_zero(out: Outcome, fields: dict[str, Any]) -> None:
    out.fill(1)
    out.edit(1, **fields)
    assert getattr(out.board.get(1), next(iter(fields))) == 0


def test_a_file_that_is_not_a_file_neither_hangs_nor_leads_out(out: Outcome, tmp_path: Path) -> None:
    out.fill(4)
    outside = tmp_path / "outside.json"
    outside.write_bytes((out.directory / "1.json").read_bytes())
    for id in (1, 2, 3):
        (out.directory / f"{id}.json").unlink()
    (out.directory / "1.json").symlink_to(outside)
    os.mkfifo(out.directory / "2.json")
    (out.directory / "3.json").mkdir()
    assert [task.id for task in out.board.tasks()] == [4]
    assert len(out.warnings) == 3


def test_a_board_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tasks").symlink_to(tmp_path)
    with pytest.raises(StateError, match="is a symbolic link; remove it"):
        Outcome(FileTasks(tmp_path / "tasks")).board.create("user", "x")


def test_a_second_damaged_file_of_one_number_replaces_nothing(out: Outcome) -> None:
    out.fill(1)
    for damage in ("first", "second"):
        (out.directory / "1.json").write_text(damage)
        out.board.tasks()
    assert (out.directory / "1.bad.json").read_text() == "first"
    assert (out.directory / "1.bad-2.json").read_text() == "second"


def test_a_file_of_a_newer_version_is_refused(out: Outcome) -> None:
    out.fill(1)
    out.edit(1, v=2)
    with pytest.raises(StateError, match=r"1\.json was written by a newer teamcli \(version 2\); update teamcli"):
        out.board.tasks()


def test_unknown_fields_are_kept(out: Outcome) -> None:
    out.fill(1)
    out.edit(1, color="red")
    out.board.update("lead", 1, TaskChange(subject="new"))
    assert (out.read(1)["color"], out.read(1)["subject"]) == ("red", "new")


def test_a_task_in_progress_of_nobody_is_free(out: Outcome) -> None:
    out.fill(1)
    out.edit(1, status="in_progress")
    assert out.board.get(1).is_free


def test_broken_text_is_kept_and_can_be_read_again(each: Outcome) -> None:
    each.board.create("user", "half \ud800 a pair")
    assert each.another().board.get(1).subject == "half \ud800 a pair"


def test_a_number_is_never_used_again(out: Outcome) -> None:
    out.fill(3)
    (out.directory / "3.json").write_text("damaged")
    assert out.board.create("lead", "x").id == 4
    (out.directory / "4.json").unlink()
    assert out.another().board.create("lead", "x").id == 5


def test_a_number_is_not_used_again_if_the_lock_file_is_lost(out: Outcome) -> None:
    out.fill(3)
    (out.directory / "3.json").write_text("damaged")
    out.board.tasks()
    (out.directory / ".lock").write_text("nonsense")
    assert out.board.create("lead", "x").id == 4


def test_a_refused_task_takes_no_number(each: Outcome) -> None:
    with pytest.raises(TaskError):
        each.board.create("lead", " ")
    assert each.board.create("lead", "x").id == 1


def test_a_full_board_says_so(out: Outcome) -> None:
    out.fill(1)
    (out.directory / "999999999.json").write_text(json.dumps({"id": 999_999_999, "subject": "x"}))
    with pytest.raises(TaskError, match=r"^the board is full"):
        out.board.create("lead", "x")


def test_other_files_in_the_directory_are_left_alone(out: Outcome) -> None:
    out.fill(1)
    for name in ("README", "01.json", "1.json~", "-1.json", ".2.json.abc", "2.json.json"):
        (out.directory / name).write_text("x")
    assert [task.id for task in out.board.tasks()] == [1]
    assert out.warnings == []


def test_the_lowest_free_task_is_claimed(each: Outcome) -> None:
    each.fill(12)
    each.board.update("lead", 1, TaskChange(owner="alice"))
    each.board.update("lead", 2, TaskChange(blocked_by=(1,)))
    claimed = [each.board.claim_next("bob", but=frozenset({3})) for _ in range(10)]
    assert [task and task.id for task in claimed] == [*range(4, 13), None]


def test_a_task_that_another_process_has_freed_is_the_lowest_again(each: Outcome) -> None:
    each.fill(3)
    other = each.another().board
    assert (each.board.claim_next("alice"), other.claim_next("bob")) == (each.board.get(1), each.board.get(2))
    other.update("user", 1, TaskChange(status=PENDING))
    assert each.board.claim_next("alice") == other.get(1)


def test_a_finished_blocker_frees_a_task_for_another_process(each: Outcome) -> None:
    each.fill(1)
    each.board.create("lead", "next", blocked_by=[1])
    other = each.another().board
    assert (other.claim_next("bob") or Task(0, "")).id == 1
    assert each.board.claim_next("alice") is None
    other.update("bob", 1, TaskChange(status=COMPLETED))
    assert (each.board.claim_next("alice") or Task(0, "")).id == 2


def test_a_file_edited_by_hand_counts_at_once(out: Outcome) -> None:
    out.fill(1)
    out.edit(1, owner="bob")
    with pytest.raises(TaskError, match=r"^already claimed by bob$"):
        out.board.update("alice", 1, TaskChange(status=IN_PROGRESS))


def test_release_frees_what_its_owner_has_not_finished_and_nothing_else(each: Outcome) -> None:
    each.fill(4)
    for id, owner in ((1, "alice"), (2, "alice"), (3, "alice"), (4, "bob")):
        each.board.update("lead", id, TaskChange(owner=owner))
    each.board.update("alice", 1, TaskChange(status=IN_PROGRESS))
    each.board.update("alice", 2, TaskChange(status=COMPLETED))
    each.another().board.update("lead", 3, TaskChange(owner="bob"))
    assert [task.id for task in each.board.release("alice")] == [1]
    assert [task.owner for task in each.board.tasks()] == [None, "alice", "bob", "bob"]


def test_every_change_is_reported_with_what_it_was(each: Outcome) -> None:
    each.board.create("lead", "x")
    for actor, change in (
        ("lead", TaskChange(subject="y")),
        ("lead", TaskChange(owner="alice")),
        ("alice", TaskChange(status=IN_PROGRESS)),
        ("alice", TaskChange(status=IN_PROGRESS)),
        ("alice", TaskChange(owner="")),
        ("bob", TaskChange(status=IN_PROGRESS)),
        ("bob", TaskChange(status=COMPLETED)),
        ("lead", TaskChange(status=PENDING)),
        ("lead", TaskChange(status=CANCELLED)),
    ):
        each.board.update(actor, 1, change)
    assert [f"{change.actor} {change.what}" for change in each.changes] == [
        "lead created",
        "lead changed",
        "lead assigned",
        "alice started",
        "alice released",
        "bob claimed",
        "bob completed",
        "lead reopened",
        "lead cancelled",
    ]


def test_a_look_reports_what_other_processes_have_changed_and_only_that(each: Outcome) -> None:
    each.fill(2)
    other = each.another().board
    each.look(is_first=True)
    each.changes.clear()
    each.board.create("lead", "ours")
    other.create("user", "theirs")
    other.update("user", 1, TaskChange(status=COMPLETED))
    each.board.tasks()
    each.look()
    each.look()
    assert [(each.what, each.after.id, each.is_outside) for each in each.changes] == [
        ("created", 3, False),
        ("completed", 1, True),
        ("created", 4, True),
    ]


def test_a_look_notices_a_file_that_is_edited_in_place_once_it_is_complete(out: Outcome) -> None:
    out.fill(2)
    os.utime(out.directory, (1, 1))  # it was last changed long ago
    out.board.look(is_first=True)
    out.changes.clear()
    path = out.directory / "2.json"
    edited = json.dumps(json.loads(path.read_text()) | {"subject": "better"})
    with path.open("w") as file:
        file.flush()  # empty for a moment
        out.board.look()
        file.write(edited)
    assert out.changes == []
    wait_until(lambda: (out.board.look(), out.changes)[1])
    (change,) = out.changes
    assert (change.what, change.after.id, change.is_outside) == ("changed", 2, True)
    assert change.after.subject == "better"
    assert [each.name for each in out.directory.glob("*.bad.json")] == []


def test_a_look_notices_a_file_that_is_deleted(out: Outcome) -> None:
    out.fill(2)
    out.board.look(is_first=True)
    out.changes.clear()
    (out.directory / "1.json").unlink()
    out.board.look()
    out.board.look()
    assert [(each.what, each.after.id, each.is_outside) for each in out.changes] == [("deleted", 1, True)]


def test_a_look_notices_the_first_task_of_another_process(each: Outcome) -> None:
    each.look()
    each.another().board.create("user", "first")
    each.look()
    assert [change.what for change in each.changes] == ["created"]


def test_a_gate_refuses_a_new_task(each: Outcome) -> None:
    each.refusal = "name a test"
    with pytest.raises(TaskError, match=r"^name a test$"):
        each.board.create("alice", "x")
    assert (each.board.tasks(), each.changes) == ((), [])
    assert [(event, task.id, actor) for event, task, actor in each.gated] == [(GateEvent.CREATED, 1, "alice")]
    each.refusal = ""
    assert each.board.create("alice", "with a test").id == 1


def test_a_gate_refuses_a_completion_and_is_asked_about_nothing_else(each: Outcome) -> None:
    each.fill(1)
    each.refusal = "run the tests"
    each.board.update("alice", 1, TaskChange(status=IN_PROGRESS))
    with pytest.raises(TaskError, match=r"^run the tests$"):
        each.board.update("alice", 1, TaskChange(status=COMPLETED))
    assert each.board.get(1).status is IN_PROGRESS
    assert [event for event, _, _ in each.gated] == [GateEvent.CREATED, GateEvent.COMPLETED]


def test_a_gate_runs_without_the_lock_and_what_it_passed_is_checked_again(each: Outcome) -> None:
    other = each.another().board

    def gate(event: GateEvent, task: Task, actor: str) -> str:
        if event is GateEvent.COMPLETED:
            other.update("lead", task.id, TaskChange(owner="bob"))
        return ""

    board = StoredBoard(each.tasks.storage(), lambda: NAMES, gate=gate)
    board.create("alice", "x", owner="alice")
    with pytest.raises(TaskError, match=r"^task 1 belongs to bob$"):
        board.update("alice", 1, TaskChange(status=COMPLETED))


def test_a_deleted_board_is_written_again(out: Outcome) -> None:
    out.fill(3)
    for path in out.directory.iterdir():
        path.unlink()
    out.directory.rmdir()
    out.board.put_back()
    assert [task.id for task in out.board.tasks()] == [1, 2, 3]
    assert out.board.create("lead", "x").id == 4


def test_a_lock_that_is_deleted_while_others_wait_for_it_protects_nobody_twice(out: Outcome) -> None:
    out.fill(1)
    held = os.open(out.directory / ".lock", os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_EX)
    claimed: list[Task | None] = []
    waiting = threading.Thread(target=lambda: claimed.append(out.board.claim_next("alice")))
    waiting.start()
    wait_until(lambda: any(f" {os.fstat(held).st_ino} " in line and "->" in line for line in locks()))
    (out.directory / ".lock").unlink()
    os.close(held)
    waiting.join()
    assert [task and task.owner for task in claimed] == ["alice"]
    assert (out.directory / ".lock").exists()


def locks() -> list[str]:
    """What `/proc` shows: a line with `->` for each that waits."""
    return [line.replace(":", " ") for line in Path("/proc/locks").read_text().splitlines()]


def test_of_many_threads_one_claims_each_task(each: Outcome) -> None:
    each.fill(40)
    claimed: list[int] = []

    def work(name: str) -> None:
        while (task := each.board.claim_next(name)) is not None:
            claimed.append(task.id)

    threads = [threading.Thread(target=work, args=(f"a{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(claimed) == list(range(1, 41))
