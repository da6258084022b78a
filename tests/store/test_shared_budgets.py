"""The budgets of a team and of a run count what members on all hosts use, with real processes."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.store.machines import BYPASS, Machines
from tests.support.answers import text, tool
from tests.support.screen import Screen
from tests.support.team_script import TeamScript
from tests.support.waiting import wait_until


def spawn(name: str, host: str) -> Any:
    return tool("spawn_teammate", name=name, role="coder", prompt="work", host=host)


def limit(machines: Machines, **budgets: Any) -> None:
    machines.lead.settings(sandbox="off", lease_seconds=2.0, budgets=budgets)


def calls_known_to(machines: Machines, host: str, member: str) -> int:
    """How many model calls of a member a host knows of, as the copy of the roster says that it keeps."""
    try:
        roster = json.loads((machines.base / host / ".team/hosts" / host / "config.json").read_text())
    except FileNotFoundError:  # nothing is known yet
        return 0
    return sum(entry["used"].get("calls", 0) for entry in roster["members"] if entry["name"] == member)


def test_what_members_on_different_hosts_use_counts_together(machines: Machines) -> None:
    limit(machines, team={"calls": 40})

    def bob(request: dict[str, Any], n: int) -> Any:
        if n == 9:  # with this one, all 40 are used, as soon as his host has heard of hers
            wait_until(lambda: calls_known_to(machines, "two", "alice") == 30)
        return tool("bash", command="true")

    script = TeamScript(
        lead=[spawn("alice", "one"), text("asked"), spawn("bob", "two"), text("asked again"), text("the end")],
        alice=[*(tool("bash", command="true") for _ in range(29)), text("first result")],
        bob=bob,
    )
    with machines.lead.against(script):
        machines.worker("one")
        machines.worker("two")
        ran = machines.run("begin")
    assert ran.out.strip() == "the end", ran.err
    assert len(script.requests["alice"]) == 30
    assert 10 <= len(script.requests["bob"]) < 40  # 10, or a few more while his host adds hers up
    assert "budget of 40 model calls is used up" in str(script.requests["lead"][-1]["messages"])


def test_what_members_on_other_hosts_use_counts_for_the_whole_run(machines: Machines) -> None:
    limit(machines, session={"calls": 4})
    script = TeamScript(
        lead=[spawn("alice", "one"), text("asked"), text("never said")],
        alice=[tool("bash", command="true"), text("first result")],
    )
    with machines.lead.against(script):
        machines.worker("one")
        ran = machines.run("begin")
    assert ran.code == 3, ran.err
    assert len(script.requests["lead"]) + len(script.requests["alice"]) == 4


def test_a_limit_that_the_user_sets_for_the_team_holds_on_all_hosts(machines: Machines) -> None:
    answers = [text(f"result {n}.") for n in range(100)]
    script = TeamScript(lead=[spawn("alice", "one"), *(text("heard") for _ in range(100))], alice=answers)
    with machines.lead.against(script):
        machines.worker("one")
        with Screen(machines.lead, *BYPASS, columns=120, lines=60) as screen:
            screen.wait_for("team >>")
            screen.type("have alice begin\r")
            screen.wait_for("result 0.")
            screen.type("/budget team 1 call\r")
            screen.wait_for("team: 1 model call in this run; 1 model call used")
            # Her host hears of the limit a moment later.
            for n in range(1, 100):
                screen.type("@alice once more\r")
                screen.wait_for_match(
                    re.compile(rf"result {n}\.|is paused: the team's budget of 1 model call is used up")
                )
                if "is paused" in screen.text:
                    break
            screen.type("/budget team +50 calls\r")
            screen.wait_for(f"result {n}.")
