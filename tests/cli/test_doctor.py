from __future__ import annotations

import os

import pytest

from tests.support.fake_api import FakeAPI, text
from tests.support.program import Program


def test_all_well_without_a_key(program: Program) -> None:
    ran = program.run("doctor")
    assert ran.code == 0 and "BAD" not in ran.out and "embedded" in ran.out
    assert not (program.directory / ".team").exists()


def test_all_well_with_an_endpoint(program: Program) -> None:
    with FakeAPI([text("pong")]) as api:
        program.url = api.url
        ran = program.run("doctor")
    assert ran.code == 0 and api.url in ran.out and "test-model answers" in ran.out and "direct" in ran.out
    assert program.key not in ran.out


def test_a_refused_key_is_said(program: Program) -> None:
    with FakeAPI([], key="another") as api:
        program.url = api.url
        ran = program.run("doctor")
    assert ran.code == 1 and "BAD  model" in ran.out and "ANTHROPIC_API_KEY" in ran.out


def test_an_unreachable_endpoint_and_broken_settings_are_said(program: Program) -> None:
    program.url = "http://127.0.0.1:9"
    assert "127.0.0.1:9" in program.run("doctor").out
    (program.home / ".teamcli").mkdir()
    (program.home / ".teamcli/settings.json").write_text("{")
    ran = program.run("doctor")
    assert ran.code == 1 and "BAD  settings" in ran.out


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes anywhere")
def test_a_directory_in_which_nothing_can_be_made_is_said_before_the_start_fails(program: Program) -> None:
    program.directory.chmod(0o555)
    ran = program.run("doctor")
    assert ran.code == 1 and "BAD  .team" in ran.out and "--no-team" in ran.out
    assert program.run("-p", "list", "--offline").code == 2
    assert program.run("-p", "run true", "--offline", "--no-team", "--allowedTools", "bash").code == 0
