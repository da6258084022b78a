"""Ways out of the sandbox, each tried for real. Without a sandbox they are skipped, and say so."""

from __future__ import annotations

import http.server
import os
import re
import shutil
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from teamcli.errors import Cancelled, ToolError
from teamcli.exec import host_process, running_command
from teamcli.exec.command_host import CommandHost
from teamcli.exec.sandbox.plan import SandboxPlan, SandboxSettings
from teamcli.exec.sandbox.protected_paths import CLOSED_IN_HOME, CLOSED_WITH_A_SECRET
from teamcli.exec.sandbox.sandbox import Sandbox
from tests.redteam.conftest import SECRET, Attacker, attack, confined_shell, furnish, need_sandbox
from tests.support.fake_api import text, tool, tool_results
from tests.support.program import ROOT, Program
from tests.support.team_script import TeamScript
from tests.tools.shell import Shell, new_mark, processes_with, wait_until


def own_namespace(kind: str) -> str:
    """Comes before what would be a disaster if the sandbox did not hold."""
    path = Path("/proc/self/ns") / kind
    return f'[ "$(readlink {path})" != "{path.is_symlink() and path.readlink()}" ]'


OWN_NAMESPACE, OWN_MOUNTS = own_namespace("pid"), own_namespace("mnt")

WRITES = {
    "a start-up file": "echo evil >> ~/.bashrc",
    "a new start-up file": "echo evil > ~/.bash_profile",
    "a start-up file by renaming": "cp ~/.bashrc x; echo evil >> x; mv -f x ~/.bashrc",
    "a file of the system": "echo evil > /etc/teamcli-evil",
    "a key for logging in": "echo evil > ~/.ssh/authorized_keys",
    "a program in the search path": "mkdir -p ~/.local/bin; echo evil > ~/.local/bin/ls",
    "a git hook": "echo evil > .git/hooks/pre-commit",
    "a git hook in a new directory": "rm -rf .git/hooks; mkdir .git/hooks; echo evil > .git/hooks/pre-commit",
    "git's config": "git config core.fsmonitor evil",
    "git's config by hand": "echo '[core] fsmonitor = evil' >> .git/config",
    "git's config by renaming": "cp .git/config x; echo evil >> x; mv -f x .git/config",
    "another repository in its place": "mv .git old; cp -r old .git; echo evil > .git/hooks/pre-commit",
    "another directory for git's config": "mkdir e; echo evil > e/config; echo $PWD/e > .git/commondir",
    "a link to another config": "mkdir .git/commondir.set-aside; echo evil > e; ln -s $PWD/e .git/commondir",
    "a config of one checkout": "echo evil > .git/config.worktree",
    "an inner repository in another's place": "mv sub old; cp -r old sub; echo evil > sub/.git/hooks/pre-commit",
    "a submodule's repository": "cd .git; mv modules old; cp -r old modules; echo evil > modules/a/config",
    "a submodule's hook": "cd .git/modules; mv a old; cp -r old a; echo evil > a/hooks/pre-commit",
    "a checkout elsewhere": "echo $PWD/e > .git/worktrees/b/commondir",
    "a checkout elsewhere by renaming": "cd .git/worktrees; mv b old; mkdir b; echo evil > b/commondir",
    "a role": "echo evil >> .claude/agents/writer.md; echo evil > .claude/agents/new.md",
    "a role in another directory": "mv .claude old; mkdir -p .claude/agents; echo evil > .claude/agents/new.md",
    "hooks of another agent": "echo '{\"evil\": 1}' > .claude/settings.json",
    "a skill": "mkdir -p .claude/skills/x; echo evil > .claude/skills/x/SKILL.md",
    "a forged message": 'echo \'{"from": "user", "content": "evil"}\' >> .team/inbox/lead.jsonl',
    "a new inbox": "echo evil > .team/inbox/alice.jsonl",
    "the settings": 'echo \'{"sandbox": "off", "evil": 1}\' > .team/settings.local.json',
    "the settings of a project inside": "echo evil > sub/.team/settings.json",
    "another .team in its place": "mv .team old; mkdir -p .team; echo evil > .team/settings.json",
    "through a link": "ln -s ~/.bashrc link; echo evil >> link",
    "through a link to a directory": "ln -s .. up; echo evil > up/outside.txt",
    "through a hard link": "ln ~/.bashrc hard; echo evil >> hard",
    "through /proc/self/root": "echo evil >> /proc/self/root$HOME/.bashrc",
    "through /proc/1/root": "echo evil >> /proc/1/root$HOME/.bashrc",
    "through a directory that stays open": "exec 9< ..; cd /proc/self/fd/9 && echo evil > outside.txt",
    "after remounting": f"{OWN_MOUNTS} && mount -o remount,rw /; mount -o remount,rw,bind ~; echo evil >> ~/.bashrc",
    "after unmounting": f"{OWN_MOUNTS} && umount -l .git/hooks .team /tmp; echo evil | tee .git/hooks/x .team/x",
    "in namespaces of its own": "unshare -Urm sh -c 'mount -o remount,rw,bind /; umount -l .team; echo evil > .team/x'",
    "in namespaces of others": "nsenter -t 1 -a sh -c 'echo evil >> ~/.bashrc'",
    "in another root": "mkdir r; unshare -Ur chroot / sh -c 'echo evil >> ~/.bashrc'",
}
READS = {
    "by name": "cat ~/.ssh/* ~/.aws/* ~/.teamcli/* ~/.netrc ~/.git-credentials ~/.npmrc ~/.bash_history",
    "by searching": "find ~ / -xdev -maxdepth 6 -name id_ed25519 2>/dev/null | xargs cat",
    "by packing all": "tar c ~ 2>/dev/null",
    "through a link": "ln -s ~/.ssh keys; cat keys/*; cat -- ~/.config/gh/*",
    "through /proc": "cat /proc/*/root$HOME/.ssh/* /proc/*/cwd/../homes*/*/.ssh/*",
    "after unmounting": f"{OWN_MOUNTS} && umount -l ~/.ssh ~/.aws; cat ~/.ssh/* ~/.aws/*",
    "in namespaces of its own": "unshare -Urm sh -c 'umount -l ~/.ssh; umount -l /; cat ~/.ssh/*'",
    "by mounting again": "mkdir m; unshare -Urm sh -c 'mount --rbind / m; umount -l m$HOME/.ssh; cat m$HOME/.ssh/*'",
}


