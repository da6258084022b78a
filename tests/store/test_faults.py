"""A team on a lead and three workers does all its work once, whatever fails under it."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import pytest

from tests.store.faults import HOSTS, Field, work
from tests.support.fake_api import FakeAPI
from tests.support.postgres import Server
from tests.support.waiting import wait_until

SOAK = bool(os.environ.get("TEAMCLI_SOAK"))
FAULTS = int(os.environ.get("TEAMCLI_FAULTS", 200 if SOAK else 5))
GROUPS = 4 if SOAK else 1
KINDS = ("kill", "kill", "freeze", "crash", "cut", "stall", "kill_lead", "drain")


def chosen(chance: random.Random) -> str:
    kind = chance.choice(KINDS)
    names = (*HOSTS, "lead") if kind in ("cut", "stall") else HOSTS
    return kind if kind in ("crash", "kill_lead") else f"{kind} {chance.choice(names)}"


@pytest.mark.soak_only
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("group", range(GROUPS))
def test_a_team_on_several_hosts_does_everything_once(own_postgres: Server, tmp_path: Path, group: int) -> None:
    chance = random.Random(group)
    faults = [chosen(chance) for _ in range(FAULTS // GROUPS)]
    with FakeAPI(work, keep_bodies=0) as api:
        field = Field(tmp_path, own_postgres, api)
        try:
            while faults and not field.problems:
                field.play(faults, chance)
            assert field.problems == [], field.state()
        finally:
            field.close()


@pytest.mark.soak_only  # it is about time
def test_hosts_leave_within_seconds_while_the_database_is_away(own_postgres: Server, tmp_path: Path) -> None:
    with FakeAPI(work) as api:
        field = Field(tmp_path, own_postgres, api)
        try:
            field.round = 1
            field.start_lead()
            wait_until(lambda: field.workers["one"].says("working"))
            own_postgres.stop(signal.SIGQUIT)
            processes = [field.lead_process, *(worker.process for worker in field.workers.values())]
            for process in filter(None, processes):
                process.send_signal(signal.SIGTERM)
            codes = [process.wait(20) for process in filter(None, processes)]
            printed = (tmp_path / "lead-1.log").read_text()
        finally:
            own_postgres.start()
            field.close()
    assert codes == [143, 0, 0, 0], printed
    assert "Traceback" not in printed
