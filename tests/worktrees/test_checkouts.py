"""Checkouts of isolated members: made, brought back, found again and removed, with real git in the real sandbox."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from teamcli.errors import GitError, ToolError
from teamcli.worktrees.checkout import Checkout, Notes, checkouts_in
from teamcli.worktrees.checkouts import Checkouts
from teamcli.worktrees.member_hosts import MOST_READY
from tests.worktrees.conftest import as_member, git

Open = Callable[..., Checkouts]
COMMIT = "echo new > new.py && git add -A && git commit -qm Work"


@pytest.fixture
def alice(checkouts: Checkouts) -> Path:
    """A member's checkout."""
    checkouts.prepare("alice")
    return checkouts.directory / "alice"


class TestMaking:
    def test_it_is_on_its_own_branch_at_the_leads_commit(self, checkouts: Checkouts, repository: Path) -> None:
        assert checkouts.prepare("alice") == "in .team/worktrees/alice on team/alice"
        path = repository / ".team" / "worktrees" / "alice"
        assert git(path, "symbolic-ref", "HEAD") == "refs/heads/team/alice"
        assert git(path, "rev-parse", "HEAD") == git(repository, "rev-parse", "HEAD")
        assert git(path, "status", "--short") == ""
        assert (path / "src" / "cart.py").read_text() == "total = 0\n"
        assert git(repository, "rev-parse", "team/alice") == git(repository, "rev-parse", "HEAD")

    def test_the_main_directory_sees_nothing_of_it(self, alice: Path, repository: Path) -> None:
        (repository / ".team" / ".gitignore").write_text("*\n")
        assert git(repository, "status", "--short") == ""

    def test_uncommitted_changes_of_the_main_checkout_stay_there(self, checkouts: Checkouts, repository: Path) -> None:
        (repository / "README.md").write_text("unfinished\n")
        checkouts.prepare("alice")
        assert (checkouts.directory / "alice" / "README.md").read_text() == "# Shop\n"
        assert (repository / "README.md").read_text() == "unfinished\n"

    def test_a_second_time_it_is_found_again(self, checkouts: Checkouts, alice: Path) -> None:
        (alice / "README.md").write_text("mine\n")
        assert "which was there already" in checkouts.prepare("alice")
        assert (alice / "README.md").read_text() == "mine\n"

    def test_each_member_has_its_own_variables(self, checkouts: Checkouts, alice: Path) -> None:
        checkouts.prepare("bob")
        show = 'echo "$TEAMCLI_WORKTREE $TEAMCLI_PORT_BASE"'
        first, second = (as_member(checkouts, show, name)[1].split() for name in ("alice", "bob"))
        assert first[0] == str(alice)
        assert abs(int(first[1]) - int(second[1])) == 10

    def test_a_member_commits_as_the_user_of_the_repository(self, checkouts: Checkouts, repository: Path) -> None:
        git(repository, "config", "user.name", 'Ann "the" \\ B')
        git(repository, "config", "user.email", "ann@example.org")
        checkouts.prepare("alice")
        assert as_member(checkouts, COMMIT)[0] == 0
        assert (
            git(checkouts.directory / "alice", "log", "-1", "--format=%an <%ae>") == 'Ann "the" \\ B <ann@example.org>'
        )

    def test_without_a_user_it_commits_in_its_own_name(self, checkouts: Checkouts, alice: Path) -> None:
        assert as_member(checkouts, COMMIT) == (0, "")
        assert git(alice, "log", "-1", "--format=%an <%ae>") == "alice <alice@teamcli.invalid>"

    def test_a_project_that_was_moved_still_has_them(
        self, checkouts: Checkouts, alice: Path, repository: Path, open_in: Open
    ) -> None:
        as_member(checkouts, COMMIT)
        moved = open_in(Path(shutil.move(repository, repository.with_name("elsewhere"))))
        assert moved.status("alice").ahead == 1


