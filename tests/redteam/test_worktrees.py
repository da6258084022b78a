"""Attacks of a member with its own checkout: on the main directory, its repository, other members, and the program."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from teamcli.agent.tool import AnyTool
from teamcli.cancel import CancelScope
from teamcli.errors import GitError, ToolError
from teamcli.exec.commands import Commands
from teamcli.tools.base.context import AgentContext
from teamcli.tools.catalog import BASE_TOOLS, bind_tools
from teamcli.workspace.bounds import Workspace
from teamcli.workspace.known_files import KnownFiles, PathLocks
from teamcli.worktrees.checkouts import Checkouts
from tests.redteam.conftest import need_sandbox
from tests.worktrees.conftest import as_member, git, open_checkouts
from tests.worktrees.conftest import repository_to_copy as repository_to_copy

COMMIT = "echo new > new.py && git add -A && git commit -qm Work"


@contextmanager
def attacked(repository: Path, directory: Path, is_confined: bool = True) -> Iterator[Checkouts]:
    """The checkouts of alice, who attacks, and of bob."""
    if is_confined:
        need_sandbox()
    main = Path(shutil.copytree(repository, directory / "project"))
    (main / ".git" / "hooks").mkdir(exist_ok=True)
    (main / ".team" / "inbox").mkdir(parents=True)
    (main / ".team" / ".owner").write_text("token")
    (main / ".team" / "inbox" / "lead.jsonl").write_text("")
    (directory / "home").mkdir()
    checkouts, lead = open_checkouts(main, directory / "home", is_confined=is_confined)
    checkouts.prepare("alice")
    checkouts.prepare("bob")
    yield checkouts
    checkouts.hosts.close_all()
    lead.close()


@pytest.fixture(scope="module")
def shared(repository_to_copy: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkouts]:
    """For attacks that leave alice's own checkout as it is: making one for each would take long."""
    with attacked(repository_to_copy, tmp_path_factory.mktemp("shared")) as checkouts:
        yield checkouts


@pytest.fixture
def checkouts(repository_to_copy: Path, tmp_path: Path) -> Iterator[Checkouts]:
    with attacked(repository_to_copy, tmp_path) as checkouts:
        yield checkouts


@pytest.fixture(scope="module", params=[True, False], ids=["confined", "not confined"])
def either(
    request: pytest.FixtureRequest, repository_to_copy: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Checkouts, bool]]:
    with attacked(repository_to_copy, tmp_path_factory.mktemp("either"), request.param) as checkouts:
        yield checkouts, request.param


def fingerprint(main: Path) -> dict[str, str]:
    """Everything in the main directory except what is alice's."""
    found = {}
    for directory, names, files in os.walk(main):
        if directory == str(main / ".team" / "worktrees"):
            names[:] = [name for name in names if name != "alice"]
        for name in (*names, *files):
            path = Path(directory, name)
            content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
            link = os.readlink(path) if path.is_symlink() else ""  # noqa: PTH115
            found[str(path)] = f"{path.lstat().st_mode} {link} {hashlib.sha256(content).hexdigest()}"
    return found


