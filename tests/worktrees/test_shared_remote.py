"""The branches of members at the remote, with real repositories and real git."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from teamcli.errors import BranchTaken, GitError
from teamcli.exec.command_host import CommandHost
from teamcli.exec.programs import Programs
from teamcli.worktrees import shared_remote
from teamcli.worktrees.git import Git
from teamcli.worktrees.private_repository import (
    RemoteAddress,
    UsersGit,
    absolute_url,
    open_private_repository,
    place_of,
    read_address,
)
from teamcli.worktrees.shared_remote import SharedRemote, branch_at_remote, target_of
from tests.support.waiting import wait_until
from tests.worktrees.conftest import git


class Clones:
    """A bare repository that all share, and clones of it, each with a `SharedRemote`."""

    def __init__(self, base: Path, repository: Path) -> None:
        self.base = base
        self.bare = base / "shared.git"
        self.home = Path.home() / ".teamcli"
        git(base, "clone", "--quiet", "--bare", str(repository), str(self.bare))
        self._hosts: list[CommandHost] = []

    def clone(self, name: str, url: str = "") -> Path:
        git(self.base, "clone", "--quiet", str(self.bare), name)
        if url:
            git(self.base / name, "config", "remote.origin.url", url)
        return self.base / name

    def git(self, clone: Path) -> UsersGit:
        """The user's git, as a program that starts now has it."""
        host = CommandHost(os.environ, owns_process=False)
        self._hosts.append(host)
        return UsersGit(host, clone)

    def open(self, clone: Path) -> SharedRemote:
        users = self.git(clone)
        address = read_address(users)
        private = open_private_repository(users.host, users, place_of(self.home, clone, "box"), address)
        return SharedRemote(private, Git(users.host, clone), address)

    def tip(self, branch: str) -> str:
        return git(self.bare, "rev-parse", branch)

    def close(self) -> None:
        for host in self._hosts:
            host.close()


@pytest.fixture
def clones(clean_environment: Path, tmp_path: Path, repository: Path) -> Iterator[Clones]:
    clones = Clones(tmp_path, repository)
    yield clones
    clones.close()


@pytest.fixture
def one(clones: Clones) -> Path:
    return clones.clone("one")


def commit(clone: Path, text: str = "more\n") -> str:
    """A commit that is only in this clone."""
    (clone / "more.txt").write_text(text)
    git(clone, "add", ".")
    git(clone, "commit", "--quiet", "-m", "More")
    return git(clone, "rev-parse", "HEAD")


def users_config(text: str) -> None:
    (Path.home() / ".gitconfig").write_text(text)


class TestNames:
    def test_the_first_of_the_default_team_has_the_plain_name(self) -> None:
        assert branch_at_remote("alice", 1, "default") == "team/alice"

    def test_nobody_elses_is_the_same_or_a_directory_of_another(self, one: Path) -> None:
        members = ("alice", "alice-2", "target", "shop", "Alice_2")
        teams = ("default", "shop", "a.b", "a..b", "x.lock", "end.", "2", "shop.target")
        branches = [branch_at_remote(name, n, team) for name in members for n in (1, 2, 12) for team in teams]
        names = [*branches, *map(target_of, branches)]
        assert len(set(names)) == len(names)
        for name in names:
            git(one, "branch", name)


