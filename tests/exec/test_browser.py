"""Opening an address in the browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from teamcli.exec.browser import open_in_browser
from teamcli.exec.programs import Programs
from tests.support.waiting import wait_until

ADDRESS = "http://127.0.0.1/login?a=b&c=$HOME"


def browser(directory: Path, name: str = "xdg-open") -> Path:
    directory.mkdir(exist_ok=True)
    program = directory / name
    program.write_text(f'#!/bin/sh\nprintf "%s " "$@" > {directory}/new && mv {directory}/new {directory}/opened\n')
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("wanted", "arguments"),
    [("", [ADDRESS]), ("{} --new %s", ["--new", ADDRESS]), ("{} -n:lynx", ["-n", ADDRESS]), ("my-browser", [ADDRESS])],
)
def test_the_users_browser_gets_the_address_as_it_is(tmp_path: Path, wanted: str, arguments: list[str]) -> None:
    system = tmp_path / "system"
    browser(system, "my-browser")
    program = browser(system)
    programs = Programs(f"{system}:/usr/bin:/bin", [tmp_path / "work"])
    assert open_in_browser(ADDRESS, programs, {"PATH": "/usr/bin:/bin", "BROWSER": wanted.format(program)})
    wait_until((system / "opened").exists)
    assert (system / "opened").read_text().split() == arguments


@pytest.mark.parametrize("wanted", ["", "{}", "xdg-open", "'", "not-there"])
def test_a_program_that_agents_could_have_written_is_not_run(tmp_path: Path, wanted: str) -> None:
    program = browser(tmp_path / "work")
    programs = Programs(str(program.parent), [program.parent])
    assert not open_in_browser(ADDRESS, programs, {"BROWSER": wanted.format(program)})


@pytest.mark.parametrize("address", ["file:///etc/passwd", "--help", "javascript:alert(1)", ""])
def test_only_web_addresses_are_opened(tmp_path: Path, address: str) -> None:
    programs = Programs(str(browser(tmp_path / "system").parent), [])
    assert not open_in_browser(address, programs, {})