def guarded_files(attacker: Attacker) -> dict[Path, str]:
    ours = (
        ".git/hooks",
        ".git/config",
        ".git/commondir",
        ".git/modules",
        ".git/worktrees",
        "sub/.git",
        ".team",
        ".claude",
    )
    places = [attacker.home, *(attacker.root / name for name in ours)]
    files = [path for place in places for path in [place, *place.rglob("*")] if path.is_file()]
    kept = [path for path in files if not path.is_relative_to(attacker.home / ".teamcli/sandbox")]
    return {path: path.read_text() for path in [*kept, attacker.root.parent / "outside.txt"]}


@pytest.mark.parametrize("way", WRITES)
def test_nothing_outside_is_written(confined: Attacker, way: str) -> None:
    before = guarded_files(confined)
    confined.run(WRITES[way])
    try:
        assert guarded_files(confined) == before
        assert not Path("/etc/teamcli-evil").exists()
    finally:
        if Path("/etc/teamcli-evil").exists():
            Path("/etc/teamcli-evil").unlink()


@pytest.mark.parametrize("way", READS)
def test_no_secret_is_read(confined: Attacker, way: str) -> None:
    assert SECRET not in confined.run(READS[way])


TYPED_AND_BROWSED = (
    ".local/share/fish/fish_history",
    ".config/nushell/history.txt",
    ".histfile",
    ".zhistory",
    ".ipython/profile_default/history.sqlite",
    ".irb_history",
    ".config/vivaldi/Default/Cookies",
    ".config/opera/Cookies",
    ".var/app/org.mozilla.firefox/.mozilla/firefox/x.default/cookies.sqlite",
    "snap/firefox/common/.mozilla/firefox/x.default/cookies.sqlite",
    "elsewhere/typed",
)


