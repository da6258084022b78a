"""What the task board costs: many processes claim every task, compared with a raw loop; and one look at a large board.

The raw loop takes a lock, reads the next task's file and replaces it, as durably as the board does. It looks for
nothing, checks nothing and tells nobody.

Usage: python -m bench.tasks [--quick]
"""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path
from statistics import median

from teamcli.tasks.board import TaskStatus
from teamcli.tasks.stored_board import StoredBoard
from teamcli.tasks.task_files import TaskFiles
from teamcli.tasks.tool_port import BoardTools

Row = tuple[str, float, float, float, str, str]
"""The arguments of a `Figure`."""
Claim = Callable[[Path, str, int], None]
"""Claims until nothing is left. Takes the directory, the name of the process, and how many tasks there are."""

PROCESSES = 16


def rows(quick: bool = False, tasks: int = 1000) -> list[Row]:
    rounds = 1 if quick else 3
    ours, raw = compare(rounds, tasks)
    listed = median(list_ms(tasks) for _ in range(rounds))
    return [
        (f"{PROCESSES} processes claim {tasks:,} tasks", ours, raw, 1 / 0.5, "µs", "lock, read, replace"),
        (f"task_list, {tasks:,} tasks", listed, 20.0, 1.0, "ms", "the promise"),
    ]


def compare(rounds: int, tasks: int) -> tuple[float, float]:
    """Microseconds per task, of the board and of the raw loop, measured alternately."""
    pairs = [(run(claim_all, tasks), run(replace_all, tasks)) for _ in range(rounds)]
    ours, raw = zip(*pairs, strict=True)
    return median(ours), median(raw)


def run(claim: Claim, tasks: int) -> float:
    context = multiprocessing.get_context("spawn")
    start, end = context.Barrier(PROCESSES + 1), context.Barrier(PROCESSES + 1)
    with tempfile.TemporaryDirectory(prefix="bench-tasks-") as name:
        directory = Path(name)
        fill(directory, tasks)
        work = [(claim, directory, f"worker{number}", tasks, start, end) for number in range(PROCESSES)]
        processes = [context.Process(target=claim_together, args=each) for each in work]
        for process in processes:
            process.start()
        start.wait()
        began = time.perf_counter()
        end.wait()
        seconds = time.perf_counter() - began
        for process in processes:
            process.join()
        left = [
            task.id
            for task in StoredBoard(TaskFiles(directory), tuple).tasks()
            if task.status is not TaskStatus.IN_PROGRESS
        ]
        if left:
            raise RuntimeError(f"tasks {left} were not claimed")
    return seconds / tasks * 1e6


def claim_together(claim: Claim, directory: Path, name: str, tasks: int, start: Barrier, end: Barrier) -> None:
    start.wait()
    claim(directory, name, tasks)
    end.wait()


def claim_all(directory: Path, name: str, tasks: int) -> None:
    board = StoredBoard(TaskFiles(directory), tuple)
    while board.claim_next(name) is not None:
        pass


def replace_all(directory: Path, name: str, tasks: int) -> None:
    """A counter in the lock's file says which task is next."""
    is_left = True
    while is_left:
        lock = os.open(directory / ".lock", os.O_RDWR | os.O_CREAT)
        fcntl.flock(lock, fcntl.LOCK_EX)
        number = int(os.pread(lock, 20, 0) or b"0") + 1
        is_left = number <= tasks
        if is_left:
            os.pwrite(lock, b"%020d" % number, 0)
            replace(directory / f"{number}.json", name)
        os.close(lock)


def replace(path: Path, owner: str) -> None:
    document = json.loads(path.read_bytes())
    document |= {"status": "in_progress", "owner": owner}
    fd, temporary = tempfile.mkstemp(dir=path.parent)
    os.write(fd, json.dumps(document, indent=2).encode())
    os.fsync(fd)
    os.close(fd)
    Path(temporary).replace(path)
    parent = os.open(path.parent, os.O_RDONLY)
    os.fsync(parent)
    os.close(parent)


def list_ms(tasks: int) -> float:
    """One call of `task_list` on a board that another process has filled and that has not been read yet."""
    with tempfile.TemporaryDirectory(prefix="bench-tasks-") as name:
        fill(Path(name), tasks)
        tools = BoardTools(StoredBoard(TaskFiles(Path(name)), tuple))
        began = time.perf_counter()
        tools.describe("alice", None)
        return (time.perf_counter() - began) * 1e3


def fill(directory: Path, tasks: int) -> None:
    document = {"v": 1, "subject": "s" * 50, "description": "d" * 200, "status": "pending", "owner": None}
    document |= {"blocked_by": [], "created_by": "lead", "created": 1.0, "updated": 1.0, "result": "", "assigned": 0}
    for id in range(1, tasks + 1):
        (directory / f"{id}.json").write_text(json.dumps({**document, "id": id}))


if __name__ == "__main__":
    for row in rows("--quick" in sys.argv):
        print(*row)
