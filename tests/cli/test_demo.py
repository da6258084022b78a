"""`teamcli demo`: a newcomer sees a team at work, and finds it again in the files."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from teamcli.cli.demo import ENDING, ENTER_FILES, INTRODUCTION
from teamcli.cli.demo import STEPS as STORY
from tests.support.program import Program
from tests.support.screen import Screen

STEPS = 9


@pytest.fixture
def here(program: Program, tmp_path: Path) -> Iterator[Program]:
    """The program with a place of its own for scratch directories."""
    scratch = tmp_path / "a scratch"
    scratch.mkdir()
    program.variables["TMPDIR"] = str(scratch)
    yield program
    shutil.rmtree(scratch)


def scratch_of(program: Program) -> Path:
    (directory,) = Path(program.variables["TMPDIR"]).glob("teamcli-demo-*")
    return directory


def test_the_demo_ends_by_itself_without_a_terminal(here: Program) -> None:
    ran = here.run("demo")
    assert (ran.code, ran.err) == (0, "")
    directory = scratch_of(here)
    assert str(directory) in ran.out
    assert list(here.directory.iterdir()) == []
    for shown in (
        "team >> spawn alice as coder in a worktree:",
        "team → alice (task): write prices.txt: apples 3",
        '"subject": "write prices.txt: apples 3"',
        "Merged team/alice into main: 1 commit",
        "Merged team/bob into main: 1 commit",
        "alice → bob: read stock.txt",
        "[bob] read_file: 1 apples 40",
        "bob → lead (result)",
        '"from":"alice","to":"bob"',
        "outside, claims to be a shell",
        "'alice' was idle and is shut down now",
        "Removed .team/worktrees/alice and team/alice",
        "tail -F",
    ):
        assert shown in ran.out, shown
    assert "teamcli: " not in ran.out
    assert "\x1b" not in ran.out
    assert ran.out.count(f" of {STEPS} ---") == STEPS
    assert (directory / "prices.txt").read_text() == "apples 3"
    assert (directory / "stock.txt").read_text() == "apples 40"


def test_without_git_the_demo_says_what_it_needs(here: Program, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    here.variables["PATH"] = str(tmp_path / "bin")
    ran = here.run("demo")
    assert (ran.code, ran.out) == (2, "")
    assert "git is not installed" in ran.err
    assert list(Path(here.variables["TMPDIR"]).iterdir()) == []


def type_ending(program: Program, out: str, entering: int = 1) -> str:
    """Type the commands that the demo prints at its end, each after the lines that enter its directory."""
    ending = out[out.index("That was the team") :]
    lines = [line.strip() for line in ending.splitlines() if line.startswith("  ")]
    enter, printed = "\n".join(lines[:entering]), lines[entering:]
    assert len(printed) == 6
    assert enter.startswith("cd ")
    for command in printed:
        done = subprocess.run(
            ["bash", "-c", f"{enter}\n{command}"], env=program.env(), capture_output=True, text=True, input="list\n"
        )
        assert (done.returncode, done.stderr) == (0, ""), command
        assert done.stdout, command
    return ending


def test_the_commands_that_the_demo_prints_work_as_printed(here: Program) -> None:
    out = here.run("demo").out
    directory = scratch_of(here)
    ending = type_ending(here, out)
    (remove,) = re.findall(r"^To remove it: +(.*)$", ending, re.MULTILINE)
    subprocess.run(["bash", "-c", remove], check=True)
    assert not directory.exists()


@pytest.mark.parametrize("configured", ["environment", "settings"])
def test_the_demo_is_in_files_although_a_store_is_configured(here: Program, postgres_url: str, configured: str) -> None:
    import psycopg

    if configured == "settings":
        here.settings(store=postgres_url)
    else:
        here.variables["TEAMCLI_STORE"] = postgres_url
    ran = here.run("demo")
    assert (ran.code, ran.err) == (0, "")
    assert (scratch_of(here) / ".team/config.json").exists()
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("select count(*) from team").fetchone() == (0,)
    type_ending(here, ran.out, entering=2)


def test_the_text_of_the_demo_fits_eighty_columns() -> None:
    words = "\n".join([INTRODUCTION, ENDING, *(step.why for step in STORY)])
    filled = words.format(directory="/tmp/teamcli-demo-12345678", teamcli="teamcli", enter_files=ENTER_FILES)
    assert [line for line in filled.splitlines() if len(line) > 80] == []


def test_what_is_left_behind_can_be_looked_at_and_continued(here: Program) -> None:
    here.run("demo")
    left = Program(scratch_of(here), here.home)
    shown = left.run("team", "--json").json
    assert {member["name"]: member["status"] for member in shown["members"]} == {"alice": "shutdown", "bob": "shutdown"}
    assert "result" in left.run("inbox").out
    assert left.run("-p", "--offline", "--continue", "list").code == 0


def test_at_a_terminal_the_reader_sets_the_pace(here: Program) -> None:
    with Screen(here, "demo", columns=120, lines=60) as screen:
        screen.wait_for("1 of 9")
        screen.wait_for("Enter: continue")
        assert "Spawned" not in screen.text
        screen.type("\r")
        screen.wait_for("✓ spawn alice")
        screen.wait_for("2 of 9")
        assert "\x1b[32m✓" in screen.raw
        screen.type("\x04")
        screen.wait_for("To remove it:")
        assert screen.wait_for_end() == 0
    assert scratch_of(here).is_dir()


def test_ctrl_c_ends_the_demo(here: Program) -> None:
    with Screen(here, "demo", columns=120, lines=60) as screen:
        screen.wait_for("Enter: continue")
        screen.type("\x03")
        screen.wait_for("To remove it:")
        assert screen.wait_for_end() == 130
