"""What only a board in PostgreSQL has: leases, signed rows, changes whose commit was not confirmed, and waking."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from teamcli.app.lazy_board import LazyBoard
from teamcli.errors import LeaseLost, TaskError
from teamcli.store.postgres.newest import Newest
from teamcli.tasks.board import BoardChange, Task, TaskChange, TaskStatus
from teamcli.tasks.stored_board import StoredBoard
from tests.support.postgres import hold_lease
from tests.tasks.engines import RowTasks

if TYPE_CHECKING:
    from teamcli.store.postgres.database import Topic
    from teamcli.store.postgres.tasks import TaskRows
    from teamcli.store.postgres.team_rows import Fence

NAMES = ("lead", "alice", "bob")
IN_PROGRESS, COMPLETED = TaskStatus.IN_PROGRESS, TaskStatus.COMPLETED


class LostAnswer:
    """A database that commits twice, as after a connection that was lost before the answer came."""

    def __init__(self, database: Any, meanwhile: Callable[[], object] = tuple) -> None:
        """`meanwhile` is what others do in between."""
        self._database = database
        self._meanwhile = meanwhile

    def run(self, act: Any, *topics: Topic) -> Any:
        self._database.run(act)
        self._meanwhile()
        return self._database.run(act, *topics)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)


@pytest.fixture
def rows(postgres_url: str) -> Iterator[RowTasks]:
    with closing(RowTasks(postgres_url)) as rows:
        yield rows


@pytest.fixture
def board(rows: RowTasks) -> StoredBoard:
    return StoredBoard(rows.storage(), lambda: NAMES)


def board_of(rows: RowTasks, fence: Fence) -> StoredBoard:
    """The board of a host with these leases."""
    from teamcli.store.postgres.tasks import TaskRows

    return StoredBoard(TaskRows(rows.team, fence, Newest()), lambda: NAMES)


def shaken_board(rows: RowTasks, meanwhile: Callable[[], object]) -> StoredBoard:
    """The board of a host that gets no answer to its commits."""
    from teamcli.store.postgres.tasks import TaskRows

    team = rows.team._replace(database=LostAnswer(rows.team.database, meanwhile))
    return StoredBoard(TaskRows(team, rows.fence, Newest()), lambda: NAMES)


def execute(rows: RowTasks, sql: str) -> None:
    rows.team.database.run(lambda cursor: cursor.execute(sql, (rows.team.id,)))


def test_a_host_that_was_replaced_changes_no_task(rows: RowTasks, board: StoredBoard) -> None:
    board.create("lead", "work")
    old = board_of(rows, hold_lease(rows.team, "alice"))
    new = board_of(rows, hold_lease(rows.team, "alice"))
    for attempt in (
        lambda: old.claim_next("alice"),
        lambda: old.create("alice", "x"),
        lambda: old.update("alice", 1, TaskChange(status=IN_PROGRESS)),
        lambda: old.release("alice"),
    ):
        with pytest.raises(LeaseLost, match="'alice' runs on another host now"):
            attempt()
    assert (new.claim_next("alice"), len(new.tasks())) == (new.get(1), 1)


def test_a_host_changes_tasks_only_for_the_agents_it_runs(rows: RowTasks, board: StoredBoard) -> None:
    board.create("lead", "work")
    host = board_of(rows, hold_lease(rows.team, "alice"))
    for actor in ("bob", "lead", "user"):
        with pytest.raises(LeaseLost, match=f"'{actor}' does not run on this host"):
            host.update(actor, 1, TaskChange(status=COMPLETED))
    assert host.claim_next("alice") is not None


def test_the_user_changes_tasks_from_any_shell(rows: RowTasks) -> None:
    from teamcli.store.postgres.team_rows import Fence

    shell = board_of(rows, Fence(rows.team))
    task = shell.create("user", "work")
    assert shell.update("user", task.id, TaskChange(status=COMPLETED)).status is COMPLETED
    with pytest.raises(LeaseLost):
        shell.claim_next("alice") or shell.create("alice", "work")


def test_a_change_whose_commit_was_not_confirmed_is_made_and_reported_once(rows: RowTasks, board: StoredBoard) -> None:
    from teamcli.store.postgres.tasks import TaskRows

    for _ in range(3):
        board.create("lead", "work")
    changes: list[BoardChange] = []
    team = rows.team._replace(database=LostAnswer(rows.team.database))
    shaken = StoredBoard(TaskRows(team, rows.fence, Newest()), lambda: NAMES, changes.append)
    claimed = shaken.claim_next("alice")
    shaken.update("alice", 1, TaskChange(status=COMPLETED))
    assert (claimed and claimed.id, [task.status for task in board.tasks()[1:]]) == (1, [TaskStatus.PENDING] * 2)
    board.update("lead", 2, TaskChange(owner="bob"))
    assert [task.id for task in shaken.release("bob")] == [2]
    assert [change.what for change in changes] == ["claimed", "completed", "released"]
    assert shaken.tasks() == board.tasks()


def test_a_task_that_is_claimed_before_its_creation_is_confirmed_stays_claimed(
    rows: RowTasks, board: StoredBoard
) -> None:
    claims: list[Task | None] = []
    shaken_board(rows, lambda: claims.append(board.claim_next("bob"))).create("lead", "work")
    (task,) = board.tasks()
    assert [claim.id for claim in claims if claim] == [task.id]
    assert (task.owner, task.status) == ("bob", IN_PROGRESS)
    assert board.claim_next("alice") is None


def test_a_claim_that_is_not_confirmed_takes_no_second_task_if_the_first_is_changed(
    rows: RowTasks, board: StoredBoard
) -> None:
    for _ in range(2):
        board.create("lead", "work")
    shaken = shaken_board(rows, lambda: board.update("lead", 1, TaskChange(subject="other work")))
    claimed = shaken.claim_next("alice")
    assert claimed is not None
    assert claimed.id == 1
    assert [(task.subject, task.owner) for task in shaken.tasks()] == [("other work", "alice"), ("work", None)]


def test_only_as_many_commits_are_remembered_as_can_be_in_doubt(
    rows: RowTasks, board: StoredBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("teamcli.store.postgres.tasks._SLOTS", 3)
    for _ in range(5):
        board.create("lead", "work")
    query = "select count(*) from task_commit where team = %s"
    assert rows.team.database.run(lambda cursor: cursor.execute(query, (rows.team.id,)).fetchone()) == (3,)


def test_what_was_changed_right_after_such_a_commit_is_not_overlooked(rows: RowTasks, board: StoredBoard) -> None:
    from teamcli.store.postgres.tasks import TaskRows

    board.create("lead", "work")
    team = rows.team._replace(database=LostAnswer(rows.team.database))
    shaken = StoredBoard(TaskRows(team, rows.fence, Newest()), lambda: NAMES)
    shaken.claim_next("alice")
    board.update("lead", 1, TaskChange(status=COMPLETED))
    assert shaken.get(1).status is COMPLETED


@pytest.mark.parametrize(
    "assignment",
    [
        "doc = replace(doc, 'work', 'something else')",
        "sig = ''",
        "version = 5",
        "id = 7",
        "doc = repeat('x', 3000000)",
    ],
)
def test_a_row_that_the_team_did_not_write_is_left_out_and_reported_once(
    rows: RowTasks, board: StoredBoard, assignment: str
) -> None:
    for _ in range(2):
        board.create("lead", "work")
    execute(rows, f"update task set {assignment} where team = %s and id = 1")
    warnings: list[str] = []
    other = StoredBoard(rows.storage(warnings.append), lambda: NAMES)
    assert [task.id for task in other.tasks()] == [task.id for task in other.tasks()] == [2]
    assert len(warnings) == 1
    assert "not signed with the team's key" in warnings[0]


def test_a_forged_number_of_a_change_hides_nothing(rows: RowTasks, board: StoredBoard) -> None:
    board.create("lead", "work")
    warnings: list[str] = []
    other = StoredBoard(rows.storage(warnings.append), lambda: NAMES)
    execute(rows, "update task set change = 1000000 where team = %s")
    execute(
        rows,
        "insert into task (team, id, version, change, status, doc, sig)"
        " values (%s, 9, 1, 2000000, 'pending', '{}', '')",
    )
    assert len(other.tasks()) == 1
    board.update("lead", 1, TaskChange(subject="changed"))
    board.create("lead", "more")
    assert [task.subject for task in other.tasks()] == ["changed", "more"]
    assert len(warnings) == 1


def test_a_number_is_not_used_again_after_its_row_is_gone(rows: RowTasks, board: StoredBoard) -> None:
    board.create("lead", "work")
    execute(rows, "delete from task where team = %s")
    assert StoredBoard(rows.storage(), lambda: NAMES).create("lead", "x").id == 2


def test_unknown_fields_are_kept(rows: RowTasks, board: StoredBoard) -> None:
    board.create("lead", "work")
    doc = '{"v": 1, "id": 1, "subject": "work", "color": "red"}'
    sign = rows.team.sign("task", 1, 2, doc)
    execute(rows, f"update task set version = 2, change = 2, doc = '{doc}', sig = '{sign}' where team = %s and id = 1")
    execute(rows, "update team set task_changes = 2 where id = %s")
    board.update("lead", 1, TaskChange(subject="new"))
    assert [(each["color"], each["subject"]) for each in board.documents()] == [("red", "new")]


def test_only_a_change_wakes_those_who_listen(rows: RowTasks, board: StoredBoard, postgres_url: str) -> None:
    import psycopg

    with psycopg.connect(postgres_url, autocommit=True) as listener:
        listener.execute(f"listen {rows.team.channel}".encode())
        assert board.claim_next("alice") is None
        with pytest.raises(TaskError):
            board.create("lead", " ")
        board.create("lead", "work")
        board.update("lead", 1, TaskChange(subject="work"))
        board.claim_next("alice")
        rows.team.database.notify(rows.team.topic("end"))
        topics = []
        for each in listener.notifies(timeout=30):
            topics.append(each.payload)
            if topics[-1] == "end":
                break
    assert topics == ["task", "task", "end"]


def test_a_session_reports_what_other_hosts_have_changed_once_it_is_told(rows: RowTasks, board: StoredBoard) -> None:
    changes: list[BoardChange] = []
    engine: Any = SimpleNamespace(task_storage=rows.storage, has_tasks=lambda: True)
    session = LazyBoard(engine, lambda: NAMES, changes.append, print, lambda *_: "", str)
    session.look()
    board.create("lead", "work")
    session.look()
    assert changes == []
    session.look_again()
    session.look_again()
    assert [(change.what, change.is_outside) for change in changes] == [("created", True)]


def test_a_look_without_a_notice_asks_the_database_nothing(rows: RowTasks, board: StoredBoard) -> None:
    storage: TaskRows = board._storage  # type: ignore[assignment]
    assert (storage.has_news(), storage.has_news()) == (True, False)
    storage.notice()
    assert storage.has_news()
