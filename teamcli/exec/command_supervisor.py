"""The processes between teamcli and its commands. Runs alone (see `command_host`), so it imports nothing of teamcli.

The *host*, one per program, forks *supervisors*. A supervisor runs one command at a time and is the child subreaper of
everything the command starts, so nothing gets away: not by setsid, nor by a double fork. End of file on a socket means
that teamcli is gone, however it died: what runs is ended. Without a subreaper (macOS) what has left both the command's
process group and its chain of parents is not found; everything else holds.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable

RUN, STOP, ENDED, FAILED, FORK, FORKED, BURY, BURIED, LISTENS, LOOK, SEEN = (
    b"run",  # cwd, program and arguments, with descriptors: output, and maybe input and errors → ENDED or FAILED
    b"stop",  # end the command that runs
    b"ended",  # exit code, whether something was left running, ids that could not be ended, whether they were too many
    b"failed",  # error number: it was not started; of a command also its cwd
    b"fork",  # with a socket: a new supervisor at its other end → FORKED or FAILED
    b"forked",  # its process id
    b"bury",  # process id of a supervisor that is lost: see to what it left → BURIED
    b"buried",
    b"listens",  # with a socket that was opened inside the sandbox: connections to it come from there
    b"look",  # paths → SEEN
    b"seen",  # which file each path leads to here, and all mounts
)

HOST_SOCKET = 3
CONFINED = "confined"
"""The first argument of a host that runs in a sandbox; a second one is a port to listen at."""
_MAX_DESCRIPTORS = 3
LEFTOVER_GRACE_SECONDS = 0.2
"""What still runs when the shell ends may be about to finish by itself, like `tee` in `> >(tee log)`."""
TERM_GRACE_SECONDS = 0.05
"""Between SIGTERM and SIGKILL: enough to remove a lock file, and cancelling stays under 100 ms."""
KILL_PATIENCE_SECONDS = 1.0
"""Processes of another user (sudo) and those that hang in the kernel cannot be ended: after this they are reported."""

MOST_PROCESSES = 2000
"""What has more of them at once is no build, and would soon leave none to anybody else: it is ended."""
_COUNT_EVERY_SECONDS = 0.25
_COUNTING_PATIENCE_SECONDS = 1.0
_COUNTING_SHARE = 20
"""So many times as long as counting has taken, it is not done again."""
_FIRST_TO_GO = 500
"""Added to how readily the system ends a process when memory runs out, of 1000: a command rather than teamcli."""

_IGNORED_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)  # the host ends when teamcli does
_DEFAULT_IN_COMMANDS = (*_IGNORED_SIGNALS, signal.SIGPIPE, signal.SIGXFSZ)  # Python ignores the last two
_PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 4, 36

Frame = tuple[list[bytes], list[int]]
"""Fields, and descriptors that came with them."""


def send_frame(sock: socket.socket, *fields: bytes, descriptors: Iterable[int] = ()) -> None:
    """Fields must not contain NUL.

    Raises: OSError
    """
    payload = b"\0".join(fields)
    data = len(payload).to_bytes(4, "big") + payload
    passed = list(descriptors)
    sent = socket.send_fds(sock, [data], passed) if passed else 0
    sock.sendall(data[sent:])


def receive_frame(sock: socket.socket) -> Frame | None:
    """None at the end: the other side is gone."""
    try:
        header, descriptors, _, _ = socket.recv_fds(sock, 4, _MAX_DESCRIPTORS)
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        header += _receive_exactly(sock, 4 - len(header))
        payload = _receive_exactly(sock, int.from_bytes(header, "big"))
    except (EOFError, ConnectionError):
        return None
    return payload.split(b"\0"), descriptors


def _receive_exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = sock.recv(size - len(data))
        if not chunk:
            raise EOFError
        data += chunk
    return data


class Children:
    """The processes that this one must see dead: all that it has, but for those it spares."""

    def __init__(self, on_exit: Callable[[int, int], None], spared: Callable[[], Iterable[int]] = tuple) -> None:
        """`on_exit` takes the process id and the exit code (negative: the signal) of each child that has ended."""
        self._on_exit = on_exit
        self._spared = spared
        self._subreaper = become_subreaper()
        self._relatives = Relatives()
        self._woken, waker = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(waker, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # for its side effect: a byte for `pause` with every signal
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)

    def reap(self) -> bool:
        """Collect what has ended; true when there is still some child."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            self._on_exit(pid, os.waitstatus_to_exitcode(status))

    def alive(self) -> dict[int, int]:
        """Process ids with their groups."""
        has_children, spared = self.reap(), set(self._spared())
        if not self._subreaper:
            return self._relatives.find(spared)
        found = find_children(os.getpid()) if has_children else {}
        return {pid: group for pid, group in found.items() if pid not in spared}

    def watch(self, group: int) -> None:
        """Where there is no subreaper, orphans are known by their process group."""
        self._relatives.groups = {group}

    def end(self) -> list[int]:
        """End all of them. Returns those that could not be ended."""
        self._signal_all(signal.SIGTERM)
        deadline = time.monotonic() + TERM_GRACE_SECONDS
        while self.alive() and time.monotonic() < deadline:
            self.pause(deadline - time.monotonic())
        deadline = time.monotonic() + KILL_PATIENCE_SECONDS
        while self._signal_all(signal.SIGKILL) and time.monotonic() < deadline:
            self.pause(0.005)  # what the dead leave to us is found in the next round
        return sorted(self.alive())

    def pause(self, seconds: float | None, also: socket.socket | None = None) -> bool:
        """Until a child ends or the time is up, or until `also` has news: then true."""
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        if also is not None:
            poll.register(also, select.POLLIN)
        ready = [descriptor for descriptor, _ in poll.poll(None if seconds is None else max(0.0, seconds) * 1000)]
        if self._woken in ready:
            _drain(self._woken)
        return also is not None and also.fileno() in ready

    def _signal_all(self, number: int) -> bool:
        """Their groups as well: a signal to a group misses none of its processes, however fast they fork."""
        alive = self.alive()
        for group in set(alive.values()) - {os.getpgrp()}:
            _send_signal(os.killpg, group, number)
        for pid in alive:
            _send_signal(os.kill, pid, number)
        return bool(alive)


