"""A database that crashes in the middle of everything: everyone waits, and nothing is lost or done twice."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from teamcli.cancel import CancelScope
from teamcli.store.postgres.newest import Newest
from teamcli.tasks.stored_board import StoredBoard
from teamcli.team.roster import Member, Roster, Status
from tests.support.postgres import Server, hold_lease
from tests.support.waiting import wait_until
from tests.tasks.engines import RowTasks

if TYPE_CHECKING:
    from teamcli.store.postgres.team_rows import Team

CRASHES = 100 if os.environ.get("TEAMCLI_SOAK") else 2
ENOUGH = 20
"""How much each one does between two crashes."""


def team_apart(team: Team, url: str) -> Team:
    """As another process has it."""
    from teamcli.store.postgres.database import Database

    return team._replace(database=Database(url, CancelScope()))


class Worker:
    """Does a thing again and again until it is stopped, and counts."""

    def __init__(self, act: Callable[[int], None]) -> None:
        self._act = act
        self.count = 0

    def run(self, stopped: threading.Event) -> None:
        while not stopped.is_set():
            self._act(self.count)
            self.count += 1


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_database_that_crashes_costs_time_and_nothing_else(own_postgres: Server, tmp_path: Path) -> None:
    from teamcli.store.postgres.events import EventRows
    from teamcli.store.postgres.roster import RosterRows
    from teamcli.store.postgres.tasks import TaskRows
    from teamcli.store.postgres.transcripts import TranscriptRows, read_transcript

    url = own_postgres.url("migrated")
    tasks = RowTasks(url)
    team, fence = tasks.team, hold_lease(tasks.team, "lead", "alice", "bob", "carol")
    board = StoredBoard(TaskRows(team, fence, Newest()), tuple)
    teams = [team_apart(team, url) for _ in range(5)]
    log = TranscriptRows(teams[0], fence, Newest(), "alice", 1, tmp_path / "alice.jsonl")
    timeline = EventRows(teams[1], Newest(), "host", tmp_path / "events.jsonl")
    roster = Roster(RosterRows(teams[2], fence, Newest(), tmp_path / "config.json"), counter_seconds=0)
    roster.add(Member("alice", "coder", Status.IDLE))
    claimed: dict[str, list[int]] = {"bob": [], "carol": []}
    boards = {
        name: StoredBoard(TaskRows(each, fence, Newest()), tuple) for name, each in zip(claimed, teams[3:], strict=True)
    }

    def claim(name: str) -> None:
        if (task := boards[name].claim_next(name)) is not None:
            claimed[name].append(task.id)

    workers = [
        Worker(lambda n: log.append({"n": n})),
        Worker(lambda n: timeline.append({"n": n}, {"again": n})),
        Worker(lambda n: roster.count("alice", turns=1) and None),
        Worker(lambda n: board.create("lead", str(n)) and None),
        Worker(lambda n: claim("bob")),
        Worker(lambda n: claim("carol")),
    ]
    stopped = threading.Event()
    with ThreadPoolExecutor(len(workers)) as pool:
        runs = [pool.submit(worker.run, stopped) for worker in workers]
        try:
            for _ in range(CRASHES):
                goals = [(worker, worker.count + ENOUGH) for worker in workers]
                wait_until(lambda goals=goals: all(each.count >= goal for each, goal in goals))
                own_postgres.restart()
        finally:
            stopped.set()
        for run in runs:
            run.result(120)

    lines, events, turns, created = (worker.count for worker in workers[:4])
    assert read_transcript(team, "alice", 1, pytest.fail)[0] == [f'{{"n":{n}}}' for n in range(lines)]
    assert (tmp_path / "alice.jsonl").read_text().splitlines() == [f'{{"n":{n}}}' for n in range(lines)]
    sql = "select entry from event where team = %s order by seq"
    kept = [row[0] for row in team.database.run(lambda cursor: cursor.execute(sql, (team.id,)).fetchall())]
    assert kept == [entry for n in range(events) for entry in (f'{{"n":{n}}}', f'{{"again":{n}}}')]
    assert Roster(RosterRows(team, fence, Newest(), tmp_path / "new.json")).get("alice").turns == turns
    owners = {task.id: task.owner for task in board.tasks()}
    assert len({task.subject for task in board.tasks()}) == len(owners) == created
    assert {id: owner for id, owner in owners.items() if owner} == {
        id: name for name, ids in claimed.items() for id in ids
    }
    assert sum(map(len, claimed.values())) == len(set(claimed["bob"]) | set(claimed["carol"]))
    log.close()
    timeline.close()
    for each in (*teams, team):
        each.database.close()