class TestWhyThereIsNone:
    def test_not_a_git_repository(self, open_in: Open, tmp_path: Path) -> None:
        root = tmp_path / "plain"
        root.mkdir()
        with pytest.raises(ToolError, match="plain is not a git repository"):
            open_in(root).prepare("alice")
        assert checkouts_in(root / ".team" / "worktrees") == []

    def test_a_directory_inside_a_repository(self, open_in: Open, repository: Path) -> None:
        with pytest.raises(ToolError, match=f"is inside the repository {repository}: start teamcli there"):
            open_in(repository / "src").prepare("alice")

    def test_a_repository_without_a_commit(self, open_in: Open, tmp_path: Path) -> None:
        root = tmp_path / "empty"
        root.mkdir()
        git(root, "init", "--quiet")
        with pytest.raises(ToolError, match="has no commit yet"):
            open_in(root).prepare("alice")

    @pytest.mark.parametrize("branch", ["team/alice", "team/ALICE", "team", "team/alice/part"])
    def test_a_branch_in_the_way(self, checkouts: Checkouts, repository: Path, branch: str) -> None:
        git(repository, "branch", branch)
        with pytest.raises(ToolError, match=f"the branch {branch} is in the way"):
            checkouts.prepare("alice")
        assert git(repository, "rev-parse", branch) == git(repository, "rev-parse", "HEAD")

    def test_a_directory_in_the_way(self, checkouts: Checkouts, repository: Path) -> None:
        path = checkouts.directory / "alice"
        path.mkdir(parents=True)
        (path / "mine.txt").touch()
        with pytest.raises(ToolError, match=r"\.team/worktrees/alice is in the way"):
            checkouts.prepare("alice")
        assert (path / "mine.txt").exists()

    def test_a_name_that_differs_only_in_case(self, checkouts: Checkouts, alice: Path) -> None:
        with pytest.raises(ToolError, match="a checkout of 'alice', which differs only in case"):
            checkouts.prepare("Alice")

    def test_a_link_instead_of_the_directory(self, checkouts: Checkouts, tmp_path: Path) -> None:
        (tmp_path / "outside").mkdir()
        checkouts.directory.symlink_to(tmp_path / "outside")
        with pytest.raises(ToolError, match="is a symbolic link"):
            checkouts.prepare("alice")
        assert not any((tmp_path / "outside").iterdir())


class TestUnusualRepositories:
    def test_a_worktree(self, repository: Path, tmp_path: Path, open_in: Open) -> None:
        git(repository, "worktree", "add", "--quiet", str(tmp_path / "tree"))
        checkouts = open_in(tmp_path / "tree")
        checkouts.prepare("alice")
        assert as_member(checkouts, COMMIT)[0] == 0
        assert checkouts.bring("alice") == git(repository, "rev-parse", "team/alice")

    def test_a_shallow_clone(self, repository: Path, tmp_path: Path, open_in: Open) -> None:
        for number in range(3):
            git(repository, "commit", "--quiet", "--allow-empty", "-m", f"{number}")
        git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{repository}", "shallow")
        checkouts = open_in(tmp_path / "shallow")
        checkouts.prepare("alice")
        assert as_member(checkouts, f"{COMMIT} && git log --oneline")[0] == 0
        assert checkouts.bring("alice") == git(tmp_path / "shallow", "rev-parse", "team/alice")

    def test_a_bare_repository(self, repository: Path, tmp_path: Path, open_in: Open) -> None:
        git(tmp_path, "clone", "--quiet", "--bare", str(repository), "bare")
        checkouts = open_in(tmp_path / "bare")
        checkouts.prepare("alice")
        as_member(checkouts, COMMIT)
        assert checkouts.bring("alice") == git(tmp_path / "bare", "rev-parse", "team/alice")

    def test_submodules_stay_empty_and_in_one_of_them_there_is_none(
        self, repository: Path, tmp_path: Path, open_in: Open
    ) -> None:
        above = tmp_path / "above"
        above.mkdir()
        git(above, "init", "--quiet")
        git(above, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(repository), "inner")
        git(above, "commit", "--quiet", "-m", "Add")
        outer, inner = open_in(above), open_in(above / "inner")
        outer.prepare("alice")
        assert not any((above / ".team/worktrees/alice/inner").iterdir())
        assert outer.uncommitted("alice") == []
        with pytest.raises(ToolError, match=r"inner is outside of it, where commands cannot write"):
            inner.prepare("bob")

    def test_a_detached_head(self, checkouts: Checkouts, repository: Path) -> None:
        git(repository, "checkout", "--quiet", "--detach")
        checkouts.prepare("alice")
        assert checkouts.status("alice").ahead == 0

    def test_other_names_of_objects(self, tmp_path: Path, open_in: Open) -> None:
        root = tmp_path / "sha256"
        root.mkdir()
        git(root, "init", "--quiet", "--object-format=sha256")
        git(root, "commit", "--quiet", "--allow-empty", "-m", "Begin")
        checkouts = open_in(root)
        checkouts.prepare("alice")
        as_member(checkouts, COMMIT)
        assert checkouts.bring("alice") == git(root, "rev-parse", "team/alice")

    def test_hooks_of_the_repository_never_run(self, repository: Path, tmp_path: Path, open_in: Open) -> None:
        hooks = repository / "hooks"
        hooks.mkdir()
        for name in ("post-checkout", "reference-transaction", "post-index-change"):
            (hooks / name).write_text(f"#!/bin/sh\ntouch {repository}/was-run\n")
            (hooks / name).chmod(0o755)
        git(repository, "config", "core.hooksPath", str(hooks))
        checkouts = open_in(repository)
        checkouts.prepare("alice")
        as_member(checkouts, "echo x > x && git add x && git commit -qm x")
        checkouts.bring("alice")
        assert not (repository / "was-run").exists()