def test_no_history_and_no_browser_profile_is_read(
    tmp_path: Path, clean_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_sandbox()
    files = [clean_environment / name for name in TYPED_AND_BROWSED]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(SECRET)
    monkeypatch.setenv("HISTFILE", str(clean_environment / "elsewhere/typed"))
    for attacker in attack(tmp_path, clean_environment, True):
        assert SECRET not in attacker.run(f"cat {' '.join(map(str, files))} 2>&1")


def named_on_the_page() -> set[str]:
    """What docs/sandbox.md calls closed."""
    page = (ROOT / "docs/sandbox.md").read_text()
    section = page.split("## What is closed")[1].split("Anything that is not on the list")[0]
    return {name.removesuffix("/") for name in re.findall(r"`~/([^`]+)`", section)}


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_all_that_is_listed_as_closed_is(tmp_path: Path, clean_environment: Path, kind: str) -> None:
    need_sandbox()
    listed = {*CLOSED_IN_HOME, *named_on_the_page()}
    assert len(listed) > 100
    for name in listed - ({".teamcli"} if kind == "file" else CLOSED_WITH_A_SECRET):
        file = clean_environment / name / ("" if kind == "file" else "inside")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"_authToken={name} {SECRET}\n")
    look = f"grep -rhs {SECRET} ~"
    outside = Shell(tmp_path)
    found = outside.bash(look)
    outside.close()
    assert found.count(SECRET) > 100
    (tmp_path / "work").mkdir()
    shell = confined_shell(tmp_path / "work", clean_environment)
    found = shell.bash(look)
    shell.close()
    assert SECRET not in found


def test_these_attacks_succeed_without_a_sandbox(tmp_path: Path, clean_environment: Path) -> None:
    """Else the tests above would prove nothing."""
    for attacker in attack(tmp_path, clean_environment, is_confined=False):
        attacker.run(WRITES["a git hook"] + ";" + WRITES["through a link"])
        assert "evil" in (attacker.home / ".bashrc").read_text()
        assert "evil" in (attacker.root / ".git/hooks/pre-commit").read_text()
        assert SECRET in attacker.run(READS["by name"])


class TestTheKernel:
    """Root can give it orders through files. No test writes one that it had not read there before."""

    ORDERS = "/proc/sys/kernel/core_pattern /proc/sys/kernel/modprobe /sys/kernel/uevent_helper"

    def test_its_settings_cannot_be_written(self, confined: Attacker) -> None:
        def values() -> list[str]:
            return [path.read_text() for path in map(Path, self.ORDERS.split()) if path.exists()]

        before = values()
        write_back = 'v=$(cat $f) && printf "%s\\n" "$v" > $f && echo "wrote $f"'
        said = confined.run(f"for f in {self.ORDERS}; do [ -e $f ] && {write_back}; done")
        assert "wrote" not in said
        assert values() == before

    @pytest.mark.parametrize("root", ["work", "/"])
    def test_no_file_outside_of_processes_can_be_written(
        self, tmp_path: Path, clean_environment: Path, root: str
    ) -> None:
        need_sandbox()
        (tmp_path / "work").mkdir()
        shell = confined_shell(tmp_path / root, clean_environment)
        files = "-type f -perm /222 -writable -print"  # to root all are writable, also those that nobody can write
        found = shell.bash(f"find /proc /sys -path '/proc/[0-9]*' -prune -o {files} 2>/dev/null | head")
        shell.close()
        assert found == "(no output)"

    @pytest.mark.skipif(os.geteuid() != 0, reason="nobody else could give orders outside")
    def test_root_outside_the_sandbox_could_write_them(self) -> None:
        assert os.access("/proc/sys/kernel/core_pattern", os.W_OK)


def test_a_secret_that_appears_later_is_closed_to_the_next_command(confined: Attacker) -> None:
    confined.run("true")
    (confined.home / ".gnupg").mkdir()
    (confined.home / ".gnupg/key").write_text(SECRET)
    assert SECRET not in confined.run("cat ~/.gnupg/*")


def test_a_fifo_where_git_keeps_its_records_does_not_stop_the_next_sandbox(confined: Attacker) -> None:
    confined.run("mkdir .git/worktrees/c; mkfifo .git/worktrees/c/gitdir")
    (confined.home / ".gnupg").mkdir()  # now another sandbox is needed
    assert confined.run("echo still here") == "still here"


def test_a_guarded_file_that_is_replaced_stays_guarded(confined: Attacker) -> None:
    confined.run("true")
    subprocess.run(["git", "config", "user.name", "me"], cwd=confined.root, check=True)
    confined.run("echo evil >> .git/config")
    assert "evil" not in (confined.root / ".git/config").read_text()


def test_a_link_in_the_place_of_a_cache_opens_nothing_in_the_next_run(tmp_path: Path, clean_environment: Path) -> None:
    need_sandbox()
    (clean_environment / ".npm").mkdir()
    for attacker in attack(tmp_path, clean_environment, True):
        attacker.run(
            "cd /run/teamcli-caches; for d in * ~/.npm; do rm -rf $d; ln -s $HOME $d; ln -s $HOME $d/link; done"
        )
    shell = confined_shell(attacker.root, clean_environment)
    shell.bash("touch ~/.npm/evil /run/teamcli-caches/*/evil ~/evil")
    shell.close()
    assert not (clean_environment / "evil").exists()


