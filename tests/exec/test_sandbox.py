"""What the sandbox opens, guards and closes, as options and with real commands; normal work is possible inside."""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from teamcli.cancel import CancelScope
from teamcli.errors import Cancelled
from teamcli.exec.sandbox.git import Guards, Repositories, shared_repository
from teamcli.exec.sandbox.plan import PrivateDirs, SandboxSettings, make_plan
from teamcli.exec.sandbox.sandbox import explain
from tests.redteam.conftest import confined_shell, need_sandbox
from tests.support.fake_api import text, tool, tool_results
from tests.support.program import Program
from tests.support.screen import Screen
from tests.tools.shell import Shell


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "a work place"
    root.mkdir()
    return root


@pytest.fixture
def shell(root: Path, clean_environment: Path) -> Iterator[Shell]:
    need_sandbox()
    shell = confined_shell(root, clean_environment)
    yield shell
    shell.close()


@pytest.fixture
def confined(tmp_path: Path, clean_environment: Path) -> Iterator[Callable[..., Shell]]:
    need_sandbox()
    shells = []

    def make(root: Path, **wishes: object) -> Shell:
        shells.append(confined_shell(root, clean_environment, **wishes))
        return shells[-1]

    yield make
    for shell in shells:
        shell.close()


def needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"{program} is not installed")


class TestPlan:
    @pytest.fixture
    def options(self, tmp_path: Path) -> Callable[..., list[tuple[str, ...]]]:
        """The options of a plan, each with its arguments, for a home and a workspace in it."""
        private = PrivateDirs(tmp_path / "private", tmp_path / "caches")

        def make(environment: dict[str, str] | None = None, **wishes: object) -> list[tuple[str, ...]]:
            wanted = SandboxSettings((tmp_path / "home/work",), tmp_path / "home")._replace(**wishes)
            repositories = Repositories(wanted.roots, wanted.roots)
            words = make_plan(wanted, private, environment or {}, repositories.guards()).options
            starts = [position for position, word in enumerate(words) if word.startswith("--")]
            return [words[start:end] for start, end in zip(starts, [*starts[1:], None], strict=True)]

        (tmp_path / "home/work").mkdir(parents=True)
        return make

    @pytest.mark.parametrize(
        ("made", "is_directory", "option"),
        [
            (".ssh", True, "--ro-bind"),
            (".config/gh", True, "--ro-bind"),
            (".netrc", False, "--ro-bind"),
            (".cargo/credentials.toml", False, "--ro-bind"),
        ],
    )
    def test_secrets_that_exist_are_covered(
        self, options: Callable[..., list[tuple[str, ...]]], tmp_path: Path, made: str, is_directory: bool, option: str
    ) -> None:
        path = tmp_path / "home" / made
        assert not [each for each in options() if each[-1] == str(path)]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir() if is_directory else path.touch()
        cover = tmp_path / "private" / ("empty" if is_directory else "nothing")
        assert (option, str(cover), str(path)) in options()

    @pytest.mark.parametrize(
        ("written", "is_closed"),
        [
            ("registry=https://r.example\n", False),
            ("//r.example/:_authToken=x\n", True),
            ("proxy=http://u:p@x\n", True),
        ],
    )
    def test_settings_of_tools_are_closed_only_if_they_hold_a_secret(
        self, options: Callable[..., list[tuple[str, ...]]], tmp_path: Path, written: str, is_closed: bool
    ) -> None:
        path = tmp_path / "home/.npmrc"
        path.write_text(written)
        assert any(each[-1] == str(path) for each in options()) is is_closed

    def test_a_secret_behind_a_link_is_covered_where_it_is(
        self, options: Callable[..., list[tuple[str, ...]]], tmp_path: Path
    ) -> None:
        (tmp_path / "keys").mkdir()
        (tmp_path / "home/.ssh").symlink_to(tmp_path / "keys")
        assert options()[-1][-1] == str(tmp_path / "keys")

    def test_what_is_closed_comes_last_and_what_is_guarded_after_what_is_writable(
        self, options: Callable[..., list[tuple[str, ...]]], tmp_path: Path
    ) -> None:
        root = tmp_path / "home/work"
        (root / ".git/hooks").mkdir(parents=True)
        (tmp_path / "home/.ssh").mkdir()
        order = [each[-1] for each in options()]
        places = ["/", "/tmp", str(root), str(root / ".git"), str(root / ".git/hooks"), str(tmp_path / "home/.ssh")]
        assert sorted(places, key=order.index) == places

    def test_the_network_is_shared_unless_it_is_closed(self, options: Callable[..., list[tuple[str, ...]]]) -> None:
        assert ("--unshare-net",) not in options()
        assert ("--unshare-net",) in options(network="off")

    def test_what_the_user_opens_is_not_guarded_and_what_the_user_closes_is_closed(
        self, options: Callable[..., list[tuple[str, ...]]], tmp_path: Path
    ) -> None:
        root = tmp_path / "home/work"
        (root / ".git").mkdir()
        (root / ".git/config").touch()
        (tmp_path / "home/diary").touch()
        guard = ("--ro-bind", str(root / ".git/config"), str(root / ".git/config"))
        assert guard in options()
        opened = options(writable=(".git/config",), closed=("~/diary",))
        assert guard not in opened
        assert opened[-1][-1] == str(tmp_path / "home/diary")

    def test_a_plan_is_outdated_when_what_it_covers_appears_or_is_replaced(self, tmp_path: Path) -> None:
        root, home = tmp_path / "work", tmp_path / "home"
        (root / ".git").mkdir(parents=True)
        (root / ".git/config").touch()
        home.mkdir()
        private = PrivateDirs(tmp_path / "private", tmp_path / "caches")
        guards = Guards((root / ".git",), (root / ".git/config",))
        plan = make_plan(SandboxSettings((root,), home), private, {}, guards)
        assert not plan.is_outdated
        (home / ".ssh").mkdir()
        assert plan.is_outdated
        plan = make_plan(SandboxSettings((root,), home), private, {}, guards)
        (root / "new").touch()
        (root / "new").rename(root / ".git/config")
        assert plan.is_outdated

    def test_only_a_repository_that_knows_the_worktree_is_opened(self, tmp_path: Path) -> None:
        main, tree, fake = tmp_path / "main", tmp_path / "tree", tmp_path / "fake"
        git = ["git", "-c", "user.name=x", "-c", "user.email=x", "-C", str(main)]
        subprocess.run(["git", "init", "-q", str(main)], check=True)
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
        subprocess.run([*git, "worktree", "add", "-q", str(tree)], check=True)
        fake.mkdir()
        shutil.copy(tree / ".git", fake / ".git")
        assert shared_repository(tree) == main / ".git"
        assert shared_repository(fake) is None
        assert shared_repository(main) is None


