"""Attacks by sheer amount: files, output, mail, calls and answers without end. Nothing takes the program down.

The program runs with little address space, so that holding what has no end would kill it.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import repeat
from pathlib import Path
from typing import Any, Literal

import pytest

from teamcli.agent.transcript_sessions import list_sessions
from teamcli.commands.reports.log import TimelineReader
from teamcli.errors import ConnectionLost, ModelError, StateError
from teamcli.exec.commands import MAX_BACKGROUND
from teamcli.exec.supervisor import processes
from teamcli.llm import accumulator, sse
from teamcli.llm import direct_client as direct
from teamcli.llm.backoff import Backoff
from teamcli.llm.client import connect
from teamcli.llm.credentials import Endpoint
from teamcli.storage import files
from teamcli.storage.files import read_lines
from teamcli.team.mailbox import MOST_AT_ONCE
from teamcli.team.message_bus import FileBus, Position
from teamcli.tools import glob
from teamcli.ui.headless import LARGEST_STDIN
from tests.llm.calls import ask
from tests.redteam.shared import made_once
from tests.support.answers import Part, answer, blocks_of, result_text, tool_json, tool_results
from tests.support.fake_api import text, tool
from tests.support.program import Program, Ran
from tests.support.team_script import TeamScript
from tests.support.waiting import wait_until
from tests.team.letters import SOAK
from tests.tools.file_agent import FileAgent
from tests.tools.shell import Shell, needs_proc

BYPASS = ("--permission-mode", "bypassPermissions")
ADDRESS_SPACE_KB = 3_000_000
HUGE = 10 * 2**30
LIMITED = f'ulimit -v {ADDRESS_SPACE_KB}; exec "$0" "$@"'


def run_in_little_memory(program: Program, *arguments: str) -> Ran:
    done = subprocess.run(
        ["bash", "-c", LIMITED, *program.command(arguments)],
        cwd=program.directory,
        env=program.env(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=100,
    )
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


def make_sparse(path: Path, beginning: bytes = b"") -> None:
    with path.open("wb") as file:
        file.write(beginning)
        file.truncate(HUGE)


def make_hostile_tree(place: Path) -> None:
    make_sparse(place / "huge.bin")
    make_sparse(place / "huge.txt", b"line of text\n" * 1000)
    (place / "one-line.txt").write_bytes(b"x" * 20_000_000)
    os.mkfifo(place / "fifo")
    (place / "loop").symlink_to("loop")
    (place / "zero").symlink_to("/dev/zero")
    farm = place / "farm"
    farm.mkdir()
    for number in range(500):
        (farm / f"up{number}").symlink_to("..")
        (farm / f"out{number}").symlink_to("/etc/passwd")
        (farm / f"round{number}").symlink_to(f"round{(number + 1) % 500}")
    deep = os.open(place, os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d" * 60, dir_fd=deep)
        deeper = os.open("d" * 60, os.O_RDONLY, dir_fd=deep)
        os.close(deep)
        deep = deeper
    os.close(deep)


def remove_deep(place: Path) -> None:
    subprocess.run(["rm", "-rf", str(place)], check=True)


DEEP = '{"command": ' + '{"a":' * 400 + "1" + "}" * 400 + "}"
DEEPER = '{"command": ' + "[" * 50_000 + "]" * 50_000 + "}"
FORKS = "b() { [ $1 -gt 0 ] && { b $(($1-1)) & b $(($1-1)) & }; sleep 300; }; b 6"
CALLS: dict[str, tuple[Part, str]] = {
    "read_file of 10 GB of nothing": (tool("read_file", path="huge.bin"), "more than file tools take"),
    "read_file of 10 GB of text": (tool("read_file", path="huge.txt"), "more than file tools take"),
    "write_file over 10 GB": (tool("write_file", path="huge.txt", content="x"), "more than file tools take"),
    "edit_file in 10 GB": (tool("edit_file", path="huge.txt", old_text="a", new_text="b"), "more than file tools take"),
    "grep in 10 GB": (tool("grep", pattern="line", path="huge.txt"), "more than file tools take"),
    "grep over the tree": (tool("grep", pattern="nowhere to be found"), "(no matches"),
    "glob over the tree": (tool("glob", pattern="**/*"), "narrow the pattern"),
    "read_file of an endless line": (tool("read_file", path="one-line.txt"), "line cut, 20,000,000 bytes"),
    "read_file of a FIFO": (tool("read_file", path="fifo"), "is a FIFO"),
    "write_file to a FIFO": (tool("write_file", path="fifo", content="x"), "is a FIFO"),
    "read_file of a link to itself": (tool("read_file", path="loop"), "loop"),
    "read_file of an endless device": (tool("read_file", path="zero"), "escapes workspace"),
    "read_file of a name without end": (tool("read_file", path="x" * 100_000), "File name too long"),
    "an endless line of output": (tool("bash", command="yes | tr -d '\\n' | head -c 50000000"), "characters left out"),
    "output without end": (tool("bash", command="cat /dev/zero", timeout_seconds=1), "Timeout (1s)"),
    "lines without end": (tool("bash", command="yes", timeout_seconds=1), "Timeout (1s)"),
    "noise": (tool("bash", command="head -c 3000000 /dev/urandom"), "characters left out"),
    "errors without end": (tool("bash", command="yes >&2", timeout_seconds=1), "Timeout (1s)"),
    "a command of 5 MB": (tool("bash", command="true " + "x" * 5_000_000), "too long"),
    "a tree of processes": (tool("bash", command=FORKS, timeout_seconds=1), "Timeout (1s)"),
    "processes left behind": (
        tool("bash", command="for i in $(seq 100); do setsid sleep 300 & done; true"),
        "left running",
    ),
    "input that is nested deeply": (tool_json("bash", DEEP), "Error"),
    "input that is nested more deeply": (tool_json("bash", DEEPER), "Error"),
    "content of 5 MB": (tool("write_file", path="large.txt", content="x" * 5_000_000), "Wrote 5000000 bytes"),
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return made_once(tmp_path_factory, "floods", lambda: make_all_calls(tmp_path_factory))


def make_all_calls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    program = Program(tmp_path_factory.mktemp("work"), tmp_path_factory.mktemp("home"))
    make_hostile_tree(program.directory)
    with program.against([answer(*(call for call, _ in CALLS.values())), text("still here")]) as api:
        ran = run_in_little_memory(program, "-p", "look at @huge.txt and @one-line.txt and @fifo", *BYPASS)
    assert ran.out == "still here\n", ran.err
    found = dict(zip(CALLS, map(result_text, tool_results(api.requests[1])), strict=True))
    attached = json.dumps(api.requests[0]["messages"])
    remove_deep(program.directory)
    return {**found, "mentions": attached}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_without_end_ends(results: dict[str, str], name: str) -> None:
    assert CALLS[name][1] in results[name], results[name][:300]
    assert len(results[name]) < 110_000


def test_mentioned_files_without_end_are_bounded(results: dict[str, str]) -> None:
    assert len(results["mentions"]) < 20_000
    assert "more than file tools take" in results["mentions"]


def test_of_an_answer_with_a_thousand_calls_only_two_hundred_run(program: Program) -> None:
    program.settings(sandbox="off")  # else it says so if there is none
    calls = [tool("bash", command=f"echo {n} >> ran") for n in range(1000)]
    with program.against([answer(*calls), text("done")]) as api:
        ran = run_in_little_memory(program, "-p", "x", *BYPASS)
    assert (ran.err, ran.out) == ("", "done\n")
    outputs = list(map(result_text, tool_results(api.requests[1])))
    assert len(outputs) == 1000
    assert sum("200 calls at most" in output for output in outputs) == 800
    assert len((program.directory / "ran").read_text().split()) == 200


def test_commands_in_the_background_are_counted(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    try:
        for _ in range(MAX_BACKGROUND):
            shell.commands.start_background("yes", tmp_path)
        with pytest.raises(Exception, match="end one with bash_stop"):
            shell.commands.start_background("true", tmp_path)
        assert len(shell.commands.status("bg-1").new_output) < 40_000
    finally:
        shell.commands.close()
        shell.host.close()


MESSAGES = 10_000 if SOAK else 2_000
"""Both are more than fit into one piece."""


@pytest.mark.soak
def test_thousands_of_messages_at_once_come_in_pieces_and_each_once(program: Program) -> None:
    """By themselves and by read_inbox, whose result is cut when it is too long."""
    script = TeamScript(lead=lambda request, n: tool("read_inbox") if n in (2, 3) else text("noted"))
    with program.against(script):
        program.run("-p", "begin", *BYPASS)
        inbox = program.directory / ".team/inbox/lead.jsonl"
        inbox.parent.mkdir(exist_ok=True)
        lines = (f'{{"type":"message","from":"me","content":"n{n}."}}\n' for n in range(MESSAGES))
        inbox.write_text("".join(lines))
        ran = run_in_little_memory(program, "-p", "-c", "go on", *BYPASS)
    assert ran.out == "noted\n", ran.err
    told = [m for m in script.requests["lead"][-1]["messages"] if m["role"] == "user"]
    read = [str(block.get("text") or result_text(block)) for message in told for block in blocks_of(message)]
    assert [int(n) for n in re.findall(r">n(\d+)\.<", "".join(read))] == list(range(MESSAGES))
    assert max(len(json.dumps(message)) for message in told) < 3 * MOST_AT_ONCE
    assert not any("left out" in words for words in read)
    assert program.run("inbox", "--unread").out.startswith("No unread")


@pytest.mark.parametrize("size", [5_000_000, 20_000_000, HUGE], ids=["5 MB", "20 MB", "10 GB"])
def test_a_line_of_mail_without_end_is_skipped(tmp_path: Path, size: int) -> None:
    told: list[str] = []
    bus = FileBus(tmp_path, b"k" * 32, durable=False, on_quarantine=told.append)
    path = tmp_path / "alice.jsonl"
    with path.open("wb") as file:
        file.truncate(size)
        file.seek(0, os.SEEK_END)
        file.write(b'\n{"type":"message","from":"me","content":"behind it"}\n')
    for _ in range(2 if size < HUGE else 1):
        batch = bus.unread("alice", Position())
        assert [message.content for message in batch.messages] == ["behind it"]
    assert len(told) == 1
    assert (tmp_path / "alice.bad.jsonl").stat().st_size < 7 * size + 1000
    assert not bus.has_unread("alice", batch.position)
    bus.close()


ENDLESS_EVENT = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":%s}\n\n'
START = (
    b'event: message_start\ndata: {"type":"message_start","message":{"model":"m","usage":{}}}\n\n'
    b'event: content_block_start\ndata: {"type":"content_block_start","index":0,"content_block":%s}\n\n'
)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
TEXT_BLOCK = START % b'{"type":"text","text":""}'


def text_without_end() -> Iterator[bytes]:
    yield HEAD + b"\r\n" + TEXT_BLOCK
    yield from repeat(ENDLESS_EVENT % b'{"type":"text_delta","text":"%s"}' % (b"x" * 60_000))


def input_without_end() -> Iterator[bytes]:
    yield HEAD + b"\r\n" + START % b'{"type":"tool_use","id":"t","name":"bash","input":{}}'
    yield from repeat(ENDLESS_EVENT % b'{"type":"input_json_delta","partial_json":"%s"}' % (b"x" * 60_000))


def comments_without_end() -> Iterator[bytes]:
    yield HEAD + b"\r\n" + TEXT_BLOCK
    yield from repeat(b": keep-alive\n" * 5000)


def a_line_without_end() -> Iterator[bytes]:
    yield HEAD + b"\r\ndata: "
    yield from repeat(b"x" * 65_536)


def an_event_without_end() -> Iterator[bytes]:
    yield HEAD + b"\r\n"
    yield from repeat(b"data: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n" * 1000)


def blocks_without_end() -> Iterator[bytes]:
    yield HEAD + b"\r\n"
    for index in range(10**9):
        start = b'{"type":"content_block_start","index":%d,"content_block":{"type":"text","text":""}}' % index
        yield b"data: " + start + b"\n\n"


def headers_without_end() -> Iterator[bytes]:
    yield HEAD
    yield from repeat(b"x-more: " + b"x" * 60_000 + b"\r\n")


def one_header_without_end() -> Iterator[bytes]:
    yield HEAD + b"x-more: "
    yield from repeat(b"x" * 65_536)


def a_bomb_of_gzip() -> Iterator[bytes]:
    body = gzip.compress(b": " + b"\0" * 50_000_000 + b"\n")
    yield HEAD + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(body) + body


def an_error_without_end() -> Iterator[bytes]:
    yield b"HTTP/1.1 400 Bad\r\ncontent-type: text/plain\r\n\r\n"
    yield from repeat(b"x" * 65_536)


def a_deep_event() -> Iterator[bytes]:
    nested = b'{"type":"text","text":"","x":' + b"[" * 500 + b"]" * 500 + b"}"
    yield HEAD + b"\r\n" + START % nested


def a_redirect_to_itself() -> Iterator[bytes]:
    yield b"HTTP/1.1 307 Elsewhere\r\nlocation: /v1/messages\r\ncontent-length: 0\r\n\r\n"


class HostileServer:
    """Answers each request on a socket with bytes of the test's choice, until no one listens."""

    def __init__(self, sends: Callable[[], Iterator[bytes]]) -> None:
        self._sends = sends
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.answered = 0
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                try:
                    connection.recv(1_000_000)
                    self.answered += 1
                    for piece in self._sends():
                        connection.sendall(piece)
                except OSError:
                    continue

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(30)


