"""The git that teamcli runs: what it says, byte for byte, and what it never starts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from teamcli.cancel import CancelScope
from teamcli.errors import GitError
from teamcli.exec.command_host import CommandHost
from teamcli.exec.programs import Programs
from teamcli.worktrees.git import Git, drop_stale_lock
from tests.worktrees.conftest import git as users_git


@pytest.fixture
def git(plain_host: CommandHost, repository: Path) -> Git:
    return Git(plain_host, repository)


class TestWhatItSays:
    def test_output_is_exact(self, git: Git) -> None:
        data = bytes(range(256)) * 1000 + b"\n\n"
        id = git.run("hash-object", "-w", "--stdin", input=data).decode().strip()
        assert git.run("cat-file", "blob", id) == data

    def test_an_error_carries_the_reason_that_git_gives(self, git: Git) -> None:
        with pytest.raises(GitError, match="git rev-parse: Needed a single revision") as failed:
            git.run("rev-parse", "--verify", "nowhere")
        assert failed.value.exit_code == 128

    def test_unless_it_checks_a_failure_is_an_answer(self, git: Git) -> None:
        assert git.run("rev-parse", "--verify", "nowhere", check=False) == b""

    def test_a_question_is_answered_with_yes_or_no(self, git: Git) -> None:
        assert git.succeeds("merge-base", "--is-ancestor", "HEAD", "HEAD")
        assert not git.succeeds("diff", "--quiet", "HEAD", git.text("hash-object", "-t", "tree", os.devnull))
        with pytest.raises(GitError, match="nowhere"):
            git.succeeds("merge-base", "--is-ancestor", "HEAD", "nowhere")

    def test_a_name_that_leads_to_no_commit_is_empty(self, git: Git, repository: Path) -> None:
        assert git.commit("HEAD") == users_git(repository, "rev-parse", "HEAD")
        assert git.commit("nowhere") == ""
        assert git.commit("HEAD:README.md") == ""

    def test_without_git_the_reason_is_given(self, repository: Path, tmp_path: Path) -> None:
        host = CommandHost(os.environ, owns_process=False, programs=Programs(str(tmp_path)))
        with pytest.raises(GitError, match="git is not installed") as failed:
            Git(host, repository).run("status")
        assert not failed.value.has_run

    def test_a_git_that_takes_too_long_is_ended(self, git: Git) -> None:
        with pytest.raises(GitError, match="took longer than 0 s"):
            git.run("-c", "alias.slow=!sleep 60", "slow", seconds=0.2)

    def test_cancelling_ends_it(self, git: Git) -> None:
        cancel = CancelScope()
        cancel.cancel("enough")
        with pytest.raises(GitError, match="killed by signal"):
            git.run("-c", "alias.slow=!sleep 60", "slow", cancel=cancel)


class TestWhereItLooks:
    def test_a_repository_around_the_directory_is_not_taken_for_its_own(
        self, plain_host: CommandHost, repository: Path
    ) -> None:
        with pytest.raises(GitError, match="not a git repository"):
            Git(plain_host, repository / "src").run("status")
        assert Git(plain_host, repository / "src", may_climb=True).commit("HEAD")

    def test_variables_that_name_another_repository_do_not_count(self, repository: Path, tmp_path: Path) -> None:
        host = CommandHost(
            {**os.environ, "GIT_DIR": str(tmp_path / "other"), "GIT_INDEX_FILE": "/x"}, owns_process=False
        )
        try:
            assert Git(host, repository).text("status", "--short") == ""
        finally:
            host.close()


class TestWhatItNeverStarts:
    @pytest.mark.parametrize(
        "config",
        ["core.fsmonitor", "core.hooksPath", "commit.gpgSign", "gpg.program", "core.editor", "core.pager"],
    )
    def test_a_program_that_the_config_names(self, git: Git, repository: Path, config: str) -> None:
        mark = repository / "was-run"
        script = repository / ".git" / "program"
        script.write_text(f"#!/bin/sh\ntouch '{mark}'\n")
        script.chmod(0o755)
        hooks = repository / ".git" / "own-hooks"
        hooks.mkdir()
        for name in ("pre-commit", "post-commit", "prepare-commit-msg", "reference-transaction"):
            (hooks / name).symlink_to(script)
        values = {"core.hooksPath": str(hooks), "commit.gpgSign": "true"}
        users_git(repository, "config", config, values.get(config, str(script)))
        (repository / "README.md").write_text("changed\n")
        git.run("-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "--quiet", "-a", "-m", "x")
        assert git.text("status", "--short") == ""
        assert not mark.exists()

    def test_hooks_of_the_repository(self, git: Git, repository: Path) -> None:
        hook = repository / ".git" / "hooks" / "pre-commit"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text("#!/bin/sh\nexit 1\n")
        hook.chmod(0o755)
        git.run("-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "--quiet", "--allow-empty", "-m", "x")
        assert git.text("log", "-1", "--format=%s") == "x"

    def test_filters_that_are_turned_off(self, git: Git, repository: Path) -> None:
        mark = repository / ".git" / "was-run"
        (repository / ".git" / "info" / "attributes").write_text("*.md filter=sly\n")
        users_git(repository, "config", "filter.sly.clean", f"touch '{mark}'; cat")
        users_git(repository, "config", "filter.sly.required", "true")
        (repository / "README.md").write_text("longer than before\n")
        assert git.text("status", "--short", env=git.filters_off()) == " M README.md"
        assert not mark.exists()


class TestLocksOfAGitThatWasKilled:
    def test_a_large_one_goes(self, tmp_path: Path) -> None:
        lock = tmp_path / "x.lock"
        lock.write_bytes(b"x" * 5000)
        drop_stale_lock(lock)
        assert not lock.exists()

    def test_a_large_one_is_not_ours_if_it_depends_on_what_it_holds(self, tmp_path: Path) -> None:
        lock = tmp_path / "x.lock"
        lock.write_bytes(b"x" * 5000)
        drop_stale_lock(lock, lambda content: True)
        assert lock.exists()