class TestTravelling:
    def test_a_branch_goes_from_one_clone_to_another(self, clones: Clones, one: Path) -> None:
        two, tip = clones.clone("two"), commit(one)
        clones.open(one).create("team/alice", tip)
        assert clones.tip("team/alice") == tip
        assert clones.open(two).fetch("team/alice") == tip
        assert git(two, "show", f"{tip}:more.txt") == "more"

    def test_nothing_in_the_clone_has_a_new_name(self, clones: Clones, one: Path) -> None:
        two = clones.clone("two")
        before = git(two, "for-each-ref")
        clones.open(one).create("team/alice", commit(one))
        clones.open(two).fetch("team/alice")
        assert git(two, "for-each-ref") == before
        assert not (two / ".git" / "FETCH_HEAD").exists()

    def test_what_nobody_has_pushed_is_not_there(self, clones: Clones, one: Path) -> None:
        assert clones.open(one).fetch("team/alice") == ""

    def test_a_branch_that_is_there_is_not_created(self, clones: Clones, one: Path) -> None:
        remote = clones.open(one)
        remote.create("team/alice", git(one, "rev-parse", "HEAD"))
        with pytest.raises(BranchTaken, match="another branch team/alice"):
            remote.create("team/alice", commit(one))

    def test_a_branch_only_grows(self, clones: Clones, one: Path) -> None:
        two = clones.clone("two")
        tip = commit(one)
        clones.open(one).create("team/alice", tip)
        with pytest.raises(GitError, match=r"'origin' refused team/alice: \[rejected\]"):
            clones.open(two).push("team/alice", commit(two, "other\n"))
        assert clones.tip("team/alice") == tip

    def test_only_a_branch_that_has_not_moved_is_deleted(self, clones: Clones, one: Path) -> None:
        remote, first = clones.open(one), git(one, "rev-parse", "HEAD")
        remote.create("team/alice", first)
        remote.push("team/alice", tip := commit(one))
        with pytest.raises(GitError, match="moved"):
            remote.delete("team/alice", first)
        remote.publish("team/alice", first)
        remote.delete("team/alice", tip)
        assert git(clones.bare, "branch", "--list", "team/*") == ""

    def test_a_target_that_was_rewritten_replaces_the_last_one(self, clones: Clones, one: Path) -> None:
        remote, two = clones.open(one), clones.clone("two")
        remote.create("team/alice", git(one, "rev-parse", "HEAD"))
        remote.publish("team/alice", commit(one))
        git(one, "commit", "--quiet", "--amend", "-m", "Other")
        target = git(one, "rev-parse", "HEAD")
        remote.publish("team/alice", target)
        clones.open(two).fetch("team/alice")
        assert git(two, "cat-file", "-t", target) == "commit"

    def test_a_partial_clone_travels_as_well(self, clones: Clones, one: Path) -> None:
        git(clones.bare, "config", "uploadpack.allowFilter", "true")
        tip = commit(one, "large\n")
        git(one, "push", "--quiet", "origin", "HEAD")
        (one / "more.txt").write_text("newer\n")
        git(one, "commit", "--quiet", "-am", "Newer")
        git(one, "push", "--quiet", "origin", "HEAD")
        git(clones.base, "clone", "--quiet", "--filter=blob:none", f"file://{clones.bare}", "part")
        part = clones.base / "part"
        clones.open(part).create("team/alice", commit(part, "mine\n"))
        assert git(clones.bare, "show", "team/alice:more.txt") == "mine"
        assert git(clones.bare, "rev-parse", "team/alice~2") == tip

    def test_a_branch_that_another_host_has_deleted_at_the_same_time_is_deleted(
        self, clones: Clones, one: Path
    ) -> None:
        two, first, waiting, gate = (
            clones.clone("two"),
            git(one, "rev-parse", "HEAD"),
            clones.base / "w",
            clones.base / "g",
        )
        hook = clones.bare / "hooks" / "pre-receive"
        clones.open(one).create("team/alice", first)
        hook.write_text(
            f"#!/bin/sh\nmkdir {waiting} 2>/dev/null || exit 0\nwhile ! test -e {gate}; do sleep 0.02; done\n"
        )
        hook.chmod(0o755)
        with ThreadPoolExecutor(1) as pool:
            slow = pool.submit(clones.open(one).delete, "team/alice", first)
            wait_until(waiting.exists)
            clones.open(two).delete("team/alice", first)
            gate.touch()
            slow.result()  # raises nothing
        assert git(clones.bare, "branch", "--list", "team/alice") == ""