ATTACKS = [
    "echo x > $MAIN/README.md",
    "echo x >> $MAIN/.git/config",
    "echo x > $MAIN/.git/hooks/pre-commit",
    "echo x > $MAIN/.git/refs/heads/main",
    "echo x > $MAIN/.git/HEAD",
    "echo x > $MAIN/.git/objects/info/alternates",
    "rm -rf $MAIN/.git/objects",
    "rm -rf ../../../.git ../bob ../../inbox",
    "echo x > ../bob/README.md",
    "echo x > ../bob/.git/config",
    "echo x > ../alice.json",
    "echo x > ../../inbox/lead.jsonl",
    "touch ../carol",
    "mv ../bob ../carol",
    "mv $PWD ../gone",
    "chmod 777 $MAIN/.git $MAIN/README.md",
    "ln -s $MAIN/README.md link && echo x > link",
    "ln $MAIN/README.md hard && echo x > hard",
    "cd /proc/self/root$MAIN && echo x > README.md",
    "mount -o remount,rw $MAIN; umount $MAIN; echo x > $MAIN/README.md",
    "git -C $MAIN commit --allow-empty -m x",
    "git -C $MAIN config core.fsmonitor ./evil",
    "git -C $MAIN update-ref refs/heads/main HEAD~0 || git -C $MAIN branch x",
    "git -C $MAIN gc --prune=now; git -C $MAIN reflog expire --all --expire=now",
    "GIT_DIR=$MAIN/.git git update-ref refs/heads/evil HEAD",
    "GIT_DIR=$MAIN/.git GIT_WORK_TREE=. git add -A",
    "GIT_OBJECT_DIRECTORY=$MAIN/.git/objects git hash-object -w README.md --path x && echo y | "
    "GIT_OBJECT_DIRECTORY=$MAIN/.git/objects git hash-object -w --stdin",
    "git --git-dir=../../../.git config user.name evil",
    "git push --force origin HEAD:main; git push $MAIN HEAD:refs/heads/evil",
    "git push --receive-pack='sh -c \"echo x > $MAIN/x\"' $MAIN HEAD:evil",
    "git worktree add $MAIN/tree; git -C $MAIN worktree add /tmp/tree",
    "ln -s $MAIN out && rm -rf out/src && echo x > out/.git/x",
    "git init -q --separate-git-dir=$MAIN/.git/modules/x sub",
    "git bundle create $MAIN/bundle HEAD; git format-patch -o $MAIN HEAD~0; git archive -o $MAIN/a.tar HEAD",
    "git -c core.worktree=$MAIN checkout -f; git -c core.worktree=$MAIN clean -fdx",
]
ON_ITS_OWN_REPOSITORY = [
    "echo $MAIN/.git/objects > .git/objects/info/alternates; git repack -a -d -l; git prune; git gc --prune=now -q",
    "rm -rf .git && ln -s $MAIN/.git .git && git commit -q --allow-empty -m x",
    "rm -rf .git; echo gitdir: $MAIN/.git > .git; git update-ref refs/heads/evil HEAD",
    "rm -rf .git/refs && ln -s $MAIN/.git/refs .git/refs && git branch evil",
    "rm -rf .git/objects && ln -s $MAIN/.git/objects .git/objects && echo z | git hash-object -w --stdin",
]


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_command_changes_what_is_not_the_members_own(shared: Checkouts, attack: str) -> None:
    main = shared.main.directory
    before = fingerprint(main)
    as_member(shared, f"MAIN={main}; {attack}")
    assert fingerprint(main) == before


@pytest.mark.parametrize("attack", ON_ITS_OWN_REPOSITORY)
def test_a_repository_that_its_member_has_bent_leads_nowhere(checkouts: Checkouts, attack: str) -> None:
    main = checkouts.main.directory
    before = fingerprint(main)
    as_member(checkouts, f"MAIN={main}; {attack}")
    assert fingerprint(main) == before
    _operate(checkouts)
    after = fingerprint(main)
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    assert {path for path in changed if not _is_expected(path, main)} == set()


def _operate(checkouts: Checkouts) -> None:
    """All that the program does with a checkout by itself."""
    for act in (checkouts.status, checkouts.bring, checkouts.diff, checkouts.repair, checkouts.end):
        try:
            act("alice")
        except ToolError:  # whatever the attack has broken is alice's own
            continue


def _is_expected(path: str, main: Path) -> bool:
    """What bringing and removing alice's branch changes."""
    inside = str(Path(path).relative_to(main))
    if inside.startswith(".git/objects/"):
        return True
    names = (".git/refs/heads/team/alice", ".git/logs/refs/heads/team/alice", ".team/worktrees/alice.json")
    return inside in names


