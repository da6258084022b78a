"""Attempts to turn the sandbox off or to widen it: by what is in a directory, by limits, and by an earlier command."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from teamcli.errors import ToolError
from teamcli.exec.command_host import CommandHost
from teamcli.exec.sandbox.git import Repositories
from teamcli.exec.sandbox.plan import SandboxSettings
from teamcli.exec.sandbox.sandbox import Sandbox
from tests.redteam.conftest import need_sandbox
from tests.support.fake_api import FakeAPI, text, tool, tool_results
from tests.support.program import ROOT, Program
from tests.support.screen import Screen
from tests.tools.shell import Shell

CONFINED, REFUSED, ESCAPED = "confined", "refused", "escaped"


class Workspace:
    def __init__(self, root: Path, home: Path) -> None:
        self.root, self.home = root, home
        self._shells: list[Shell] = []
        root.mkdir()

    def shell(self) -> Shell:
        """With the default settings, under which commands run unconfined where no sandbox can be made."""
        make_sandbox = partial(Sandbox, SandboxSettings((self.root,), self.home))
        self._shells.append(Shell(self.root, CommandHost(os.environ, make_sandbox=make_sandbox)))
        return self._shells[-1]

    def attempt(self, command: str = "true") -> str:
        """Have `command` run, and say whether it could leave the sandbox."""
        try:
            self.shell().bash(f"{command}; echo x > ~/evil; echo x > inside")
        except ToolError as e:
            assert "commands are refused" in str(e)
            assert "doctor" in str(e)
            return ESCAPED if (self.home / "evil").exists() else REFUSED
        assert (self.root / "inside").exists()
        return ESCAPED if (self.home / "evil").exists() else CONFINED

    def close(self) -> None:
        for shell in self._shells:
            shell.close()


@pytest.fixture
def workspace(tmp_path: Path, clean_environment: Path) -> Iterator[Workspace]:
    need_sandbox()
    workspace = Workspace(tmp_path / "work", clean_environment)
    yield workspace
    workspace.close()


def make_repository(path: Path) -> None:
    """As little as git accepts, because there are thousands."""
    for name in ("objects", "refs", "hooks"):
        (path / name).mkdir(parents=True)
    (path / "HEAD").write_text("ref: refs/heads/main\n")
    (path / "config").write_text("[core]\n")


def link_to_a_process(root: Path) -> None:
    (root / ".claude").symlink_to("/proc/self")


def links_everywhere(root: Path) -> None:
    for name, target in {".claude": "/proc/self/root", ".team": "/proc/self/fd", ".git": "/proc/self/cwd"}.items():
        (root / name).symlink_to(target)


def links_to_themselves(root: Path) -> None:
    for name in (".claude", ".team", ".git"):
        (root / name).symlink_to(name)


def links_to_the_home(root: Path) -> None:
    for name in (".claude", ".team", ".git"):
        (root / name).symlink_to(Path.home())


def a_git_file_with_nul(root: Path) -> None:
    (root / ".git").write_bytes(b"gitdir: a\0b\n")


def a_git_file_that_names(target: str, root: Path) -> None:
    (root / ".git").write_text(f"gitdir: {target}\n")


def odd_kinds_of_files(root: Path) -> None:
    (root / ".git").mkdir()
    os.mkfifo(root / ".git/config")
    os.mkfifo(root / ".git/commondir")
    (root / ".git/hooks").write_text("")
    (root / ".claude").write_text("")
    os.mkfifo(root / ".team")


def odd_names(root: Path) -> None:
    for name in (b"line\nbreak", b"not utf-8 \xff", b"--bind", b"\\040", b"a,b:c"):
        make_repository(root / os.fsdecode(name) / ".git")


PLANTED: dict[str, Callable[[Path], None]] = {
    "a link to a process": link_to_a_process,
    "links into /proc": links_everywhere,
    "links to themselves": links_to_themselves,
    "links to the home": links_to_the_home,
    "NUL in a .git file": a_git_file_with_nul,
    "a .git file that names the root": partial(a_git_file_that_names, "/"),
    "a .git file that names itself": partial(a_git_file_that_names, ".git"),
    "a .git file that names the workspace": partial(a_git_file_that_names, "."),
    "a .git file that names a process": partial(a_git_file_that_names, "/proc/self"),
    "a .git file with a long name": partial(a_git_file_that_names, "x" * 100_000),
    "odd kinds of files": odd_kinds_of_files,
    "odd names": odd_names,
}


@pytest.mark.parametrize("planted", PLANTED)
def test_nothing_in_a_directory_turns_the_sandbox_off(workspace: Workspace, planted: str) -> None:
    PLANTED[planted](workspace.root)
    assert workspace.attempt() == CONFINED


@pytest.mark.parametrize(
    "plant",
    [
        "rm -rf .claude; ln -s /proc/self .claude",
        "rm -rf .git; ln -s /proc/self .git",
        "printf 'gitdir: a\\0b' > .git",
        "mkdir -p a/b/c; ln -s / a/b/c/.git; echo gitdir: / > a/.git",
        "mkdir .git; mkfifo .git/config; ln -s /proc/self .git/hooks",
    ],
)
def test_nothing_that_a_command_plants_turns_the_next_sandbox_off(workspace: Workspace, plant: str) -> None:
    assert workspace.attempt(plant) == CONFINED
    assert workspace.attempt() == CONFINED


@pytest.mark.skipif(os.geteuid() == 0, reason="root looks into every directory")
@pytest.mark.parametrize("hidden", [".git", ".git/modules", "sub"])
def test_a_directory_that_a_command_has_hidden_is_a_reason_to_refuse(workspace: Workspace, hidden: str) -> None:
    """Else the command could show it again later, unguarded."""
    for name in (".git", ".git/modules/a", "sub/.git"):
        make_repository(workspace.root / name)
    assert workspace.attempt(f"chmod 0 {hidden}") == CONFINED
    with pytest.raises(ToolError, match=f"{hidden} cannot be searched; allow it with chmod"):
        workspace.shell().bash("true")
    (workspace.root / hidden).chmod(0o755)
    assert workspace.attempt() == CONFINED


def test_three_hundred_inner_repositories_are_guarded_at_little_cost(workspace: Workspace) -> None:
    for number in range(300):
        make_repository(workspace.root / str(number) / ".git")
    guards = Repositories((workspace.root,), (workspace.root,)).guards()
    assert len(guards.fixed) <= 600
    assert guards.note
    shell = workspace.shell()
    said = shell.bash("touch inside; echo evil > 7/.git/config; mv 8 old")
    assert (workspace.root / "inside").exists()
    assert "so many git repositories" in said
    assert (workspace.root / "7/.git/config").read_text() == "[core]\n"
    assert (workspace.root / "8/.git").exists()


def test_a_hundred_inner_repositories_can_be_worked_in_but_not_configured(workspace: Workspace) -> None:
    for number in range(100):
        make_repository(workspace.root / str(number) / ".git")
    workspace.shell().bash(
        "echo new > 7/file; echo evil > 7/.git/config; mv 8 old; mkdir 8; echo evil > 9/.git/hooks/x"
    )
    assert (workspace.root / "7/file").read_text() == "new\n"
    assert (workspace.root / "7/.git/config").read_text() == "[core]\n"
    assert not (workspace.root / "9/.git/hooks/x").exists()
    assert (workspace.root / "8/.git").exists()


def test_more_repositories_than_can_be_guarded_are_a_reason_to_refuse(workspace: Workspace) -> None:
    for number in range(1000):
        make_repository(workspace.root / str(number) / ".git")
    with pytest.raises(ToolError, match="holds 1000 git repositories, too many to guard; start in one of them"):
        workspace.shell().bash("true")
    assert workspace.attempt() == REFUSED


def test_three_thousand_submodules_do_not_turn_the_sandbox_off(workspace: Workspace) -> None:
    make_repository(workspace.root / ".git")
    for number in range(3000):
        (workspace.root / ".git/modules" / str(number)).mkdir(parents=True)
        (workspace.root / ".git/modules" / str(number) / "HEAD").write_text("ref: refs/heads/main\n")
        (workspace.root / ".git/modules" / str(number) / "config").write_text("[core]\n")
        (workspace.root / "vendor" / str(number)).mkdir(parents=True)
        (workspace.root / "vendor" / str(number) / ".git").write_text(f"gitdir: ../../.git/modules/{number}\n")
    assert workspace.attempt("echo evil > vendor/7/.git; echo evil > .git/modules/7/config") == CONFINED
    assert (workspace.root / "vendor/7/.git").read_text() == "gitdir: ../../.git/modules/7\n"
    assert (workspace.root / ".git/modules/7/config").read_text() == "[core]\n"


def test_two_thousand_projects_inside_do_not_turn_the_sandbox_off(workspace: Workspace) -> None:
    for number in range(2000):
        (workspace.root / "projects" / str(number) / ".team").mkdir(parents=True)
        (workspace.root / "projects" / str(number) / ".team/.owner").write_text("token")
    assert workspace.attempt("echo evil > projects/7/.team/settings.json") == CONFINED
    assert not (workspace.root / "projects/7/.team/settings.json").exists()
    assert len(Repositories((workspace.root,), (workspace.root,)).guards().fixed) == 1


LIMITED = """
    import os, resource, sys
    from functools import partial
    from pathlib import Path
    from teamcli.errors import ToolError
    from teamcli.exec.command_host import CommandHost
    from teamcli.exec.sandbox.sandbox import Sandbox
    from teamcli.exec.sandbox.plan import SandboxSettings

    usual = resource.getrlimit(resource.RLIMIT_NOFILE)
    outcomes = set()
    for limit in range(5, 40):
        wanted = SandboxSettings((Path.cwd(),), Path.home())
        host = CommandHost(os.environ, make_sandbox=partial(Sandbox, wanted), owns_process=False)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, usual[1]))
        try:
            host.start("echo x > ~/evil; echo evil > .git/config", Path.cwd()).follow(lambda _: None, lambda _: None)
            outcomes.add("ran")
        except (ToolError, OSError) as e:
            outcomes.add("refused")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, usual)
            host.close()
    print(*sorted(outcomes))