class TestTheAddress:
    def test_a_relative_path_is_as_seen_from_the_clone(self, clones: Clones) -> None:
        one = clones.clone("one", "../shared.git")
        clones.open(one).create("team/alice", git(one, "rev-parse", "HEAD"))
        assert clones.tip("team/alice")

    @pytest.mark.parametrize(
        ("url", "expected"),
        [
            ("../shared.git", "/srv/shared.git"),
            ("./a/../b", "/srv/clone/b"),
            ("/srv/x.git", "/srv/x.git"),
            ("host:x.git", "host:x.git"),
            ("me@host:~/x.git", "me@host:~/x.git"),
            ("https://example.org/x.git", "https://example.org/x.git"),
            ("./host:x.git", "/srv/clone/host:x.git"),
        ],
    )
    def test_what_is_a_path_and_what_is_not(self, url: str, expected: str) -> None:
        assert absolute_url(Path("/srv/clone"), url) == expected

    def test_another_address_for_pushing_is_used(self, clones: Clones, one: Path) -> None:
        git(clones.base, "clone", "--quiet", "--bare", str(clones.bare), "writable.git")
        git(one, "config", "remote.origin.pushurl", "../writable.git")
        clones.open(one).create("team/alice", git(one, "rev-parse", "HEAD"))
        assert git(clones.base / "writable.git", "branch", "--list", "team/alice")
        assert git(clones.bare, "branch", "--list", "team/alice") == ""

    def test_the_only_remote_may_have_any_name(self, clones: Clones, one: Path) -> None:
        git(one, "remote", "rename", "origin", "upstream")
        clones.open(one).create("team/alice", git(one, "rev-parse", "HEAD"))
        assert clones.tip("team/alice")

    def test_origin_is_used_if_there_are_several(self, clones: Clones, one: Path) -> None:
        git(one, "remote", "add", "another", "/nowhere")
        assert read_address(clones.git(one)) == RemoteAddress("origin", (str(clones.bare),), ())

    def test_several_others_are_named(self, clones: Clones, one: Path) -> None:
        git(one, "remote", "rename", "origin", "upstream")
        git(one, "remote", "add", "another", "/nowhere")
        with pytest.raises(GitError, match=r"several remotes \(upstream, another\), and none is called 'origin'"):
            read_address(clones.git(one))

    def test_without_one_it_says_what_to_do(self, clones: Clones, one: Path) -> None:
        git(one, "remote", "remove", "origin")
        with pytest.raises(GitError, match="no remote: add one"):
            read_address(clones.git(one))

    def test_one_where_agents_can_write_is_refused(self, clones: Clones, one: Path) -> None:
        git(one, "clone", "--quiet", "--bare", str(clones.bare), "inside.git")
        (one / "link").symlink_to(clones.bare)
        out_of_reach = Programs(None, [one]).is_out_of_reach
        in_reach = ["inside.git", f"file://{one}/inside.git", "link"]
        encoded = "".join(char if char == "/" else f"%{ord(char):02x}" for char in str(one))
        in_reach += [f"file://{encoded}/inside.git", f"file://localhost{one}/inside.git", f"file://{one}/x%00.git"]
        for url in (*in_reach, "../shared.git"):
            git(one, "config", "remote.origin.url", url)
            address = read_address(clones.git(one))
            if url == "../shared.git":
                address.refuse_in_reach(out_of_reach)
            else:
                with pytest.raises(GitError, match="the remote 'origin' is where agents can write"):
                    address.refuse_in_reach(out_of_reach)

    @pytest.mark.parametrize("beginning", ["file:///nowhere/@[x]", "file:///nowhere/%40%5Bx]", "file://[/nowhere]"])
    def test_one_that_git_reads_in_another_way_is_refused(self, clones: Clones, one: Path, beginning: str) -> None:
        url = f"{beginning}{clones.bare}"
        assert "main" in git(one, "ls-remote", url)
        with pytest.raises(GitError, match=r"has a host in brackets; write file:///PATH"):
            RemoteAddress("origin", (url,), ()).refuse_in_reach(lambda path: True)

    def test_a_worktree_of_the_user_has_the_remote_of_its_repository(self, clones: Clones, one: Path) -> None:
        git(one, "worktree", "add", "--quiet", "../tree")
        clones.open(clones.base / "tree").create("team/alice", git(one, "rev-parse", "HEAD"))
        assert clones.tip("team/alice")