PROGRAMS = {
    "core.fsmonitor": "{}",
    "core.hooksPath": "hooks-of-alice",
    "core.sshCommand": "{}",
    "core.pager": "{}",
    "core.editor": "{}",
    "core.alternateRefsCommand": "{}",
    "diff.external": "{}",
    "diff.x.command": "{}",
    "diff.x.textconv": "{}",
    "pager.status": "{}",
    "alias.status": "!{}",
    "alias.rev-parse": "!{}",
    "gpg.program": "{}",
    "uploadpack.packObjectsHook": "{}",
    "credential.helper": "!{}",
    "filter.x.clean": "{}",
    "filter.x.smudge": "{}",
    "filter.x.process": "{}",
    "include.path": "../included",
    "includeIf.gitdir:/.path": "../included",
}


@pytest.mark.parametrize("key", PROGRAMS)
def test_what_the_config_of_a_checkout_names_reaches_nothing(either: tuple[Checkouts, bool], key: str) -> None:
    checkouts, is_confined = either
    if not is_confined and key.startswith("filter"):
        pytest.skip("without a sandbox, its member could run it as well")
    alice, mark = checkouts.directory / "alice", checkouts.main.directory / "was-run"
    script = alice / "evil.sh"
    script.write_text(f"#!/bin/sh\ntouch '{mark}'\nexit 1\n")
    script.chmod(0o755)
    (alice / "hooks-of-alice").mkdir(exist_ok=True)
    for hook in ("reference-transaction", "post-index-change", "pre-commit", "fsmonitor-watchman"):
        shutil.copy(script, alice / "hooks-of-alice" / hook)
    (alice / "included").write_text(f'[core]\n\tfsmonitor = "{script}"\n\tpager = "{script}"\n')
    (alice / ".git" / "info" / "attributes").write_text("* diff=x filter=x\n")
    (alice / "README.md").write_text(f"changed for {key}\n")
    config = (alice / ".git" / "config").read_text()
    section, _, name = key.rpartition(".")
    top, _, sub = section.partition(".")
    heading = f'{top} "{sub}"' if sub else top
    try:
        with (alice / ".git" / "config").open("a") as file:  # in place: the sandbox has it mounted
            file.write(f'[{heading}]\n\t{name} = "{PROGRAMS[key].format(script)}"\n')
        for act in (checkouts.status, checkouts.bring, checkouts.diff, checkouts.repair):
            try:
                act("alice")
            except ToolError:
                continue
    finally:
        (alice / ".git" / "config").write_text(config)
    assert not mark.exists()


def _raw_tree(directory: Path, mode: str, name: str, id: str) -> str:
    entry = f"{mode} {name}\0".encode() + bytes.fromhex(id)
    command = ["git", "-C", str(directory), "hash-object", "-t", "tree", "--literally", "-w", "--stdin"]
    return subprocess.run(command, input=entry, capture_output=True, check=True).stdout.decode().strip()


@pytest.mark.parametrize("name", [".git", ".GIT", "..", ".", ".g\u200cit", "git~1", "a/b", ""])
def test_a_commit_with_paths_that_git_never_writes_stays_outside(shared: Checkouts, name: str) -> None:
    main, alice = shared.main.directory, shared.directory / "alice"
    before = git(main, "rev-parse", "team/alice")
    inner = _raw_tree(alice, "100644", "config", git(alice, "rev-parse", "HEAD:README.md"))
    evil = git(alice, "commit-tree", "-m", "x", "-p", "HEAD", _raw_tree(alice, "40000", name, inner))
    git(alice, "update-ref", "refs/heads/team/alice", evil)
    try:
        with pytest.raises(GitError, match=r"index-pack|pack-objects"):
            shared.bring("alice")
    finally:
        git(alice, "update-ref", "refs/heads/team/alice", before)
    assert git(main, "rev-parse", "team/alice") == before


