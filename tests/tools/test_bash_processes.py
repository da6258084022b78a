from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from teamcli.errors import Cancelled, ToolError
from teamcli.exec import host_process, running_command
from teamcli.exec.command_host import CommandHost
from teamcli.exec.sandbox import NoSandbox
from teamcli.exec.sandbox.sandbox import Sandbox
from teamcli.tools.bash import BASH
from tests.tools.shell import Shell, alter_supervisor, children_of, needs_proc, new_mark, processes_with, wait_until

pytestmark = needs_proc

STUBBORN = "sh -c 'trap \"\" TERM HUP INT; touch ready; while :; do sleep 0.05; done'"
WAYS_TO_GET_AWAY = {
    "in the background": f"{STUBBORN} &",
    "nohup": f"nohup {STUBBORN} > /dev/null 2>&1 &",
    "disown": f"{STUBBORN} & disown",
    "setsid": f"setsid {STUBBORN} &",
    "double fork": f"( {STUBBORN} & )",
    "double fork and setsid": f"( setsid setsid {STUBBORN} & ) > /dev/null 2>&1",
    "a daemon": "setsid sh -c '( setsid sh -c \"touch ready; exec sleep 300\" & ) &'",
    "stopped": "sh -c 'touch ready; kill -STOP $$' &",
}
UNTIL_READY = "until [ -e ready ]; do sleep 0.01; done; echo hi"


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    yield shell
    shell.close()


@pytest.fixture
def mark() -> str:
    return new_mark()