def _send_signal(send: Callable[[int, int], None], target: int, number: int) -> None:
    try:
        send(target, number)
    except (ProcessLookupError, PermissionError):
        return  # gone already, or another user's: `end` tells what stays


def _drain(descriptor: int) -> None:
    try:
        while os.read(descriptor, 4096):
            pass
    except BlockingIOError:
        return


def become_subreaper() -> bool:
    """From now on every orphan among our descendants becomes our child. False where the system cannot do that."""
    if sys.platform != "linux":
        return False
    import ctypes  # already loaded in a supervisor: its host has called this

    return bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def find_children(parent: int) -> dict[int, int]:
    """Direct children of `parent` with their process groups, where there is /proc."""
    try:
        candidates = _read(f"/proc/{parent}/task/{parent}/children").split()
    except FileNotFoundError:  # a kernel built without it
        candidates = [entry.name.encode() for entry in os.scandir("/proc") if entry.name.isdigit()]
    children = {}
    for pid in map(int, candidates):
        try:
            fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()  # the name before it may be any text
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == parent:
            children[pid] = int(fields[2])
    return children


def count_descendants(ancestor: int, deadline: float) -> int | None:
    """Where there is /proc; None where that would take too long."""
    children: dict[int, list[int]] = {}
    for name in [entry.name for entry in os.scandir("/proc")]:  # all at once: more of them come all the time
        if name.isdigit():
            with contextlib.suppress(OSError):  # it has just ended
                fields = _read(f"/proc/{name}/stat").rpartition(b")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(name))
            if time.monotonic() > deadline:
                return None
    found, generation = 0, [ancestor]
    while generation := [child for parent in generation for child in children.get(parent, ())]:
        found += len(generation)
    return found


def _threads_in_all() -> int:
    """Of the whole machine, at next to no cost; zero where that is not known."""
    try:
        return int(_read("/proc/loadavg").split()[3].partition(b"/")[2])
    except (OSError, IndexError, ValueError):  # not Linux, or something that only looks like it
        return 0


def is_alone_in_sandbox() -> bool:
    """Whether all processes that we can see and signal are those of the sandbox."""
    try:
        return CONFINED in sys.argv[1:] and _read("/proc/1/comm").strip() == b"bwrap"
    except OSError:
        return False


def end_sandbox() -> None:
    """All in it at once, so that none escapes by forking. Other commands are lost, and told to be run again."""
    os.kill(-1, signal.SIGKILL)


class Census:
    """Notices a command whose processes multiply."""

    def __init__(self, group: int) -> None:
        self._group = group
        self._before = _threads_in_all()
        self.is_out_of_hand = False
        """They cannot even be counted."""
        self.next_at = time.monotonic() + _COUNT_EVERY_SECONDS

    def finds_too_many(self) -> bool:
        now = time.monotonic()
        if now < self.next_at:
            return False
        found = self._count() if _threads_in_all() - self._before > MOST_PROCESSES else 0
        done = time.monotonic()
        self.next_at = done + max(_COUNT_EVERY_SECONDS, _COUNTING_SHARE * (done - now))
        return found > MOST_PROCESSES

    def _count(self) -> int:
        """While they stand still: else they would leave no time to count them.

        Where time is short all the same, they are in many groups, and in a sandbox at least all can be ended at once.
        """
        _send_signal(os.killpg, self._group, signal.SIGSTOP)
        patience = _COUNTING_PATIENCE_SECONDS if is_alone_in_sandbox() else math.inf
        found = count_descendants(os.getpid(), time.monotonic() + patience)
        if found is None:
            self.is_out_of_hand = True
            return MOST_PROCESSES + 1
        _send_signal(os.killpg, self._group, signal.SIGKILL if found > MOST_PROCESSES else signal.SIGCONT)
        return found


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return b"".join(iter(lambda: os.read(descriptor, 65536), b""))
    finally:
        os.close(descriptor)


def _identity(path: bytes) -> bytes:
    try:
        found = os.stat(path)  # noqa: PTH116 - a path of bytes
    except OSError:
        return b""
    return b"%d %d" % (found.st_dev, found.st_ino)


class Relatives:
    """The stand-in for a subreaper, by `ps`: our descendants, and what shares a process group with one we have seen."""

    def __init__(self) -> None:
        self.groups: set[int] = set()

    def find(self, spared: set[int]) -> dict[int, int]:
        """Process ids with their groups; those `spared` stay out of it, and their descendants with them."""
        table = {pid: kin for pid, kin in process_table().items() if pid not in spared}
        family, before = {os.getpid()}, 0
        while len(family) > before:
            before = len(family)
            family |= {pid for pid, (parent, group) in table.items() if parent in family or group in self.groups}
        found = {pid: table[pid][1] for pid in family - {os.getpid()}}
        self.groups |= set(found.values()) - {os.getpgrp()}
        return found


def process_table() -> dict[int, tuple[int, int]]:
    """Parent and process group of each process but zombies and the `ps` that lists them."""
    source, sink = os.pipe()
    argv = ["ps", "-A", "-o", "pid=", "-o", "ppid=", "-o", "pgid=", "-o", "stat="]
    ps = os.posix_spawn("/bin/ps", argv, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, sink, 1)])
    os.close(sink)
    with os.fdopen(source) as listing:
        rows = [line.split() for line in listing]
    os.waitpid(ps, 0)
    return {int(row[0]): (int(row[1]), int(row[2])) for row in rows if int(row[0]) != ps and row[3][0] != "Z"}


