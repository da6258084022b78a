"""Who may change what on the board, and what a change makes of a task."""

from __future__ import annotations

import pytest

from teamcli.errors import TaskError
from teamcli.tasks.board import Task, TaskChange, TaskStatus
from teamcli.tasks.rules import changed_task, new_task

PENDING, IN_PROGRESS, COMPLETED, CANCELLED = TaskStatus
NAMES = ("lead", "alice", "bob")


def board(*tasks: Task) -> dict[int, Task]:
    return {task.id: task for task in tasks}


def change(tasks: dict[int, Task], actor: str, id: int, **fields: object) -> Task:
    return changed_task(tasks, actor, id, TaskChange(**fields), NAMES)  # type: ignore[arg-type]


FREE = Task(1, "free", created_by="lead")
OWN = Task(2, "alice's", status=IN_PROGRESS, owner="alice", assigned=1)
DONE = Task(3, "done", status=COMPLETED, owner="alice", assigned=1)
BLOCKED = Task(4, "blocked", blocked_by=(1, 2, 3))
TASKS = board(FREE, OWN, DONE, BLOCKED)


@pytest.mark.parametrize("fields", [{"status": IN_PROGRESS}, {"owner": "alice"}, {"owner": "Alice"}])
def test_claiming_a_free_task_starts_it(fields: dict[str, object]) -> None:
    assert change(TASKS, "alice", 1, **fields) == FREE._replace(status=IN_PROGRESS, owner="alice", assigned=1)


def test_claiming_what_one_holds_changes_nothing() -> None:
    assert change(TASKS, "alice", 2, status=IN_PROGRESS) == OWN


@pytest.mark.parametrize(
    ("actor", "id", "fields", "reason"),
    [
        ("bob", 2, {"status": IN_PROGRESS}, "already claimed by alice"),
        ("bob", 2, {"owner": "bob"}, "already claimed by alice"),
        ("lead", 2, {"status": IN_PROGRESS}, "already claimed by alice"),
        ("bob", 4, {"status": IN_PROGRESS}, "blocked by 1, 2"),
        ("bob", 3, {"status": IN_PROGRESS}, "already completed"),
        ("alice", 3, {"status": IN_PROGRESS}, "already completed"),
        ("lead", 3, {"owner": "bob"}, "already completed"),
        ("lead", 3, {"status": CANCELLED}, "already completed"),
        ("bob", 9, {"status": IN_PROGRESS}, "no task 9 (there are 1–4)"),
        ("bob", 2, {"subject": "mine"}, "task 2 belongs to alice"),
        ("bob", 2, {"status": COMPLETED}, "task 2 belongs to alice"),
        ("bob", 2, {"status": PENDING}, "task 2 belongs to alice"),
        ("bob", 2, {"owner": ""}, "task 2 belongs to alice"),
        ("bob", 2, {"status": PENDING, "owner": "bob"}, "already claimed by alice"),
        ("bob", 3, {"status": PENDING, "owner": "bob"}, "already completed"),
        ("bob", 4, {"status": IN_PROGRESS, "blocked_by": ()}, "blocked by 1, 2"),
        ("bob", 1, {"status": COMPLETED}, "task 1 is not yours; claim it with status in_progress"),
        ("alice", 2, {"owner": "bob"}, "only lead and user give tasks to others; ask lead to give it to bob"),
        ("lead", 1, {"owner": "carol"}, "there is no 'carol' who could own a task (there are: lead, alice, bob)"),
        ("lead", 1, {"blocked_by": (9,)}, "no task 9 (there are 1–4)"),
        ("lead", 1, {"blocked_by": (1,)}, "a cycle: 1 → 1; a task cannot wait for itself"),
        ("lead", 1, {"blocked_by": (4,)}, "a cycle: 1 → 4 → 1; a task cannot wait for itself"),
        ("lead", 1, {"subject": " \n "}, "the subject is empty; say in a few words what is to be done"),
        ("lead", 1, {"subject": "x" * 501}, "the subject has 501 characters; at most 500 are allowed"),
        ("lead", 1, {"result": "x" * 100_001}, "the result has 100,001 characters; at most 100,000 are allowed"),
    ],
)
def test_a_change_is_refused_with_the_reason(actor: str, id: int, fields: dict[str, object], reason: str) -> None:
    with pytest.raises(TaskError) as refused:
        change(TASKS, actor, id, **fields)
    assert str(refused.value) == reason


@pytest.mark.parametrize(
    ("tasks", "which"),
    [
        (board(), "there are none"),
        (board(FREE), "there is 1"),
        (board(FREE, DONE, BLOCKED), "there are 1, 3–4"),
        (board(*(Task(id, "x") for id in range(1, 20, 2))), "there are 1, 3, 5, 7, …, 19"),
    ],
)
def test_a_missing_task_names_those_there_are(tasks: dict[int, Task], which: str) -> None:
    with pytest.raises(TaskError, match=rf"^no task 77 \({which}\)$"):
        change(tasks, "lead", 77)


