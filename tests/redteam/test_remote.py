"""Attacks on fetch and push, which run outside the sandbox with the user's keys.

An agent can write nearly everything in the clone that it works in: files that the configuration includes, refs,
objects. Without a sandbox it can also write the configuration and the hooks. None of it must redirect a push or run a
program.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import pytest

from teamcli.errors import GitError, ToolError
from teamcli.exec.command_host import CommandHost
from teamcli.exec.programs import Programs
from teamcli.worktrees.checkouts import Checkouts
from teamcli.worktrees.private_repository import UsersGit, open_private_repository, place_of, read_address
from teamcli.worktrees.shared_remote import SharedRemote
from tests.redteam.conftest import need_sandbox
from tests.worktrees.conftest import git, open_checkouts
from tests.worktrees.conftest import repository_to_copy as repository_to_copy


class Scene(NamedTuple):
    base: Path
    clone: Path
    shared: Path
    evil: Path
    """A repository of the attacker, who would like to have what is pushed."""
    mark: Path
    """Is there once a program of the attacker has run outside the sandbox."""
    program: Path

    def fill(self, text: str) -> str:
        return text.format(**self._asdict())


@pytest.fixture
def scene(clean_environment: Path, repository_to_copy: Path, tmp_path: Path) -> Scene:
    for name in ("shared.git", "evil.git"):
        git(tmp_path, "clone", "--quiet", "--bare", str(repository_to_copy), name)
    git(tmp_path, "clone", "--quiet", str(tmp_path / "shared.git"), "clone")
    clone = tmp_path / "clone"
    (clone / ".team").mkdir()
    scene = Scene(tmp_path, clone, tmp_path / "shared.git", tmp_path / "evil.git", tmp_path / "mark", clone / "evil.sh")
    scene.program.write_text(f"#!/bin/sh\ntouch '{scene.mark}'\nexit 1\n")
    scene.program.chmod(0o755)
    # What git needs to include from, was there when the user started the program.
    (clone / "settings.inc").write_text("")
    git(clone, "config", "include.path", "../settings.inc")
    return scene


class Opened(NamedTuple):
    checkouts: Checkouts
    remote: SharedRemote


def open_in(scene: Scene, hosts: list[CommandHost]) -> Opened:
    """As a program that starts now."""
    need_sandbox()
    home = Path.home()
    checkouts, lead = open_checkouts(scene.clone, home)
    users = CommandHost(os.environ, owns_process=False, programs=Programs(None, [scene.clone]))
    hosts += [lead, users]
    clone = UsersGit(users, scene.clone)
    address = read_address(clone)
    private = open_private_repository(users, clone, place_of(home / ".teamcli", scene.clone, "box"), address)
    return Opened(checkouts, SharedRemote(private, checkouts.main, address))


@pytest.fixture
def hosts() -> Iterator[list[CommandHost]]:
    hosts: list[CommandHost] = []
    yield hosts
    for host in hosts:
        host.close()


CONFIGURATION = {
    "another address": '[remote "origin"]\n\turl = {evil}\n\tpushurl = {evil}\n',
    "addresses that are rewritten": '[url "{evil}"]\n\tinsteadOf = {shared}\n\tpushInsteadOf = {shared}\n',
    "an address that is a program": '[remote "origin"]\n\turl = ext::{program}\n[protocol "ext"]\n\tallow = always\n',
    "a helper for the transport": '[remote "origin"]\n\tvcs = ext\n',
    "the other side of a push": '[remote "origin"]\n\treceivepack = {program}\n\tuploadpack = {program}\n',
    "ssh": "[core]\n\tsshCommand = {program}\n\tgitProxy = {program}\n",
    "a helper for passwords": '[credential]\n\thelper = "!{program}"\n[core]\n\taskPass = {program}\n',
    "a file watcher": "[core]\n\tfsmonitor = {program}\n\talternateRefsCommand = {program}\n",
    "hooks": "[core]\n\thooksPath = {clone}/hooks\n",
    "a pager and a signer": "[core]\n\tpager = {program}\n[push]\n\tgpgSign = true\n[gpg]\n\tprogram = {program}\n",
    "what everyone may ask for": "[uploadpack]\n\tpackObjectsHook = {program}\n",
    "all branches": '[remote "origin"]\n\tpush = +refs/heads/*:refs/heads/*\n\tmirror = true\n',
    "what a fetch writes": '[remote "origin"]\n\tfetch = +refs/heads/*:refs/heads/*\n\tprune = true\n',
    "an alias": "[alias]\n\tpush = !{program}\n\tfetch = !{program}\n\tls-remote = !{program}\n",
    "other refs": '[branch "main"]\n\tremote = {evil}\n\tpushRemote = {evil}\n[remote]\n\tpushDefault = {evil}\n',
}


def check(scene: Scene, opened: Opened) -> None:
    """Branches travel as if nothing had happened, and to nobody else."""
    first = git(scene.shared, "rev-parse", "main")
    (scene.base / "other").mkdir()
    git(scene.base / "other", "clone", "--quiet", str(scene.shared), ".")
    (scene.base / "other" / "new.txt").write_text("new\n")
    git(scene.base / "other", "add", ".")
    git(scene.base / "other", "commit", "--quiet", "-m", "New")
    git(scene.base / "other", "push", "--quiet", "origin", "HEAD:refs/heads/team/bob")
    evil = git(scene.evil, "for-each-ref")
    tips = git(scene.shared, "for-each-ref", "--format=%(refname)").split()
    opened.remote.create("team/alice", first)
    assert opened.remote.fetch("team/bob") == git(scene.shared, "rev-parse", "team/bob")
    assert git(scene.shared, "rev-parse", "team/alice") == first
    assert git(scene.shared, "for-each-ref", "--format=%(refname)").split() == sorted([*tips, "refs/heads/team/alice"])
    assert git(scene.evil, "for-each-ref") == evil
    assert not scene.mark.exists()


@pytest.mark.parametrize("attack", CONFIGURATION)
@pytest.mark.parametrize("when", ["before the start", "during the session"])
def test_what_the_configuration_includes_changes_nothing(
    scene: Scene, hosts: list[CommandHost], attack: str, when: str
) -> None:
    opened = open_in(scene, hosts) if when == "during the session" else None
    (scene.clone / "hooks").mkdir()
    for name in ("pre-push", "reference-transaction", "post-index-change", "proc-receive"):
        shutil.copy(scene.program, scene.clone / "hooks" / name)
    (scene.clone / "settings.inc").write_text(scene.fill(CONFIGURATION[attack]))
    check(scene, opened or open_in(scene, hosts))


@pytest.mark.parametrize("attack", CONFIGURATION)
def test_what_is_written_into_the_configuration_during_a_session_changes_nothing(
    scene: Scene, hosts: list[CommandHost], attack: str
) -> None:
    """Only without a sandbox can an agent do that."""
    opened = open_in(scene, hosts)
    shutil.copytree(scene.clone / ".git" / "hooks", scene.clone / "hooks")
    for name in ("pre-push", "reference-transaction"):
        shutil.copy(scene.program, scene.clone / "hooks" / name)
        shutil.copy(scene.program, scene.clone / ".git" / "hooks" / name)
    for name in ("config", "config.worktree"):
        with (scene.clone / ".git" / name).open("a") as file:
            file.write(scene.fill(CONFIGURATION[attack]))
    git(scene.clone, "config", "extensions.worktreeConfig", "true")
    check(scene, opened)


def test_a_copied_clone_whose_remote_is_called_like_an_option_runs_nothing(
    scene: Scene, hosts: list[CommandHost]
) -> None:
    git(scene.clone, "remote", "remove", "origin")
    with (scene.clone / ".git" / "config").open("a") as file:
        file.write(f'[remote "--upload-pack={scene.program}"]\n\turl = {scene.shared}\n')
        file.write("[core]\n\tsshCommand = false\n")
    check(scene, open_in(scene, hosts))


class AsksForAPassword(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="x"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.mark.parametrize("program", ["ssh", "git-credential-safe"])
def test_a_program_that_an_agent_has_put_on_the_path_is_not_run(
    scene: Scene, hosts: list[CommandHost], program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The PATH often has a directory of the project, such as `.venv/bin`."""
    (scene.clone / "bin").mkdir()
    shutil.copy(scene.program, scene.clone / "bin" / program)
    (Path.home() / ".gitconfig").write_text("[credential]\n\thelper = safe\n")
    with ThreadingHTTPServer(("127.0.0.1", 0), AsksForAPassword) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"{'ssh' if program == 'ssh' else 'http'}://127.0.0.1:{server.server_port}/x.git"
        git(scene.clone, "config", "remote.origin.url", url)
        monkeypatch.setenv("PATH", f"{scene.clone}/bin:{os.environ['PATH']}")
        with pytest.raises(GitError):
            open_in(scene, hosts).remote.fetch("team/alice")
        server.shutdown()
    assert not scene.mark.exists()