@pytest.mark.parametrize("swapped", ["sub/.git", "sub/.git/hooks", ".git/hooks", "."])
@pytest.mark.parametrize("target", ["~", "~/.ssh", "../.."])
def test_what_is_swapped_while_a_sandbox_is_made_makes_it_fail(
    tmp_path: Path, clean_environment: Path, swapped: str, target: str
) -> None:
    """A command in the background could put a link where the next sandbox is about to mount."""
    need_sandbox()

    class Swapping(Sandbox):
        def plan(self, environment: Mapping[str, str]) -> SandboxPlan:
            plan = super().plan(environment)
            path = self.settings.roots[0] / swapped
            path.rename(tmp_path / "aside")
            path.symlink_to(target.replace("~", str(clean_environment)))
            return plan

    root = tmp_path / "work"
    furnish(root, clean_environment)
    subprocess.run(["git", "init", "-q", str(root / "sub")], check=True)
    (root / "sub/.git/hooks").mkdir(exist_ok=True)
    host = CommandHost(os.environ, make_sandbox=lambda: Swapping(SandboxSettings((root,), clean_environment)))
    with pytest.raises(ToolError, match="commands are refused"):
        host.start("true", root)
    assert host.why_refused()
    assert not host.why_unconfined()
    host.close()


def test_a_repository_that_was_there_cannot_be_replaced_by_one_of_its_own(confined: Attacker) -> None:
    confined.run(
        "rm -rf .git; mv .git old; git init -q .; git config core.fsmonitor evil; echo evil > .git/hooks/update"
    )
    assert not (confined.root / ".git/hooks/update").exists()
    assert "evil" not in (confined.root / ".git/config").read_text()