class Supervisor:
    """Runs one command after the other for whoever holds the other end of `sock`."""

    def __init__(self, sock: socket.socket, environment: dict[bytes, bytes]) -> None:
        self._sock = sock
        self._environment = environment
        self._children = Children(self._note_exit)
        self._shell = 0
        self._census = Census(0)
        self._were_too_many = False
        self._exit_code: int | None = None

    def serve(self) -> None:
        while (frame := receive_frame(self._sock)) is not None:
            fields, descriptors = frame
            if fields[0] == RUN and not self._run(fields[1], fields[2:], descriptors):
                return

    def _run(self, cwd: bytes, argv: list[bytes], descriptors: list[int]) -> bool:
        """False when this supervisor is of no more use."""
        self._exit_code = None
        try:
            os.chdir(cwd)
            self._shell = self._start(argv, *descriptors)
        except OSError as e:
            send_frame(self._sock, FAILED, str(e.errno).encode(), cwd)
            return True
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        self._children.watch(self._shell)
        self._census = Census(self._shell)
        self._were_too_many = False
        left_running, survivors = self._see_it_end()
        os.chdir("/")  # a directory that nobody uses can be removed or unmounted
        exit_code = -signal.SIGKILL if self._exit_code is None else self._exit_code
        too_many = "too many" if self._were_too_many else ""
        report = (str(exit_code), "left" if left_running else "", " ".join(map(str, survivors)), too_many)
        send_frame(self._sock, ENDED, *(field.encode() for field in report))
        if self._census.is_out_of_hand:
            end_sandbox()
        return not survivors

    def _start(self, argv: list[bytes], output: int, given: int | None = None, errors: int | None = None) -> int:
        closed = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
        source = closed if given is None else (os.POSIX_SPAWN_DUP2, given, 0)
        sinks = (output, output if errors is None else errors)
        outputs = [(os.POSIX_SPAWN_DUP2, sink, number) for number, sink in enumerate(sinks, 1)]
        return os.posix_spawn(
            argv[0],
            argv,
            self._environment,
            file_actions=[source, *outputs],
            setsid=True,
            setsigdef=_DEFAULT_IN_COMMANDS,
        )

    def _see_it_end(self) -> tuple[bool, list[int]]:
        """Whether something was left running, and what could not be ended."""
        stopped = not self._watch(self._has_exited) or not self._watch(self._is_childless, LEFTOVER_GRACE_SECONDS)
        if self._is_childless():
            return False, []
        survivors = [] if self._census.is_out_of_hand else self._children.end()
        if survivors and is_alone_in_sandbox():  # nobody else's are in here: they multiply
            self._were_too_many = self._census.is_out_of_hand = True
            survivors = []
        return not stopped, survivors

    def _watch(self, done: Callable[[], bool], seconds: float | None = None) -> bool:
        """Wait until `done`, or until the time is up; false when teamcli wants the end or is gone, or they multiply."""
        deadline = math.inf if seconds is None else time.monotonic() + seconds
        while not done():
            if time.monotonic() >= deadline:
                return True
            if self._children.pause(min(deadline, self._census.next_at) - time.monotonic(), self._sock):
                return False  # whatever it says: while a command runs there is nothing to say but STOP
            if self._census.finds_too_many():
                self._were_too_many = True
                return False
        return True

    def _has_exited(self) -> bool:
        self._children.reap()
        return self._exit_code is not None

    def _is_childless(self) -> bool:
        return not self._children.alive()

    def _note_exit(self, pid: int, exit_code: int) -> None:
        if pid == self._shell:
            self._exit_code = exit_code