"""


def test_a_limit_of_descriptors_makes_commands_fail_and_never_unconfined(workspace: Workspace) -> None:
    make_repository(workspace.root / ".git")
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(LIMITED)],
        cwd=workspace.root,
        env={**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(workspace.home)},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "ran refused\n", done.stderr
    assert not (workspace.home / "evil").exists()
    assert (workspace.root / ".git/config").read_text() == "[core]\n"
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 40


OUT_OF_NAMESPACES = """
    import os
    from functools import partial
    from pathlib import Path
    from teamcli.errors import ToolError
    from teamcli.exec.command_host import CommandHost
    from teamcli.exec.sandbox.sandbox import Sandbox
    from teamcli.exec.sandbox.plan import SandboxSettings

    wanted = SandboxSettings((Path.cwd(),), Path.home())
    host = CommandHost(os.environ, make_sandbox=partial(Sandbox, wanted), owns_process=False)
    try:
        host.start("echo x > ~/evil", Path.cwd()).follow(lambda _: None, lambda _: None)
        print("ran")
    except ToolError as e:
        print("refused", "exceeded" in str(e))
    finally:
        host.close()
"""


@pytest.mark.parametrize(("limit", "outcome"), [("1", "refused True\n"), ("0", "ran\n")])
def test_namespaces_that_are_used_up_make_commands_fail_and_never_unconfined(
    workspace: Workspace, limit: str, outcome: str
) -> None:
    """A limit of 0 is an administrator's word that there is no sandbox on this machine."""
    need_sandbox()
    # a user namespace, whose limits concern nobody else, and the one namespace of processes that they allow
    run = 'echo "$1" > /proc/sys/user/max_pid_namespaces && exec "$2" -c "$3"'
    code = textwrap.dedent(OUT_OF_NAMESPACES)
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--pid", "--fork", "sh", "-c", run, "sh", limit, sys.executable, code],
        cwd=workspace.root,
        env={**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(workspace.home)},
        capture_output=True,
        text=True,
    )
    assert done.stdout == outcome, done.stderr
    assert (workspace.home / "evil").exists() == (outcome == "ran\n")


