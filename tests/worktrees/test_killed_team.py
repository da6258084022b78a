"""A team works from a board in worktrees and merges. It is killed at a change of a file of its state, or when it starts
git or another command, and killed once more while it recovers from that.

Afterwards every task is done once, by one member, and its commit is in the main branch once. The main checkout is
whole: no half merge, no lock, no journal.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from tests.redteam.conftest import need_sandbox
from tests.support.fake_api import FakeAPI, text, tool
from tests.support.faults.injection import OPERATIONS, START
from tests.support.forks import Forks
from tests.support.program import Program
from tests.support.team_script import agent_of
from tests.worktrees.conftest import git

SOAK = bool(os.environ.get("TEAMCLI_SOAK"))
KILLS = 200 if SOAK else 20
GROUPS = 4 if SOAK else 1
OPTIONS = ("--trust", "--permission-mode", "bypassPermissions", "--max-turns", "60")
MEMBERS = ("alice", "bob")
TEAM = "".join(f'[[member]]\nname = "{name}"\nrole = "coder"\nworktree = true\nclaims = true\n' for name in MEMBERS)
TASKS: tuple[dict[str, Any], ...] = (
    {"subject": "free"},
    {"subject": "for bob", "owner": "bob"},
    {"subject": "later, for alice", "owner": "alice", "blocked_by": [0]},
    {"subject": "free later", "blocked_by": [1]},
)
"""Their blockers are positions in this list."""
FRAME = re.compile(r'type="task"[^>]* task="(\d+)"')


def work(request: dict[str, Any], n: int) -> Any:
    """Worked out from the history alone, so that it survives kills."""
    name, history = agent_of(request), json.dumps(request["messages"]).replace('\\"', '"')
    return lead(history) if name == "lead" else member(name, history)


def lead(history: str) -> Any:
    created = [int(id) for id in re.findall(r"Created task (\d+)", history)]
    if len(created) < len(TASKS):
        task = TASKS[len(created)]
        return tool("task_create", **task | {"blocked_by": [created[each] for each in task.get("blocked_by", ())]})
    for name in MEMBERS:
        reported = history.rfind(f'from="{name}" type="result"')
        merged = max(history.rfind(f"Merged team/{name} "), history.rfind(f"has everything of team/{name}."))
        if reported > merged:
            return tool("merge_teammate", name=name)
    return text("fine")


def member(name: str, history: str) -> Any:
    given = list(dict.fromkeys(FRAME.findall(history)))  # one that a kill left unfinished comes again
    over = history.count("(completed, owner") + history.count("Error: already completed")
    if over == len(given):
        return text("done")
    id = given[over]
    if f"committed {id}." not in history:
        return tool("bash", command=commit(name, id))
    return tool("task_update", id=int(id), status="completed")


def commit(name: str, id: str) -> str:
    """May be repeated: a kill can come after the commit and before its result."""
    is_done = f"git log --format=%s | grep -qx 'Task {id}'"
    do_it = f"echo {name} > {id}.txt && git add -A && git commit -qm 'Task {id}'"
    return f"{is_done} || {{ {do_it}; }} && echo co''mmitted {id}."


class Place:
    """A project with a team file, as it is before the run that is killed."""

    def __init__(self, base: Path, repository: Path, forks: Forks) -> None:
        self._forks = forks
        self._repository = repository
        self.root = base / "work"
        self.program = Program(self.root, base / "home")

    def reset(self) -> None:
        for place in (self.root, self.program.home):
            shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(self._repository, self.root, symlinks=True)
        (self.root / ".team").mkdir()
        (self.root / ".team/team.toml").write_text(TEAM)
        self.program.home.mkdir()

    def run(self, fault: dict[str, Any] | None = None) -> int:
        ran = self._forks.run(self.program, "-p", "--continue", "GO!", *OPTIONS, fault=fault)
        assert "Traceback" not in ran.err, ran.err
        return ran.code

    def sites(self) -> Counter[tuple[str, str]]:
        """How often each kind of call is made in a run that nobody kills."""
        self.reset()
        log = self.program.home / "calls"
        assert self.run({"log": str(log)}) == 0
        calls = (tuple(line.split(" ", 1)) for line in log.read_text().splitlines())
        return Counter(call for call in calls if call[0] in (*OPERATIONS, START))  # type: ignore[misc]

    def tasks(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_bytes()) for path in (self.root / ".team/tasks").glob("*.json")]

    def lines(self, path: str) -> list[dict[str, Any]]:
        lines = (self.root / ".team" / path).read_text().splitlines()
        return [json.loads(line) for line in lines if line.endswith("}")]  # a kill leaves half a line


def histories(sites: Counter[tuple[str, str]], chance: random.Random) -> Iterator[list[dict[str, Any]]]:
    """Where the program is killed: in its first run and in its second. No end.

    In turn at a change of the board, of a checkout or a merge, at the start of a command, and at any other change.
    """
    names = ("board", "merge", "command", "other")
    areas = cycle([site for site in sorted(sites) if area(*site) == name] for name in names)
    while True:
        first = chance.choice(next(areas))
        second = chance.choice([site for site in sorted(sites) if sites[site] > 1])
        yield [case(chance, first, sites[first]), case(chance, second, min(sites[second], 3))]


def case(chance: random.Random, site: tuple[str, str], most: int) -> dict[str, Any]:
    operation, file = site
    how = chance.choice(("before", "torn", "after") if operation in ("write", "pwrite") else ("before", "after"))
    return {"operation": operation, "file": file, "number": chance.randint(1, most), "how": how}


def area(operation: str, file: str) -> str:
    if operation == START:
        return "command"
    if file.startswith("tasks/"):
        return "board"
    return "merge" if file.startswith(("worktrees/", "merge", ".merge")) else "other"


@pytest.mark.soak
@pytest.mark.timeout(7200 if SOAK else 300)
@pytest.mark.parametrize("group", range(GROUPS))
def test_killed_at_any_step_a_team_in_worktrees_does_every_task_once_and_loses_no_commit(
    tmp_path: Path, repository_to_copy: Path, forks: Forks, group: int
) -> None:
    need_sandbox()
    place, killed = Place(tmp_path, repository_to_copy, forks), 0
    with FakeAPI(work) as api:
        place.program.url = api.url
        for faults in histories(place.sites(), random.Random(group)):
            place.reset()
            killed += sum(place.run(fault) == -9 for fault in faults)  # not all: threads make some calls less often
            assert place.run() == 0, faults
            check(place, faults)
            if killed >= KILLS // GROUPS:
                break


def check(place: Place, faults: list[dict[str, Any]]) -> None:
    check_board(place, faults)
    check_mail(place, faults)
    check_repository(place, faults)


def check_board(place: Place, faults: list[dict[str, Any]]) -> None:
    tasks = place.tasks()
    assert len(tasks) >= len(TASKS), faults  # the lead repeats a call whose result it has not seen
    completed = Counter(
        row["task"]
        for row in place.lines("events.jsonl")
        if row.get("event") == "task" and row["change"] == "completed"
    )
    for task in tasks:
        assert task["status"] == "completed", (faults, task)
        assert task["assigned"] == 1, (faults, task)  # nobody lost it, and nobody else got it
        assert completed[task["id"]] <= 1, (faults, task)
        content = (place.root / f"{task['id']}.txt").read_text()
        assert content == f"{task['owner']}\n", (faults, task)


def check_mail(place: Place, faults: list[dict[str, Any]]) -> None:
    for name in ("lead", *MEMBERS):
        sent = [row["id"] for row in place.lines(f"inbox/{name}.jsonl")]
        assert len(sent) == len(set(sent)), (faults, name)
        read = (place.root / f".team/transcripts/{name}.jsonl").read_text()
        assert all(read.count(f'id=\\"{id}\\"') == 1 for id in sent), (faults, name)


def check_repository(place: Place, faults: list[dict[str, Any]]) -> None:
    root = place.root
    subjects = Counter(git(root, "log", "--no-merges", "--format=%s").splitlines())
    assert subjects == Counter(["Begin", *(f"Task {task['id']}" for task in place.tasks())]), faults
    merged = git(root, "rev-list", "main").split()
    for name in MEMBERS:
        checkout = root / ".team/worktrees" / name
        assert git(checkout, "rev-parse", "HEAD") in merged, (faults, name)
        assert git(root, "rev-parse", f"team/{name}") in merged, (faults, name)
        assert git(checkout, "status", "--porcelain") == "", (faults, name)
    assert git(root, "status", "--porcelain") == "", faults
    assert git(root, "fsck", "--no-dangling", "--no-progress") == "", faults
    left = [*(root / ".git").rglob("*.lock"), *(root / ".team").glob("*merge*.json"), *root.glob(".git/teamcli*")]
    assert left == [], faults
