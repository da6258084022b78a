"""A small repository, made once and copied for each test, and a host that runs git in it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest

from teamcli.exec.command_host import CommandHost
from teamcli.exec.programs import Programs
from teamcli.exec.sandbox.git import repositories_behind
from teamcli.exec.sandbox.plan import SandboxSettings
from teamcli.exec.sandbox.sandbox import Sandbox
from teamcli.worktrees.checkouts import Checkouts
from teamcli.worktrees.git import Git
from tests.redteam.conftest import need_sandbox


def git(directory: Path, *arguments: str) -> str:
    """The user's git, outside any sandbox."""
    identity = {
        f"GIT_{who}_{what}": "user@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    environment = {**os.environ, **identity, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    command = ["git", "-C", str(directory), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.strip()


@pytest.fixture(scope="session")
def repository_to_copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("repository") / "project"
    (root / "src").mkdir(parents=True)
    git(root, "init", "--quiet", "--initial-branch=main")
    (root / "README.md").write_text("# Shop\n")
    (root / "src" / "cart.py").write_text("total = 0\n")
    (root / ".gitignore").write_text(".env\nbuild/\n.team/\n")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "-m", "Begin")
    return root


@pytest.fixture
def repository(repository_to_copy: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(repository_to_copy, tmp_path / "project", symlinks=True))


@pytest.fixture
def plain_host() -> Iterator[CommandHost]:
    """Without a sandbox."""
    host = CommandHost(os.environ, owns_process=False)
    yield host
    host.close()


def open_checkouts(root: Path, home: Path, setup: str = "", is_confined: bool = True) -> tuple[Checkouts, CommandHost]:
    """As the program makes them, with the host of the lead."""
    settings = SandboxSettings((root,), home)
    programs = Programs(None, [root])

    def confined(settings: SandboxSettings, variables: Mapping[str, str]) -> CommandHost:
        make_sandbox = partial(Sandbox, settings, programs) if is_confined else None
        environment = {**os.environ, **variables}
        return CommandHost(environment, (), False, make_sandbox, is_required=is_confined, programs=programs)

    def member_host(path: Path, variables: Mapping[str, str]) -> CommandHost:
        return confined(settings._replace(roots=(path,), main=(root, *repositories_behind(root))), variables)

    lead = confined(settings, {})
    return Checkouts(Git(lead, root), root / ".team" / "worktrees", member_host, setup), lead


@pytest.fixture
def open_in(clean_environment: Path) -> Iterator[Callable[..., Checkouts]]:
    """Opens the checkouts of a directory, as often as needed."""
    if not shutil.which("git"):
        pytest.skip("git is not installed")
    need_sandbox()
    opened: list[tuple[Checkouts, CommandHost]] = []

    def open_(root: Path, setup: str = "") -> Checkouts:
        (root / ".team").mkdir(exist_ok=True)
        opened.append(open_checkouts(root, clean_environment, setup))
        return opened[-1][0]

    yield open_
    for checkouts, host in opened:
        checkouts.hosts.close_all()
        host.close()


@pytest.fixture
def checkouts(open_in: Callable[..., Checkouts], repository: Path) -> Checkouts:
    return open_in(repository)


def as_member(checkouts: Checkouts, command: str, member: str = "alice") -> tuple[int, str]:
    """Run a command as the member would: exit code and output."""
    output: list[str] = []
    running = checkouts.hosts.of(member).start(command, checkouts.directory / member)
    return running.follow(output.append, lambda text: None).exit_code, "".join(output)