@pytest.fixture
def failing(program: Program, tmp_path: Path) -> Program:
    """A `bwrap` that works, but not for this workspace."""
    need_sandbox()
    real = subprocess.run(["sh", "-c", "command -v bwrap"], capture_output=True, text=True, check=True).stdout.strip()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/bwrap").write_text(
        f"#!/bin/sh\nif grep -qa {program.directory} /proc/self/fd/4; then\n"
        f'  echo "bwrap: Can\'t bind mount: No such device" >&2\n  exit 1\nfi\nexec {real} "$@"\n'
    )
    (tmp_path / "bin/bwrap").chmod(0o755)
    program.variables["PATH"] = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    return program


class TestARefusal:
    def test_a_refusal_names_the_reason_and_the_remedy(self, failing: Program) -> None:
        with FakeAPI([tool("bash", command="echo x > ~/evil"), text("done")]) as api:
            failing.url = api.url
            failing.run("-p", "x", "--allowedTools", "bash")
        said = str(tool_results(api.requests[1]))
        assert "commands are refused" in said
        assert "No such device" in said
        assert "`sandbox`" in said
        assert not (failing.home / "evil").exists()

    def test_a_refusal_is_explained_by_doctor(self, failing: Program) -> None:
        ran = failing.run("doctor")
        line = next(line for line in ran.out.splitlines() if " sandbox " in line)
        assert line.startswith("BAD")
        assert "not for this directory" in line
        assert "`sandbox` to `off`" in line
        assert ran.code == 1

    def test_a_refusal_is_shown_in_the_banner(self, failing: Program) -> None:
        with Screen(failing, "--offline") as screen:
            screen.wait_for("no commands, the sandbox fails")

    def test_nothing_is_refused_if_the_user_turns_the_sandbox_off(self, failing: Program) -> None:
        failing.settings(sandbox="off")
        with FakeAPI([tool("bash", command="echo x > ~/written"), text("done")]) as api:
            failing.url = api.url
            failing.run("-p", "x", "--allowedTools", "bash")
        assert (failing.home / "written").exists()

    def test_a_refusal_stops_the_start_if_a_sandbox_is_required(self, failing: Program) -> None:
        failing.settings(sandbox="required")
        ran = failing.run("-p", "x")
        assert ran.code == 2
        assert "No such device" in ran.err


