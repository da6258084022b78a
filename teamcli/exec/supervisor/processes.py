"""The processes below this one: finding, counting and ending them."""

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

from .wire import CONFINED

TERM_GRACE_SECONDS = 0.05
"""Between SIGTERM and SIGKILL: enough to remove a lock file, and canceling stays under 100 ms."""
SERVER_GRACE_SECONDS = 2.0
"""The same for a server, which may have something to save."""
KILL_PATIENCE_SECONDS = 1.0
"""Processes of another user (sudo) and those stuck in the kernel cannot be ended. They are reported after this long."""
MOST_PROCESSES = 2000
"""A command with more at once is not a build, and would soon leave none for anyone else: it is ended."""
_COUNT_EVERY_SECONDS = 0.25
_COUNTING_PATIENCE_SECONDS = 1.0
_COUNTING_SHARE = 20
"""Wait this many times as long as the last count took before counting again."""
_PR_SET_CHILD_SUBREAPER = 36


class Children:
    """The processes that this one must see dead: all its children, except those it spares."""

    def __init__(self, on_exit: Callable[[int, int], None], spared: Callable[[], Iterable[int]] = tuple) -> None:
        """`on_exit` takes the process id and the exit code (negative: the signal) of each child that has ended."""
        self._on_exit = on_exit
        self._spared = spared
        self._subreaper = become_subreaper()
        self._groups: set[int] = set()
        """Process groups seen so far. Without a subreaper they are how orphans are recognized."""
        self._woken, waker = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(waker, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # for its side effect: a byte for `pause` with every signal
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)

    def reap(self) -> bool:
        """Collect children that have ended; true if there are others."""
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
            return self._find_by_group(spared)
        found = find_children(os.getpid()) if has_children else {}
        return {pid: group for pid, group in found.items() if pid not in spared}

    def watch(self, group: int) -> None:
        """Begin with the process group of a new command."""
        self._groups = {group}

    def end(self, grace_seconds: float = TERM_GRACE_SECONDS) -> list[int]:
        """End all of them. Returns those that could not be ended."""
        self._signal_all(signal.SIGTERM)
        deadline = time.monotonic() + grace_seconds
        while self.alive() and time.monotonic() < deadline:
            self.pause(deadline - time.monotonic())
        deadline = time.monotonic() + KILL_PATIENCE_SECONDS
        while self._signal_all(signal.SIGKILL) and time.monotonic() < deadline:
            self.pause(0.005)  # children of the dead become ours and are found in the next round
        return sorted(self.alive())

    def pause(self, seconds: float | None, also: socket.socket | None = None) -> bool:
        """Wait until a child ends or the time is up, or until `also` is readable: then true."""
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        if also is not None:
            poll.register(also, select.POLLIN)
        ready = [descriptor for descriptor, _ in poll.poll(None if seconds is None else max(0.0, seconds) * 1000)]
        if self._woken in ready:
            os.read(self._woken, 4096)  # what may be left only ends the next pause early
        return also is not None and also.fileno() in ready

    def _signal_all(self, number: int) -> bool:
        """Signal their groups too: a signal to a group misses none of its processes, however fast they fork."""
        alive = self.alive()
        for group in set(alive.values()) - {os.getpgrp()}:
            send_signal(os.killpg, group, number)
        for pid in alive:
            send_signal(os.kill, pid, number)
        return bool(alive)

    def _find_by_group(self, spared: set[int]) -> dict[int, int]:
        """The substitute for a subreaper: our descendants, and what shares a process group with one seen before.

        The descendants of those `spared` are left out as well.
        """
        table = {pid: row for pid, row in _process_table().items() if pid not in spared}
        family, before = {os.getpid()}, 0
        while len(family) > before:
            before = len(family)
            family |= {pid for pid, (parent, group) in table.items() if parent in family or group in self._groups}
        found = {pid: table[pid][1] for pid in family - {os.getpid()}}
        self._groups |= set(found.values()) - {os.getpgrp()}
        return found


