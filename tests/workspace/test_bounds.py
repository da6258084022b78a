from __future__ import annotations

from pathlib import Path

import pytest

from teamcli.errors import ToolError
from teamcli.workspace.bounds import Workspace


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    (tmp_path / "outside").mkdir()
    return tmp_path / "work"


def refusal(workspace: Workspace, path: str) -> str:
    with pytest.raises(ToolError) as refused:
        workspace.resolve(path)
    return str(refused.value)


def test_relative_and_absolute_paths_inside_are_resolved(root: Path) -> None:
    workspace = Workspace(root)
    assert workspace.resolve("a/../b.txt") == root / "b.txt"
    assert workspace.resolve(str(root / "c.txt")) == root / "c.txt"
    assert workspace.resolve(".") == root


@pytest.mark.parametrize("path", ["../outside/x", "/etc/passwd", "a/../../outside", "..", "/"])
def test_paths_outside_are_refused(root: Path, path: str) -> None:
    assert refusal(Workspace(root), path).startswith(f"Path escapes workspace: {path}")


def test_a_sibling_whose_name_begins_the_same_is_outside(root: Path) -> None:
    assert "escapes" in refusal(Workspace(root), f"../{root.name}2/x")


def test_symlinks_are_followed_and_may_not_lead_out(root: Path) -> None:
    (root / "real").mkdir()
    (root / "in").symlink_to("real")
    (root / "out").symlink_to(root.parent / "outside")
    (root / "dangling").symlink_to("real/new.txt")
    (root / "loop").symlink_to("loop")
    workspace = Workspace(root)
    assert workspace.resolve("in/x") == root / "real" / "x"
    assert workspace.resolve("dangling") == root / "real" / "new.txt"
    assert "escapes" in refusal(workspace, "out/x")
    assert "escapes" in refusal(workspace, "in/../../outside/x")


def test_a_link_to_itself_is_refused_in_one_sentence(root: Path) -> None:
    (root / "loop").symlink_to("loop")
    try:
        resolved = Workspace(root).resolve("loop/x")
    except ToolError as e:
        assert "loop" in str(e)
    else:  # some versions of Python leave it to whoever opens the file
        assert not resolved.exists()


def test_added_directories_are_inside(root: Path) -> None:
    outside = root.parent / "outside"
    workspace = Workspace(root, (outside,))
    assert workspace.resolve(str(outside / "x")) == outside / "x"
    assert workspace.top_of(outside / "x") == outside
    assert workspace.top_of(root / "x") == root
    assert workspace.relative(outside / "x") == str(outside / "x")
    assert workspace.relative(root / "a" / "x") == "a/x"


@pytest.mark.parametrize(
    "path", [".team", ".team/config.json", ".team/inbox/lead.jsonl", "x/../.team/a", ".TEAM/a", ".team/memory2/x"]
)
def test_team_state_is_refused(root: Path, path: str) -> None:
    assert "teamcli's own state" in refusal(Workspace(root), path)


def test_team_memory_is_allowed(root: Path) -> None:
    assert Workspace(root).resolve(".team/memory/coder/notes.md") == root / ".team/memory/coder/notes.md"
    assert "own state" in refusal(Workspace(root), ".team/memory/../config.json")


def test_team_state_is_refused_behind_links_and_in_added_directories(root: Path) -> None:
    outside = root.parent / "outside"
    (root / "state").mkdir()
    (root / ".team").symlink_to("state")
    (root / "link").symlink_to(".team")
    workspace = Workspace(root, (outside,))
    assert "own state" in refusal(workspace, "link/config.json")
    assert "own state" in refusal(workspace, "state/config.json")
    assert "own state" in refusal(workspace, f"{outside}/.team/config.json")


def test_the_users_own_directory_is_refused_if_the_home_is_the_workspace(clean_environment: Path) -> None:
    workspace = Workspace(clean_environment.resolve())
    assert "own state" in refusal(workspace, ".teamcli/key")
    assert "own state" in refusal(workspace, ".teamcli/memory/coder/x")


def test_only_the_roles_part_of_the_users_memory_is_open(clean_environment: Path, root: Path) -> None:
    home = clean_environment.resolve()
    for place in (root, home):
        workspace = Workspace(place, memory=home / ".teamcli/memory/coder")
        assert workspace.resolve("~/.teamcli/memory/coder/x.md") == home / ".teamcli/memory/coder/x.md"
        for path in ("~/.teamcli/memory/tester/x", "~/.teamcli/memory/coder/../tester/x", "~/.teamcli/key"):
            assert "own state" in refusal(workspace, path) or "escapes" in refusal(workspace, path)


def test_a_tilde_is_the_home(clean_environment: Path, root: Path) -> None:
    home = clean_environment.resolve()
    assert Workspace(home).resolve("~/a.txt") == home / "a.txt"
    assert "escapes" in refusal(Workspace(root), "~/a.txt")
    assert Workspace(root).resolve("~x") == root / "~x"


@pytest.mark.parametrize("path", ["a\0b", "a\ud800b"])
def test_what_cannot_be_a_name_is_refused(root: Path, path: str) -> None:
    assert refusal(Workspace(root), path).startswith("path: ")


def test_a_name_that_is_not_unicode_can_be_shown(root: Path) -> None:
    name = b"caf\xe9.txt"
    shown = Workspace(root).relative(root / name.decode("utf-8", "surrogateescape"))
    assert shown.encode() == rb"caf\xe9.txt"