class TestIncludedFilesAndSetup:
    def test_ignored_files_that_are_named_are_copied(self, checkouts: Checkouts, repository: Path) -> None:
        (repository / ".worktreeinclude").write_text(".env\n/build/*.bin\n!build/b.bin\nREADME.md\nnotes.txt\n")
        (repository / ".env").write_text("PORT=1\n")
        (repository / ".env").chmod(0o600)
        (repository / "build").mkdir()
        for name in ("a.bin", "b.bin", "a.txt"):
            (repository / "build" / name).write_text(name)
        (repository / "notes.txt").write_text("untracked, but not ignored")
        checkouts.prepare("alice")
        path = checkouts.directory / "alice"
        assert (path / ".env").read_text() == "PORT=1\n"
        assert (path / ".env").stat().st_mode & 0o777 == 0o600
        assert sorted(each.name for each in (path / "build").iterdir()) == ["a.bin"]
        assert not (path / "notes.txt").exists()
        assert checkouts.uncommitted("alice") == []

    def test_a_link_that_leads_out_is_left_out(self, checkouts: Checkouts, repository: Path, tmp_path: Path) -> None:
        (tmp_path / "secret").write_text("x")
        (repository / ".worktreeinclude").write_text("build/\n")
        (repository / "build").mkdir()
        (repository / "build" / "out").symlink_to(tmp_path / "secret")
        (repository / "build" / "in").symlink_to("../README.md")
        checkouts.prepare("alice")
        assert [each.name for each in (checkouts.directory / "alice" / "build").iterdir()] == ["in"]

    def test_setup_runs_once_in_the_checkout(self, open_in: Open, repository: Path) -> None:
        checkouts = open_in(repository, 'pwd >> build.log; test "$PWD" = "$TEAMCLI_WORKTREE"')
        checkouts.prepare("alice")
        checkouts.prepare("alice")
        assert (checkouts.directory / "alice" / "build.log").read_text() == f"{checkouts.directory}/alice\n"

    def test_setup_cannot_write_elsewhere(self, open_in: Open, repository: Path) -> None:
        with pytest.raises(ToolError, match="Read-only file system"):
            open_in(repository, f"touch {repository}/README.md").prepare("alice")

    def test_if_it_fails_nothing_is_left(self, open_in: Open, repository: Path) -> None:
        checkouts = open_in(repository, "echo no network >&2; mkdir -p a/b; chmod 500 a; exit 3")
        with pytest.raises(ToolError, match=r"the setup command .* failed \(exit code 3\): no network"):
            checkouts.prepare("alice")
        assert checkouts_in(checkouts.directory) == []
        assert git(repository, "branch", "--list", "team/*") == ""


