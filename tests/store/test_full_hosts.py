"""A member whose host runs as many as it may: everyone learns that it waits, and nobody waits for it."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.store.machines import BYPASS, Machines
from tests.support.answers import answer, text, tool
from tests.support.running import Running
from tests.support.team_script import TeamScript
from tests.support.waiting import wait_until

FULL = "the host box is full (1 of 1)"


def spawn(name: str, host: str = "box") -> Any:
    return tool("spawn_teammate", name=name, role="coder", prompt="work", host=host)


def script_for(*leads: Any) -> TeamScript:
    return TeamScript(lead=[*leads, *[text("heard")] * 4], alice=[text("ok")], bob=[text("bob is here")])


def test_a_headless_run_ends_and_says_that_a_member_waits_for_a_free_slot(machines: Machines) -> None:
    script = script_for(spawn("alice"), text("asked"), text("heard"), spawn("bob"), text("asked"))
    with machines.lead.against(script):
        machines.worker("box", "--slots", "1")
        machines.run("one")
        ran = machines.run("two", "--output-format", "json")
        shown = machines.lead.run("team").out
    waiting = f"bob starts when there is room: {FULL}"
    assert ran.code == 0
    assert ran.json["waiting"] == [waiting]
    assert f"teamcli: {waiting}" in ran.err
    assert f"on the host box ({FULL}: bob starts when there is room)" in json.dumps(script.requests["lead"][4])
    assert re.search(r"bob +box \(full\) +coder +idle", shown), shown
    assert script.requests["bob"] == []


def test_it_starts_when_there_is_room(machines: Machines) -> None:
    script = script_for(spawn("alice"), text("asked"), text("heard"), spawn("bob"), text("asked"))
    with machines.lead.against(script):
        machines.worker("box", "--slots", "1")
        machines.run("one")
        machines.run("two")
        with Running(machines.lead, *BYPASS) as repl:
            repl.type("/shutdown alice")
            wait_until(lambda: len(script.requests["bob"]) == 1)
            repl.wait_for("bob is here")
            repl.leave()


def test_of_two_that_are_spawned_at_once_the_second_one_waits(machines: Machines) -> None:
    script = script_for(answer(spawn("alice"), spawn("bob")), text("asked"))
    with machines.lead.against(script):
        machines.worker("box", "--slots", "1")
        ran = machines.run("both", "--output-format", "json")
    results = json.dumps(script.requests["lead"][1]["messages"])
    assert results.count(FULL) == 1
    assert len(ran.json["waiting"]) == 1


def test_a_host_that_is_not_full_lets_the_run_wait_for_its_members(machines: Machines) -> None:
    script = script_for(spawn("alice"), text("asked"), text("heard"), spawn("bob"), text("asked"))
    with machines.lead.against(script):
        machines.worker("box", "--slots", "2")
        machines.run("one")
        ran = machines.run("two", "--output-format", "json")
    assert ran.json["waiting"] == []
    assert len(script.requests["bob"]) == 1
