"""Bringing the work of a member back: commit, merge, gate, fast-forward. Real git in real repositories."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from teamcli.agent.events import Event, MergeEnded
from teamcli.cancel import CancelScope
from teamcli.errors import Cancelled, MergeRefused, TeamError, ToolError, UnknownTeammate
from teamcli.storage.team_dir import TeamDir
from teamcli.team.merging import Merging
from teamcli.team.message import LEAD, Message
from teamcli.team.roster_file import Member, Status
from teamcli.worktrees.checkouts import Checkouts
from teamcli.worktrees.merge import Merger
from tests.support.waiting import DEADLINE_SECONDS
from tests.worktrees.conftest import git, open_checkouts


class Place:
    """A project with a member that works in its own checkout."""

    def __init__(self, root: Path, checkouts: Checkouts) -> None:
        self.root = root
        self.checkouts = checkouts
        self.member = Member("alice", "coder", Status.IDLE, worktree=True, since=1.0)
        self.events: list[Event] = []
        self.mail: list[Message] = []
        self.said: list[str] = []
        self.gate = ""
        self.hook_files: tuple[Path, ...] = ()
        checkouts.prepare("alice")

    @property
    def alice(self) -> Path:
        return self.checkouts.directory / "alice"

    def find(self, name: str) -> Member:
        if name != "alice":
            raise UnknownTeammate(f"there is no teammate '{name}'")
        return self.member

    def open(self) -> Merging:
        merger = Merger(self.checkouts, TeamDir.of(self.root), self.gate, self.hook_files)
        return Merging(merger, self.find, self.mail.append, self.events.append)

    def merge(self, name: str = "alice", message: str = "", cancel: CancelScope | None = None) -> str:
        return self.open().merge(LEAD, name, message, cancel or CancelScope(), self.said.append)

    def refused(self, name: str = "alice") -> str:
        """Why there was no merge. The target is as it was, branch, index and files."""
        before = self.state()
        with pytest.raises((TeamError, ToolError)) as refused:
            self.merge(name)
        assert self.state() == before
        assert not (self.root / ".git/index.lock").exists()
        assert not (self.root / ".team/merge.json").exists()
        return str(refused.value)

    def state(self) -> tuple[str, str, dict[str, bytes]]:
        names = [path for path in self.root.rglob("*") if path.relative_to(self.root).parts[0] not in (".git", ".team")]
        files = {str(path): path.read_bytes() for path in names if path.is_file()}
        return git(self.root, "rev-parse", "HEAD"), git(self.root, "ls-files", "-s"), files

    def commit(self, where: Path, **files: str) -> None:
        for name, content in files.items():
            (where / name.replace("__", ".")).write_text(content)
        git(where, "add", "--all")
        git(where, "commit", "--quiet", "-m", "Change")

    @property
    def ended(self) -> MergeEnded:
        (event,) = self.events
        assert isinstance(event, MergeEnded)
        return event


@pytest.fixture
def place(repository: Path, clean_environment: Path) -> Iterator[Place]:
    (repository / ".team").mkdir()
    (repository / ".team/.gitignore").write_text("*\n")
    checkouts, host = open_checkouts(repository, clean_environment, is_confined=False)
    yield Place(repository, checkouts)
    checkouts.hosts.close_all()
    host.close()


class TestMerging:
    def test_what_is_uncommitted_comes_too(self, place: Place) -> None:
        place.commit(place.alice, one="1\n")
        (place.alice / "two").write_text("2\n")
        merged = place.merge()
        assert "Merged team/alice into main: 2 commits, 2 files, no gate is set." in merged
        assert "Work of alice" in merged
        assert (place.root / "one").read_text() == "1\n"
        assert (place.root / "two").read_text() == "2\n"
        assert git(place.root, "status", "--porcelain") == ""

    def test_the_message_is_that_of_the_commit(self, place: Place) -> None:
        (place.alice / "two").write_text("2\n")
        place.merge(message="Count to two")
        assert git(place.root, "log", "-1", "--format=%s") == "Count to two"

    def test_a_message_of_spaces_counts_as_none(self, place: Place) -> None:
        (place.alice / "two").write_text("2\n")
        place.merge(message="  ")
        assert git(place.root, "log", "-1", "--format=%s") == "Work of alice"

    def test_both_sides_are_in_the_result(self, place: Place) -> None:
        place.commit(place.alice, theirs="x\n")
        place.commit(place.root, mine="y\n")
        place.merge()
        assert (place.root / "theirs").exists()
        assert git(place.root, "log", "-1", "--format=%s") == "Merge main into team/alice"
        assert git(place.alice, "rev-parse", "HEAD") == git(place.root, "rev-parse", "main")
        assert git(place.root, "rev-parse", "team/alice") == git(place.root, "rev-parse", "main")

    def test_it_says_what_happened(self, place: Place) -> None:
        place.commit(place.alice, theirs="x\n")
        place.merge()
        event = place.ended
        assert (event.agent, event.target, event.outcome, event.files) == ("alice", "main", "merged", ("theirs",))
        assert event.commits[0].endswith(" Change")

    def test_a_second_time_there_is_nothing_to_merge(self, place: Place) -> None:
        place.commit(place.alice, theirs="x\n")
        place.merge()
        assert place.merge() == "Nothing to merge: main has everything of team/alice."

    def test_a_member_that_is_behind_only_catches_up(self, place: Place) -> None:
        place.commit(place.root, mine="y\n")
        assert "Nothing to merge" in place.merge()
        assert (place.alice / "mine").exists()

    def test_the_target_is_the_branch_that_is_checked_out(self, place: Place) -> None:
        main = git(place.root, "rev-parse", "main")
        git(place.root, "switch", "--quiet", "--create", "feature")
        place.commit(place.alice, theirs="x\n")
        assert "into feature" in place.merge()
        assert git(place.root, "rev-parse", "main") == main

    def test_neither_hooks_nor_a_signer_run(self, place: Place) -> None:
        ran = place.root.with_name("ran")
        for directory in (place.root, place.alice):
            for name in ("pre-commit", "post-merge", "reference-transaction", "post-checkout", "commit-msg"):
                hook = directory / ".git/hooks" / name
                hook.parent.mkdir(exist_ok=True)
                hook.write_text(f"#!/bin/sh\ntouch {ran}\n")
                hook.chmod(0o755)
            git(directory, "config", "commit.gpgSign", "true")
            git(directory, "config", "gpg.program", f"touch {ran};")
        (place.alice / "two").write_text("2\n")
        (place.root / "mine").write_text("y\n")
        git(place.root, "-c", "core.hooksPath=/dev/null", "add", "mine")
        git(place.root, "-c", "core.hooksPath=/dev/null", "commit", "--quiet", "--no-gpg-sign", "-m", "Mine")
        ran.unlink(missing_ok=True)
        place.merge()
        assert not ran.exists()


class TestTheGate:
    def test_it_runs_in_the_checkout_with_both_sides(self, place: Place) -> None:
        place.gate = "test -f theirs && test -f mine && pwd"
        place.commit(place.alice, theirs="x\n")
        place.commit(place.root, mine="y\n")
        assert "gate passed (`test -f theirs && test -f mine && pwd`)" in place.merge()
        assert str(place.alice) in "".join(place.said)

    def test_if_it_fails_nothing_is_merged_and_the_member_reads_why(self, place: Place) -> None:
        place.gate = "echo 3 tests failed; exit 7"
        place.commit(place.alice, theirs="x\n")
        refusal = place.refused()
        assert "failed (exit code 7)" in refusal
        assert "'alice' was asked to fix it" in refusal
        (mail,) = place.mail
        assert (mail.sender, mail.to, mail.type) == ("lead", "alice", "message")
        assert "3 tests failed" in mail.content
        assert place.ended.outcome == "gate_failed"

    def test_what_it_prints_is_bounded(self, place: Place) -> None:
        place.gate = "seq 100000; exit 1"
        place.commit(place.alice, theirs="x\n")
        place.refused()
        assert len(place.mail[0].content) < 5_000
        assert place.mail[0].content.endswith("100000")

    def test_it_ends_at_the_time_limit(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("teamcli.worktrees.merge.GATE_SECONDS", 0.2)
        place.gate = "sleep 60"
        place.commit(place.alice, theirs="x\n")
        assert "took longer than" in place.refused()

    def test_it_ends_when_the_user_stops_the_merge(self, place: Place) -> None:
        place.gate = "echo began; sleep 600"
        place.commit(place.alice, theirs="x\n")
        cancel, before = CancelScope(), place.state()
        with pytest.raises(Cancelled):
            place.open().merge(LEAD, "alice", "", cancel, cancel.cancel)
        assert place.state() == before

    def test_a_target_that_moves_during_it_is_merged_and_judged_again(self, place: Place) -> None:
        count = place.root.with_name("count")
        commit = f"cd {place.root} && git -c user.name=u -c user.email=u@u commit -q --allow-empty -m Meanwhile"
        place.gate = f"echo x >> {count}; [ $(wc -l < {count}) -gt 1 ] || ({commit})"
        place.commit(place.alice, theirs="x\n")
        assert "Merged team/alice" in place.merge()
        assert count.read_text() == "x\nx\n"
        assert "Meanwhile" in git(place.root, "log", "--format=%s")

    def test_a_target_that_never_stops_moving_is_given_up(self, place: Place) -> None:
        place.gate = f"cd {place.root} && git -c user.name=u -c user.email=u@u commit -q --allow-empty -m Meanwhile"
        place.commit(place.alice, theirs="x\n")
        with pytest.raises(MergeRefused, match="has moved 5 times"):
            place.merge()
        assert not (place.root / "theirs").exists()

    def test_a_member_that_begins_to_work_during_it_is_not_merged(self, place: Place) -> None:
        place.commit(place.alice, theirs="x\n")
        place.gate = "echo working"

        def wake(text: str) -> None:
            place.member = place.member._replace(since=2.0)

        place.said = type("Waking", (list,), {"append": staticmethod(wake)})()
        assert "has worked during the merge" in place.refused()


class TestConflicts:
    def test_the_files_are_named_to_both_and_the_conflict_stays_with_the_member(self, place: Place) -> None:
        place.commit(place.alice, README__md="theirs\n")
        place.commit(place.root, README__md="mine\n")
        refusal = place.refused()
        assert "main and team/alice are in conflict: README.md; main is as it was" in refusal
        assert "README.md" in place.mail[0].content
        assert "CONFLICT (content)" in place.mail[0].content
        assert place.ended.files == ("README.md",)
        assert "<<<<<<<" in (place.alice / "README.md").read_text()

    def test_one_that_is_not_resolved_is_never_committed(self, place: Place) -> None:
        place.commit(place.alice, README__md="theirs\n")
        place.commit(place.root, README__md="mine\n")
        place.refused()
        assert "are in conflict: README.md" in place.refused()
        assert git(place.alice, "log", "-1", "--format=%s") == "Change"

    @pytest.mark.parametrize("commits", [True, False], ids=["committed", "only added"])
    def test_when_it_is_resolved_the_work_is_merged(self, place: Place, commits: bool) -> None:
        place.commit(place.alice, README__md="theirs\n")
        place.commit(place.root, README__md="mine\n")
        place.refused()
        (place.alice / "README.md").write_text("both\n")
        git(place.alice, "add", "README.md")
        if commits:
            git(place.alice, "commit", "--quiet", "--no-edit")
        assert "Merged team/alice" in place.merge()
        assert (place.root / "README.md").read_text() == "both\n"

    def test_a_binary_file_is_named(self, place: Place) -> None:
        place.commit(place.root, data="a\0b")
        place.merge()
        place.commit(place.alice, data="c\0d")
        place.commit(place.root, data="e\0f")
        place.refused()
        assert "Cannot merge binary files: data" in place.mail[0].content

    def test_renames_are_named(self, place: Place) -> None:
        place.commit(place.root, long="".join(f"line {n}\n" for n in range(50)))
        place.merge()
        git(place.alice, "mv", "long", "theirs")
        place.commit(place.alice)
        git(place.root, "mv", "long", "mine")
        place.commit(place.root)
        refusal = place.refused()
        assert "theirs" in refusal
        assert "mine" in refusal
        assert "CONFLICT (rename/rename)" in place.mail[0].content

    def test_a_member_that_is_shut_down_gets_no_mail(self, place: Place) -> None:
        place.member = place.member._replace(status=Status.SHUTDOWN)
        place.commit(place.alice, README__md="theirs\n")
        place.commit(place.root, README__md="mine\n")
        place.refused()
        assert place.mail == []


class TestRefusals:
    def test_an_unknown_member(self, place: Place) -> None:
        assert "there is no teammate 'bob'" in place.refused("bob")

    def test_a_member_whose_checkout_is_not_made_yet(self, place: Place) -> None:
        place.checkouts.discard("alice")
        assert place.refused() == "'alice' has no checkout, so there is nothing to merge"

    def test_a_member_without_a_worktree(self, place: Place) -> None:
        place.checkouts.discard("alice")
        place.member = place.member._replace(worktree=False)
        assert place.refused() == "'alice' works in the main directory, where its changes are"

    @pytest.mark.parametrize("status", [Status.WORKING, Status.SPAWNING])
    def test_a_member_that_is_working(self, place: Place, status: Status) -> None:
        place.commit(place.alice, theirs="x\n")
        place.member = place.member._replace(status=status)
        assert "'alice' is currently working" in place.refused()

    def test_a_detached_head(self, place: Place) -> None:
        place.commit(place.alice, theirs="x\n")
        git(place.root, "switch", "--quiet", "--detach")
        assert "detached HEAD" in place.refused()

    def test_uncommitted_changes_before_the_gate_runs(self, place: Place) -> None:
        place.gate = f"touch {place.root.with_name('ran')}"
        place.commit(place.alice, README__md="theirs\n")
        (place.root / "README.md").write_text("mine\n")
        assert "uncommitted changes in files of the merge: README.md" in place.refused()
        assert not place.root.with_name("ran").exists()

    @pytest.mark.parametrize("name", [".claude/settings.json", ".CLAUDE/x", ".team/settings.json"])
    def test_what_decides_what_agents_may_do(self, place: Place, name: str) -> None:
        (place.alice / name).parent.mkdir(exist_ok=True)
        (place.alice / name).write_text("{}")
        git(place.alice, "add", "--force", name)
        refusal = place.refused()
        assert f"team/alice changes {name}" in refusal
        assert "git merge team/alice" in refusal

    def test_a_file_that_a_hook_runs(self, place: Place) -> None:
        place.hook_files = (place.root / "src/cart.py",)
        (place.alice / "src/cart.py").write_text("import os\n")
        assert "team/alice changes src/cart.py" in place.refused()

    def test_a_repository_inside_the_checkout(self, place: Place) -> None:
        (place.alice / "inner").mkdir()
        git(place.alice / "inner", "init", "--quiet")
        place.commit(place.alice / "inner", x="x")
        assert "changes the submodule inner" in place.refused()

    def test_names_that_differ_only_in_case_where_case_does_not_matter(self, place: Place) -> None:
        git(place.root, "config", "core.ignorecase", "true")
        git(place.alice, "-c", "core.ignorecase=false", "mv", "README.md", "Readme.md")
        place.commit(place.alice)
        assert "names that differ only in case: README.md, Readme.md" in place.refused()

    def test_a_checkout_that_is_on_another_branch(self, place: Place) -> None:
        git(place.alice, "switch", "--quiet", "--create", "other")
        assert "is on other, not on team/alice" in place.refused()

    def test_a_branch_from_which_the_target_was_taken_away(self, place: Place) -> None:
        """The member rewrites its history after the merge of the target: nothing of the target may get lost."""
        place.commit(place.root, mine="y\n")
        bring = place.checkouts.bring

        def rewrite(member: str) -> str:
            git(place.alice, "reset", "--quiet", "--hard", "HEAD^")
            place.commit(place.alice, theirs="x\n")
            return bring(member)

        place.checkouts.bring = rewrite  # type: ignore[method-assign]
        place.commit(place.alice, README__md="theirs\n")
        assert "does not contain main" in place.refused()


class TestTwoAtOnce:
    def test_they_follow_each_other(self, place: Place) -> None:
        place.commit(place.alice, theirs="x\n")
        began, release = threading.Event(), place.root.with_name("release")
        place.gate = f"echo began; until [ -e {release} ]; do sleep 0.02; done"
        waited: list[str] = []

        def first() -> None:
            place.open().merge(LEAD, "alice", "", CancelScope(), lambda text: began.set())

        def second_waits(text: str) -> None:
            waited.append(text)
            release.touch()

        thread = threading.Thread(target=first)
        thread.start()
        assert began.wait(DEADLINE_SECONDS)
        assert "Nothing to merge" in place.open().merge(LEAD, "alice", "", CancelScope(), second_waits)
        thread.join(DEADLINE_SECONDS)
        assert waited == ["Waiting for another merge.\n"]
        assert (place.root / "theirs").exists()

    def test_one_that_waits_can_be_stopped(self, place: Place) -> None:
        place.commit(place.alice, theirs="x\n")
        cancel = CancelScope()
        holding = place.open()

        def stop(text: str) -> None:
            cancel.cancel()

        with holding._merger._alone(CancelScope(), place.said.append), pytest.raises(Cancelled):
            place.open().merge(LEAD, "alice", "", cancel, stop)


class TestAMergeThatWasCutOffInTheCheckout:
    """Git was killed while it wrote files: they may be torn."""

    @pytest.fixture
    def torn(self, place: Place) -> Place:
        place.commit(place.alice, theirs="x\n")
        place.commit(place.root, README__md="y\n" * 1000)
        head = git(place.alice, "rev-parse", "HEAD")
        (place.root / ".team/merge-work.json").write_text(f'{{"v": 1, "member": "alice", "head": "{head}"}}')
        (place.alice / "README.md").write_text("y\n" * 500)
        (place.alice / ".git/index.lock").write_text("")
        return place

    def test_it_is_taken_back_and_nothing_torn_is_merged(self, torn: Place) -> None:
        assert "Merged team/alice" in torn.merge()
        assert (torn.root / "README.md").read_text() == "y\n" * 1000

    def test_the_next_start_says_so(self, torn: Place) -> None:
        assert "was cut off in its checkout" in torn.open().recover(CancelScope())
        assert (torn.alice / "README.md").read_text() == "# Shop\n"
        assert torn.open().recover(CancelScope()) == ""

    def test_what_was_there_is_kept_as_a_commit(self, torn: Place) -> None:
        (torn.alice / "by-hand").write_text("z\n")
        torn.open().recover(CancelScope())
        assert git(torn.alice, "show", "refs/teamcli/cut-off:by-hand") == "z"


class TestPreview:
    def test_it_shows_branch_and_files(self, place: Place) -> None:
        place.commit(place.alice, theirs="x\n")
        place.checkouts.bring("alice")
        (place.alice / "more").write_text("")
        place.commit(place.root, mine="y\n")
        assert place.open().preview("alice") == "team/alice into main: 2 files\n  more (uncommitted)\n  theirs"

    def test_what_is_wrong_is_left_to_the_merge(self, place: Place) -> None:
        assert place.open().preview("bob") == ""


class TestLocksOfAGitThatWasKilled:
    @pytest.mark.parametrize("name", [".git/refs/heads/team/alice.lock", ".team/worktrees/alice/.git/ORIG_HEAD.lock"])
    def test_they_do_not_block_the_next_merge(self, place: Place, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("teamcli.worktrees.git.STALE_SECONDS", 0.01)
        place.commit(place.alice, theirs="x\n")
        place.commit(place.root, mine="y\n")
        (place.root / name).write_text("")
        assert "Merged team/alice" in place.merge()
        assert not (place.root / name).exists()
