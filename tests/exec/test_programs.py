"""Which programs teamcli runs itself: only those that agents cannot replace."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import teamcli
from teamcli.exec.programs import Programs


def make_program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def test_a_program_in_the_workspace_is_skipped(tmp_path: Path, work: Path) -> None:
    make_program(work / "bin/rg")
    system = make_program(tmp_path / "system/rg")
    path = f"{work}/bin:{system.parent}"
    assert Programs(path, [work]).find("rg") == str(system)
    assert Programs(path).find("rg") == str(work / "bin/rg")


def test_relative_and_empty_entries_of_the_path_are_skipped(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_program(work / "rg")
    monkeypatch.chdir(work)
    assert Programs(".::bin").find("rg") is None


@pytest.mark.parametrize("way", ["program", "directory", "there and back"])
def test_a_link_through_the_workspace_is_skipped(tmp_path: Path, work: Path, way: str) -> None:
    """An agent could turn it elsewhere at any time."""
    real = make_program(tmp_path / "system/rg")
    directory = tmp_path / "bin"
    if way == "directory":
        (work / "bin").symlink_to(real.parent)
        directory.symlink_to(work / "bin")
    else:
        directory.mkdir()
        planted = make_program(work / "rg") if way == "program" else work / "link"
        if way == "there and back":
            planted.symlink_to(real)
        (directory / "rg").symlink_to(planted)
    assert (directory / "rg").resolve().exists()
    assert Programs(str(directory), [work]).find("rg") is None


def test_a_link_elsewhere_is_followed(tmp_path: Path, work: Path) -> None:
    make_program(tmp_path / "system/rg")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/rg").symlink_to("../system/rg")
    assert Programs(str(tmp_path / "bin"), [work]).find("rg") == str(tmp_path / "bin/rg")


def test_links_that_lead_nowhere_are_skipped(tmp_path: Path, work: Path) -> None:
    (tmp_path / "rg").symlink_to("rg")
    assert Programs(str(tmp_path), [work]).find("rg") is None
    assert not Programs(str(tmp_path), [work]).is_out_of_reach(tmp_path / "rg")


def test_programs_of_the_system_are_out_of_reach_even_if_the_workspace_is_the_whole_machine() -> None:
    assert Programs("/usr/bin", [Path("/")]).is_out_of_reach(Path("/usr/bin/env"))
    assert not Programs("/usr/bin", [Path("/usr")]).is_out_of_reach(Path("/usr/bin/env"))
    assert not Programs("/opt/bin", [Path("/")]).is_out_of_reach(Path("/opt/bin/env"))


def test_no_other_module_searches_the_path() -> None:
    """`demo` only shows the name, `sandbox` only names a program that it refuses."""
    searching = re.compile(r"\bwhich\(|posix_spawnp|execvp|execlp|os\.system|shell=True|find_executable")
    package = Path(teamcli.__file__).parent
    found = {str(path.relative_to(package)) for path in package.rglob("*.py") if searching.search(path.read_text())}
    assert found == {"cli/demo.py", "exec/sandbox/sandbox.py"}


def test_only_these_modules_start_processes() -> None:
    starting = re.compile(r"\bsubprocess\b|posix_spawn\(|\bos\.exec|\bos\.popen|\bpty\b")
    package = Path(teamcli.__file__).parent
    found = {str(path.relative_to(package)) for path in package.rglob("*.py") if starting.search(path.read_text())}
    assert found == {
        "cli/tmux.py",
        "exec/at_terminal.py",
        "exec/browser.py",
        "exec/host_process.py",
        "exec/supervisor/processes.py",
        "exec/supervisor/serve.py",
        "store/location.py",
        "ui/terminal/pager.py",
        "workspace/search/engine.py",
    }
