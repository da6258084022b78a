"""`rm -rf .team` while the program runs: it says so once, and loses nothing that it has."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.fake_api import text
from tests.support.program import Program
from tests.support.running import Running
from tests.support.team_script import TeamScript
from tests.support.waiting import wait_until
from tests.team.test_team import BYPASS, members, run, spawn


def delete(state: Path) -> None:
    """The program may write a file meanwhile: then its directory is not empty at the end."""
    shutil.rmtree(state, ignore_errors=True)


def move_away(state: Path) -> None:
    state.rename(state.with_name("elsewhere"))


@pytest.mark.parametrize("remove", [delete, move_away])
def test_it_is_written_again_and_the_next_start_has_everything(
    program: Program, remove: Callable[[Path], object]
) -> None:
    script = TeamScript(
        lead=[spawn("alice", "remember: blue"), text("hired"), text("lead heard"), text("second")],
        alice=[text("noted"), text("hi")],
    )
    state = program.directory / ".team"
    with program.against(script):
        with Running(program, *BYPASS) as repl:
            repl.type("go")
            repl.type("/wait")
            repl.wait_for("lead heard")
            wait_until(lambda: members(program)["alice"]["status"] == "idle")
            remove(state)
            wait_until(lambda: repl.out.count("was deleted while teamcli runs") == 1)
            assert program.run("send", "alice", "hello").code == 0
            assert "already runs" in program.run(stdin="").err
            wait_until(lambda: len(script.requests["alice"]) == 2)  # she has read what was sent to her
            wait_until(lambda: members(program)["alice"]["status"] == "idle")
            repl.type("again")
            repl.wait_for("second")
            assert repl.leave() == 0
        assert repl.out.count("was deleted") == 1
    script = TeamScript(lead=[text("continued"), text("x")], alice=[text("blue")])
    run(program, script, "--continue")
    remembered = str(script.requests["lead"][0]["messages"])
    assert all(words in remembered for words in ("lead heard", "again", "second", ">noted<"))
    assert not script.requests["alice"], "what she had read was read again"
