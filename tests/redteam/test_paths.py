"""Attacks on the file tools: ways out of the workspace, into `.team`, and races on the way there."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from teamcli.errors import ToolError
from teamcli.workspace.bounds import Workspace
from teamcli.workspace.file_access import open_file, read_content, replace_file
from teamcli.workspace.file_walk import list_directory
from tests.support.fake_api import answer, text, tool, tool_results
from tests.support.program import Program
from tests.tools.file_agent import FileAgent

SECRET = "hunter2-of-the-user"


class Place:
    """A workspace that an attacker has prepared, next to files that belong to someone else."""

    def __init__(self, top: Path) -> None:
        self.root = top / "work"
        self.outside = top / "outside"
        for directory in (self.root / "dir", self.root / ".team/memory", self.outside / "sub"):
            directory.mkdir(parents=True)
        (self.root / "dir/secret").write_text("harmless\n")
        (self.root / "a.txt").write_text("harmless\n")
        for secret in (self.outside / "secret", self.outside / "sub/secret", self.root / ".team/config.json"):
            secret.write_text(f"{SECRET}\n")
        self._furnish()
        self.before = self.state()

    def _furnish(self) -> None:
        links = {
            "out": self.outside,
            "out-relative": Path("../outside"),
            "out-file": self.outside / "secret",
            "chain-1": Path("chain-2"),
            "chain-2": Path("out"),
            "deep": self.outside / "sub",
            "state": Path(".team"),
            "dir/up": Path("../.."),
            "dangling": self.outside / "new",
            "device": Path("/dev/zero"),
            "process": Path("/proc/self"),
            ".team/memory/state": Path("../config.json"),
            ".team/memory/out": self.outside,
            "loop": Path("loop"),
        }
        for name, target in links.items():
            (self.root / name).symlink_to(target)
        os.mkfifo(self.root / "fifo")
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(self.root / "socket"))

    def state(self) -> dict[str, bytes]:
        """All that no file tool may change."""
        places = [*self.outside.rglob("*"), *(self.root / ".team").rglob("*")]
        return {str(path): path.read_bytes() for path in places if path.is_file() and not path.is_symlink()}


@pytest.fixture
def place(tmp_path: Path, clean_environment: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    (clean_environment / ".ssh").mkdir()
    (clean_environment / ".ssh/id").write_text(SECRET)
    (clean_environment / ".teamcli").mkdir()
    (clean_environment / ".teamcli/key").write_text(SECRET)
    # a socket's path must be short
    monkeypatch.chdir(tmp_path)
    return Place(tmp_path)


WAYS_OUT = {
    "dots": "../outside/secret",
    "dots behind a directory": "dir/../../outside/secret",
    "dots behind what is not there": "nothing/../../outside/secret",
    "dots behind a link": "deep/../secret",
    "dots behind a link up": "dir/up/outside/secret",
    "an absolute path": "{outside}/secret",
    "an absolute path through the workspace": "{root}/../outside/secret",
    "a doubled slash": "//{outside}/secret",
    "a link to a directory": "out/secret",
    "a relative link": "out-relative/secret",
    "a link to a file": "out-file",
    "a chain of links": "chain-1/secret",
    "a dangling link": "dangling",
    "the home by a tilde": "~/.ssh/id",
    "the home of a named user": "~root/.ssh/id",
    "the own settings": "~/.teamcli/key",
    "a file URL": "file://{outside}/secret",
    "percent signs": "%2e%2e/outside/secret",
    "backslashes": "..\\outside\\secret",
    "dots that only look so": "\u2025/outside/secret",
    "the environment of the process": "/proc/self/environ",
    "the environment by a link": "process/environ",
    "an open descriptor": "/proc/self/fd/0",
    "standard input": "/dev/stdin",
    "a device": "/dev/zero",
    "a device by a link": "device",
    "a FIFO": "fifo",
    "a socket": "socket",
    "a link to itself": "loop/secret",
    "the state": ".team/config.json",
    "the state in capitals": ".TEAM/config.json",
    "the state by dots": "dir/../.team/config.json",
    "the state through the memory": ".team/memory/../config.json",
    "the state by a link": "state/config.json",
    "the state by a link in the memory": ".team/memory/state",
    "out by a link in the memory": ".team/memory/out/secret",
    "a NUL": "a.txt\0/../../outside/secret",
    "half a character": "\udcff/../../outside/secret",
    "a name that is too long": "x" * 300 + "/../../outside/secret",
    "a path that is too long": "dir/../" * 1000 + "../outside/secret",
    "a trailing slash": "out-file/",
    "the directory itself": "out",
    "the parent": "..",
    "the root": "/",
    "nothing": "",
    "blanks around it": " ../outside/secret ",
    "a line break": "dir\n/../../outside/secret",
}
CALLS: list[tuple[str, dict[str, str]]] = [
    ("read_file", {}),
    ("grep", {"pattern": "hunter2"}),
    ("glob", {"pattern": "*"}),
    ("write_file", {"content": "overwritten"}),
    ("edit_file", {"old_text": SECRET, "new_text": "overwritten"}),
]


@pytest.mark.parametrize("tool_name, more", CALLS, ids=[name for name, _ in CALLS])
@pytest.mark.parametrize("way", WAYS_OUT)
def test_no_path_leads_out_of_the_workspace(place: Place, way: str, tool_name: str, more: dict[str, str]) -> None:
    spelled = WAYS_OUT[way].replace("{outside}", str(place.outside)).replace("{root}", str(place.root))
    try:
        said = FileAgent(place.root).says(tool_name, path=spelled, **more)
    except ToolError as e:
        said = str(e)
    assert SECRET not in said
    assert place.state() == place.before


@pytest.mark.parametrize(
    "pattern", ["../**", "../outside/*", "**/secret", "out/*", "/proc/self/*", ".team/*", "state/*", "~/*"]
)
def test_a_pattern_lists_nothing_outside(place: Place, pattern: str) -> None:
    try:
        said = FileAgent(place.root).says("glob", pattern=pattern)
    except ToolError as e:
        assert "escapes" in str(e) or "own state" in str(e)
        return
    listed = set(said.splitlines())
    assert listed <= {"dir/secret", *(name for name in listed if name.startswith("(no matches"))}


@pytest.mark.parametrize("with_ripgrep", [True, False])
def test_a_search_follows_no_link(place: Place, with_ripgrep: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not with_ripgrep:
        monkeypatch.setenv("PATH", "/nowhere")
    assert SECRET not in FileAgent(place.root).says("grep", pattern="hunter2", output="content")


def test_an_added_directory_has_closed_state_too_and_opens_nothing_next_to_it(place: Place, tmp_path: Path) -> None:
    added = tmp_path / "added"
    (added / ".team").mkdir(parents=True)
    (added / ".team/config.json").write_text(SECRET)
    (added / "open.txt").write_text("open\n")
    (place.root / "to-added").symlink_to(added)
    agent = FileAgent(place.root, extra=(added,))
    assert "open" in agent.says("read_file", path="to-added/open.txt")
    assert "own state" in agent.refuses("read_file", path="to-added/.team/config.json")
    assert "escapes" in agent.refuses("read_file", path=f"{added}/../outside/secret")


def test_the_state_of_a_project_inside_is_closed_and_what_only_looks_like_it_is_not(place: Place) -> None:
    for name in ("used", "fixture"):
        (place.root / name / ".team/memory").mkdir(parents=True)
        (place.root / name / ".team/settings.json").write_text("{}")
    (place.root / "used/.team/.owner").write_text("token")
    agent = FileAgent(place.root)
    assert "own state" in agent.refuses("write_file", path="used/.team/settings.local.json", content="{}")
    assert "own state" in agent.refuses("read_file", path="used/.TEAM/../.team/settings.json")
    agent.says("write_file", path="used/.team/memory/a.md", content="a")
    agent.says("write_file", path="fixture/.team/settings.local.json", content="{}")


def test_a_hard_link_is_never_written_through(place: Place) -> None:
    """What it shows cannot be told from a file; what is written replaces the name, not the content."""
    os.link(place.outside / "secret", place.root / "hard")
    agent = FileAgent(place.root)
    agent.says("read_file", path="hard")
    agent.says("write_file", path="hard", content="mine now\n")
    assert (place.outside / "secret").read_text() == f"{SECRET}\n"


@pytest.mark.parametrize(
    "name",
    [
        *(".git/config", ".git/hooks/pre-commit", ".GIT/config", "dir/.git/commondir", "dir/.git", "to-git/config"),
        *("store/config", "store/hooks/pre-commit"),
    ],
)
def test_no_file_tool_changes_what_git_obeys(place: Place, name: str) -> None:
    """One line in there makes the user's next `git status` run a command, outside the sandbox and in every mode."""
    (place.root / ".git/hooks").mkdir(parents=True)
    (place.root / ".git/config").write_text("[core]\n")
    (place.root / "to-git").symlink_to(".git")
    (place.root / "store/objects").mkdir(parents=True)  # made with --separate-git-dir
    (place.root / "store/HEAD").write_text("ref: refs/heads/main\n")
    agent = FileAgent(place.root)
    if name == ".git/config":
        assert "[core]" in agent.says("read_file", path=name)
        assert "belongs to git" in agent.refuses("edit_file", path=name, old_text="[core]", new_text="[evil]")
    assert "belongs to git" in agent.refuses("write_file", path=name, content="evil")
    assert (place.root / ".git/config").read_text() == "[core]\n"


