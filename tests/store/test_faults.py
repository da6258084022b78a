"""A team on a lead and three workers does all its work once, whatever fails under it."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.store.faults import HOSTS, Field, work
from tests.support.fake_api import FakeAPI
from tests.support.postgres import Server

SOAK = bool(os.environ.get("TEAMCLI_SOAK"))
FAULTS = int(os.environ.get("TEAMCLI_FAULTS", 200 if SOAK else 5))
GROUPS = 4 if SOAK else 1
IN_A_ROUND = 5
KINDS = ("kill", "kill", "freeze", "crash", "cut", "stall", "kill_lead", "drain")


def chosen(chance: random.Random) -> str:
    kind = chance.choice(KINDS)
    names = (*HOSTS, "lead") if kind in ("cut", "stall") else HOSTS
    return kind if kind in ("crash", "kill_lead") else f"{kind} {chance.choice(names)}"


@pytest.mark.soak
@pytest.mark.timeout(7200 if SOAK else 300)
@pytest.mark.parametrize("group", range(GROUPS))
def test_a_team_on_several_hosts_does_everything_once(own_postgres: Server, tmp_path: Path, group: int) -> None:
    chance = random.Random(group)
    faults = [chosen(chance) for _ in range(FAULTS // GROUPS)] if SOAK else []
    faults = faults or ["kill one", "freeze two", "crash", "cut three", "kill_lead"]
    with FakeAPI(work, keep_bodies=0) as api:
        field = Field(tmp_path, own_postgres, api)
        try:
            while faults:
                field.play(faults[:IN_A_ROUND], chance)
                faults = faults[IN_A_ROUND:]
        finally:
            field.close()