LINKS = {
    "remote-tracking branches": "rm -rf .git/refs/remotes && ln -s {base}/outside .git/refs/remotes",
    "branches of members": "mkdir -p .git/refs/heads && ln -s {base}/outside .git/refs/heads/team",
    "objects": "for n in 0 1 2 3 4 5 6 7 8 9 a b c d e f; do for m in 0 1 2 3 4 5 6 7 8 9 a b c d e f; do"
    " test -e .git/objects/$n$m || ln -s {base}/outside .git/objects/$n$m; done; done",
    "packs": "mv .git/objects/pack .git/objects/was; ln -s {base}/outside .git/objects/pack; cp .git/objects/was/* .",
    "where a fetch is noted": "ln -s {base}/outside/x .git/FETCH_HEAD; ln -s {base}/outside/y .git/packed-refs.lock",
    "logs": "rm -rf .git/logs && ln -s {base}/outside .git/logs",
    "objects elsewhere": "echo {evil}/objects > .git/objects/info/alternates",
    "old ways to name a remote": "mkdir -p .git/remotes .git/branches; echo 'URL: {evil}' > .git/remotes/origin;"
    " echo {evil} > .git/branches/origin",
    "another commit in the place of one": "git update-ref refs/replace/$(git rev-parse HEAD) HEAD~0; true",
}


