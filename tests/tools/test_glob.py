from __future__ import annotations

import os
from pathlib import Path

import pytest

from teamcli.agent.tool import Reads
from teamcli.errors import Cancelled
from teamcli.workspace.globs import compile_glob
from tests.tools.file_agent import FileAgent


@pytest.fixture
def agent(tmp_path: Path) -> FileAgent:
    return FileAgent(tmp_path)


def make(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)


def found(agent: FileAgent, pattern: str, path: str = ".") -> list[str]:
    return sorted(agent.says("glob", pattern=pattern, path=path).splitlines())


def test_double_stars_span_directories_and_single_ones_do_not(agent: FileAgent, tmp_path: Path) -> None:
    make(tmp_path, "a.py", "src/b.py", "src/x/c.py", "src/x/d.ts", "lib/e.tsx")
    assert found(agent, "**/*.py") == ["a.py", "src/b.py", "src/x/c.py"]
    assert found(agent, "*.py") == ["a.py"]
    assert found(agent, "src/*/*.py") == ["src/x/c.py"]
    assert found(agent, "src/**") == ["src/b.py", "src/x/c.py", "src/x/d.ts"]
    assert found(agent, "**/*.{ts,tsx}") == ["lib/e.tsx", "src/x/d.ts"]
    assert found(agent, "**/x/*") == ["src/x/c.py", "src/x/d.ts"]
    assert found(agent, "src/b.py") == ["src/b.py"]


def test_the_search_may_start_in_a_directory_or_with_an_absolute_pattern(agent: FileAgent, tmp_path: Path) -> None:
    make(tmp_path, "src/b.py", "src/x/c.py", "other/d.py")
    assert found(agent, "**/*.py", path="src") == ["src/b.py", "src/x/c.py"]
    assert found(agent, "x/*.py", path=str(tmp_path / "src")) == ["src/x/c.py"]
    assert found(agent, f"{tmp_path}/src/**/*.py") == ["src/b.py", "src/x/c.py"]


def test_a_star_or_a_directory_lists_what_is_in_it(agent: FileAgent, tmp_path: Path) -> None:
    make(tmp_path, "a.py", "src/b.py", "src/x/c.py")
    assert found(agent, "*") == ["a.py", "src/"]
    assert found(agent, "src") == found(agent, "src/") == found(agent, "src/*") == ["src/b.py", "src/x/"]
    assert found(agent, ".") == ["a.py", "src/"]


def test_the_newest_come_first(agent: FileAgent, tmp_path: Path) -> None:
    make(tmp_path, "old.py", "new.py", "mid.py", "mid2.py")
    for name, seconds in [("old.py", 1000), ("mid.py", 2000), ("mid2.py", 2000), ("new.py", 3000)]:
        os.utime(tmp_path / name, (seconds, seconds))
    assert agent.says("glob", pattern="*.py").splitlines() == ["new.py", "mid.py", "mid2.py", "old.py"]


def test_many_matches_are_cut_with_a_mark(agent: FileAgent, tmp_path: Path) -> None:
    make(tmp_path, *(f"f{n}.txt" for n in range(230)))
    lines = agent.says("glob", pattern="*.txt").splitlines()
    assert len(lines) == 201
    assert lines[-1].startswith("... (30 more)")


def test_gitignore_is_respected_in_every_directory(agent: FileAgent, tmp_path: Path) -> None:
    make(tmp_path, "a.py", "a.log", "build/b.py", "src/build/c.py", "src/keep.log", "src/x.tmp", "top.py", "src/top.py")
    (tmp_path / ".gitignore").write_text("*.log\nbuild/\n/top.py\n[z-a]\n!\n")
    (tmp_path / "src" / ".gitignore").write_bytes(b"\xef\xbb\xbf!keep.log\r\n*.tmp\r\n")
    assert found(agent, "**/*") == ["a.py", "src/keep.log", "src/top.py"]
    assert found(agent, "**/*", path="src") == ["src/keep.log", "src/top.py"]


def test_the_gitignore_above_the_workspace_counts_within_a_repository_only(tmp_path: Path) -> None:
    make(tmp_path, "work/a.py", "work/a.log")
    (tmp_path / ".gitignore").write_text("*.log\n")
    agent = FileAgent(tmp_path / "work")
    assert found(agent, "**/*") == ["a.log", "a.py"]
    (tmp_path / ".git").mkdir()
    assert found(agent, "**/*") == ["a.py"]


def test_an_ignored_directory_that_is_named_is_shown(agent: FileAgent, tmp_path: Path) -> None:
    make(tmp_path, "build/out/a.o", "build/b.o")
    (tmp_path / ".gitignore").write_text("build/\n")
    assert found(agent, "**/*.o")[0].startswith("(no matches")
    assert found(agent, "build/**") == ["build/b.o", "build/out/a.o"]
    assert found(agent, "*", path="build/out") == ["build/out/a.o"]


def test_a_gitignore_that_is_not_a_file_is_skipped(agent: FileAgent, tmp_path: Path) -> None:
    make(tmp_path, "a.py", "d/b.py")
    (tmp_path / ".gitignore").mkdir()
    os.mkfifo(tmp_path / "d" / ".gitignore")
    assert found(agent, "**/*.py") == ["a.py", "d/b.py"]