class TestPlaces:
    """Where a workspace can be; each is still writable, and nothing around it."""

    def test_a_workspace_with_spaces_in_a_temp_directory_can_be_written(self, shell: Shell, root: Path) -> None:
        assert shell.bash("pwd; touch here; touch ../there 2>/dev/null; ls") == f"{root}\nhere"
        assert (root / "here").exists()
        assert not (root.parent / "there").exists()

    def test_in_a_home_directory_startup_files_and_keys_stay_as_they_are(
        self, confined: Callable[..., Shell], clean_environment: Path
    ) -> None:
        (clean_environment / ".bashrc").write_text("as it was")
        (clean_environment / ".ssh").mkdir()
        shell = confined(clean_environment)
        shell.bash("touch here; echo evil >> .bashrc; touch .ssh/authorized_keys")
        assert (clean_environment / "here").exists()
        assert (clean_environment / ".bashrc").read_text() == "as it was"
        assert list((clean_environment / ".ssh").iterdir()) == []

    def test_a_workspace_below_a_closed_directory_does_not_open_that_directory(
        self, confined: Callable[..., Shell], clean_environment: Path
    ) -> None:
        root = clean_environment / ".aws/tools"
        root.mkdir(parents=True)
        (root.parent / "credentials").write_text("secret")
        shell = confined(root)
        assert "secret" not in shell.bash("touch here; cat ../credentials")
        assert (root / "here").exists()

    @pytest.mark.parametrize("name", [".teamcli", ".claude"])
    def test_the_users_skills_can_be_run_and_nothing_next_to_them_can_be_read(
        self, confined: Callable[..., Shell], clean_environment: Path, root: Path, name: str
    ) -> None:
        holds, kept = clean_environment / name, clean_environment / "dotfiles"
        (kept / "greet").mkdir(parents=True)
        (kept / "greet/hello.sh").write_text("echo hello from a skill")
        holds.mkdir(exist_ok=True)
        (holds / "skills").symlink_to(kept)
        (holds / "key").write_text("secret")
        said = confined(root).bash(f"sh ~/{name}/skills/greet/hello.sh; cat ~/{name}/key; touch ~/{name}/skills/evil")
        assert "hello from a skill" in said
        assert "secret" not in said
        assert not (kept / "evil").exists()

    def test_secrets_stay_closed_if_the_workspace_is_the_whole_machine(
        self, confined: Callable[..., Shell], clean_environment: Path
    ) -> None:
        (clean_environment / ".netrc").write_text("secret")
        assert confined(Path("/")).bash("pwd; cat ~/.netrc; ls -d /proc/self > /dev/null") == "/"

    def test_a_temp_directory_can_be_the_workspace(self, confined: Callable[..., Shell]) -> None:
        temp = Path("/var/tmp")  # not /tmp, where other tests hide directories, which is a reason to refuse commands
        path = temp / f"teamcli-test-{os.getpid()}"
        try:
            confined(temp).bash(f"touch {path}")
            assert path.exists()
        finally:
            path.unlink(missing_ok=True)

    def test_commands_can_commit_in_a_worktree(self, confined: Callable[..., Shell], tmp_path: Path) -> None:
        main, tree = tmp_path / "main", tmp_path / "tree"
        git = ["git", "-c", "user.name=x", "-c", "user.email=x", "-C", str(main)]
        subprocess.run(["git", "init", "-q", str(main)], check=True)
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
        subprocess.run([*git, "worktree", "add", "-q", str(tree)], check=True)
        shell = confined(tree)
        said = shell.bash("touch f; git add f; git -c user.name=x -c user.email=x commit -q -m y && git log --oneline")
        assert " y\n" in said
        shell.bash("echo evil > ../main/.git/hooks/pre-commit; echo evil >> ../main/.git/config; touch ../main/there")
        assert not (main / ".git/hooks/pre-commit").exists()
        assert not (main / "there").exists()

    def test_a_workspace_that_is_replaced_while_teamcli_runs_can_be_used(self, shell: Shell, root: Path) -> None:
        shell.bash("touch old")
        shutil.rmtree(root)
        root.mkdir()
        shell.bash("touch new")
        assert [path.name for path in root.iterdir()] == ["new"]