class TestBringing:
    def test_commits_reach_the_main_repository_and_only_the_members_branch_moves(
        self, checkouts: Checkouts, alice: Path, repository: Path
    ) -> None:
        before = git(repository, "rev-parse", "main")
        as_member(checkouts, COMMIT)
        tip = checkouts.bring("alice")
        assert git(repository, "rev-parse", "team/alice") == tip
        assert git(repository, "show", "team/alice:new.py") == "new"
        assert git(repository, "rev-parse", "main") == before
        assert git(repository, "for-each-ref", "--format=%(refname)") == "refs/heads/main\nrefs/heads/team/alice"

    def test_the_main_repository_keeps_them_without_the_checkout(
        self, checkouts: Checkouts, alice: Path, repository: Path
    ) -> None:
        as_member(checkouts, COMMIT)
        checkouts.bring("alice")
        checkouts.hosts.close("alice")
        shutil.rmtree(alice)
        assert "missing" not in git(repository, "fsck", "--connectivity-only", "team/alice")

    def test_history_that_a_member_rewrites_is_brought_as_well(
        self, checkouts: Checkouts, alice: Path, repository: Path
    ) -> None:
        as_member(checkouts, COMMIT)
        checkouts.bring("alice")
        as_member(checkouts, "git commit -q --amend -m Better")
        checkouts.bring("alice")
        assert git(repository, "log", "-1", "--format=%s", "team/alice") == "Better"

    def test_what_the_user_commits_to_the_branch_is_not_overwritten(
        self, checkouts: Checkouts, alice: Path, repository: Path
    ) -> None:
        git(repository, "checkout", "--quiet", "team/alice")
        git(repository, "commit", "--quiet", "--allow-empty", "-m", "By hand")
        as_member(checkouts, COMMIT)
        with pytest.raises(GitError, match=f"team/alice is checked out in {repository}: switch"):
            checkouts.bring("alice")
        git(repository, "checkout", "--quiet", "main")
        with pytest.raises(GitError, match="team/alice was changed in the main repository"):
            checkouts.bring("alice")
        assert git(repository, "log", "-1", "--format=%s", "team/alice") == "By hand"

    def test_a_branch_that_the_user_looks_at_in_another_worktree_is_not_moved(
        self, checkouts: Checkouts, alice: Path, repository: Path, tmp_path: Path
    ) -> None:
        git(repository, "worktree", "add", "--quiet", str(tmp_path / "look"), "team/alice")
        as_member(checkouts, COMMIT)
        with pytest.raises(GitError, match=f"team/alice is checked out in {tmp_path}/look"):
            checkouts.bring("alice")
        with pytest.raises(GitError, match="is checked out"):
            checkouts.discard("alice")
        assert git(tmp_path / "look", "status", "--porcelain") == ""

    def test_a_branch_that_the_user_deleted_comes_back(
        self, checkouts: Checkouts, alice: Path, repository: Path
    ) -> None:
        git(repository, "branch", "-D", "team/alice")
        as_member(checkouts, COMMIT)
        assert checkouts.bring("alice") == git(repository, "rev-parse", "team/alice")


class TestLooking:
    def test_a_line_says_how_far_it_is(self, checkouts: Checkouts, alice: Path) -> None:
        assert str(checkouts.status("alice")) == "team/alice: 0 commits ahead, 0 files changed, nothing uncommitted"
        as_member(checkouts, f"{COMMIT} && echo x >> new.py && echo y > 'other file' && rm README.md")
        assert str(checkouts.status("alice")) == "team/alice: 1 commit ahead, 3 files changed, 3 files uncommitted"

    def test_what_the_lead_has_does_not_count(self, checkouts: Checkouts, alice: Path, repository: Path) -> None:
        as_member(checkouts, COMMIT)
        checkouts.bring("alice")
        git(repository, "merge", "--quiet", "--ff-only", "team/alice")
        assert str(checkouts.status("alice")) == "team/alice: 0 commits ahead, 0 files changed, nothing uncommitted"

    def test_a_diff_has_committed_and_uncommitted_changes(self, checkouts: Checkouts, alice: Path) -> None:
        as_member(checkouts, f"{COMMIT} && echo more >> README.md && echo y > untracked")
        text, new = checkouts.diff("alice")
        assert "+++ b/new.py\n@@ -0,0 +1 @@\n+new\n" in text
        assert " # Shop\n+more\n" in text
        assert new == ["untracked"]