def test_hidden_files_are_found_only_by_name(agent: FileAgent, tmp_path: Path) -> None:
    make(tmp_path, ".env", ".github/ci.yml", "src/.secret/x.yml", "a.yml")
    assert found(agent, "**/*.yml") == ["a.yml"]
    assert found(agent, ".github/*.yml") == [".github/ci.yml"]
    assert found(agent, "**/.*/*.yml") == [".github/ci.yml", "src/.secret/x.yml"]
    assert found(agent, ".*") == [".env", ".github/"]


def test_git_and_team_state_are_never_listed(agent: FileAgent, tmp_path: Path) -> None:
    make(tmp_path, ".git/config", ".team/config.json", ".team/memory/coder/notes.md", ".x/y")
    assert found(agent, ".*/*") == [".x/y"]
    assert found(agent, "**/.*/**") == [".x/y"]
    assert found(agent, ".team/memory/**") == [".team/memory/coder/notes.md"]
    assert "own state" in agent.refuses("glob", pattern=".team/**")
    assert "own state" in agent.refuses("glob", pattern="*", path=".team")


def test_links_are_not_followed_and_those_that_lead_out_are_not_listed(tmp_path: Path) -> None:
    make(tmp_path, "outside/secret.py", "work/src/a.py", "work/.team/config.py")
    work = tmp_path / "work"
    (work / "out").symlink_to(tmp_path / "outside")
    (work / "out.py").symlink_to(tmp_path / "outside" / "secret.py")
    (work / "state.py").symlink_to(".team/config.py")
    (work / "in.py").symlink_to("src/a.py")
    (work / "dangling.py").symlink_to("nowhere")
    (work / "loop").symlink_to(".")
    agent = FileAgent(work)
    assert found(agent, "**/*.py") == ["in.py", "src/a.py"]
    assert "escapes" in agent.refuses("glob", pattern="*", path="out")
    assert "escapes" in agent.refuses("glob", pattern="out/*")


@pytest.mark.parametrize("given", [{"pattern": "../*"}, {"pattern": "/etc/*"}, {"pattern": "*", "path": ".."}])
def test_a_search_outside_is_refused(agent: FileAgent, given: dict[str, str]) -> None:
    assert "Path escapes workspace" in agent.refuses("glob", **given)


def test_an_empty_result_says_where_to_look_next(agent: FileAgent, tmp_path: Path) -> None:
    make(tmp_path, "src/a.py")
    message = agent.says("glob", pattern="*.py")
    assert message.startswith("(no matches for *.py")
    assert "**/*.py" in message
    assert "no directory lib" in agent.refuses("glob", pattern="*.py", path="lib")
    assert "pattern: is empty" in agent.refuses("glob", pattern=" ")


def test_an_invalid_pattern_is_refused(agent: FileAgent) -> None:
    assert "not a valid glob" in agent.refuses("glob", pattern="[z-a]")
    assert "alternatives" in agent.refuses("glob", pattern="{a,b}" * 12)


@pytest.mark.parametrize("pattern", ["[]", "[!]", "a[]b", "[^]"])
def test_brackets_with_nothing_in_them_are_just_brackets(pattern: str) -> None:
    assert compile_glob(pattern)(pattern)
    assert not compile_glob(pattern)("x")


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*a" * 60 + "b", "a" * 250),
        ("**/a/" * 15 + "b", "a/" * 60 + "a"),
        ("**/a/" * 15 + "b", "a/" * 60 + "b/c/b"),
        ("**/*a*/" * 15 + "b", "aa/" * 60 + ".b"),
    ],
    ids=lambda text: text[:12],
)
def test_a_pattern_made_to_take_forever_does_not(pattern: str, path: str) -> None:
    """With backtracking these would not end."""
    assert not compile_glob(pattern)(path)


def test_sets_and_escapes_match_as_in_a_shell(agent: FileAgent, tmp_path: Path) -> None:
    make(tmp_path, "a1.py", "b2.py", "c[3].py", "d-.py")
    assert found(agent, "[ab][0-9].py") == ["a1.py", "b2.py"]
    assert found(agent, "[!a]?.py") == ["b2.py", "d-.py"]
    assert found(agent, "c\\[3\\].py") == ["c[3].py"]


def test_a_very_deep_tree_is_walked(agent: FileAgent, tmp_path: Path) -> None:
    deep = tmp_path
    for _ in range(300):
        deep /= "d"
    deep.mkdir(parents=True)
    (deep / "x.py").touch()
    assert found(agent, "**/x.py") == ["d/" * 300 + "x.py"]


def test_a_cancelled_glob_stops(agent: FileAgent, tmp_path: Path) -> None:
    make(tmp_path, "a.py")
    agent.cancel.cancel()
    with pytest.raises(Cancelled):
        agent.call("glob", pattern="**/nothing")


def test_a_glob_declares_where_it_looks(agent: FileAgent, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    call = agent.prepare("glob", pattern="src/**/*.py")
    assert call.access == Reads(tmp_path / "src")
    assert call.display.title == "glob **/*.py in src"