@pytest.mark.parametrize(
    "attack",
    [
        "git symbolic-ref refs/heads/team/alice refs/heads/other && git update-ref refs/heads/other HEAD",
        "git update-ref refs/heads/main HEAD; git tag v1; git update-ref refs/notes/x HEAD; git branch team/bob-x",
        "git replace HEAD HEAD~0 2>/dev/null; git update-ref refs/replace/$(git rev-parse HEAD) HEAD",
        "echo 'ref: refs/heads/main' > .git/refs/heads/team/alice",
    ],
)
def test_only_the_members_own_branch_ever_moves(checkouts: Checkouts, attack: str) -> None:
    main = checkouts.main.directory
    others = (
        "for-each-ref",
        "--format=%(refname) %(objectname)",
        "refs/heads/main",
        "refs/heads/team/bob",
        "refs/tags",
    )
    before = git(main, *others)
    as_member(checkouts, f"{COMMIT}; {attack}")
    _operate(checkouts)
    assert git(main, *others) == before
    refs = git(main, "for-each-ref", "--format=%(refname)").splitlines()
    assert refs == ["refs/heads/main", "refs/heads/team/alice", "refs/heads/team/bob"]


def test_a_branch_of_the_main_repository_that_leads_elsewhere_is_not_followed(checkouts: Checkouts) -> None:
    """The lead's commands can write refs."""
    main = checkouts.main.directory
    before = git(main, "rev-parse", "main")
    git(main, "symbolic-ref", "refs/heads/team/alice", "refs/heads/main")
    as_member(checkouts, COMMIT)
    _operate(checkouts)
    assert git(main, "rev-parse", "main") == before


@pytest.fixture
def tools(shared: Checkouts) -> dict[str, AnyTool]:
    """The file tools of alice, with a link to the main directory in its checkout."""
    main, alice = shared.main.directory, shared.directory / "alice"
    if not (alice / "link").exists():
        (alice / "link").symlink_to(main)
    workspace, commands = Workspace(alice, (main / ".team" / "memory",)), Commands(shared.hosts.of("alice"))
    return dict(bind_tools(BASE_TOOLS, AgentContext(workspace, commands, KnownFiles(PathLocks()), "alice")))


@pytest.mark.parametrize(
    "path",
    [
        "{main}/README.md",
        "{main}/.git/config",
        "../bob/README.md",
        "../../../README.md",
        "../alice.json",
        "../../inbox/lead.jsonl",
        "../../memory/../inbox/lead.jsonl",
        "link/README.md",
        "link/.git/hooks/pre-commit",
        ".git/config",
        ".git/hooks/pre-commit",
        ".team/settings.json",
    ],
)
@pytest.mark.parametrize("tool", ["write_file", "edit_file"])
def test_no_file_tool_changes_what_is_not_the_members_own(
    tools: dict[str, AnyTool], shared: Checkouts, tool: str, path: str
) -> None:
    main = shared.main.directory
    target = path.format(main=main)
    given = {"content": "x"} if tool == "write_file" else {"old_text": "a", "new_text": "b"}
    before = fingerprint(main)
    with pytest.raises(ToolError):
        tools[tool].prepare({"path": target, **given}).run(CancelScope(), lambda text: None)
    assert fingerprint(main) == before


@pytest.mark.parametrize("name", ["glob", "grep"])
def test_searches_do_not_leave_the_checkout(tools: dict[str, AnyTool], shared: Checkouts, name: str) -> None:
    (shared.main.directory / "secret.txt").write_text("needle")
    given = {"pattern": "**/*"} if name == "glob" else {"pattern": "needle"}
    found = tools[name].prepare(given).run(CancelScope(), lambda text: None).content
    assert "secret" not in found
    with pytest.raises(ToolError):
        tools[name].prepare({**given, "path": "link"}).run(CancelScope(), lambda text: None)


def test_a_member_can_still_do_its_work(checkouts: Checkouts) -> None:
    work = f"{COMMIT} && git checkout -q -b side && git checkout -q team/alice && git fetch -q origin && git stash list"
    assert as_member(checkouts, f"{work} && git log --oneline origin/main && touch /tmp/x && rm -r src")[0] == 0
    assert checkouts.bring("alice") == git(checkouts.main.directory, "rev-parse", "team/alice")