class Host:
    """Forks supervisors, small and single-threaded so that this is cheap and safe; inherits what one of them loses."""

    def __init__(self, sock: socket.socket, environment: dict[bytes, bytes]) -> None:
        self._sock = sock
        self._environment = environment
        self._supervisors: set[int] = set()
        self._children = Children(lambda pid, _: self._supervisors.discard(pid), lambda: self._supervisors)

    def serve(self) -> None:
        while (frame := receive_frame(self._sock)) is not None:
            fields, descriptors = frame
            if fields[0] == FORK:
                send_frame(self._sock, *self._fork(descriptors[0]))
            elif fields[0] == BURY:
                self._bury({int(fields[1])})
                send_frame(self._sock, BURIED)
            elif fields[0] == LOOK:
                send_frame(self._sock, SEEN, *map(_identity, fields[1:]), _read("/proc/self/mountinfo"))
        self._bury(self._supervisors.copy())

    def _fork(self, descriptor: int) -> tuple[bytes, bytes]:
        try:
            pid = os.fork()
        except OSError as e:
            os.close(descriptor)
            return FAILED, str(e.errno).encode()
        if pid == 0:
            try:
                self._sock.close()
                Supervisor(socket.socket(fileno=descriptor), self._environment).serve()
            finally:
                os._exit(0)
        os.close(descriptor)
        self._supervisors.add(pid)
        return FORKED, str(pid).encode()

    def _bury(self, supervisors: set[int]) -> None:
        """Wait for the end of these, each of which has lost its socket; what they had to leave came to us: end it.

        A command may have stopped its supervisor: it goes on now, and where it is stopped again, it is killed.
        """
        self._signal(supervisors, signal.SIGCONT)
        self._wait_for(supervisors, 2 * KILL_PATIENCE_SECONDS)
        self._signal(supervisors, signal.SIGKILL)
        self._wait_for(supervisors, KILL_PATIENCE_SECONDS)
        if self._children.alive():
            self._children.end()

    def _signal(self, supervisors: set[int], number: int) -> None:
        for pid in supervisors & self._supervisors:  # not collected yet, so the id is still theirs
            _send_signal(os.kill, pid, number)

    def _wait_for(self, supervisors: set[int], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self._children.reap() and supervisors & self._supervisors and time.monotonic() < deadline:
            self._children.pause(deadline - time.monotonic())


def main() -> None:
    _close_inherited_descriptors()
    _be_the_first_to_go()
    _leave_some_to_others()
    if CONFINED in sys.argv[1:]:
        _close_memory()
    os.set_inheritable(HOST_SOCKET, False)
    for number in _IGNORED_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    os.chdir("/")
    sock = socket.socket(fileno=HOST_SOCKET)
    frame = receive_frame(sock)
    if frame is not None:
        if sys.argv[2:]:
            _listen(int(sys.argv[2]), sock)
        pairs = (field.partition(b"=") for field in frame[0])
        Host(sock, {name: value for name, _, value in pairs if name}).serve()
    os._exit(0)  # nothing is left to do, and teamcli waits for it


def _listen(port: int, teamcli: socket.socket) -> None:
    """Lend teamcli a socket of this side's network."""
    with socket.create_server(("127.0.0.1", port), backlog=128) as listener:
        send_frame(teamcli, LISTENS, descriptors=(listener.fileno(),))


def _be_the_first_to_go() -> None:
    """Where memory runs out, the system shall end what takes it, and not the program that could tell of that."""
    try:
        own = int(_read("/proc/self/oom_score_adj"))
        descriptor = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
    except OSError:  # not Linux
        return
    try:
        os.write(descriptor, str(min(1000, own + _FIRST_TO_GO)).encode())
    finally:
        os.close(descriptor)


def _leave_some_to_others() -> None:
    """However fast processes multiply before they are counted: the system grants no more than this, but to root.

    It counts all threads of the user, on older systems also those outside of a sandbox.
    """
    if sys.platform == "linux" and os.getuid() and (now := _threads_in_all()):
        import resource

        wanted = now + 2 * MOST_PROCESSES
        chosen = resource.getrlimit(resource.RLIMIT_NPROC)  # by the user, maybe less
        usual, most = (wanted if each == resource.RLIM_INFINITY else min(each, wanted) for each in chosen)
        resource.setrlimit(resource.RLIMIT_NPROC, (usual, most))


def _close_memory() -> None:
    """Commands in the sandbox are of the same user: none shall speak to teamcli through a process that watches it."""
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def _close_inherited_descriptors() -> None:
    """What was open when teamcli started, and is nobody's business here."""
    for descriptor in [int(entry.name) for entry in os.scandir("/dev/fd")]:
        if descriptor > HOST_SOCKET:
            with contextlib.suppress(OSError):  # the one that listed them is closed already
                os.close(descriptor)
