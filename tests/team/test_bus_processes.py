"""Many processes write to one inbox, some of them without a lock, some of them killed."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from subprocess import DEVNULL, PIPE

import pytest

from teamcli.team.message import Message
from teamcli.team.message_bus import FileBus, Position
from tests.support.waiting import wait_until
from tests.team.letters import KEY, SOAK, letter

TIMES = 10 if SOAK else 1
WRITERS, SHELLS = 8, 4
FOUR_KB = 4096
SHELL = """
i=0
while [ $i -lt $2 ]; do
    echo '{"type":"message","from":"'$1'","content":"'$i $3'"}' >> alice.jsonl
    i=$((i+1))
done
"""


class Reader:
    """Reads as an agent does: what it has read and how far is one step, and now and then it starts anew."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._bus = self._start()
        self.received: list[Message] = []
        self.told: list[str] = []
        self._seen: set[str] = set()
        self._position = Position()
        self._times = 0

    def _start(self) -> FileBus:
        return FileBus(self._directory, KEY, False, lambda text: self.told.append(text))

    def read(self) -> int:
        self._times += 1
        if self._times % 5 == 0:
            self._bus.unread("alice", self._position, self._seen)
            self._bus.close()
            self._bus = self._start()
        batch = self._bus.unread("alice", self._position, self._seen)
        self.received += batch.messages
        self._seen.update(message.id for message in batch.messages)
        self._position = batch.position
        return len(self.received)

    def numbers(self) -> dict[str, list[int]]:
        found = defaultdict(list)
        for message in self.received:
            found[message.sender].append(int(message.content.split()[0]))
        return found

    def close(self) -> None:
        self._bus.close()


def start_writer(directory: Path, sender: str, count: int, size: int, stdout: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.team.bus_writer", str(directory), sender, str(count), str(size)]
    return subprocess.Popen(command, stdout=stdout, text=True)


def start_shell(directory: Path, sender: str, count: int, line_bytes: int) -> subprocess.Popen[str]:
    """The longest of its lines has so many bytes."""
    padding = "y" * (line_bytes - len(f'{{"type":"message","from":"{sender}","content":"{count - 1} "}}\n'))
    return subprocess.Popen(["sh", "-c", SHELL, "sh", sender, str(count), padding], cwd=directory, text=True)


@pytest.mark.soak
@pytest.mark.timeout(3600 if SOAK else 120)
def test_all_that_processes_and_shells_write_is_received_once_and_in_order(tmp_path: Path) -> None:
    per_writer, per_shell = 100 * TIMES, 50 * TIMES
    processes = [
        *(start_writer(tmp_path, f"w{n}", per_writer, 20_000 if n % 2 else 300, DEVNULL) for n in range(WRITERS)),
        *(start_shell(tmp_path, f"s{n}", per_shell, FOUR_KB if n % 2 else 100) for n in range(SHELLS)),
    ]
    reader = Reader(tmp_path)
    total = WRITERS * per_writer + SHELLS * per_shell
    wait_until(lambda: reader.read() >= total, deadline_seconds=1800 if SOAK else 90)
    assert [process.wait() for process in processes] == [0] * len(processes)
    assert reader.read() == total
    for sender, numbers in reader.numbers().items():
        assert numbers == list(range(per_writer if sender.startswith("w") else per_shell)), sender
    assert {message.is_foreign for message in reader.received if message.sender.startswith("w")} == {False}
    assert not reader.told
    reader.close()


@pytest.mark.soak
@pytest.mark.timeout(3600 if SOAK else 120)
def test_a_writer_that_is_killed_loses_nothing_it_had_sent_and_damages_nothing(tmp_path: Path) -> None:
    chance = random.Random(3)
    reader, sent = Reader(tmp_path), {}
    bus = FileBus(tmp_path, KEY, durable=False)
    for n in range(10 * TIMES):
        with start_writer(tmp_path, f"k{n}", 1_000_000, 200_000, PIPE) as writer:
            assert writer.stdout is not None
            for _ in range(chance.randint(1, 30)):
                writer.stdout.readline()
            writer.kill()
            printed = writer.stdout.read().split()
        sent[f"k{n}"] = max(map(int, printed), default=0)
        bus.send(letter(f"{n} after", sender="bystander"))
        reader.read()
    bus.close()
    numbers = reader.numbers()
    assert numbers.pop("bystander") == list(range(10 * TIMES))
    for sender, last in sent.items():
        received = numbers[sender]
        assert received == list(range(len(received))), sender
        assert len(received) > last, sender
    reader.close()
