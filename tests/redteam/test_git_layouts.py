"""The user's own `git status` after a command: it must not run what an agent has written, however git is laid out."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from teamcli.exec.sandbox.git import put_back, set_aside
from tests.redteam.conftest import confined_shell, need_sandbox
from tests.tools.shell import Shell

ATTACK = """
    git init -q fake && cd fake && git commit -q --allow-empty -m x && cd ..
    printf '#!/bin/sh\\necho x >> %s/evil\\n' "$HOME" > evil.sh; chmod +x evil.sh
    evil="[core]
	repositoryformatversion = 0
	bare = false
	fsmonitor = $PWD/evil.sh"
    echo "$evil" > fake/.git/config
    for checkout in CHECKOUTS; do
        git=$(git -C $checkout rev-parse --absolute-git-dir)
        common=$(cd $checkout && cd $(git rev-parse --git-common-dir) && pwd)
        for directory in $git $common; do
            echo "$evil" >> $directory/config
            rm -f $directory/config; echo "$evil" > $directory/config
            echo "$evil" > $directory/config.worktree
            echo $PWD/fake/.git > $directory/commondir
            rm -f $directory/commondir; echo $PWD/fake/.git > $directory/commondir
            mv $directory $directory.old; cp -r fake/.git $directory
        done
        echo "gitdir: $PWD/fake/.git" > $checkout/.git
        rm -rf $checkout/.git; mv $checkout/.git $checkout/old
        cp -r fake/.git $checkout/.git || echo "gitdir: $PWD/fake/.git" > $checkout/.git
        [ $checkout = . ] && continue
        mv $checkout $checkout.old; cp -r fake $checkout; rm -rf $checkout; cp -r fake $checkout
    done
    true
"""


@dataclass
class Layout:
    root: Path
    """The workspace."""
    checkouts: list[str]
    """Where the user calls git, relative to it."""


def git(directory: Path, *arguments: str) -> None:
    options = ("-c", "protocol.file.allow=always", "-c", "core.hooksPath=/dev/null")
    subprocess.run(["git", *options, *arguments], cwd=directory, check=True, capture_output=True)


def repository(path: Path, *options: str) -> Path:
    path.mkdir(parents=True)
    git(path, "init", "-q", *options)
    (path / "file").write_text("x")
    git(path, "add", "file")
    git(path, "commit", "-q", "-m", "x")
    return path


def plain(top: Path) -> Layout:
    return Layout(repository(top / "work"), ["."])


def submodule(top: Path) -> Layout:
    root = repository(top / "work")
    git(root, "submodule", "add", "-q", str(repository(top / "library")), "vendor/library")
    git(root, "commit", "-q", "-m", "y")
    return Layout(root, ["vendor/library", "."])


def deep_submodule(top: Path) -> Layout:
    root = repository(top / "work")
    git(root, "submodule", "add", "-q", str(repository(top / "library")), "a/b/c/d/e/library")
    git(root, "commit", "-q", "-m", "y")
    return Layout(root, ["a/b/c/d/e/library", "."])


def separate_directory_inside(top: Path) -> Layout:
    return Layout(repository(top / "work", "--separate-git-dir", str(top / "work/store")), ["."])


def separate_directory_outside(top: Path) -> Layout:
    return Layout(repository(top / "work", "--separate-git-dir", str(top / "store")), ["."])


def link_inside(top: Path) -> Layout:
    root = repository(top / "work")
    (root / ".git").rename(root / "store")
    (root / ".git").symlink_to("store")
    return Layout(root, ["."])


def link_outside(top: Path) -> Layout:
    root = repository(top / "work")
    (root / ".git").rename(top / "store")
    (root / ".git").symlink_to(top / "store")
    return Layout(root, ["."])


def workspace_is_a_submodule(top: Path) -> Layout:
    outer = submodule(top).root
    return Layout(outer / "vendor/library", [".", "../.."])


def workspace_is_a_worktree(top: Path) -> Layout:
    main = repository(top / "main")
    git(main, "worktree", "add", "-q", str(top / "work"))
    return Layout(top / "work", [".", "../main"])


def inner_worktree(top: Path) -> Layout:
    root = repository(top / "work")
    git(root, "worktree", "add", "-q", "trees/one")
    return Layout(root, ["trees/one", "."])


def three_levels_down(top: Path) -> Layout:
    root = repository(top / "work")
    repository(root / "a/b/c/inner")
    return Layout(root, ["a/b/c/inner", "."])


def linked_parts(top: Path) -> Layout:
    root = repository(top / "work")
    (root / ".git/config").rename(root / "shared-config")
    (root / ".git/config").symlink_to("../shared-config")
    return Layout(root, ["."])


LAYOUTS = {
    made.__name__: made
    for made in (
        plain,
        submodule,
        deep_submodule,
        separate_directory_inside,
        separate_directory_outside,
        link_inside,
        link_outside,
        workspace_is_a_submodule,
        workspace_is_a_worktree,
        inner_worktree,
        three_levels_down,
    )
}


CLOSED_TO_AGENTS = {"workspace_is_a_submodule", "separate_directory_outside", "link_outside"}
"""Their git directories are outside the workspace."""


class User:
    """Someone who has an agent work in a directory, and then looks with git."""

    def __init__(self, layout: Layout, home: Path, shell: Shell) -> None:
        self.layout, self.home, self._shell = layout, home, shell

    def runs_what_agents_wrote(self, command: str) -> bool:
        self._shell.bash(command)
        for checkout in self.layout.checkouts:
            subprocess.run(["git", "-C", self.layout.root / checkout, "status"], capture_output=True)
        return (self.home / "evil").exists()

    def attack(self) -> str:
        return ATTACK.replace("CHECKOUTS", " ".join(self.layout.checkouts))


@pytest.fixture
def make_user(
    tmp_path: Path, clean_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Callable[[Path], Layout], bool], User]]:
    need_sandbox()
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "a")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "a@example.org")
    shells: list[Shell] = []

    def make(lay_out: Callable[[Path], Layout], is_confined: bool = True) -> User:
        layout = lay_out(tmp_path)
        root, home = layout.root, clean_environment
        shells.append(confined_shell(root, home) if is_confined else Shell(root))
        return User(layout, home, shells[-1])

    yield make
    for shell in shells:
        shell.close()


@pytest.mark.parametrize("name", LAYOUTS)
def test_git_runs_nothing_that_an_agent_wrote(make_user: Callable[..., User], name: str) -> None:
    user = make_user(LAYOUTS[name])
    assert not user.runs_what_agents_wrote(user.attack())


@pytest.mark.parametrize("name", LAYOUTS)
def test_without_a_sandbox_git_runs_what_an_agent_wrote(make_user: Callable[..., User], name: str) -> None:
    user = make_user(LAYOUTS[name], is_confined=False)
    assert user.runs_what_agents_wrote(user.attack())


def test_a_repository_planted_next_to_a_damaged_one_is_set_aside(make_user: Callable[..., User]) -> None:
    user = make_user(plain)
    evil = user.layout.root / "evil.sh"
    planted = f"[core]\n\tworktree = .\n\tbare = false\n\tfsmonitor = {evil}"
    attack = (
        f'printf "#!/bin/sh\\necho x >> {user.home}/evil\\n" > {evil}; chmod +x {evil}; mkdir -p objects refs;'
        f'echo "ref: refs/heads/x" > HEAD; echo "{planted}" > config; rm -rf .git/HEAD .git/objects .git/refs'
    )
    assert not user.runs_what_agents_wrote(attack)
    assert (user.layout.root / "HEAD.set-aside").exists()


NEW_SUBMODULE = """
    printf '#!/bin/sh\necho x >> %s/evil\n' "$HOME" > evil.sh; chmod +x evil.sh
    mkdir -p vendor/new && cd vendor/new && git init -q && touch f && git add f && git commit -q -m x && cd ../..
    OPTIONS
    git -C vendor/new config core.fsmonitor $PWD/evil.sh