class ProcessCount:
    """Notices a command whose processes multiply."""

    def __init__(self, group: int) -> None:
        self._group = group
        self._before = threads_in_total()
        self.next_at = time.monotonic() + _COUNT_EVERY_SECONDS
        self.is_too_high = False
        self.is_unknown = False
        """There are too many to count."""

    def check(self) -> bool:
        """Count if it is time to; true if there are too many."""
        now = time.monotonic()
        if now >= self.next_at:
            # The number for the whole machine costs next to nothing, so it decides whether counting is worthwhile.
            if threads_in_total() - self._before > MOST_PROCESSES:
                self._count()
            done = time.monotonic()
            self.next_at = done + max(_COUNT_EVERY_SECONDS, _COUNTING_SHARE * (done - now))
        return self.is_too_high

    def give_up(self) -> None:
        self.is_too_high = self.is_unknown = True

    def _count(self) -> None:
        """Stop the command first, or it would leave no time for counting.

        If time runs out even so, its processes are in many groups. In a sandbox all of them can be ended at once.
        """
        send_signal(os.killpg, self._group, signal.SIGSTOP)
        patience = _COUNTING_PATIENCE_SECONDS if is_alone_in_sandbox() else math.inf
        found = _count_descendants(os.getpid(), time.monotonic() + patience)
        self.is_unknown = found is None
        self.is_too_high = found is None or found > MOST_PROCESSES
        if not self.is_unknown:
            send_signal(os.killpg, self._group, signal.SIGKILL if self.is_too_high else signal.SIGCONT)


def send_signal(send: Callable[[int, int], None], target: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # gone, or another user's: `end` reports survivors
        send(target, number)


def become_subreaper() -> bool:
    """From now on every orphan among our descendants becomes our child. False if the system cannot do that."""
    if sys.platform != "linux":
        return False
    import ctypes  # already loaded in a supervisor: its host has called this

    return bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def find_children(parent: int) -> dict[int, int]:
    """Direct children of `parent` with their process groups, from /proc."""
    try:
        candidates = read(f"/proc/{parent}/task/{parent}/children").split()
    except FileNotFoundError:  # a kernel built without it
        candidates = [entry.name.encode() for entry in os.scandir("/proc") if entry.name.isdigit()]
    children = {}
    for pid in map(int, candidates):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            its_parent, group = _parent_and_group(pid)
            if its_parent == parent:
                children[pid] = group
    return children


def _count_descendants(ancestor: int, deadline: float) -> int | None:
    """From /proc; None if that would take too long."""
    children: dict[int, list[int]] = {}
    for name in [entry.name for entry in os.scandir("/proc")]:  # all at once: new ones keep appearing
        if name.isdigit():
            with contextlib.suppress(OSError):  # it has just ended
                children.setdefault(_parent_and_group(int(name))[0], []).append(int(name))
            if time.monotonic() > deadline:
                return None
    found, generation = 0, [ancestor]
    while generation := [child for parent in generation for child in children.get(parent, ())]:
        found += len(generation)
    return found


def _parent_and_group(pid: int) -> tuple[int, int]:
    fields = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()  # the name before it may be any text
    return int(fields[1]), int(fields[2])


def _process_table() -> dict[int, tuple[int, int]]:
    """Parent and process group of each process, except zombies and the `ps` that lists them."""
    source, sink = os.pipe()
    argv = ["ps", "-A", "-o", "pid=", "-o", "ppid=", "-o", "pgid=", "-o", "stat="]
    ps = os.posix_spawn("/bin/ps", argv, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, sink, 1)])
    os.close(sink)
    with os.fdopen(source) as listing:
        rows = [line.split() for line in listing]
    os.waitpid(ps, 0)
    return {int(row[0]): (int(row[1]), int(row[2])) for row in rows if int(row[0]) != ps and row[3][0] != "Z"}


def threads_in_total() -> int:
    """On the whole machine, at next to no cost; zero if unknown."""
    try:
        return int(read("/proc/loadavg").split()[3].partition(b"/")[2])
    except (OSError, IndexError, ValueError):  # not Linux, or something that only looks like it
        return 0


def is_alone_in_sandbox() -> bool:
    """Whether all processes that we can see and signal belong to the sandbox."""
    try:
        return CONFINED in sys.argv[1:] and read("/proc/1/comm").strip() == b"bwrap"
    except OSError:
        return False


def read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return b"".join(iter(lambda: os.read(descriptor, 65536), b""))
    finally:
        os.close(descriptor)