class TestTheEnd:
    def test_one_that_is_clean_and_merged_is_removed_with_its_branch(
        self, checkouts: Checkouts, alice: Path, repository: Path
    ) -> None:
        as_member(checkouts, f"{COMMIT} && mkdir -p build/ro && touch build/ro/x && chmod -R a-w build")
        checkouts.bring("alice")
        git(repository, "merge", "--quiet", "--ff-only", "team/alice")
        assert checkouts.end("alice") == "Removed .team/worktrees/alice and team/alice: everything is merged."
        assert checkouts_in(checkouts.directory) == []
        assert git(repository, "branch", "--list", "team/*") == ""

    @pytest.mark.parametrize(
        ("work", "why"),
        [
            ("echo x > x", "1 file uncommitted"),
            (COMMIT, "not merged"),
            (f"git checkout -qb side && {COMMIT} && git checkout -q team/alice", "1 commit not merged"),
            ("echo x > README.md && git stash -q", "2 commits not merged"),
            ("rm -rf .git/objects .git/HEAD", "has no branch team/alice"),
        ],
    )
    def test_one_with_work_in_it_stays(self, checkouts: Checkouts, alice: Path, work: str, why: str) -> None:
        as_member(checkouts, work)
        told = checkouts.end("alice")  # also brings what an interrupted piece of work has committed
        assert told.startswith("Kept .team/worktrees/alice and team/alice: ")
        assert why in told
        assert alice.exists()

    def test_files_without_a_repository_stay(self, checkouts: Checkouts, alice: Path) -> None:
        (alice / "work.txt").touch()
        shutil.rmtree(alice / ".git")
        assert "it has no .git anymore" in checkouts.end("alice")
        assert (alice / "work.txt").exists()

    def test_a_member_without_one_has_nothing_to_end(self, checkouts: Checkouts) -> None:
        assert checkouts.end("bob") == ""

    def test_discarding_removes_both_whatever_is_in_them(
        self, checkouts: Checkouts, alice: Path, repository: Path
    ) -> None:
        as_member(checkouts, f"{COMMIT} && echo x > x")
        checkouts.bring("alice")
        assert checkouts.discard("alice") == "Removed .team/worktrees/alice and team/alice."
        assert not alice.exists()
        assert git(repository, "branch", "--list", "team/*") == ""

    def test_discarding_follows_no_link(self, checkouts: Checkouts, alice: Path, repository: Path) -> None:
        as_member(checkouts, f"ln -s {repository}/src link && rm -rf .git && ln -s {repository}/.git .git")
        checkouts.discard("alice")
        assert (repository / "src" / "cart.py").exists()
        assert git(repository, "status", "--short") == ""