class TestTheUsersOwnSettings:
    """What is in the user's home applies, as everywhere."""

    def test_addresses_are_rewritten(self, clones: Clones) -> None:
        users_config(f'[url "{clones.base}/"]\n\tinsteadOf = work:\n')
        clones.open(clones.clone("one", "work:shared.git")).create("team/alice", clones.tip("main"))
        assert clones.tip("team/alice")

    def test_so_are_relative_ones(self, clones: Clones) -> None:
        users_config(f'[url "{clones.base}/shared"]\n\tinsteadOf = mirror/it\n')
        clones.open(clones.clone("one", "mirror/it.git")).create("team/alice", clones.tip("main"))
        assert clones.tip("team/alice")

    def test_so_are_those_for_pushing_only(self, clones: Clones) -> None:
        git(clones.base, "clone", "--quiet", "--bare", str(clones.bare), "writable.git")
        users_config(f'[url "{clones.base}/writable"]\n\tpushInsteadOf = {clones.base}/shared\n')
        clones.open(clones.clone("one")).create("team/alice", clones.tip("main"))
        assert git(clones.base / "writable.git", "branch", "--list", "team/alice")

    def test_settings_for_some_directories_apply_to_the_clones_in_them(self, clones: Clones) -> None:
        rewriting = Path.home() / "work.gitconfig"
        rewriting.write_text(
            f'[url "{clones.base}/"]\n\tinsteadOf = work:\n[user]\n\tname = "A \\"quoted\\" \\\\ name"\n'
        )
        users_config(f'[includeIf "gitdir:{clones.base}/"]\n\tpath = {rewriting}\n')
        remote = clones.open(clones.clone("one", "work:shared.git"))
        remote.create("team/alice", clones.tip("main"))
        assert clones.tip("team/alice")

    @pytest.mark.parametrize("where", ["config", "environment"])
    def test_ssh_is_the_users(self, clones: Clones, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
        ssh, used = clones.base / "my-ssh", clones.base / "used"
        ssh.write_text(f'#!/bin/sh\ntouch {used}\nshift\nexec sh -c "$*"\n')
        ssh.chmod(0o755)
        if where == "config":
            users_config(f"[core]\n\tsshCommand = {ssh}\n[ssh]\n\tvariant = simple\n")
        else:
            users_config("[ssh]\n\tvariant = simple\n")
            monkeypatch.setenv("GIT_SSH_COMMAND", str(ssh))
        clones.open(clones.clone("one", f"somewhere:{clones.bare}")).create("team/alice", clones.tip("main"))
        assert used.exists()
        assert clones.tip("team/alice")

    def test_their_hook_for_pushes_does_not_run(self, clones: Clones, one: Path) -> None:
        hooks, ran = clones.base / "hooks", clones.base / "ran"
        hooks.mkdir()
        (hooks / "pre-push").write_text(f"#!/bin/sh\ntouch {ran}\nexit 1\n")
        (hooks / "pre-push").chmod(0o755)
        users_config(f"[core]\n\thooksPath = {hooks}\n[push]\n\tgpgSign = true\n\tfollowTags = true\n")
        clones.open(one).create("team/alice", clones.tip("main"))
        assert not ran.exists()


class TestWhatGoesWrong:
    def test_a_hook_of_the_remote_that_refuses_is_quoted(self, clones: Clones, one: Path) -> None:
        hook = clones.bare / "hooks" / "pre-receive"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text("#!/bin/sh\necho 'No pushes on Friday.'\nexit 1\n")
        hook.chmod(0o755)
        with pytest.raises(GitError) as raised:
            clones.open(one).create("team/alice", clones.tip("main"))
        expected = "'origin' refused team/alice: [remote rejected] (pre-receive hook declined): No pushes on Friday."
        assert str(raised.value) == expected

    def test_a_remote_that_is_gone_is_named(self, clones: Clones) -> None:
        remote = clones.open(clones.clone("one", "../gone.git"))
        for act in (lambda: remote.fetch("team/alice"), lambda: remote.create("team/alice", clones.tip("main"))):
            with pytest.raises(GitError, match=r"^'origin' cannot be reached: .*gone\.git' does not appear to be"):
                act()

    def test_a_remote_that_does_not_answer_is_given_up(self, clones: Clones, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(shared_remote, "LOOK_SECONDS", 0.5)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            url = f"git://127.0.0.1:{silent.getsockname()[1]}/x.git"
            remote = clones.open(clones.clone("one", url))
            with pytest.raises(GitError, match="'origin' does not answer"):
                remote.fetch("team/alice")

    def test_what_ssh_says_is_in_the_reason(self, clones: Clones, monkeypatch: pytest.MonkeyPatch) -> None:
        ssh = clones.base / "my-ssh"
        ssh.write_text("#!/bin/sh\necho 'Permission denied (publickey).' >&2\nexit 255\n")
        ssh.chmod(0o755)
        monkeypatch.setenv("GIT_SSH_COMMAND", str(ssh))
        with pytest.raises(GitError, match=r"Permission denied \(publickey\)"):
            clones.open(clones.clone("one", "somewhere:x.git")).fetch("team/alice")

    def test_a_password_in_the_address_is_not_repeated(self, clones: Clones) -> None:
        with socket.create_server(("127.0.0.1", 0)) as closed:
            port = closed.getsockname()[1]
        remote = clones.open(clones.clone("one", f"http://me:hunter2hunter2@127.0.0.1:{port}/x.git"))
        with pytest.raises(GitError) as raised:
            remote.fetch("team/alice")
        assert "hunter2" not in str(raised.value)


class TestThePrivateRepository:
    def place(self, clones: Clones, clone: Path) -> Path:
        return place_of(clones.home, clone, "box")

    def test_only_the_user_can_look_into_it(self, clones: Clones, one: Path) -> None:
        clones.open(one)
        assert self.place(clones, one).stat().st_mode & 0o777 == 0o700

    def test_it_may_be_deleted(self, clones: Clones, one: Path) -> None:
        clones.open(one).create("team/alice", tip := commit(one))
        shutil.rmtree(self.place(clones, one))
        assert clones.open(one).fetch("team/alice") == tip

    def test_another_clone_in_the_same_place_gets_a_new_one(self, clones: Clones, one: Path) -> None:
        clones.open(one).fetch("main")
        shutil.rmtree(one)
        git(clones.base, "init", "--quiet", "--object-format=sha256", "one")
        git(clones.base, "init", "--quiet", "--bare", "--object-format=sha256", "other.git")
        git(one, "remote", "add", "origin", "../other.git")
        clones.open(one).create("team/alice", tip := commit(one))
        assert git(clones.base / "other.git", "rev-parse", "team/alice") == tip

    def test_what_it_has_is_not_carried_again(self, clones: Clones, one: Path) -> None:
        remote = clones.open(one)
        remote.create("team/alice", commit(one))
        packs = self.place(clones, one) / "objects"
        before = sorted(packs.rglob("*"))
        remote.push("team/alice", git(one, "rev-parse", "HEAD"))
        assert sorted(packs.rglob("*")) == before

    def packs(self, clones: Clones, clone: Path) -> int:
        return len(list((self.place(clones, clone) / "objects" / "pack").glob("*.pack")))

    def push_often(self, clones: Clones, one: Path, remote: SharedRemote) -> None:
        remote.create("team/alice", git(one, "rev-parse", "HEAD"))
        for n in range(8):
            remote.push("team/alice", commit(one, f"{n}\n"))

    def test_it_does_not_grow_with_each_push(self, clones: Clones, one: Path) -> None:
        users_config("[gc]\n\tautoPackLimit = 3\n")
        self.push_often(clones, one, clones.open(one))
        assert self.packs(clones, one) <= 4

    def test_a_push_succeeds_if_git_cannot_gather_the_packs_and_a_later_one_does(
        self, clones: Clones, one: Path
    ) -> None:
        users_config("[gc]\n\tautoPackLimit = 3\n")
        remote = clones.open(one)
        (self.place(clones, one) / "packed-refs.lock").touch()  # of a git that was killed
        self.push_often(clones, one, remote)
        assert clones.tip("team/alice") == git(one, "rev-parse", "HEAD")
        assert self.packs(clones, one) <= 4

    def test_it_keeps_no_commits_of_a_branch_that_is_deleted(self, clones: Clones, one: Path) -> None:
        remote = clones.open(one)
        remote.create("team/alice", git(one, "rev-parse", "HEAD"))
        remote.publish("team/alice", commit(one, "target\n"))
        remote.push("team/alice", tip := commit(one))
        remote.fetch("team/alice")
        remote.delete("team/alice", tip)
        refs = git(self.place(clones, one), "for-each-ref", "--format=%(refname)")
        assert "alice" not in refs