"""


@pytest.mark.parametrize("version", [2, 3, 4, "split"])
@pytest.mark.parametrize("is_confined", [True, False])
def test_a_submodule_that_a_command_adds_is_set_aside(
    make_user: Callable[..., User], version: int | str, is_confined: bool
) -> None:
    user = make_user(plain, is_confined)
    for number in range(20):
        (user.layout.root / f"file-{number}").write_text("x")
    write = "git update-index --split-index" if version == "split" else f"git update-index --index-version {version}"
    extended = "git add -N file-1;" if version == 3 else ""  # else git writes version 2
    command = NEW_SUBMODULE.replace("OPTIONS", f"git add . 2>/dev/null; {write}; git rm -q --cached file-1; {extended}")
    assert user.runs_what_agents_wrote(command) is not is_confined
    assert (user.layout.root / "vendor/new/.git.set-aside").exists() is is_confined


def test_a_submodule_that_was_not_checked_out_is_not_filled_by_a_command(make_user: Callable[..., User]) -> None:
    def not_checked_out(top: Path) -> Layout:
        origin = submodule(top / "origin").root
        git(top, "clone", "-q", str(origin), str(top / "work"))
        return Layout(top / "work", ["."])

    user = make_user(not_checked_out)
    assert not user.runs_what_agents_wrote(NEW_SUBMODULE.replace("OPTIONS", "mv vendor/new/.git vendor/library/"))
    assert (user.layout.root / "vendor/library/.git.set-aside").exists()


def test_a_repository_that_a_command_makes_is_left_alone(make_user: Callable[..., User]) -> None:
    user = make_user(plain)
    user._shell.bash("git init -q own && cd own && git commit -q --allow-empty -m x && git config a.b c")
    assert (user.layout.root / "own/.git/config").exists()


@pytest.mark.parametrize("name", sorted(LAYOUTS.keys() - CLOSED_TO_AGENTS))
def test_agents_can_still_commit(make_user: Callable[..., User], name: str) -> None:
    user = make_user(LAYOUTS[name])
    here = user.layout.checkouts[0]
    said = user._shell.bash(f"cd {here} && echo y > new && git add new && git commit -q -m more && git log --oneline")
    assert " more" in said
    assert "exit code" not in said


def test_the_whole_target_of_a_link_is_guarded(make_user: Callable[..., User]) -> None:
    user = make_user(linked_parts)
    user._shell.bash("echo evil > .git/config; rm .git/config; echo evil > .git/config")
    assert (user.layout.root / ".git/config").is_symlink()


def test_nothing_is_set_aside_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "home/.git").mkdir(parents=True)
    (tmp_path / "work").symlink_to("home")
    set_aside([tmp_path / "work/.git"])
    put_back([(tmp_path / "work/.git", "evil")])
    assert [path.name for path in (tmp_path / "home").iterdir()] == [".git"]
    assert not (tmp_path / "home/.git").is_symlink()


def test_a_link_that_was_replaced_is_restored(make_user: Callable[..., User]) -> None:
    user = make_user(link_inside)
    user._shell.bash("rm .git; mkdir .git .git.set-aside; touch .git/x .git.set-aside/x")
    assert (user.layout.root / ".git").readlink() == Path("store")