class TestWork:
    """Work inside the sandbox is the same as outside."""

    @pytest.mark.parametrize(
        ("command", "result"),
        [
            ("echo hi; exit 7", "hi\n[exit code 7]"),
            ("echo hi; kill -9 $$", "hi\n[killed by signal 9 (SIGKILL)]"),
            ("echo out; echo err >&2", "out\nerr"),
            ("cat", "(no output)"),
            ("echo x > >(sleep 0.1; tee copy)", "x"),
            ("sleep 300 & echo hi", "hi\n[what it left running was ended; to keep a process running, set background"
             " and do not use &]"),
        ],
    )  # fmt: skip
    def test_results_are_the_same_as_without_a_sandbox(self, shell: Shell, command: str, result: str) -> None:
        assert shell.bash(command) == result

    def test_temp_files_are_shared_only_by_commands(self, shell: Shell) -> None:
        assert shell.bash("echo kept > /tmp/teamcli-test-note; mktemp").startswith("/tmp/")
        assert shell.bash("cat /tmp/teamcli-test-note") == "kept"
        assert not Path("/tmp/teamcli-test-note").exists()

    def test_background_commands_can_be_ended_by_name(self, shell: Shell) -> None:
        id = shell.in_background("exec sleep 300")
        assert shell.bash("until pkill -x sleep; do :; done; echo ended") == "ended"
        assert shell.commands.stop(id).ended is not None

    def test_agents_can_make_and_remove_their_own_checkouts(self, confined: Callable[..., Shell], root: Path) -> None:
        subprocess.run(["git", "init", "-q", str(root)], check=True)
        shell = confined(root)
        me = "git -c user.name=me -c user.email=me@example.org commit -q --allow-empty -m x"
        assert shell.bash(f"{me} && git worktree add -q .trees/a -b a && cd .trees/a && {me}") == "(no output)"
        assert shell.bash("git worktree remove .trees/a && git worktree list | wc -l") == "1"

    def test_a_refused_write_is_explained(self, shell: Shell) -> None:
        said = shell.bash("touch /etc/x")
        assert "Read-only file system" in said
        assert "sandbox_writable" in said
        assert "sandbox" not in shell.bash("false")

    def test_what_the_user_opens_can_be_written(
        self, confined: Callable[..., Shell], root: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "shared").mkdir()
        confined(root, writable=("../shared",)).bash("touch ../shared/file")
        assert (tmp_path / "shared/file").exists()

    def test_each_project_has_its_own_caches(
        self, confined: Callable[..., Shell], root: Path, tmp_path: Path, clean_environment: Path
    ) -> None:
        (clean_environment / ".cache").mkdir()
        (clean_environment / ".cache/users").touch()
        confined(root).bash("echo x > ~/.cache/thing; echo y > $npm_config_cache/thing")
        assert confined(root).bash("ls ~/.cache; cat $npm_config_cache/thing") == "thing\ny"
        assert [path.name for path in (clean_environment / ".cache").iterdir()] == ["users"]
        other = tmp_path / "other"
        other.mkdir()
        assert confined(other).bash("ls ~/.cache") == "(no output)"

    def test_nothing_is_left_in_the_temp_directory(self, confined: Callable[..., Shell], root: Path) -> None:
        shell = confined(root)
        shell.bash("touch /tmp/x")
        private = shell.host._starter._sandbox._private.temp  # type: ignore[union-attr, attr-defined]
        assert private.exists()
        shell.close()
        assert not private.exists()

    def test_what_a_killed_program_left_is_removed_by_the_next(
        self, confined: Callable[..., Shell], root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        left, used = tmp_path / "teamcli-sandbox-left", tmp_path / "teamcli-sandbox-used"
        for directory in (left, used):
            directory.mkdir()
            (directory / "lock").touch()
        with (used / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            confined(root).bash("true")
            assert used.exists()
            assert not left.exists()

    @needs("git")
    def test_git_works(self, shell: Shell) -> None:
        said = shell.bash(
            "set -e; export GIT_AUTHOR_NAME=x GIT_AUTHOR_EMAIL=x GIT_COMMITTER_NAME=x GIT_COMMITTER_EMAIL=x;"
            "git init -q -b main .; echo 1 > a; git add a; git commit -qm one; git checkout -qb side; echo 2 > b;"
            "git add b; git commit -qm two; git checkout -q main; git merge -q side; git stash list; git log --oneline"
        )
        assert len(said.splitlines()) == 2
        assert "exit code" not in said
        again = shell.bash(
            "git -c user.name=x -c user.email=x commit -q --allow-empty -m three && git checkout -qb more"
            " && git branch -q -D side && git worktree list && git clone -q . copy && git -C copy status --short"
        )
        assert "exit code" not in again
        own = shell.bash("git config user.name me && git remote add origin ./copy && git fetch -q && git remote")
        assert own == "origin"  # a repository that agents have made is theirs

    @needs("make")
    def test_make_works(self, shell: Shell, root: Path) -> None:
        (root / "Makefile").write_text("all: out\nout:\n\techo made > out\n")
        shell.bash("make -j2")
        assert (root / "out").read_text() == "made\n"

    def test_pip_works(self, shell: Shell, root: Path) -> None:
        wheel(root)
        said = shell.bash(
            f"{sys.executable} -m venv env && env/bin/pip install -q --no-index ./thing-1.0-py3-none-any.whl"
            " && env/bin/python -c 'import thing; print(thing.WORD)'",
            timeout_seconds=300,
        )
        assert said.endswith("works")

    @needs("npm")
    def test_npm_works(self, shell: Shell, root: Path) -> None:
        (root / "thing").mkdir()
        (root / "thing/package.json").write_text('{"name": "thing", "version": "1.0.0", "main": "i.js"}')
        (root / "thing/i.js").write_text("module.exports = 'works'")
        said = shell.bash(
            "npm pack --silent ./thing && npm init -y > /dev/null && npm install --silent --offline ./thing-1.0.0.tgz"
            " && node -e 'console.log(require(\"thing\"))'",
            timeout_seconds=300,
        )
        assert said.splitlines()[-1] == "works", said

    @needs("cargo")
    def test_cargo_works(self, confined: Callable[..., Shell], root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("RUSTUP_HOME", os.environ.get("RUSTUP_HOME") or str(_users_home() / ".rustup"))
        (root / "src").mkdir()
        (root / "Cargo.toml").write_text('[package]\nname = "thing"\nversion = "1.0.0"\nedition = "2021"\n')
        (root / "src/main.rs").write_text('fn main() { println!("works") }')
        said = confined(root).bash("cargo run -q --offline", timeout_seconds=300)
        assert said.splitlines()[-1] == "works", said


def _users_home() -> Path:
    return Path(pwd.getpwuid(os.getuid()).pw_dir)


def wheel(directory: Path) -> None:
    with zipfile.ZipFile(directory / "thing-1.0-py3-none-any.whl", "w") as file:
        file.writestr("thing.py", "WORD = 'works'\n")
        file.writestr("thing-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: thing\nVersion: 1.0\n")
        file.writestr("thing-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr("thing-1.0.dist-info/RECORD", "")


@pytest.mark.parametrize(
    ("output", "network", "word"),
    [
        ("touch: cannot touch 'x': Read-only file system", "on", "sandbox_writable"),
        ("npm error code EROFS", "on", "sandbox_writable"),
        ("could not write config file .git/config: Device or resource busy", "on", "sandbox_writable"),
        ("curl: (6) Could not resolve host: x", "off", "sandbox_network"),
        ("curl: (6) Could not resolve host: x", "on", ""),
        ("1 failed", "off", ""),
    ],
)
def test_what_the_sandbox_did_is_explained(output: str, network: str, word: str) -> None:
    said = explain(output, SandboxSettings((Path("/w"),), Path("/h"), network))
    assert word in said
    assert bool(said) is bool(word)


FORBIDDEN = "#!/bin/sh\necho 'bwrap: Creating new namespace failed: Operation not permitted' >&2\nexit 1\n"


@pytest.fixture
def forbidden(program: Program, tmp_path: Path) -> Program:
    """A machine that has `bwrap` and forbids what it does."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/bwrap").write_text(FORBIDDEN)
    (tmp_path / "bin/bwrap").chmod(0o755)
    program.variables["PATH"] = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    return program


def run_bash(program: Program, command: str, *options: str) -> tuple[int, str]:
    with program.against([tool("bash", command=command), text("done")]) as api:
        ran = program.run("-p", "x", *options)
        return ran.code, str(tool_results(api.requests[1]))


class TestSettings:
    def test_if_it_does_not_work_commands_run_without_it_and_doctor_says_why(self, forbidden: Program) -> None:
        code, said = run_bash(forbidden, f"echo x > {forbidden.home}/there; echo ran", "--allowedTools", "bash")
        assert code == 0
        assert "ran" in said
        assert (forbidden.home / "there").exists()
        assert "none, bwrap: Creating new namespace failed" in forbidden.run("doctor").out

    def test_if_it_does_not_work_one_line_says_so_before_the_first_command(self, forbidden: Program) -> None:
        said = "No sandbox: bwrap: Creating new namespace failed: Operation not permitted; commands run with your own"
        twice = ("-p", "run true then run true", "--offline", "--allowedTools", "bash")
        assert forbidden.run(*twice).err.count(said) == 1
        assert forbidden.run("--offline", "--allowedTools", "bash", stdin="run true\n").out.count(said) == 1
        assert said not in forbidden.run("-p", "list", "--offline").err  # nothing runs
        forbidden.settings(sandbox="off")
        assert "sandbox" not in forbidden.run(*twice).err  # the user knows

    @pytest.mark.parametrize("settings", [{"sandbox": "required"}, {"sandbox_network": "off"}])
    def test_if_it_is_required_and_does_not_work_nothing_starts(
        self, forbidden: Program, settings: dict[str, str]
    ) -> None:
        forbidden.settings(**settings)
        ran = forbidden.run("-p", "x")
        assert ran.code == 2
        assert next(iter(settings)) in ran.err
        assert "Operation not permitted" in ran.err
        assert forbidden.run("doctor").code == 1

    def test_if_bwrap_is_missing_doctor_names_the_package(self, program: Program, tmp_path: Path) -> None:
        (tmp_path / "bin").mkdir()
        program.variables["PATH"] = str(tmp_path / "bin")
        assert "bubblewrap" in program.run("doctor").out

    def test_off_means_off(self, program: Program) -> None:
        program.settings(sandbox="off")
        run_bash(program, f"echo x > {program.home}/there", "--allowedTools", "bash")
        assert (program.home / "there").exists()
        assert "none, the settings say so" in program.run("doctor").out
        program.settings(sandbox="off", sandbox_network="off")
        ran = program.run("-p", "x")
        assert ran.code == 2
        assert "sandbox_network" in ran.err

    def test_commands_may_run_without_a_question_if_the_user_says_so(self, program: Program) -> None:
        need_sandbox()
        assert run_bash(program, "echo ran > file")[0] == 4
        program.settings(sandbox_allows_bash=True)
        assert run_bash(program, "echo ran > file")[0] == 0
        assert (program.directory / "file").exists()
        program.settings(sandbox_allows_bash=True, permissions={"ask": ["bash(rm:*)"], "deny": ["bash(cp:*)"]})
        assert run_bash(program, "rm file")[0] == 4
        assert (program.directory / "file").exists()
        assert "denies" in run_bash(program, "cp file other")[1]
        assert "plan" in run_bash(program, "touch x", "--permission-mode", "plan")[1]

    def test_without_a_sandbox_the_question_stays(self, forbidden: Program) -> None:
        forbidden.settings(sandbox_allows_bash=True)
        assert run_bash(forbidden, "touch file")[0] == 4
        assert not (forbidden.directory / "file").exists()

    def test_the_banner_says_whether_there_is_one(self, forbidden: Program) -> None:
        need_sandbox()
        with Screen(forbidden, "--offline") as screen:
            screen.wait_for("· no sandbox ·")
        del forbidden.variables["PATH"]
        with Screen(forbidden, "--offline") as screen:
            screen.wait_for("embedded · sandbox ·")

    def test_a_project_that_is_not_trusted_cannot_turn_it_off(self, program: Program) -> None:
        need_sandbox()
        (program.directory / ".team").mkdir()
        (program.directory / ".team/settings.json").write_text('{"sandbox": "off", "sandbox_allows_bash": true}')
        code, _ = run_bash(program, f"touch {program.home}/there")
        assert code == 4
        run_bash(program, f"touch {program.home}/there", "--allowedTools", "bash")
        assert not (program.home / "there").exists()

    def test_hooks_and_the_users_own_commands_run_outside(self, program: Program) -> None:
        need_sandbox()
        hook = {"hooks": [{"command": f"touch {program.home}/by-hook"}]}
        program.settings(hooks={"UserPromptSubmit": [hook]})
        with program.against([text("done")]):
            program.run(stdin=f"!touch {program.home}/by-user\nhi\n")
        assert (program.home / "by-hook").exists()
        assert (program.home / "by-user").exists()


def test_a_command_that_is_cancelled_inside_ends_with_all_it_started(shell: Shell) -> None:
    shell.on_progress = lambda text: shell.cancel.cancel()
    with pytest.raises(Cancelled) as cancelled:
        shell.bash("setsid sleep 300 & echo hi; sleep 300")
    assert cancelled.value.output == "hi"
    shell.cancel, shell.on_progress = CancelScope(), lambda text: None
    assert shell.bash("pgrep sleep").endswith("[exit code 1]")