def swap(place: Place, name: str = "dir") -> None:
    """At the worst moment: a directory that has been judged becomes a link."""
    (place.root / name).rename(place.root / f"{name}-before")
    (place.root / name).symlink_to(place.outside)


RACES: dict[str, Callable[[Place, Workspace, Path], object]] = {
    "reading": lambda place, workspace, path: read_content(path, workspace),
    "replacing": lambda place, workspace, path: replace_file(path, b"overwritten", workspace),
    "making a file": lambda place, workspace, path: replace_file(path.with_name("new"), b"x", workspace),
    "making directories": lambda place, workspace, path: replace_file(path.parent / "new/x/y", b"x", workspace),
    "listing": lambda place, workspace, path: list_directory(str(path.parent)),
}


@pytest.mark.parametrize("race", RACES)
def test_a_directory_that_becomes_a_link_after_the_check_leads_nowhere(place: Place, race: str) -> None:
    workspace = Workspace(place.root)
    path = workspace.resolve("dir/secret")
    swap(place)
    with pytest.raises((ToolError, OSError), match=r"link|Too many levels"):
        RACES[race](place, workspace, path)
    assert place.state() == place.before


def test_a_file_that_becomes_a_link_after_the_check_is_not_followed(place: Place) -> None:
    workspace = Workspace(place.root)
    path = workspace.resolve("a.txt")
    path.unlink()
    path.symlink_to(place.outside / "secret")
    with pytest.raises(ToolError, match="symbolic link"), open_file(path, workspace):
        pass
    with pytest.raises(ToolError, match="symbolic link"):
        replace_file(path, b"overwritten", workspace)
    assert place.state() == place.before