class TestRecovery:
    def test_a_member_that_has_not_worked_yet_gets_one_with_its_first_piece_of_work(
        self, checkouts: Checkouts, alice: Path
    ) -> None:
        hosts = [checkouts.hosts.of(name) for name in ("bob", "carol")]
        assert checkouts.repair("bob") == "bob works in .team/worktrees/bob on team/bob."
        checkouts.repair("carol")
        assert [checkouts.hosts.of(name) for name in ("bob", "carol")] == hosts
        ports = {as_member(checkouts, "echo $TEAMCLI_PORT_BASE", name)[1] for name in ("alice", "bob", "carol")}
        assert len(ports) == 3

    def test_a_failed_repair_can_be_tried_again(self, repository: Path, open_in: Open) -> None:
        checkouts = open_in(repository, "test -e /tmp/ready || { touch /tmp/ready; exit 1; }")
        with pytest.raises(ToolError, match="the setup command"):
            checkouts.repair("alice")
        checkouts.repair("alice")
        assert checkouts.status("alice").ahead == 0

    def test_one_that_was_deleted_by_hand_is_made_again_from_its_branch(
        self, checkouts: Checkouts, alice: Path
    ) -> None:
        as_member(checkouts, COMMIT)
        checkouts.bring("alice")
        shutil.rmtree(alice)
        assert checkouts.repair("alice").startswith(".team/worktrees/alice was deleted. It was recreated")
        assert (alice / "new.py").exists()
        assert as_member(checkouts, "echo more >> new.py && git commit -qam More") == (0, "")

    def test_files_without_a_repository_are_not_touched(self, checkouts: Checkouts, alice: Path) -> None:
        checkouts.hosts.close("alice")
        shutil.rmtree(alice / ".git")
        with pytest.raises(ToolError, match=r"has no \.git anymore"):
            checkouts.repair("alice")
        assert (alice / "README.md").exists()

    @pytest.mark.parametrize("has_branch", [True, False])
    def test_half_a_checkout_of_a_killed_program_is_replaced(
        self, checkouts: Checkouts, repository: Path, has_branch: bool
    ) -> None:
        half = Checkout("alice", checkouts.directory / "alice")
        half.path.mkdir(parents=True)
        (half.path / "half").touch()
        Notes(git(repository, "rev-parse", "HEAD"), 0).write(half)
        if has_branch:
            git(repository, "branch", "team/alice")
        assert checkouts.prepare("alice") == "in .team/worktrees/alice on team/alice"
        assert not (half.path / "half").exists()
        assert checkouts.status("alice").uncommitted == 0

    def test_half_a_checkout_that_was_being_made_again_is_replaced_from_its_branch(
        self, checkouts: Checkouts, alice: Path
    ) -> None:
        as_member(checkouts, COMMIT)
        tip = checkouts.bring("alice")
        shutil.rmtree(alice / ".git" / "refs")
        checkout = Checkout("alice", alice)
        notes = Notes.read(checkout)
        assert notes is not None
        notes._replace(is_ready=False).write(checkout)
        checkouts.repair("alice")
        assert checkouts.status("alice").tip == tip

    def test_a_lock_that_a_killed_git_left_is_removed_before_the_next_piece_of_work(
        self, checkouts: Checkouts, alice: Path
    ) -> None:
        for name in ("index.lock", "HEAD.lock", "refs/heads/team/alice.lock"):
            (alice / ".git" / name).touch()
        assert as_member(checkouts, COMMIT)[0] != 0
        assert checkouts.repair("alice") == ""
        assert as_member(checkouts, COMMIT) == (0, "")

    def test_another_program_finds_it_again(self, checkouts: Checkouts, alice: Path, open_in: Open) -> None:
        as_member(checkouts, COMMIT)
        later = open_in(checkouts.main.directory)
        assert [each.member for each in checkouts_in(later.directory)] == ["alice"]
        assert later.status("alice").ahead == 1


class TestIdleMembers:
    @pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
    def test_of_many_idle_members_only_the_last_ones_keep_processes(self, checkouts: Checkouts, alice: Path) -> None:
        assert as_member(checkouts, "echo kept > /tmp/kept") == (0, "")
        before = own_processes()
        checkouts.hosts.idle("alice")
        assert own_processes() == before
        for number in range(MOST_READY):
            checkouts.hosts.idle(f"mate{number}")
        assert own_processes() < before
        assert as_member(checkouts, "cat /tmp/kept") == (0, "kept\n")

    def test_a_command_of_an_idle_member_runs_on(self, checkouts: Checkouts, alice: Path) -> None:
        output: list[str] = []
        running = checkouts.hosts.of("alice").start("until [ -e go ]; do sleep 0.01; done; echo done", alice)
        for name in ("alice", *(f"mate{number}" for number in range(MOST_READY))):
            checkouts.hosts.idle(name)
        (alice / "go").touch()
        assert running.follow(output.append, lambda text: None).exit_code == 0
        assert output == ["done\n"]


def own_processes() -> set[str]:
    """Children of this process."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "stat").read_text().rpartition(")")[2].split()[1] == str(os.getpid()):
                found.add(process.name)
    return found
