"""Many processes claim and release tasks at the same time."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from teamcli.tasks.board import TaskStatus
from teamcli.tasks.stored_board import StoredBoard
from tests.tasks.engines import tasks_in

SOAK = bool(os.environ.get("TEAMCLI_SOAK"))
PROCESSES = {"files": 8, "postgres": 16 if SOAK else 4}
TASKS = 500 if SOAK else 50

WORKER = """
import random, sys
from teamcli.errors import TaskError
from teamcli.tasks.board import TaskChange, TaskStatus
from teamcli.tasks.stored_board import StoredBoard
from tests.tasks.places import open_storage

name, place, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
chance, board = random.Random(seed), StoredBoard(open_storage(place), lambda: ())
while (task := board.claim_next(name)) is not None:
    try:
        board.update(name, task.id % 7 + 1, TaskChange(status=TaskStatus.IN_PROGRESS))
    except TaskError:
        pass
    fate = chance.random()
    if fate < 0.2:
        board.release(name)
    elif fate < 0.3:
        board.update(name, task.id, TaskChange(status=TaskStatus.PENDING))
    else:
        board.update(name, task.id, TaskChange(status=TaskStatus.COMPLETED))
        print(task.id)
board.release(name)
"""


@pytest.mark.soak
@pytest.mark.timeout(1200 if SOAK else 120)
@pytest.mark.parametrize("engine", ["files", "postgres"])
def test_every_task_is_completed_once_by_the_process_that_holds_it(
    engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """A completion by a process that no longer holds the task, or a second claim, would be an error in the worker."""
    with tasks_in(engine, tmp_path, request) as tasks:
        board = StoredBoard(tasks.storage(), lambda: ())
        for _ in range(TASKS):
            board.create("user", "work")
        names = [f"worker{number}" for number in range(PROCESSES[engine])]
        workers = [
            subprocess.Popen([sys.executable, "-c", WORKER, name, tasks.place, str(seed)], stdout=subprocess.PIPE)
            for seed, name in enumerate(names)
        ]
        done = [line for worker in workers for line in worker.communicate()[0].decode().split()]
        assert [worker.returncode for worker in workers] == [0] * PROCESSES[engine]
        assert Counter(Counter(done).values()) == {1: len(done)}
        left = [task for task in board.tasks() if not task.status.is_over]
        assert [task.is_free for task in left] == [True] * len(left)
        assert {str(task.id) for task in board.tasks() if task.status is TaskStatus.COMPLETED} == set(done)
