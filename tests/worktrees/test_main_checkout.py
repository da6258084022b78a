"""Moving the main checkout to another commit: branch, index and files, and nothing that belongs to the user."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from teamcli.cancel import CancelScope
from teamcli.errors import MergeRefused
from teamcli.exec.command_host import CommandHost
from teamcli.worktrees import working_files
from teamcli.worktrees.changes import changes_between
from teamcli.worktrees.git import Git
from teamcli.worktrees.main_checkout import MainCheckout, MergeStep, TargetMoved
from tests.worktrees.conftest import git as users_git

Edit = Callable[[Path], object]


class Place:
    """A repository whose main checkout moves."""

    def __init__(self, root: Path, host: CommandHost) -> None:
        self.root = root
        self.git = Git(host, root)
        self.journal = root / ".team/merge.json"
        self.checkout = MainCheckout(self.git, self.journal)

    def commit(self, edit: Edit) -> str:
        """A commit on top of HEAD, made elsewhere."""
        elsewhere = self.root.with_name("elsewhere")
        users_git(self.root, "worktree", "add", "--quiet", "--detach", str(elsewhere))
        edit(elsewhere)
        users_git(elsewhere, "add", "--all", "--force")
        users_git(elsewhere, "commit", "--quiet", "-m", "Next")
        made = users_git(elsewhere, "rev-parse", "HEAD")
        users_git(self.root, "worktree", "remove", "--force", str(elsewhere))
        return made

    def step(self, new: str) -> MergeStep:
        return MergeStep("alice", *self.checkout.head(), new)

    def advance(self, new: str) -> dict[str, str]:
        step = self.step(new)
        return self.checkout.advance(step, changes_between(self.git, step.old, step.new), CancelScope())

    def refused(self, new: str) -> str:
        """Why it does not move. Everything is as it was."""
        before = self.state()
        with pytest.raises(MergeRefused) as refused:
            self.advance(new)
        assert self.state() == before
        return str(refused.value)

    def state(self) -> tuple[str, str, dict[str, bytes], bool]:
        files = {
            str(path.relative_to(self.root)): path.read_bytes()
            for path in sorted(self.root.rglob("*"))
            if path.is_file() and path.relative_to(self.root).parts[0] not in (".git", ".team")
        }
        has_lock = (self.root / ".git/index.lock").exists()
        return self.head, users_git(self.root, "ls-files", "-s", "-v"), files, has_lock

    @property
    def head(self) -> str:
        return users_git(self.root, "rev-parse", "main")

    @property
    def status(self) -> str:
        return users_git(self.root, "status", "--porcelain", "--untracked-files=all")


@pytest.fixture
def place(repository: Path, plain_host: CommandHost) -> Iterator[Place]:
    (repository / ".team").mkdir()
    yield Place(repository, plain_host)


def write(name: str, content: str | bytes) -> Edit:
    def edit(root: Path) -> None:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())

    return edit


def everything(root: Path) -> None:
    """All kinds of changes that a commit can have."""
    (root / "README.md").write_text("# Shop\nopen\n")
    (root / "README.md").chmod(0o755)
    (root / "src/cart.py").rename(root / "basket.py")
    (root / "a/b").mkdir(parents=True)
    (root / "a/b/data.bin").write_bytes(bytes(range(256)))
    (root / "link").symlink_to("a/b/data.bin")
    (root / "src").rmdir()
    (root / "src").write_text("a file where a directory was\n")
    (root / "line\nbreak and “quotes”").write_text("x")
    Path(os.fsdecode(os.fsencode(root) + b"/\xff\xfe")).write_text("not UTF-8")


class TestMoving:
    def test_every_kind_of_change_arrives(self, place: Place) -> None:
        new = place.commit(everything)
        assert place.advance(new) == {}
        assert place.head == new
        assert place.status == ""
        assert (place.root / "link").readlink() == Path("a/b/data.bin")
        assert (place.root / "README.md").stat().st_mode & stat.S_IXUSR

    def test_and_every_change_can_be_taken_back(self, place: Place) -> None:
        first = place.head
        place.advance(place.commit(everything))
        back = users_git(place.root, "commit-tree", f"{first}^{{tree}}", "-p", "HEAD", "-m", "Back")
        assert place.advance(back) == {}
        assert place.status == ""
        assert (place.root / "src/cart.py").read_text() == "total = 0\n"

    def test_nothing_is_left_behind(self, place: Place) -> None:
        place.advance(place.commit(everything))
        assert not place.journal.exists()
        assert not (place.root / ".git/index.lock").exists()
        assert not (place.root / ".git/teamcli-merge").exists()

    def test_the_reflog_says_what_happened(self, place: Place) -> None:
        place.advance(place.commit(write("new", "x")))
        assert "merge team/alice: Fast-forward" in users_git(place.root, "reflog", "-1", "main")
        assert "merge team/alice: Fast-forward" in users_git(place.root, "reflog", "-1", "HEAD")

    def test_changes_in_other_files_stay_staged_or_not(self, place: Place) -> None:
        new = place.commit(write("src/cart.py", "total = 1\n"))
        write("README.md", "mine\n")(place.root)
        write("staged", "mine\n")(place.root)
        users_git(place.root, "add", "staged")
        place.advance(new)
        assert place.status == "M README.md\nA  staged"

    def test_line_ends_are_those_of_the_attributes_that_come_with_it(self, place: Place) -> None:
        def edit(root: Path) -> None:
            write(".gitattributes", "*.txt text eol=crlf\n")(root)
            write("a.txt", "one\ntwo\n")(root)

        place.advance(place.commit(edit))
        assert (place.root / "a.txt").read_bytes() == b"one\r\ntwo\r\n"
        assert place.status == ""

    def test_line_ends_are_those_of_the_config(self, place: Place) -> None:
        users_git(place.root, "config", "core.autocrlf", "true")
        place.advance(place.commit(write("a.txt", b"one\r\ntwo\r\n")))
        assert (place.root / "a.txt").read_bytes() == b"one\r\ntwo\r\n"
        assert place.status == ""

    def test_an_index_in_two_parts_is_understood(self, place: Place) -> None:
        users_git(place.root, "update-index", "--split-index")
        place.advance(place.commit(everything))
        assert place.status == ""

    def test_it_works_in_a_git_worktree(self, place: Place, plain_host: CommandHost) -> None:
        inside = place.root.with_name("inside")
        users_git(place.root, "worktree", "add", "--quiet", "-b", "side", str(inside))
        (inside / ".team").mkdir()
        new = place.commit(everything)
        other = Place(inside, plain_host)
        assert other.advance(new) == {}
        assert users_git(inside, "rev-parse", "side") == new
        assert users_git(inside, "status", "--porcelain") == ""

    def test_a_file_that_was_only_touched_is_not_a_change(self, place: Place) -> None:
        new = place.commit(write("README.md", "theirs\n"))
        os.utime(place.root / "README.md", (1, 1))
        assert place.advance(new) == {}
        assert (place.root / "README.md").read_text() == "theirs\n"


class TestWhatIsInTheWay:
    def test_an_uncommitted_change_is_named(self, place: Place) -> None:
        new = place.commit(write("README.md", "theirs\n"))
        write("README.md", "mine\n")(place.root)
        assert "uncommitted changes in files of the merge: README.md;" in place.refused(new)

    def test_so_is_one_of_the_same_size_made_at_once(self, place: Place) -> None:
        new = place.commit(write("README.md", "theirs\n"))
        write("README.md", "# Shog\n")(place.root)
        assert "README.md" in place.refused(new)

    def test_so_is_a_staged_change(self, place: Place) -> None:
        new = place.commit(write("README.md", "theirs\n"))
        write("README.md", "mine\n")(place.root)
        users_git(place.root, "add", "README.md")
        write("README.md", "# Shop\n")(place.root)
        assert "README.md" in place.refused(new)

    def test_so_is_a_file_that_was_deleted(self, place: Place) -> None:
        new = place.commit(write("README.md", "theirs\n"))
        (place.root / "README.md").unlink()
        assert "README.md" in place.refused(new)

    @pytest.mark.parametrize("name", ["new", ".env", "build/x"], ids=["untracked", "ignored", "in ignored"])
    def test_a_file_that_would_be_overwritten_is_named(self, place: Place, name: str) -> None:
        new = place.commit(write(name, "theirs\n"))
        write(name, "mine\n")(place.root)
        assert f"untracked files where the merge has new ones: {name};" in place.refused(new)

    def test_so_is_a_file_where_the_merge_has_a_directory(self, place: Place) -> None:
        new = place.commit(write("new/one", "theirs\n"))
        write("new", "mine\n")(place.root)
        assert "new ones: new;" in place.refused(new)

    def test_so_is_a_link_where_the_merge_has_a_directory(self, place: Place) -> None:
        new = place.commit(write("new/one", "theirs\n"))
        (place.root / "new").symlink_to(place.root.parent)
        assert "new ones: new;" in place.refused(new)

    def test_so_is_a_file_in_a_directory_that_becomes_a_file(self, place: Place) -> None:
        new = place.commit(everything)
        write("src/mine", "mine\n")(place.root)
        assert "new ones: src/mine;" in place.refused(new)

    @pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
    def test_so_is_a_file_that_git_does_not_look_at(self, place: Place, flag: str) -> None:
        new = place.commit(write("README.md", "theirs\n"))
        users_git(place.root, "update-index", flag, "README.md")
        assert "README.md" in place.refused(new)

    def test_an_unfinished_merge_of_the_user(self, place: Place) -> None:
        new = place.commit(write("new", "x"))
        step = place.step(new)
        (place.root / ".git/MERGE_HEAD").write_text(new)
        with pytest.raises(MergeRefused, match="in the middle of another merge"):
            place.checkout.advance(step, changes_between(place.git, step.old, new), CancelScope())

    def test_a_detached_head(self, place: Place) -> None:
        users_git(place.root, "switch", "--quiet", "--detach")
        with pytest.raises(MergeRefused, match="detached HEAD"):
            place.checkout.head()

    def test_another_git_at_work(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("teamcli.worktrees.main_checkout.LOCK_SECONDS", 0.001)
        new = place.commit(write("new", "x"))
        (place.root / ".git/index.lock").write_text("")
        assert "another git is at work here" in place.refused(new)

    def test_a_directory_without_checked_out_files(self, place: Place) -> None:
        new = place.commit(write("a", "x\n"))
        (place.root / ".git/index").unlink()
        assert "has no files checked out" in place.refused(new)

    def test_a_filter_is_neither_run_nor_left_out(self, place: Place) -> None:
        def edit(root: Path) -> None:
            write(".gitattributes", "*.big filter=lfs\n")(root)
            write("a.big", "pointer\n")(root)

        new = place.commit(edit)
        ran = place.root.with_name("ran")
        for key in ("smudge", "clean", "process"):
            users_git(place.root, "config", f"filter.lfs.{key}", f"touch {ran}; cat")
        refusal = place.refused(new)
        assert "git runs a filter for a.big" in refusal
        assert refusal.endswith("merge it yourself: git merge team/alice")
        assert not ran.exists()

    def test_attributes_of_a_filter_that_is_not_installed_change_nothing(self, place: Place) -> None:
        def edit(root: Path) -> None:
            write(".gitattributes", "*.big filter=lfs\n")(root)
            write("a.big", "pointer\n")(root)

        assert place.advance(place.commit(edit)) == {}

    def test_a_target_that_has_moved_is_noticed(self, place: Place) -> None:
        step = place.step(place.commit(write("new", "x")))
        users_git(place.root, "commit", "--quiet", "--allow-empty", "-m", "Meanwhile")
        before = place.state()
        with pytest.raises(TargetMoved):
            place.checkout.advance(step, changes_between(place.git, step.old, step.new), CancelScope())
        assert place.state() == before


class TestWhatIsWrittenMeanwhile:
    """The user saves a file after the look, when the branch has moved already."""

    @pytest.fixture
    def saving(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> Callable[[Edit], None]:
        def at_last_moment(edit: Edit) -> None:
            update = working_files.update_files

            def edit_first(*arguments: object) -> dict[str, str]:
                edit(place.root)
                return update(*arguments)  # type: ignore[arg-type]

            monkeypatch.setattr("teamcli.worktrees.main_checkout.update_files", edit_first)

        return at_last_moment

    def test_a_change_is_kept_and_named(self, place: Place, saving: Callable[[Edit], None]) -> None:
        new = place.commit(everything)
        saving(write("README.md", "mine\n"))
        assert list(place.advance(new)) == ["README.md"]
        assert (place.root / "README.md").read_text() == "mine\n"
        assert place.status == "M README.md"

    def test_a_new_file_is_kept_and_named(self, place: Place, saving: Callable[[Edit], None]) -> None:
        new = place.commit(write("new", "theirs\n"))
        saving(write("new", "mine\n"))
        assert list(place.advance(new)) == ["new"]
        assert (place.root / "new").read_text() == "mine\n"

    def test_a_change_of_a_file_that_is_removed_is_kept_and_named(
        self, place: Place, saving: Callable[[Edit], None]
    ) -> None:
        new = place.commit(lambda root: (root / "README.md").unlink())
        saving(write("README.md", "mine\n"))
        assert list(place.advance(new)) == ["README.md"]
        assert place.status == "?? README.md"

    def test_a_directory_that_becomes_a_link_leads_nowhere(
        self, place: Place, saving: Callable[[Edit], None], tmp_path: Path
    ) -> None:
        def swap(root: Path) -> None:
            shutil.move(root / "src", tmp_path / "moved")
            (root / "src").symlink_to(tmp_path / "moved")

        new = place.commit(write("src/cart.py", "total = 1\n"))
        saving(swap)
        assert list(place.advance(new)) == ["src/cart.py"]
        assert (tmp_path / "moved/cart.py").read_text() == "total = 0\n"


class TestAfterAGitThatWasKilled:
    """Its locks are left. The journal says that they are ours."""

    @pytest.fixture
    def step(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> MergeStep:
        monkeypatch.setattr("teamcli.worktrees.git.STALE_SECONDS", 0.01)
        step = place.step(place.commit(everything))

        def die(*arguments: object) -> None:
            raise SystemExit

        with monkeypatch.context() as patch, pytest.raises(SystemExit):
            patch.setattr(MainCheckout, "_unlock", die)
            patch.setattr(MainCheckout, "_move_branch", die)
            place.checkout.advance(step, changes_between(place.git, step.old, step.new), CancelScope())
        return step

    def test_locks_of_the_branch_and_of_head_are_removed(self, place: Place, step: MergeStep) -> None:
        (place.root / ".git/refs/heads/main.lock").write_text(step.new + "\n")
        (place.root / ".git/HEAD.lock").write_text("")
        assert "are as they were. Merge again" in place.checkout.recover(CancelScope())
        assert place.advance(step.new) == {}
        assert place.status == ""

    def test_the_lock_of_a_branch_that_someone_else_moves_stays(self, place: Place, step: MergeStep) -> None:
        lock = place.root / ".git/refs/heads/main.lock"
        lock.write_text(step.old + "\n")
        place.checkout.recover(CancelScope())
        assert lock.exists()

    def test_the_index_lock_of_another_git_stays(
        self, place: Place, step: MergeStep, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("teamcli.worktrees.main_checkout.LOCK_SECONDS", 0.001)
        users_git(place.root, "update-ref", "refs/heads/main", step.new)
        lock = place.root / ".git/index.lock"
        lock.write_text("")
        with pytest.raises(MergeRefused, match="another git is at work"):
            place.checkout.recover(CancelScope())
        lock.unlink()
        assert "is complete now" in place.checkout.recover(CancelScope())
        assert place.status == ""

    def test_a_branch_that_has_moved_since_is_left_alone(self, place: Place, step: MergeStep) -> None:
        (place.root / ".git/index.lock").unlink()
        users_git(place.root, "commit", "--quiet", "--allow-empty", "-m", "Meanwhile")
        before = place.state()
        assert "has moved since" in place.checkout.recover(CancelScope())
        assert place.state() == before

    def test_without_a_journal_there_is_nothing_to_say(self, place: Place) -> None:
        assert place.checkout.recover(CancelScope()) == ""