@pytest.mark.parametrize("over", [COMPLETED, CANCELLED])
def test_a_task_is_free_for_claiming_when_all_its_blockers_are_over(over: TaskStatus) -> None:
    tasks = board(FREE._replace(status=over), OWN._replace(status=COMPLETED), DONE, BLOCKED)
    assert change(tasks, "bob", 4, status=IN_PROGRESS).owner == "bob"


def test_a_blocker_whose_file_is_gone_blocks_nothing() -> None:
    assert change(board(BLOCKED._replace(blocked_by=(77,))), "bob", 4, status=IN_PROGRESS).owner == "bob"


def test_lead_and_user_give_a_task_to_another_who_starts_when_the_message_arrives() -> None:
    assert change(TASKS, "user", 2, owner="bob") == OWN._replace(status=PENDING, owner="bob", assigned=2)


def test_giving_a_task_to_its_owner_changes_nothing() -> None:
    assert change(TASKS, "lead", 2, owner="alice") == OWN


def test_a_task_can_be_given_with_the_status_it_will_have() -> None:
    assert change(TASKS, "lead", 1, owner="bob", status=IN_PROGRESS).status is PENDING


def test_a_blocked_task_can_be_given_to_someone() -> None:
    assert change(TASKS, "lead", 4, owner="bob").owner == "bob"


@pytest.mark.parametrize("actor", ["alice", "lead", "user"])
@pytest.mark.parametrize("id", [2, 3])
def test_pending_reopens_a_task_and_leaves_it_free(actor: str, id: int) -> None:
    assert change(TASKS, actor, id, status=PENDING).is_free


def test_a_task_reopened_for_its_old_owner_counts_as_a_new_assignment() -> None:
    assert change(TASKS, "lead", 3, status=PENDING, owner="alice").assigned == 2


def test_pending_changes_nothing_for_a_task_that_waits_for_its_owner() -> None:
    given = Task(1, "given", owner="alice", assigned=1)
    assert change(board(given), "lead", 1, status=PENDING) == given


@pytest.mark.parametrize("actor", ["alice", "lead"])
def test_an_empty_owner_puts_a_task_back(actor: str) -> None:
    assert change(TASKS, actor, 2, owner="").is_free


def test_an_owner_completes_its_task_with_a_result() -> None:
    assert change(TASKS, "alice", 2, status=COMPLETED, result="ok") == OWN._replace(status=COMPLETED, result="ok")


def test_completing_a_completed_task_changes_nothing() -> None:
    assert change(TASKS, "lead", 3, status=COMPLETED) == DONE


def test_a_teammate_claims_and_completes_in_one_step() -> None:
    assert change(TASKS, "bob", 1, owner="bob", status=COMPLETED).status is COMPLETED


def test_a_teammate_does_not_complete_a_blocked_task() -> None:
    tasks = {**TASKS, 4: BLOCKED._replace(owner="bob")}
    with pytest.raises(TaskError, match=r"^blocked by 1, 2$"):
        change(tasks, "bob", 4, status=COMPLETED)


def test_lead_and_user_complete_any_task() -> None:
    assert change(TASKS, "user", 4, status=COMPLETED).status is COMPLETED


def test_a_teammate_changes_a_free_task_that_it_created() -> None:
    assert change(board(FREE._replace(created_by="bob")), "bob", 1, status=CANCELLED).status is CANCELLED


@pytest.mark.parametrize("fields", [{"status": PENDING}, {"owner": ""}])
def test_a_teammate_does_not_take_back_a_task_that_it_created_and_another_has(fields: dict[str, object]) -> None:
    with pytest.raises(TaskError, match=r"^task 2 belongs to alice$"):
        change(board(OWN._replace(created_by="bob")), "bob", 2, **fields)


def test_a_subject_is_one_line() -> None:
    assert change(TASKS, "lead", 1, subject=" two\n words ").subject == "two words"


def test_a_teammate_creates_a_task_for_itself_and_has_started_it() -> None:
    made = new_task(TASKS, "bob", Task(5, "mine", owner="bob"), NAMES)
    assert made == Task(5, "mine", status=IN_PROGRESS, owner="bob", assigned=1)


def test_a_task_created_for_oneself_waits_for_its_blockers() -> None:
    assert new_task(TASKS, "bob", Task(5, "mine", owner="bob", blocked_by=(1,)), NAMES).status is PENDING


def test_a_teammate_creates_no_task_for_another() -> None:
    with pytest.raises(TaskError, match=r"^only lead and user give tasks to others"):
        new_task(TASKS, "bob", Task(5, "yours", owner="alice"), NAMES)


def test_a_new_task_cannot_wait_for_one_that_does_not_exist() -> None:
    with pytest.raises(TaskError, match=r"^no task 6 \(there are 1–4\)$"):
        new_task(TASKS, "lead", Task(5, "x", blocked_by=(6,)), NAMES)