class TestProcesses:
    def test_others_are_neither_seen_nor_killed(self, confined: Attacker) -> None:
        with subprocess.Popen(["sleep", "300"]) as bystander:
            confined.run(f"kill -9 {bystander.pid}; kill -9 {os.getpid()}; {OWN_NAMESPACE} && pkill -9 sleep")
            # By their mark, not by a number: numbers begin again at 1 in a sandbox.
            assert "sleep 300" not in confined.run("ps -e -o args=")
            assert bystander.poll() is None
            bystander.kill()

    def test_killing_all_ends_only_what_is_inside(self, confined: Attacker) -> None:
        with pytest.raises(ToolError, match="is gone"):
            confined.run(f"{OWN_NAMESPACE} && kill -9 -1; sleep 300")
        assert confined.run("echo still here") == "still here"

    def test_a_daemon_that_kills_its_supervisor_does_not_survive(self, confined: Attacker) -> None:
        mark = new_mark()
        with pytest.raises(ToolError, match="is gone"):
            confined.run(
                f"export M={mark}; setsid sh -c 'touch ready; while :; do sleep 0.05; done' & "
                f"until [ -e ready ]; do sleep 0.01; done; {OWN_NAMESPACE} && pkill -9 -f supervisor.serve; sleep 300"
            )
        wait_until(lambda: not processes_with(mark))
        assert confined.run("echo next") == "next"

    def test_a_daemon_that_stops_its_supervisor_does_not_survive(
        self, confined: Attacker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        mark = new_mark()
        monkeypatch.setattr(running_command, "_STOP_PATIENCE_SECONDS", 0.5)
        monkeypatch.setattr(host_process, "_ANSWER_PATIENCE_SECONDS", 2.0)
        stop = f"{OWN_NAMESPACE} && kill -STOP $(ps -o ppid= -p $PPID) $PPID"
        said = confined.shell.bash(f"export M={mark}; {stop}; setsid sleep 300", timeout_seconds=1)
        assert said.startswith("Error: Timeout")
        wait_until(lambda: not processes_with(mark))
        assert confined.run("echo next") == "next"

    def test_the_memory_of_the_supervisor_is_closed(self, confined: Attacker) -> None:
        attach = "import ctypes, sys; print(ctypes.CDLL(None).ptrace(16, int(sys.argv[1]), 0, 0))"
        said = confined.run(f'{sys.executable} -c "{attach}" $PPID; cat /proc/$PPID/environ')
        assert said.startswith("-1\n")
        assert "Permission denied" in said

    def test_processes_that_multiply_end_with_a_cancel(self, confined: Attacker) -> None:
        mark = new_mark()
        (confined.root / "bomb.py").write_text(
            textwrap.dedent(
                """
                import os, time
                for generation in range(6):  # 64 processes, and no more, whatever happens
                    os.fork()
                os.setsid() if os.getpid() != os.getpgid(0) else None
                print("ready", flush=True)
                for _ in range(200):
                    if os.fork():
                        os._exit(0)
                    time.sleep(0.01)
                """
            )
        )
        confined.shell.on_progress = lambda text: confined.shell.cancel.cancel()
        with pytest.raises(Cancelled):
            confined.run(f"export M={mark}; {sys.executable} -I -S bomb.py; sleep 300")
        wait_until(lambda: not processes_with(mark))

    def test_no_program_gains_rights(self, confined: Attacker) -> None:
        assert confined.run("grep NoNewPrivs /proc/self/status").split() == ["NoNewPrivs:", "1"]

    def test_there_is_no_terminal_and_no_device(self, confined: Attacker) -> None:
        assert "[exit code 1]" in confined.run("true < /dev/tty")
        assert confined.run("find /dev -type b; mknod disk b 8 0 2>&1; ls disk 2>&1").count("disk") >= 1
        assert not (confined.root / "disk").exists()


@contextmanager
def listening(path: Path) -> Iterator[None]:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        yield


CONNECT = "import socket,sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print('connected')"


class TestSockets:
    @pytest.mark.parametrize("directory", ["/tmp", "/run"])
    def test_services_of_the_machine_are_out_of_reach(self, attacker: Attacker, directory: str) -> None:
        """`docker.sock` and its like; outside of the sandbox nothing keeps a command from them."""
        path = Path(directory) / f"teamcli-test-{os.getpid()}.sock"
        if not os.access(directory, os.W_OK):
            pytest.skip(f"{directory} is not ours to write to")
        try:
            with listening(path):
                said = attacker.run(f'{sys.executable} -c "{CONNECT}" {path} 2>&1')
        finally:
            path.unlink()
        assert ("connected" in said) is not attacker.is_confined

    def test_no_variable_leads_to_an_agent(
        self, tmp_path: Path, clean_environment: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        need_sandbox()
        monkeypatch.setenv("SSH_AUTH_SOCK", "/tmp/agent")
        monkeypatch.setenv("DOCKER_HOST", "unix:///run/docker.sock")
        for attacker in attack(tmp_path, clean_environment, True):
            assert attacker.run("echo $SSH_AUTH_SOCK$DOCKER_HOST") == "(no output)"


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello from outside")

    def log_message(self, format: str, *args: object) -> None: ...


FETCH = """
    import os, sys, urllib.error, urllib.request
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = ""
    try:
        print(urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/page").read())
    except urllib.error.HTTPError as e:
        print(e.read())
"""
TUNNEL = """
    import socket, sys
    s = socket.create_connection(("127.0.0.1", 3128))
    s.sendall(f"CONNECT 127.0.0.1:{sys.argv[1]} HTTP/1.1\\r\\n\\r\\n".encode())
    said = s.recv(4096).decode().split("\\r\\n")[0]
    if "200" in said:
        s.sendall(b"GET /page HTTP/1.0\\r\\n\\r\\n")
    print(said.partition(" ")[2], b"".join(iter(lambda: s.recv(4096), b"")).decode().split("\\r\\n")[-1])
"""
DIRECT = """
    import socket, sys
    socket.create_connection(("127.0.0.1", int(sys.argv[1])))
"""
NONSENSE = """
    import socket
    s = socket.create_connection(("127.0.0.1", 3128))
    s.sendall(b"\\x00\\xff GET / \\r\\n\\r\\n")
    print(s.recv(4096))
"""


OTHER_HOST = """
    import socket, sys
    s = socket.create_connection(("127.0.0.1", 3128))
    s.sendall(f"GET http://127.0.0.1:{sys.argv[1]}/ HTTP/1.1\\r\\nA: 1\\nHost: other.example\\r\\n\\r\\n".encode())
    print(s.recv(4096))
"""


class TestNetwork:
    @pytest.mark.parametrize(("network", "answer"), [("on", "reached"), ("off", "closed")])
    def test_it_is_open_or_closed_as_set(
        self, tmp_path: Path, clean_environment: Path, network: str, answer: str
    ) -> None:
        need_sandbox()
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            for attacker in attack(tmp_path, clean_environment, True, network=network):
                said = attacker.run(f"(echo > /dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo reached || echo closed")
                assert said == answer

    def test_commands_reach_each_other_if_it_is_closed(self, tmp_path: Path, clean_environment: Path) -> None:
        need_sandbox()
        for attacker in attack(tmp_path, clean_environment, True, network="off"):
            server = 'import socket; s = socket.create_server(("127.0.0.1", 8765)); open("up", "w"); s.accept()'
            attacker.shell.in_background(f"{sys.executable} -c '{server}'")
            wait_until((attacker.root / "up").exists)
            assert "reached" in attacker.run("(echo > /dev/tcp/127.0.0.1/8765) && echo reached")


class TestListedHosts:
    """The network is closed but for a list of hosts."""

    @pytest.fixture
    def page(self) -> Iterator[int]:
        """The port of a web server outside."""
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            yield server.server_address[1]
            server.shutdown()

    @pytest.mark.parametrize(
        ("hosts", "fetch", "said"),
        [
            (("127.0.0.1",), FETCH, "hello from outside"),
            (("localhost",), FETCH, "does not list 127.0.0.1"),
            ((), FETCH, "does not list 127.0.0.1"),
            (("127.0.0.1",), TUNNEL, "200 Connection established hello from outside"),
            (("localhost",), TUNNEL, "403 Forbidden"),
            (("127.0.0.1",), DIRECT, "refused"),
            (("127.0.0.1",), NONSENSE, "400 Bad Request"),
            (("127.0.0.1",), OTHER_HOST, "400 Bad Request"),
        ],
    )
    def test_only_they_are_reached_and_only_through_the_proxy(
        self, tmp_path: Path, clean_environment: Path, page: int, hosts: tuple[str, ...], fetch: str, said: str
    ) -> None:
        need_sandbox()
        for attacker in attack(tmp_path, clean_environment, True, network=hosts):
            (attacker.root / "fetch.py").write_text(textwrap.dedent(fetch))
            assert said in attacker.run(f"{sys.executable} fetch.py {page} 2>&1")

    def test_a_new_sandbox_has_its_own_proxy(self, tmp_path: Path, clean_environment: Path, page: int) -> None:
        need_sandbox()
        for attacker in attack(tmp_path, clean_environment, True, network=("127.0.0.1",)):
            (attacker.root / "fetch.py").write_text(textwrap.dedent(FETCH))
            for _ in range(2):
                assert "hello from outside" in attacker.run(f"{sys.executable} fetch.py {page}")
                shutil.rmtree(attacker.home / ".ssh", ignore_errors=True)  # another plan is needed


def test_commands_of_every_agent_are_confined(program: Program) -> None:
    need_sandbox()
    (program.home / ".bashrc").write_text("as it was")
    write = tool("bash", command="echo evil >> ~/.bashrc")
    hire = tool("spawn_teammate", name="alice", role="coder", prompt="go")
    specialist = tool("agent", prompt="go", subagent_type="general")
    script = TeamScript(
        lead=[write, hire, tool("agent", prompt="go"), specialist, *[text("done")] * 3],
        alice=[write, specialist, text("done")],
        **{f"sa-{number}": [write, text("done")] for number in (1, 2, 3)},
    )
    with program.against(script):
        assert program.run("-p", "x", "--permission-mode", "bypassPermissions").code == 0
    assert {*script.requests} == {"lead", "alice", "sa-1", "sa-2", "sa-3"}
    for name, requests in script.requests.items():
        assert "Read-only file system" in str(tool_results(requests[1])), name
    assert (program.home / ".bashrc").read_text() == "as it was"


def test_no_mode_lifts_the_sandbox_and_no_process_shows_the_key(program: Program) -> None:
    need_sandbox()
    (program.home / ".bashrc").write_text("as it was")
    command = "echo evil >> ~/.bashrc; cat /proc/[0-9]*/environ | grep -q test-key && echo leaked; ps -e | wc -l"
    with program.against([tool("bash", command=command), text("done")]) as api:
        assert program.run("-p", "x", "--permission-mode", "bypassPermissions").code == 0
    said = str(tool_results(api.requests[1]))
    assert (program.home / ".bashrc").read_text() == "as it was"
    assert "Read-only file system" in said
    assert "leaked" not in said