@pytest.mark.parametrize(
    "sends",
    [
        text_without_end,
        input_without_end,
        comments_without_end,
        a_line_without_end,
        an_event_without_end,
        blocks_without_end,
        headers_without_end,
        one_header_without_end,
        a_bomb_of_gzip,
        an_error_without_end,
        a_deep_event,
        a_redirect_to_itself,
    ],
)
def test_an_answer_without_end_is_a_clear_error(
    sends: Callable[[], Iterator[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accumulator, "LARGEST_ANSWER", 1_000_000)
    monkeypatch.setattr(direct, "LARGEST_STREAM", 4_000_000)
    monkeypatch.setattr(sse, "LARGEST_EVENT", 1_000_000)
    server = HostileServer(sends)
    client = connect(Endpoint("direct", "ANTHROPIC_API_KEY", server.url, "k" * 20), Backoff(), retries=0)
    try:
        with pytest.raises(ModelError) as raised:
            ask(client)
    finally:
        client.close()
        server.close()
    assert server.answered == 1
    assert 10 < len(str(raised.value)) < 500
    assert "\n" not in str(raised.value)


def hints_without_end() -> Iterator[bytes]:
    while True:
        yield b"HTTP/1.1 103 Early Hints\r\nlink: </style.css>\r\n\r\n"


def continues_without_end() -> Iterator[bytes]:
    while True:
        yield b"HTTP/1.1 100 Continue\r\n\r\n"


@pytest.mark.parametrize("client", ["direct", "sdk"])
@pytest.mark.parametrize("sends", [hints_without_end, continues_without_end])
def test_informational_answers_without_end_are_a_clear_error(
    sends: Callable[[], Iterator[bytes]], client: Literal["direct", "sdk"]
) -> None:
    server = HostileServer(sends)
    model = connect(Endpoint(client, "ANTHROPIC_API_KEY", server.url, "k" * 20), Backoff(), retries=0)
    try:
        with pytest.raises(ConnectionLost, match="informational answers do not end"):
            ask(model)
    finally:
        model.close()
        server.close()


class TestState:
    @pytest.mark.parametrize("name", ["config.json", "events.jsonl", "transcripts/lead.jsonl"])
    def test_gigabytes_in_its_place_are_not_held(self, program: Program, name: str) -> None:
        path = program.directory / ".team" / name
        path.parent.mkdir(parents=True)
        with path.open("wb") as file:
            file.truncate(2 * 2**30)
        ran = subprocess.run(
            ["sh", "-c", 'ulimit -v 1500000; exec "$0" "$@"', *program.command(["-p", "x", "--offline", "--trust"])],
            cwd=program.directory,
            env=program.env(),
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=120,
        )
        if name == "config.json":
            assert ran.returncode == 2
            assert "config.json is larger than 64 MB; move it away" in ran.stderr
        else:
            assert "I am the embedded model" in ran.stdout, ran.stderr

    def test_a_transcript_with_a_line_without_end_is_read_around_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(files, "LARGEST_LINE", 1_000_000)
        path = tmp_path / "lead.jsonl"
        with path.open("wb") as file:
            file.write(b'{"kind":"session","id":"a","ts":1}\n{"kind":"user","content":[{"type":"text","text":"x"}]}\n')
            file.seek(5_500_000)
            file.write(b'\n{"kind":"session","id":"b","ts":2}\n')
        rows = [row for _, row in read_lines(path)]
        assert len(rows) == 4
        assert rows[2] is None
        assert rows[3] == {"kind": "session", "id": "b", "ts": 2}
        assert [session.id for session in list_sessions(path)] == ["a"]

    def test_a_timeline_with_a_line_without_end_is_read_around_it(self, tmp_path: Path) -> None:
        path = tmp_path / "events.jsonl"
        with path.open("wb") as file:
            file.write(b'{"event":"one"}\n')
            file.seek(50_000_000)
            file.write(b'\n{"event":"two"}\n')
        events = TimelineReader(path)
        assert [row["event"] for row in events.read()] == ["one", "two"]
        events.close()

    @pytest.mark.parametrize("kind", ["fifo", "directory", "device"])
    def test_a_transcript_that_is_not_a_file_is_named(self, tmp_path: Path, kind: str) -> None:
        path = tmp_path / "lead.jsonl"
        if kind == "fifo":
            os.mkfifo(path)
        elif kind == "directory":
            path.mkdir()
        else:
            path.symlink_to("/dev/zero")
        with pytest.raises(StateError, match=r"lead\.jsonl"):
            list(read_lines(path))

    def test_an_inbox_that_is_a_fifo_blocks_no_one(self, program: Program) -> None:
        program.run("-p", "run true", *BYPASS)
        (program.directory / ".team/inbox").mkdir(exist_ok=True)
        os.mkfifo(program.directory / ".team/inbox/lead.jsonl")
        ran = program.run("-p", "run echo alive", *BYPASS)
        assert "lead.jsonl is not a regular file" in ran.err + ran.out


def test_standard_input_without_end_is_refused(program: Program) -> None:
    endless = subprocess.Popen(["yes"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    process = program.start("-p", "x", stdin=endless.stdout)
    assert endless.stdout
    endless.stdout.close()
    try:
        _, err = process.communicate(timeout=60)
    finally:
        endless.kill()
        endless.wait()
    assert process.returncode == 2
    assert f"more than {LARGEST_STDIN:,} bytes".encode() in err


@needs_proc
def test_processes_that_multiply_are_all_gone_afterwards(tmp_path: Path) -> None:
    """Bounded, so that the test itself does no harm: 255 processes, each of which would run for minutes."""
    mark = f"{time.time_ns()}"
    shell = Shell(tmp_path)
    command = f"export MARK={mark}; b() {{ [ $1 -gt 0 ] && {{ b $(($1-1)) & b $(($1-1)) & }}; sleep 300; }}; b 6"
    try:
        finished = shell.commands.run(command, tmp_path, 1.0, shell.cancel, lambda text: None)
        assert finished.ended.timed_out
        wait_until(lambda: not processes_with(f"MARK={mark}"))
    finally:
        shell.host.close()


MOST_PROCESSES = processes.MOST_PROCESSES if SOAK else 100
"""As many as the program allows would starve the tests that run at the same time."""
MULTIPLIES = """
import os, time
for _ in range({count}):
    try:
        is_child = not os.fork()
    except BlockingIOError:  # beside other tests the system may grant no more for the moment
        time.sleep(0.1)
        continue
    if is_child:
        {in_child}
        time.sleep(300)
time.sleep(300)
"""


@pytest.fixture
def strict(program: Program, tmp_path: Path) -> Program:
    """The whole program, but for the number of processes that it grants a command."""
    package = tmp_path / "strict" / "teamcli"
    shutil.copytree(Path(processes.__file__).parents[2], package)
    script = package / "exec/supervisor/processes.py"
    source = script.read_text()
    assert source.count("\nMOST_PROCESSES = 2000\n") == 1  # as docs/tools.md says
    script.write_text(source.replace("\nMOST_PROCESSES = 2000\n", f"\nMOST_PROCESSES = {MOST_PROCESSES}\n"))
    program.variables["PYTHONPATH"] = str(package.parent)
    return program


@pytest.mark.soak
@needs_proc
def test_too_many_processes_are_ended_and_the_work_continues(strict: Program) -> None:
    """In one process group, and each in its own session.

    One test, because each case would hide the other's processes: what decides whether to count them is how far the
    number on the whole machine has grown since the command began.
    """
    for sandbox, in_child in (("off", "pass"), ("auto", "os.setsid()")):
        mark = f"{time.time_ns()}"
        many = MULTIPLIES.format(count=MOST_PROCESSES * 3 // 2, in_child=in_child)
        (strict.directory / "many.py").write_text(many)
        strict.settings(sandbox=sandbox)
        ran = strict.run("-p", f"run MARK={mark} python3 many.py then run echo alive", "--offline", *BYPASS)
        assert f"ended, because it had more than {MOST_PROCESSES:,} processes at once" in ran.out
        assert ran.code == 0
        assert "alive" in ran.out
        wait_until(lambda mark=mark: not processes_with(f"MARK={mark}"))


@needs_proc
def test_a_command_that_takes_all_memory_is_killed_before_teamcli(program: Program) -> None:
    """The system chooses by this number; to let it choose would need a machine without memory."""
    own = int(Path("/proc/self/oom_score_adj").read_text())
    ran = program.run("-p", "run cat /proc/self/oom_score_adj", "--offline", *BYPASS)
    assert str(min(1000, own + 500)) in ran.out.split()


OUT_OF_THREADS = """
import resource, sys, threading, time
from pathlib import Path
from teamcli.ui.signals import in_thread
from tests.tools.shell import Shell

def grant(megabytes):
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + megabytes * 2**20, resource.RLIM_INFINITY))

def relent():
    may_relent.wait()
    grant(1000)

may_relent = threading.Event()
threading.Thread(target=relent, daemon=True).start()
running = Shell(Path(sys.argv[1])).host.start("sleep 300", Path(sys.argv[1]))
grant(4)  # a thread needs 8 for its stack
try:
    threading.Thread(target=print).start()
except RuntimeError:
    print("there are no more threads")
print("timed out", running.follow(lambda text: None, lambda text: None, timeout_seconds=0.1).timed_out)
may_relent.set()
print("began", in_thread(lambda: "late", "late").result())
"""


@needs_proc
def test_a_command_that_uses_up_all_threads_is_ended_and_others_wait_for_one(tmp_path: Path) -> None:
    """A thread cannot start without memory for its stack either, and that harms no one else on this machine."""
    script = [sys.executable, "-c", OUT_OF_THREADS, str(tmp_path)]
    ran = subprocess.run(script, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=60)
    assert ran.stdout.splitlines() == ["there are no more threads", "timed out True", "began late"], ran.stderr


def processes_with(variable: str) -> list[str]:
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            if variable.encode() in environ.read_bytes().split(b"\0"):
                found.append(environ.parent.name)
        except OSError:
            continue
    return found


@pytest.mark.parametrize("rule", ["*a" * 20 + "b", "**/a/" * 20 + "b", "**/*a*a/**/*a*b", "/" + "*a" * 9 + "/"])
def test_a_rule_of_gitignore_that_would_take_hours_is_left_out(tmp_path: Path, rule: str) -> None:
    deep = tmp_path / "/".join("a" * 60)
    deep.mkdir(parents=True)
    (tmp_path / ("a" * 200)).touch()
    (tmp_path / "ignored.log").touch()
    (tmp_path / ".gitignore").write_text(f"{rule}\n*.log\n")
    said = FileAgent(tmp_path).says("glob", pattern="**/*")
    assert "a" * 200 in said
    assert "ignored" not in said


def test_a_million_entries_are_not_all_held(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(glob, "MAX_FOUND", 300)
    for number in range(400):
        (program.directory / f"f{number}").touch()
    said: Any = FileAgent(program.directory).says("glob", pattern="*")
    assert "(at least 100 more)" in said


def test_a_limit_of_processes_that_the_user_has_chosen_is_not_raised() -> None:
    script = """
import os, resource
from teamcli.exec.supervisor.serve import limit_processes
if not os.getuid():
    os.setuid(65534)  # root has no such limit
_, most = resource.getrlimit(resource.RLIMIT_NPROC)
resource.setrlimit(resource.RLIMIT_NPROC, (900, most))
limit_processes()
print(resource.getrlimit(resource.RLIMIT_NPROC)[0])
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ran.stdout == "900\n", ran.stderr
