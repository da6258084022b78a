"""A place to attack, and commands that attack it: inside the sandbox, outside of it, or both."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import pytest

from teamcli.exec.command_host import CommandHost
from teamcli.exec.sandbox.plan import SandboxSettings
from teamcli.exec.sandbox.sandbox import Sandbox
from tests.tools.shell import Shell

SECRET = "the-secret-of-the-user"


@dataclass(frozen=True)
class Attacker:
    """An agent's shell in a workspace, beside a home that is worth an attack."""

    shell: Shell
    root: Path
    home: Path
    is_confined: bool

    def run(self, command: str) -> str:
        return self.shell.bash(command)


@cache
def why_no_sandbox() -> str:
    with tempfile.TemporaryDirectory() as empty:
        wanted = SandboxSettings((Path(empty).resolve(),), Path(empty).resolve(), is_trial=True)
        host = CommandHost(os.environ, make_sandbox=partial(Sandbox, wanted))
        try:
            assert not host.why_refused(), host.why_refused()
            return host.why_unconfined()
        finally:
            host.close()


def need_sandbox() -> None:
    if why := why_no_sandbox():
        pytest.skip(f"no sandbox here: {why}")


def furnish(root: Path, home: Path) -> None:
    root.mkdir()
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    subprocess.run(["git", "-C", str(root), "config", "extensions.worktreeConfig", "true"], check=True)
    (root / ".git/hooks").mkdir(exist_ok=True)
    for name in (".git/modules/a", ".git/worktrees/b"):  # a submodule, and a checkout elsewhere
        (root / name / "hooks").mkdir(parents=True)
        (root / name / "HEAD").write_text("ref: refs/heads/main\n")
    (root / ".git/modules/a/config").write_text("[core]\n")
    (root / ".git/worktrees/b/commondir").write_text("../..\n")
    (root.parent / "elsewhere").mkdir()
    (root / ".git/worktrees/b/gitdir").write_text(f"{root.parent}/elsewhere/.git\n")
    subprocess.run(["git", "init", "-q", str(root / "sub")], check=True)
    (root / "sub/.git/hooks").mkdir(exist_ok=True)
    (root / "sub/.team").mkdir()
    (root / "sub/.team/.owner").write_text("token")
    (root / ".claude/agents").mkdir(parents=True)
    (root / ".claude/agents/writer.md").write_text("---\nname: writer\n---\nWrite.\n")
    (root / ".team/inbox").mkdir(parents=True)
    (root / ".team/memory").mkdir()
    (root / ".team/inbox/lead.jsonl").write_text("")
    (root / ".team/settings.json").write_text("{}")
    (root.parent / "outside.txt").write_text("as it was")
    (home / ".bashrc").write_text("# as it was\n")
    for name in (".ssh/id_ed25519", ".aws/credentials", ".teamcli/key", ".config/gh/hosts.yml", ".kube/config"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(SECRET)
    for name in (".netrc", ".git-credentials", ".bash_history"):
        (home / name).write_text(SECRET)
    (home / ".npmrc").write_text(f"//registry.example/:_authToken={SECRET}\n")


def confined_shell(root: Path, home: Path, **wishes: object) -> Shell:
    wanted = SandboxSettings((root,), home)._replace(**wishes)
    return Shell(root, CommandHost(os.environ, make_sandbox=partial(Sandbox, wanted), is_required=True))


def attack(tmp_path: Path, home: Path, is_confined: bool, **wishes: object) -> Iterator[Attacker]:
    root = tmp_path / "work"
    furnish(root, home)
    shell = confined_shell(root, home, **wishes) if is_confined else Shell(root)
    try:
        yield Attacker(shell, root, home, is_confined)
    finally:
        shell.close()


@pytest.fixture
def confined(tmp_path: Path, clean_environment: Path) -> Iterator[Attacker]:
    """Inside the sandbox, as it is by default."""
    need_sandbox()
    yield from attack(tmp_path, clean_environment, True)


@pytest.fixture(params=["inside", "outside"])
def attacker(request: pytest.FixtureRequest, tmp_path: Path, clean_environment: Path) -> Iterator[Attacker]:
    """The same attack inside the sandbox and outside of it: for what must hold in both."""
    if request.param == "inside":
        need_sandbox()
    yield from attack(tmp_path, clean_environment, request.param == "inside")
