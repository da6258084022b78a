"""Members that run on other machines, with real processes."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.store.machines import Machines, machines_in
from tests.support.answers import text, tool
from tests.support.team_script import TeamScript
from tests.support.waiting import wait_until


@pytest.fixture
def machines(tmp_path: Path, postgres_url: str) -> Iterator[Machines]:
    with machines_in(tmp_path, postgres_url, lease_seconds=2.0) as machines:
        yield machines


def spawn(prompt: str, **terms: Any) -> Any:
    return tool("spawn_teammate", name="alice", role="coder", prompt=prompt, **terms)


def test_a_member_works_on_the_host_that_the_lead_names(machines: Machines) -> None:
    script = TeamScript(
        lead=[spawn("where are you?", host="box"), text("asked"), text("it answered")],
        alice=[tool("bash", command="pwd"), text("done")],
    )
    with machines.lead.against(script):
        machines.worker("box")
        ran = machines.run("ask alice")
    assert ran.out.strip() == "it answered"
    result = script.requests["alice"][1]["messages"][-1]["content"][0]["content"]
    assert str(machines.base / "box" / ".team" / "worktrees" / "alice") in str(result)


def test_a_host_that_nobody_runs_is_named_with_those_there_are(machines: Machines) -> None:
    script = TeamScript(lead=[spawn("hi", host="mars"), text("no")])
    with machines.lead.against(script):
        machines.worker("box")
        machines.run("ask alice")
    error = str(script.requests["lead"][1]["messages"][-1]["content"])
    assert "there is no host 'mars'; there are: box" in error


def test_another_worker_finishes_what_a_killed_one_has_begun(machines: Machines) -> None:
    script = TeamScript(
        lead=[spawn("build it", host="any"), text("asked"), text("it is built")],
        alice=[tool("bash", command=f"touch began; test -e {machines.base}/go || sleep 600"), text("built")],
    )
    with machines.lead.against(script):
        first = machines.worker("one")
        lead = machines.lead.start("-p", "build", "--permission-mode", "bypassPermissions")
        wait_until(lambda: (machines.base / "one/.team/worktrees/alice/began").exists())
        second = machines.worker("two")
        (machines.base / "go").touch()
        first.kill()
        second.wait_for("alice: working")
        out, err = lead.communicate(timeout=60)
    assert out.decode().strip() == "it is built", err
    told = str(script.requests["alice"][-1]["messages"])
    assert "You run on the host 'two' now; 'one' is gone" in told
    epochs = machines.rows("select distinct epoch from transcript where agent = 'alice' order by 1")
    assert [epoch for (epoch,) in epochs] == [1, 2, 3]


def test_a_worker_that_is_told_to_leave_hands_its_members_over(machines: Machines) -> None:
    script = TeamScript(
        lead=[spawn("build it", host="any"), text("asked"), text("it is built")],
        alice=[
            tool("bash", command=f"touch began; while ! test -e {machines.base}/go; do sleep 0.1; done"),
            text("built"),
        ],
    )
    with machines.lead.against(script):
        first = machines.worker("one")
        lead = machines.lead.start("-p", "build", "--permission-mode", "bypassPermissions")
        wait_until(lambda: (machines.base / "one/.team/worktrees/alice/began").exists())
        machines.worker("two")
        first.process.send_signal(signal.SIGTERM)
        first.wait_for("Handing over")
        (machines.base / "go").touch()
        out, err = lead.communicate(timeout=60)
        assert first.process.wait(60) == 0
    assert out.decode().strip() == "it is built", err
    # The call was finished on the first host, and its result went along.
    assert "exit code 0" in str(script.requests["alice"][-1]["messages"]) or len(script.requests["alice"]) == 2