class TestPrograms:
    """A workspace directory on the PATH, in which an agent has put its own programs."""

    @pytest.fixture
    def planted(self, program: Program) -> Program:
        directory = program.directory / ".venv/bin"
        directory.mkdir(parents=True)
        for name in ("rg", "git", "bwrap", "bash", "sh", "ps", "python3"):
            (directory / name).write_text(f'#!/bin/sh\necho "{name}" >> "{program.home}/evil"\n')
            (directory / name).chmod(0o755)
        (program.directory / "a.txt").write_text("needle\n")
        subprocess.run(["git", "init", "-q", str(program.directory)], check=True)
        program.variables["PATH"] = f"{directory}:{os.environ['PATH']}"
        return program

    def test_programs_that_agents_can_write_are_never_run_by_teamcli(self, planted: Program) -> None:
        need_sandbox()
        with FakeAPI(
            [tool("grep", pattern="needle"), tool("bash", command="git status; rg x; true"), text("ok")]
        ) as api:
            planted.url = api.url
            planted.run("--allowedTools", "bash", stdin="x\n/diff\n!true\n")
            assert "a.txt:1:needle" in str(tool_results(api.requests[1]))
        planted.run("doctor")
        assert not (planted.home / "evil").exists()

    def test_a_planted_bwrap_does_not_count_as_an_installed_one(self, planted: Program) -> None:
        directory = planted.directory / ".venv/bin"
        planted.variables["PATH"] = str(directory)
        with FakeAPI([tool("bash", command="echo x > ~/evil"), text("ok")]) as api:
            planted.url = api.url
            planted.run("-p", "x", "--allowedTools", "bash")
        assert "where agents can write" in str(tool_results(api.requests[1]))
        assert not (planted.home / "evil").exists()


class TestLookingAtARepository:
    """`/diff` asks git, and the repository may come from anywhere."""

    @pytest.fixture(params=["with a sandbox", "without"])
    def hostile(self, request: pytest.FixtureRequest, program: Program) -> Program:
        """A repository that git completes, when it misses an object, with a program that the config names."""
        if request.param == "without":
            program.settings(sandbox="off")
        else:
            need_sandbox()
        root = program.directory

        def git(*arguments: str, given: str = "") -> str:
            done = subprocess.run(
                ["git", "-C", root, *arguments], input=given, capture_output=True, text=True, check=True
            )
            return done.stdout.strip()

        git("init", "-q", "-b", "main")
        commit = f"tree {'1' * 40}\nauthor a <a@b> 1 +0000\ncommitter a <a@b> 1 +0000\n\nx\n"
        name = git("hash-object", "-t", "commit", "-w", "--literally", "--stdin", given=commit)
        (root / ".git/refs/heads/main").write_text(f"{name}\n")
        (root / "a.txt").write_text("x")
        for key, value in {
            "core.repositoryformatversion": "1",
            "extensions.partialClone": "origin",
            "remote.origin.url": str(root),
            "remote.origin.promisor": "true",
            "remote.origin.uploadpack": f"echo x >> {program.home}/evil;",
        }.items():
            git("config", key, value)
        return program

    def test_looking_at_a_repository_starts_nothing_that_it_names(self, hostile: Program) -> None:
        hostile.run(stdin="/diff\n")
        assert not (hostile.home / "evil").exists()

    def test_plain_git_would_have_started_it(self, hostile: Program) -> None:
        subprocess.run(["git", "-C", hostile.directory, "status"], capture_output=True)
        assert (hostile.home / "evil").exists()


@pytest.mark.parametrize(
    "attack",
    ["sed -i s/0/1/ checks/one.sh", "rm -f checks/one.sh", "mv checks elsewhere", "cp /dev/null checks/one.sh"],
)
def test_a_script_that_a_hook_runs_outside_cannot_be_changed_inside(program: Program, attack: str) -> None:
    need_sandbox()
    script = program.directory / "checks/one.sh"
    script.parent.mkdir()
    script.write_text("exit 0\n")
    program.settings(hooks={"SessionEnd": [{"hooks": [{"type": "command", "command": "sh checks/one.sh"}]}]})
    with program.against([tool("bash", command=attack), text("done")]) as api:
        program.run("-p", "x", "--permission-mode", "bypassPermissions")
    said = str(tool_results(api.requests[1])[0]["content"])
    assert "Read-only" in said or "busy" in said
    assert script.read_text() == "exit 0\n"