def test_a_workspace_that_becomes_a_link_is_not_followed(place: Place) -> None:
    workspace = Workspace(place.root)
    path = workspace.resolve("dir/secret")
    place.root.rename(place.root.with_name("moved"))
    place.root.symlink_to(place.outside)
    (place.outside / "dir").mkdir()
    (place.outside / "dir/secret").write_text(SECRET)
    with pytest.raises(ToolError):
        read_content(path, workspace)
    with pytest.raises(ToolError):
        replace_file(path, b"overwritten", workspace)
    assert "escapes" in FileAgent(place.root).refuses("read_file", path="dir/secret")
    assert (place.outside / "dir/secret").read_text() == SECRET


def test_names_near_a_missing_file_are_not_taken_from_elsewhere(place: Place) -> None:
    workspace = Workspace(place.root)
    path = workspace.resolve("dir/secret-of-all")
    swap(place)
    with pytest.raises(ToolError) as refused, open_file(path, workspace):
        pass
    assert "did you mean" not in str(refused.value)


@contextmanager
def swapping(place: Place) -> Iterator[None]:
    """A process of the attacker's (here a thread) that swaps a directory for a link and back, without end."""
    is_over = threading.Event()
    directory, aside, link = place.root / "dir", place.root / "aside", place.root / "link"

    def run() -> None:
        while not is_over.is_set():
            link.symlink_to(place.outside)
            directory.rename(aside)
            with contextlib.suppress(OSError):  # a tool has just made the directory anew
                link.rename(directory)
            if directory.is_symlink():
                directory.unlink()
            else:
                link.unlink()
                shutil.rmtree(directory, ignore_errors=True)
            with contextlib.suppress(OSError):
                aside.rename(directory)
            shutil.rmtree(aside, ignore_errors=True)
            directory.mkdir(exist_ok=True)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@pytest.mark.parametrize("tool_name, more", CALLS, ids=[name for name, _ in CALLS])
def test_no_moment_of_a_race_is_the_right_one(place: Place, tool_name: str, more: dict[str, str]) -> None:
    target = "dir" if tool_name in ("grep", "glob") else "dir/secret"
    rounds = 15 if tool_name == "grep" else 300
    with swapping(place):
        for _ in range(rounds):
            try:
                said = FileAgent(place.root).says(tool_name, path=target, **more)
            except ToolError as e:
                said = str(e)
            assert SECRET not in said
            assert "dir/sub" not in said
    assert {name: data for name, data in place.state().items() if name in place.before} == place.before
    assert not (place.outside / "new").exists()


def test_a_line_that_ripgrep_read_elsewhere_is_not_shown(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """ripgrep opens by path: a stand-in for one that was led astray says what is not in the file."""
    fake = place.root.parent / "bin"
    fake.mkdir()
    path = place.root / "dir/secret"
    (fake / "rg").write_text(f"#!/bin/sh\nprintf '%s\\0001:1:{SECRET}\\n%s\\0001:1:harmless\\n' {path} {path}\n")
    (fake / "rg").chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake}:{os.environ['PATH']}")
    said = FileAgent(place.root).says("grep", pattern="h", path="dir")
    assert SECRET not in said
    assert "harmless" in said