@pytest.mark.parametrize("attack", LINKS)
def test_links_in_the_clone_lead_nowhere(scene: Scene, hosts: list[CommandHost], attack: str) -> None:
    opened = open_in(scene, hosts)
    outside = scene.base / "outside"
    outside.mkdir()
    opened.checkouts.main.host.start(scene.fill(LINKS[attack]), scene.clone).follow(
        lambda text: None, lambda text: None
    )
    try:
        check(scene, opened)
    except ToolError:  # whatever the attack has broken in the clone is the attacker's own
        assert not scene.mark.exists()
    assert list(outside.iterdir()) == []


def test_no_agent_can_write_the_private_repository(scene: Scene, hosts: list[CommandHost]) -> None:
    opened = open_in(scene, hosts)
    opened.remote.fetch("main")
    (config,) = Path.home().glob(".teamcli/remotes/*/config")
    before = config.read_text()
    opened.checkouts.prepare("alice")
    for host in (opened.checkouts.main.host, opened.checkouts.hosts.of("alice")):
        for command in (f"echo evil >> '{config}'", f"rm -rf '{config.parent}'", f"mv '{config.parent}' /tmp/x"):
            host.start(command, scene.clone).follow(lambda text: None, lambda text: None)
    opened.checkouts.hosts.close_all()
    assert config.read_text() == before
