"""An idle team makes no model call, whatever is looked at, touched or typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from teamcli import Session
from teamcli.commands.catalog import COMMANDS
from tests.sdk.models import scripted, who_asks
from tests.support.fake_api import FakeAPI, text
from tests.support.program import Program
from tests.support.team_script import TeamScript
from tests.support.waiting import DEADLINE_SECONDS, wait_until
from tests.team.test_team import run, spawn

CALLS = {"compact": "writes a summary", "send": "wakes whom it is for", "quit": "would end the test"}


@pytest.fixture
def hired(program: Program) -> Program:
    """Where alice and bob are idle."""
    script = TeamScript(
        lead=[spawn("alice"), spawn("bob"), text("hired"), text("end"), text("end")],
        alice=[text("ready")],
        bob=[text("ready")],
    )
    run(program, script)
    return program


def test_a_start_and_every_command_that_wakes_nobody_make_no_model_call(hired: Program) -> None:
    names = [command.name for command in COMMANDS if command.name not in CALLS]
    lines = [f"/{name}{argument}" for name in names for argument in ("", " alice", " nobody")]
    with FakeAPI([]) as api:
        hired.url = api.url
        ran = hired.run(stdin="\n".join([*lines, "/help"]))
        assert api.requests == []
    assert "/team" in ran.out


def append(place: Path, name: str, words: str) -> None:
    with (place / f".team/inbox/{name}.jsonl").open("a") as file:
        file.write(f'{{"type":"message","from":"me","content":"{words}"}}\n')


def test_looking_and_touching_wake_nobody_and_mail_wakes_whom_it_is_for(tmp_path: Path, program: Program) -> None:
    model = scripted()
    with Session(tmp_path, llm=model) as session:
        for name in ("alice", "bob", "carol", "dave"):
            session.spawn(name, "reader", "do your part")
        assert session.wait(DEADLINE_SECONDS)
        session.pause("bob")
        session.shutdown("carol")
        program.directory = tmp_path
        before = [who_asks(request) for request in model.requests]
        for inbox in (tmp_path / ".team/inbox").glob("*.jsonl"):
            inbox.touch()
            inbox.write_bytes(inbox.read_bytes())
        for command in ("team", "inbox", "log"):
            assert program.run(command).code == 0
        for name in ("bob", "carol", "alice"):
            append(tmp_path, name, "are you there?")
        wait_until(lambda: len(model.requests) > len(before))
        assert session.wait(DEADLINE_SECONDS)
        append(tmp_path, "alice", "still there?")
        wait_until(lambda: len(model.requests) > len(before) + 1)
        assert session.wait(DEADLINE_SECONDS)
        assert [who_asks(request) for request in model.requests[len(before) :]] == ["alice", "alice"]
