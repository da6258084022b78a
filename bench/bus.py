"""What the bus costs, compared with the same work by hand: many writer processes, one reader, one inbox.

By hand means: each message is encoded and appended under `flock` to a file that stays open, and the reader parses every
line. It signs nothing, notices no torn line and no deleted file, and wakes nobody.

Usage: python -m bench.bus [--quick]
"""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from multiprocessing.synchronize import Barrier
from pathlib import Path
from statistics import median
from typing import NamedTuple

from teamcli.team.inbox_state import Position
from teamcli.team.message import Message, MessageType
from teamcli.team.message_bus import FileBus

Row = tuple[str, float, float, float, str, str]
"""The arguments of a `Figure`."""

WRITERS = 16
READ_EVERY_SECONDS = 0.002
"""An agent reads between two model calls, not in a busy loop."""
KEY = b"k" * 32


class Way(NamedTuple):
    """A way to get messages from many writers to one reader."""

    write: Callable[[Path, int, int, bool], None]
    """Directory, number of the writer, number of messages, durable."""
    read: Callable[[Path, int], None]
    """Directory, number of messages."""


def rows(quick: bool = False) -> list[Row]:
    """Times per message, so that less is better: half the throughput is twice the time."""
    rounds, many, few, long = (2, 1000, 100, 20_000) if quick else (5, 4000, 300, 100_000)
    fresh, grown = growth(long)
    return [
        (f"bus, {WRITERS} writers, 1 reader", *compare(rounds, many, False), 1 / 0.5, "µs", "flock + append"),
        (f"bus, {WRITERS} writers, 1 reader, durable", *compare(rounds, few, True), 1 / 0.8, "µs", "… + fsync"),
        (f"a message, after {long:,}", grown, fresh, 1.25, "µs", "after none"),
    ]


def compare(rounds: int, messages: int, durable: bool) -> tuple[float, float]:
    """Medians of the bus and of the work by hand, measured alternately."""
    pairs = [(run(BUS, messages, durable), run(BY_HAND, messages, durable)) for _ in range(rounds)]
    ours, bare = zip(*pairs, strict=True)
    return median(ours), median(bare)


def run(way: Way, messages: int, durable: bool, writers: int = WRITERS) -> float:
    """Microseconds per message, from the common start until all are written and read."""
    context = multiprocessing.get_context("spawn")
    start, end = context.Barrier(writers + 1), context.Barrier(writers + 1)
    with tempfile.TemporaryDirectory(prefix="bench-bus-") as name:
        directory = Path(name)
        inbox(directory).touch(mode=0o600)
        os.utime(directory, (0, 0))  # a team's inboxes are older than its messages
        work = (way, directory, messages, durable, start, end)
        processes = [context.Process(target=write, args=(number, *work)) for number in range(writers)]
        for process in processes:
            process.start()
        start.wait()
        began = time.perf_counter()
        way.read(directory, writers * messages)
        end.wait()
        seconds = time.perf_counter() - began
        for process in processes:
            process.join()
    return seconds / (writers * messages) * 1e6


def write(number: int, way: Way, directory: Path, messages: int, durable: bool, start: Barrier, end: Barrier) -> None:
    start.wait()
    way.write(directory, number, messages, durable)
    end.wait()


def send_many(directory: Path, number: int, messages: int, durable: bool) -> None:
    bus = FileBus(directory, KEY, durable)
    for n in range(messages):
        bus.send(message(f"msg_{number:08}{n:016}"))
    bus.close()


def receive_all(directory: Path, expected: int) -> None:
    bus, position, received = FileBus(directory, KEY), Position(), 0
    while received < expected:
        time.sleep(READ_EVERY_SECONDS)
        batch = bus.unread("alice", position)
        received, position = received + len(batch.messages), batch.position
    bus.close()


def append_many(directory: Path, number: int, messages: int, durable: bool) -> None:
    fd = os.open(inbox(directory), os.O_WRONLY | os.O_APPEND)
    for n in range(messages):
        row = message(f"msg_{number:08}{n:016}")._asdict() | {"fields": {}}
        line = json.dumps(row, ensure_ascii=False).encode() + b"\n"
        fcntl.flock(fd, fcntl.LOCK_EX)
        os.write(fd, line)
        if durable:
            os.fsync(fd)
        fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(fd)


def parse_all(directory: Path, expected: int) -> None:
    received, rest = 0, b""
    with inbox(directory).open("rb", buffering=0) as file:
        while received < expected:
            time.sleep(READ_EVERY_SECONDS)
            *lines, rest = (rest + file.readall()).split(b"\n")
            received += len([json.loads(line) for line in lines])


def growth(messages: int, samples: int = 2000) -> tuple[float, float]:
    """What it takes to send and read one message, in a new inbox and in one with many, measured alternately."""
    with tempfile.TemporaryDirectory(prefix="bench-bus-") as directory:
        bus = FileBus(Path(directory), KEY, durable=False)
        for n in range(messages):
            bus.send(message(f"msg_{n:024}"))
        positions = {"bob": Position(), "alice": bus.unread("alice", Position()).position}
        costs: dict[str, list[float]] = {"bob": [], "alice": []}
        for n in range(samples):
            for name in costs:
                began = time.perf_counter()
                bus.send(message(f"new_{n:024}", name))
                positions[name] = bus.unread(name, positions[name]).position
                costs[name].append((time.perf_counter() - began) * 1e6)
        bus.close()
    return median(costs["bob"]), median(costs["alice"])


def inbox(directory: Path) -> Path:
    return directory / "alice.jsonl"


def message(id: str, to: str = "alice") -> Message:
    return Message(MessageType.MESSAGE, "lead", to, "x" * 230, 1_800_000_000.25, id)


BUS = Way(send_many, receive_all)
BY_HAND = Way(append_many, parse_all)


def main(arguments: Sequence[str]) -> None:
    for name, ours, reference, bound, unit, against in rows("--quick" in arguments):
        print(f"{name}: {ours:.1f} {unit}, {against}: {reference:.1f} {unit}, {ours / reference:.2f} (≤ {bound:g})")


if __name__ == "__main__":
    main(sys.argv[1:])