@pytest.fixture
def impatient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A supervisor that was stopped is given up sooner."""
    alter_supervisor(tmp_path, monkeypatch, "processes", "KILL_PATIENCE_SECONDS = 0.3")
    monkeypatch.setattr(running_command, "_STOP_PATIENCE_SECONDS", 0.5)
    monkeypatch.setattr(host_process, "_ANSWER_PATIENCE_SECONDS", 2.0)


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def host_pid(shell: Shell) -> int:
    assert shell.host._pool.process is not None
    return shell.host._pool.process.pid


@pytest.mark.parametrize("way", WAYS_TO_GET_AWAY)
def test_what_is_left_running_at_the_end_is_ended_and_reported(shell: Shell, mark: str, way: str) -> None:
    result = shell.bash(f"export M={mark}; {WAYS_TO_GET_AWAY[way]}\n{UNTIL_READY}")
    assert processes_with(mark) == []
    assert result == "hi\n[what it left running was ended; to keep a process running, set background and do not use &]"


def test_nothing_survives_a_timeout(shell: Shell) -> None:
    def run(way: str) -> tuple[str, list[int]]:
        mark = new_mark()
        start = f"export M={mark}; mkdir {mark}; cd {mark}; {WAYS_TO_GET_AWAY[way]}"
        result = shell.bash(f"{start}\n{UNTIL_READY}; trap '' TERM; while :; do sleep 0.05; done", timeout_seconds=1)
        return result, processes_with(mark)

    with ThreadPoolExecutor(len(WAYS_TO_GET_AWAY)) as pool:
        for way, (result, left) in zip(WAYS_TO_GET_AWAY, pool.map(run, WAYS_TO_GET_AWAY), strict=True):
            assert result.startswith("Error: Timeout (1s)"), way
            assert left == [], way


@pytest.mark.parametrize("way", WAYS_TO_GET_AWAY)
def test_nothing_survives_a_cancel(shell: Shell, mark: str, way: str) -> None:
    shell.on_progress = lambda text: shell.cancel.cancel()
    with pytest.raises(Cancelled):
        shell.bash(f"export M={mark}; {WAYS_TO_GET_AWAY[way]}\n{UNTIL_READY}; sleep 300")
    assert processes_with(mark) == []


def test_nothing_is_written_after_the_end(shell: Shell, tmp_path: Path) -> None:
    shell.call(BASH, command="setsid sh -c 'sleep 1.5; touch late' & sleep 300", timeout_seconds=1)
    shell.bash("setsid sh -c 'sleep 0.5; touch late' & true")
    threading.Event().wait(1)
    assert not (tmp_path / "late").exists()


def test_a_program_that_is_terminated_can_remove_its_lock_file(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alter_supervisor(tmp_path, monkeypatch, "processes", "TERM_GRACE_SECONDS = 30")
    shell.on_progress = lambda text: shell.cancel.cancel()
    program = "trap 'rm index.lock; exit' TERM; touch index.lock; echo locked; while :; do sleep 0.01; done"
    with pytest.raises(Cancelled):
        shell.bash(f'sh -c "{program}"; true')
    assert not (tmp_path / "index.lock").exists()


def test_what_a_process_substitution_still_writes_is_not_lost(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alter_supervisor(tmp_path, monkeypatch, "serve", "LEFTOVER_GRACE_SECONDS = 30")
    assert shell.bash("echo through > >(sleep 0.1; tee copy)") == "through"
    assert (tmp_path / "copy").read_text() == "through\n"


def test_processes_that_fork_while_they_are_killed_do_not_escape(shell: Shell, mark: str, tmp_path: Path) -> None:
    (tmp_path / "hydra.py").write_text(
        textwrap.dedent(
            """
            import os, time
            for branch in range(3):
                os.fork()
            for generation in range(400):
                if os.fork():
                    os._exit(0)
                os.setsid()
                if generation == 3:
                    print("ready", flush=True)
                time.sleep(0.001)
            """
        )
    )
    shell.on_progress = lambda text: shell.cancel.cancel()
    with pytest.raises(Cancelled):
        shell.bash(f"export M={mark}; {sys.executable} -I -S hydra.py; sleep 300")
    assert processes_with(mark) == []


def test_commands_of_several_threads_run_at_the_same_time(shell: Shell, tmp_path: Path) -> None:
    command = "touch here.$$; until [ $(ls here.* | wc -l) = 4 ]; do sleep 0.01; done; echo met"
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: shell.bash(command, timeout_seconds=30), range(4))) == ["met"] * 4


def test_many_commands_leave_no_descriptors_and_no_zombies(shell: Shell) -> None:
    def run_some() -> None:
        with ThreadPoolExecutor(12) as pool:
            list(pool.map(lambda n: shell.bash("sleep 300 & echo hi" if n % 25 == 0 else "echo hi"), range(50)))

    run_some()
    before = open_descriptors()
    run_some()
    assert open_descriptors() <= before + 8, "no more than the idle supervisors' sockets"
    supervisors = children_of(host_pid(shell))
    assert len(supervisors) <= 8
    assert "Z" not in supervisors.values()
    pid = host_pid(shell)
    shell.close()
    assert pid not in children_of(os.getpid())
    assert open_descriptors() < before


def test_fifty_commands_one_after_the_other_use_one_supervisor_and_no_new_descriptor(shell: Shell) -> None:
    supervisors = {shell.bash("echo $PPID")}
    before = open_descriptors()
    supervisors |= {shell.bash("echo $PPID") for _ in range(50)}
    assert len(supervisors) == 1
    assert open_descriptors() <= before  # what earlier tests have left may still be closed


def test_commands_inherit_no_descriptor(tmp_path: Path) -> None:
    with (tmp_path / "open").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        shell = Shell(tmp_path)
        assert shell.bash("ls /proc/$$/fd; ls /proc/$PPID/fd -l | grep -c open").split() == [
            "0",
            "1",
            "2",
            "0",
            *EXIT_1,
        ]
        shell.close()


EXIT_1 = ["[exit", "code", "1]"]


def test_host_and_commands_run_in_separate_sessions_without_a_terminal(shell: Shell) -> None:
    session = int(shell.bash("ps -o sess= -p $$"))
    assert os.getsid(host_pid(shell)) == host_pid(shell)
    assert len({session, os.getsid(0), os.getsid(host_pid(shell))}) == 3
    assert shell.bash("true < /dev/tty").endswith("[exit code 1]")


def test_orphans_of_a_running_command_leave_no_zombies(shell: Shell) -> None:
    command = "for i in 1 2 3 4 5; do ( true & ); done; while ps -o stat= --ppid $PPID | grep -q Z; do :; done"
    assert shell.bash(command, timeout_seconds=30) == "(no output)"


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_that_end_programs_do_not_end_the_host(shell: Shell, signal_number: int) -> None:
    shell.bash("true")
    os.kill(host_pid(shell), signal_number)
    assert shell.bash(f"kill -{signal_number} $PPID; echo still here") == "still here"
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(shell.bash, ["echo 1", "echo 2", "echo 3"])) == ["1", "2", "3"]


def test_a_command_that_kills_its_supervisor_gets_an_error_and_is_ended(shell: Shell, mark: str) -> None:
    with pytest.raises(ToolError, match="watches over this command is gone"):
        shell.bash(f"export M={mark}; setsid {STUBBORN} & {UNTIL_READY}; kill -9 $PPID; sleep 300")
    assert processes_with(mark) == []
    assert shell.bash("echo next") == "next"
    assert "Z" not in children_of(host_pid(shell)).values()


@pytest.mark.parametrize(
    "trick",
    [
        "kill -STOP $PPID",
        "(while :; do kill -STOP $PPID; done) &",
        "kill -STOP $(ps -o ppid= -p $PPID) $PPID",
    ],
)
@pytest.mark.usefixtures("impatient")
def test_a_command_that_stops_its_supervisor_is_still_ended(shell: Shell, mark: str, trick: str) -> None:
    said = shell.bash(f"export MARK={mark}; echo hi; {trick}\nsleep 300", timeout_seconds=3)
    assert said.startswith("Error: Timeout (3s)")
    assert said.endswith("hi")
    wait_until(lambda: not processes_with(mark))
    assert shell.bash("echo again") == "again"


@pytest.mark.usefixtures("impatient")
def test_a_cancel_reaches_a_command_that_has_stopped_its_supervisor(shell: Shell, mark: str) -> None:
    shell.on_progress = lambda text: shell.cancel.cancel()
    with pytest.raises(Cancelled):
        shell.bash(f"export MARK={mark}; kill -STOP $PPID; echo hi; sleep 300")
    wait_until(lambda: not processes_with(mark))


@pytest.mark.usefixtures("impatient")
def test_the_end_of_the_program_reaches_a_command_that_has_stopped_its_supervisor(shell: Shell, mark: str) -> None:
    shell.in_background(f"export MARK={mark}; kill -STOP $PPID; exec sleep 300")
    wait_until(lambda: processes_with(mark))
    shell.close()
    assert not processes_with(mark)


def test_a_supervisor_that_was_killed_while_idle_is_replaced(shell: Shell) -> None:
    supervisor = int(shell.bash("echo $PPID"))
    os.kill(supervisor, signal.SIGKILL)
    wait_until(lambda: children_of(host_pid(shell)).get(supervisor) == "Z")
    assert shell.bash("echo next") == "next"
    assert supervisor not in children_of(host_pid(shell))


def test_when_the_host_is_killed_commands_keep_running_and_the_next_one_starts_a_new_host(
    shell: Shell, tmp_path: Path
) -> None:
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(shell.bash, "touch ready; until [ -e go ]; do sleep 0.01; done; echo went on")
        wait_until((tmp_path / "ready").exists)
        killed = host_pid(shell)
        os.kill(killed, signal.SIGKILL)
        assert shell.bash("echo next") == "next"
        assert host_pid(shell) != killed
        (tmp_path / "go").touch()
        assert running.result() == "went on"
    assert killed not in children_of(os.getpid())


def test_prestart_starts_the_host(shell: Shell) -> None:
    shell.host.prestart()
    pid = host_pid(shell)
    shell.bash("true")
    assert host_pid(shell) == pid


def test_closing_twice_or_before_any_command_is_fine(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.close()
    shell.close()


def test_closing_the_host_ends_the_command_that_a_thread_waits_for(shell: Shell, mark: str, tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(shell.bash, f"export M={mark}; setsid {STUBBORN} & sleep 300")
        wait_until((tmp_path / "ready").exists)
        shell.host.close()
        assert processes_with(mark) == []
        with pytest.raises(ToolError, match="is gone"):
            running.result()


PROGRAM = """
import os, sys, threading
from pathlib import Path
from tests.tools.shell import Shell
shell = Shell(Path.cwd())
foreground = "setsid sh -c 'touch 1; sleep 300; true' & sleep 300; true"
threading.Thread(target=shell.bash, args=[foreground], daemon=True).start()
shell.in_background("trap '' TERM; touch 2; while :; do sleep 0.05; done")
shell.in_background("( setsid nohup sh -c 'touch 3; sleep 300; true' & ); sleep 300; true")
os.read(0, 1)
"""


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, "end of input"])
def test_however_the_program_ends_all_its_commands_end(tmp_path: Path, mark: str, end: signal.Signals | str) -> None:
    repository = Path(__file__).parents[2]
    environment = {**os.environ, "M": mark, "PYTHONPATH": str(repository)}
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, env=environment, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    with program:
        wait_until(lambda: all((tmp_path / name).exists() for name in "123"), "commands of the program")
        if isinstance(end, signal.Signals):
            program.send_signal(end)
    wait_until(lambda: processes_with(mark) == [], "the end of all commands")


def test_without_a_subreaper_the_group_and_the_descendants_are_ended(
    shell: Shell, mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alter_supervisor(tmp_path, monkeypatch, "processes", "become_subreaper = lambda: False")
    assert shell.bash("echo hi; exit 3") == "hi\n[exit code 3]"
    assert "do not use &" in shell.bash(f"export M={mark}; ( {STUBBORN} & ); {UNTIL_READY}")
    assert processes_with(mark) == []
    (tmp_path / "ready").unlink()
    shell.on_progress = lambda text: shell.cancel.cancel()
    with pytest.raises(Cancelled):
        shell.bash(f"export M={mark}; setsid {STUBBORN} & {UNTIL_READY}; sleep 300")
    assert processes_with(mark) == []


def test_without_a_subreaper_the_end_of_one_command_spares_the_others(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alter_supervisor(tmp_path, monkeypatch, "processes", "become_subreaper = lambda: False")
    id = shell.in_background("touch ready; until [ -e go ]; do sleep 0.01; done; touch went_on")
    wait_until((tmp_path / "ready").exists)
    with pytest.raises(ToolError, match="is gone"):
        shell.bash("kill -9 $PPID")
    shell.bash("true")
    assert shell.commands.status(id).is_running
    (tmp_path / "go").touch()
    wait_until((tmp_path / "went_on").exists)


def test_the_callback_about_a_missing_sandbox_may_wait_for_other_users_of_the_host(tmp_path: Path) -> None:
    def none() -> Sandbox:
        raise NoSandbox("none here")

    def use_from_another_thread(why: str) -> None:
        using = threading.Thread(target=lambda: shell.bash("echo other"), daemon=True)
        using.start()
        using.join(20)
        told.append(f"{why}, {'stuck' if using.is_alive() else 'used'}")

    told: list[str] = []
    host = CommandHost(os.environ, make_sandbox=none, on_unconfined=use_from_another_thread)
    shell = Shell(tmp_path, host)
    try:
        assert shell.bash("echo hi") == "hi"
    finally:
        shell.close()
    assert told == ["none here, used"]
