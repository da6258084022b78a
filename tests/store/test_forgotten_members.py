"""A name that was freed with `/forget` and is used again: nothing of the earlier member comes back."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from tests.store.intruder import Intruder
from tests.store.machines import BYPASS, Machines
from tests.support.answers import text, tool
from tests.support.program import Ran
from tests.support.team_script import TeamScript
from tests.support.waiting import wait_until
from tests.worktrees.conftest import git


def spawn(prompt: str, **terms: Any) -> Any:
    return tool("spawn_teammate", name="alice", role="coder", prompt=prompt, **terms)


def type_lines(machines: Machines, *lines: str) -> Ran:
    ran = machines.lead.run(*BYPASS, stdin="".join(f"{line}\n" for line in lines))
    assert ran.code == 0, ran.err
    return ran


def incarnations(machines: Machines) -> list[int]:
    rows = machines.rows("select distinct incarnation from transcript where agent = 'alice' order by 1")
    return [incarnation for (incarnation,) in rows]


def was_cleaned_up(machines: Machines) -> bool:
    """Whether the host of alice is done with her."""
    return machines.rows("select host from lease where name = 'alice' and host <> ''") == []


def test_a_member_with_the_lead_has_nothing_of_one_that_was_forgotten(machines: Machines) -> None:
    script = TeamScript(
        lead=[spawn("the first secret"), text("asked"), text("heard"), spawn("work"), text("asked"), text("heard")],
        alice=[text("ok"), text("ok"), text("ok")],
    )
    with machines.lead.against(script):
        type_lines(machines, "go", "/wait", "/shutdown alice", "/forget alice", "go", "/wait")
        type_lines(machines, "@alice more", "/wait")  # a start reads the rows
    told = str(script.requests["alice"][-1]["messages"])
    assert "more" in told
    assert "the first secret" not in told
    assert incarnations(machines) == [1, 2]


def test_a_member_on_another_host_has_nothing_of_one_that_was_forgotten(machines: Machines) -> None:
    first, second = spawn("the first secret", host="any"), spawn("work", host="any")
    script = TeamScript(
        lead=[first, text("asked"), text("heard"), second, text("asked"), text("heard")],
        alice=[tool("bash", command="ls; echo old > old.txt"), text("ok"), tool("bash", command="ls"), text("ok")],
    )
    with machines.lead.against(script):
        machines.worker("box")
        type_lines(machines, "go", "/wait", "/shutdown alice")
        wait_until(lambda: was_cleaned_up(machines))
        forgot = type_lines(machines, "/forget alice", "go", "/wait")
    told = str(script.requests["alice"][-1]["messages"])
    assert "the first secret" not in told
    assert "old.txt" not in told
    # What she left is not in the way of the next one, and stays as it was.
    assert "Kept team/alice at 'origin': not merged." in forgot.out
    branches = git(machines.remote, "for-each-ref", "--format=%(refname:short)", "refs/heads/team")
    assert branches.split() == ["team/alice", "team/alice.2"]
    assert "old.txt" in git(machines.remote, "ls-tree", "--name-only", "team/alice")


@pytest.mark.parametrize("host", ["", 'host = "box"\n'])
def test_a_member_of_the_team_file_has_nothing_of_one_that_was_forgotten(machines: Machines, host: str) -> None:
    team = machines.lead.directory / ".team"
    team.mkdir()
    (team / "team.toml").write_text(f'[[member]]\nname = "alice"\nrole = "coder"\n{host}')
    script = TeamScript(alice=[text("ok"), text("ok")])
    with machines.lead.against(script):
        machines.worker("box")
        machines.lead.run("--trust", *BYPASS, stdin="@alice the first secret\n/wait\n/shutdown alice\n")
        wait_until(lambda: was_cleaned_up(machines))
        type_lines(machines, "/forget alice")
        type_lines(machines, "@alice work", "/wait")  # the start has her join again
    assert "the first secret" not in str(script.requests["alice"][-1]["messages"])


def test_a_forged_row_does_not_push_the_next_member_to_a_higher_number(machines: Machines) -> None:
    script = TeamScript(lead=[spawn("work"), text("asked"), text("heard")] * 2, alice=[text("ok")] * 2)
    with machines.lead.against(script), closing(Intruder(machines.url)) as intruder:
        type_lines(machines, "go", "/wait", "/shutdown alice", "/forget alice")
        forge = "insert into transcript select team, agent, 9, seq, epoch, entry, sig from transcript"
        intruder.do(f"{forge} where agent = 'alice'")
        type_lines(machines, "go", "/wait")
    assert incarnations(machines) == [1, 2, 9]
