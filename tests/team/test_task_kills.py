"""A team that works from a board is killed before, in the middle of and after any change of a file of its state.

Afterwards the program starts again as if nothing had happened: every task is done once, by one member, and was
delivered once.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_api import FakeAPI, answer, text, tool
from tests.support.forks import Forks
from tests.support.team_script import agent_of
from tests.team.killed_team import KilledTeam
from tests.team.letters import SOAK
from tests.team.test_team import spawn

CASES = 200 if SOAK else 10
GROUPS = 4 if SOAK else 1
HOW = ("before", "torn", "after")
MEMBERS = ("alice", "bob")
TASKS: tuple[dict[str, Any], ...] = (
    {"subject": "free"},
    {"subject": "for alice", "owner": "alice"},
    {"subject": "later, for bob", "owner": "bob", "blocked_by": [0]},
    {"subject": "free later", "blocked_by": [1]},
    {"subject": "free too"},
    {"subject": "for bob", "owner": "bob"},
)
"""Their blockers are positions in this list."""
FRAME = re.compile(r'type=\\*"task\\*"[^>]* task=\\*"(\d+)\\*"')


def work(request: dict[str, Any], n: int) -> Any:
    """Worked out from the history alone, so that it survives kills."""
    name, history = agent_of(request), json.dumps(request["messages"])
    if name == "lead":
        return lead(history)
    given = list(dict.fromkeys(map(int, FRAME.findall(history))))  # one that a kill left unfinished comes again
    over = history.count("(completed, owner") + history.count("Error: already completed")
    return tool("task_update", id=given[over], status="completed") if over < len(given) else text("done")


def lead(history: str) -> Any:
    if "Spawned 'alice'" not in history:
        return answer(*(spawn(mate, claims=True) for mate in MEMBERS))
    created = [int(id) for id in re.findall(r"Created task (\d+)", history)]
    if "GO!" not in history or len(created) == len(TASKS):
        return text("fine")
    task = TASKS[len(created)]
    return tool("task_create", **task | {"blocked_by": [created[each] for each in task.get("blocked_by", ())]})


class Place(KilledTeam):
    """A project whose members claim tasks, as it is before the run that is killed."""

    def __init__(self, base: Path, forks: Forks) -> None:
        super().__init__(base, forks)
        with FakeAPI(work) as api:
            self.program.url = api.url
            assert self.run("hire") == 0
        self.keep()

    @property
    def tasks(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_bytes()) for path in (self.program.directory / ".team/tasks").glob("*.json")]

    def transcript(self, name: str) -> str:
        return (self.program.directory / f".team/transcripts/{name}.jsonl").read_text()

    def task_mail(self, name: str) -> list[str]:
        lines = (self.program.directory / f".team/inbox/{name}.jsonl").read_text().splitlines()
        rows = [json.loads(line) for line in lines if line.endswith("}")]  # a kill leaves half a line
        return [row["id"] for row in rows if row["type"] == "task"]


def chosen(sites: Counter[tuple[str, str]]) -> list[dict[str, Any]]:
    """Every kind of call as often as any other: of all changes of the board, and of as many others."""
    chance = random.Random(0)
    boards = sorted(site for site in sites if site[1].startswith("tasks/"))
    others = sorted(site for site in sites if not site[1].startswith("tasks/"))
    cases = []
    for number in range(CASES):
        operation, file = site = chance.choice(others if number % 2 else boards)
        which = chance.randint(1, sites[site])
        cases.append({"operation": operation, "file": file, "number": which, "how": chance.choice(HOW)})
    return cases


@pytest.mark.soak
@pytest.mark.timeout(3600 if SOAK else 300)
@pytest.mark.parametrize("group", range(GROUPS))
def test_killed_at_any_change_of_a_file_a_team_does_every_task_once(tmp_path: Path, forks: Forks, group: int) -> None:
    place = Place(tmp_path, forks)
    with FakeAPI(work) as api:
        place.program.url = api.url
        cases = chosen(place.sites())[group::GROUPS]
        killed = 0
        for case in cases:
            place.reset()
            killed += place.run("GO!", fault=case) == -9
            check_restart(place, case)
    assert killed > 0.7 * len(cases)  # not all: threads make some calls more or less often than in the first run


def check_restart(place: Place, case: dict[str, Any]) -> None:
    assert place.run("GO!") == 0, case
    transcripts = {name: place.transcript(name) for name in MEMBERS}
    assert len(place.tasks) >= len(TASKS), case  # the lead repeats a call whose result it has not seen
    for task in place.tasks:
        id, owner = task["id"], task["owner"]
        assert task["status"] == "completed", (case, task)
        assert task["assigned"] == 1, (case, task)  # nobody lost it, and nobody else got it
        given = [name for name in MEMBERS if str(id) in FRAME.findall(transcripts[name])]
        assert given == [owner], (case, task)
        completed = sum(transcript.count(f"Task {id} (completed") for transcript in transcripts.values())
        assert completed <= 1, (case, task)
    for name in MEMBERS:
        sent = place.task_mail(name)
        assert len(sent) == len(set(sent)), (case, name)
        assert all(transcripts[name].count(f'id=\\"{id}\\"') == 1 for id in sent), (case, name)