class TestWhatIsReadWithoutATool:
    """The same bounds hold for what goes to the model without a call."""

    def sent(self, program: Program, *arguments: str) -> str:
        with program.against([text("ok")]) as api:
            program.run("-p", *arguments)
        return str(api.requests)

    @pytest.fixture
    def secret(self, program: Program) -> Path:
        path = program.home / ".ssh/id"
        path.parent.mkdir()
        path.write_text(SECRET)
        return path

    @pytest.mark.parametrize(
        "mention", ["@link", "@~/.ssh/id", "@../home/.ssh/id", '@"link"', "@dir/id", "@.team/config.json"]
    )
    def test_mentions_read_nothing_outside(self, program: Program, secret: Path, mention: str) -> None:
        (program.directory / "link").symlink_to(secret)
        (program.directory / "dir").symlink_to(secret.parent)
        assert SECRET not in self.sent(program, f"look at {mention}")

    @pytest.mark.parametrize("name", ["AGENTS.md", "CLAUDE.md"])
    def test_instructions_are_not_read_through_a_link(self, program: Program, secret: Path, name: str) -> None:
        (program.directory / name).symlink_to(secret)
        assert SECRET not in self.sent(program, "hi")

    def test_instructions_do_not_include_a_link(self, program: Program, secret: Path) -> None:
        (program.directory / "AGENTS.md").write_text("@other.md\n@../home/.ssh/id.md\n")
        (program.directory / "other.md").symlink_to(secret)
        assert SECRET not in self.sent(program, "hi")

    def test_the_name_of_the_branch_is_not_read_through_a_link(self, program: Program, secret: Path) -> None:
        secret.write_text(f"ref: refs/heads/{SECRET}\n{SECRET}\n")
        (program.directory / ".git").mkdir()
        (program.directory / ".git/HEAD").symlink_to(secret)
        assert SECRET not in self.sent(program, "hi")

    def test_the_name_of_the_branch_is_not_read_from_a_directory_outside(self, program: Program, secret: Path) -> None:
        (secret.parent / "HEAD").write_text(f"{SECRET}\n")
        (program.directory / ".git").write_text(f"gitdir: {secret.parent}\n")
        assert SECRET[:12] not in self.sent(program, "hi")

    def test_a_command_of_the_project_is_not_read_through_a_link(self, program: Program, secret: Path) -> None:
        (program.directory / ".team/commands").mkdir(parents=True)
        (program.directory / ".team/commands/show.md").symlink_to(secret)
        (program.directory / ".team/commands/good.md").write_text("Say hello.")
        with program.against([text("ok")]) as api:
            ran = program.run("--trust", stdin="/show\n/good\nq\n")
        assert SECRET not in str(api.requests)
        assert "Say hello." in str(api.requests)
        assert "leads out of the workspace" in ran.out + ran.err

    def test_memory_is_not_read_through_a_link(self, program: Program, secret: Path) -> None:
        self.sent(program, "hi")  # from now on the directory is the user's own
        (program.directory / ".team/memory/lead").mkdir(parents=True, exist_ok=True)
        (program.directory / ".team/memory/lead/MEMORY.md").symlink_to(secret)
        assert SECRET not in self.sent(program, "hi", "--trust")


def test_the_same_attacks_fail_through_the_whole_program(program: Program) -> None:
    """The same attacks, made by a model: every call is answered with an error, and nothing gets out."""
    (program.home / ".ssh").mkdir()
    (program.home / ".ssh/id").write_text(SECRET)
    (program.directory / "link").symlink_to(program.home / ".ssh")
    calls = [
        tool("read_file", path="link/id"),
        tool("read_file", path="~/.ssh/id"),
        tool("read_file", path="/proc/self/environ"),
        tool("grep", pattern="hunter2", path="link"),
        tool("write_file", path="link/authorized_keys", content="mine"),
        tool("edit_file", path="link/id", old_text=SECRET, new_text="x"),
        tool("write_file", path=".team/settings.json", content="{}"),
    ]
    with program.against([answer(*calls), text("done")]) as api:
        program.run("-p", "x", "--permission-mode", "bypassPermissions")
    results = tool_results(api.requests[1])
    assert all(result.get("is_error") for result in results)
    assert SECRET not in str(results)
    assert sorted(path.name for path in (program.home / ".ssh").iterdir()) == ["id"]
    assert not (program.directory / ".team/settings.json").exists()
