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
from teamcli.team.message_bus import MessageBus, Position
from tests.support.postgres import Server
from tests.support.waiting import wait_until
from tests.team.engines import Engine, FileEngine, PostgresEngine
from tests.team.letters import SOAK, letter

TIMES = 10 if SOAK else 1
SHELLS = 4
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

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._bus = self._start()
        self.received: list[Message] = []
        self.told: list[str] = []
        self._seen: set[str] = set()
        self._position = Position()
        self._times = 0

    def _start(self) -> MessageBus:
        return self._engine.start(lambda text: self.told.append(text))

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


def start_writer(engine: Engine, sender: str, count: int, size: int, stdout: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.team.bus_writer", engine.place, sender, str(count), str(size)]
    return subprocess.Popen(command, stdout=stdout, text=True)


def start_shell(directory: Path, sender: str, count: int, line_bytes: int) -> subprocess.Popen[str]:
    """The longest of its lines has so many bytes."""
    padding = "y" * (line_bytes - len(f'{{"type":"message","from":"{sender}","content":"{count - 1} "}}\n'))
    return subprocess.Popen(["sh", "-c", SHELL, "sh", sender, str(count), padding], cwd=directory, text=True)


@pytest.mark.soak
@pytest.mark.timeout(3600 if SOAK else 120)
def test_all_that_processes_and_shells_write_is_received_once_and_in_order(engine: Engine) -> None:
    writers, per_writer, per_shell = engine.writers, 100 * TIMES, 50 * TIMES
    processes = [start_writer(engine, f"w{n}", per_writer, 20_000 if n % 2 else 300, DEVNULL) for n in range(writers)]
    total = writers * per_writer
    if isinstance(engine, FileEngine):
        sizes = [FOUR_KB if n % 2 else 100 for n in range(SHELLS)]
        engine.directory.mkdir(exist_ok=True)
        processes += [start_shell(engine.directory, f"s{n}", per_shell, size) for n, size in enumerate(sizes)]
        total += SHELLS * per_shell
    reader = Reader(engine)
    wait_until(lambda: reader.read() >= total, deadline_seconds=1800 if SOAK else 90)
    assert [process.wait() for process in processes] == [0] * len(processes)
    assert reader.read() == total
    for sender, numbers in reader.numbers().items():
        assert numbers == list(range(per_writer if sender.startswith("w") else per_shell)), sender
    assert {message.is_foreign for message in reader.received if message.sender.startswith("w")} == {False}
    assert not reader.told


@pytest.mark.soak
@pytest.mark.timeout(3600 if SOAK else 120)
def test_a_writer_that_is_killed_loses_nothing_it_had_sent_and_damages_nothing(engine: Engine) -> None:
    chance = random.Random(3)
    reader, bus, sent = Reader(engine), engine.start(), {}
    for n in range(engine.kills * TIMES):
        with start_writer(engine, f"k{n}", 1_000_000, 200_000, PIPE) as writer:
            assert writer.stdout is not None
            for _ in range(chance.randint(1, 30)):
                writer.stdout.readline()
            writer.kill()
            printed = writer.stdout.read().split()
        sent[f"k{n}"] = max(map(int, printed), default=0)
        bus.send(letter(f"{n} after", sender="bystander"))
        reader.read()
    numbers = reader.numbers()
    assert numbers.pop("bystander") == list(range(engine.kills * TIMES))
    for sender, last in sent.items():
        received = numbers[sender]
        assert received == list(range(len(received))), sender
        assert len(received) > last, sender


@pytest.mark.soak
@pytest.mark.timeout(3600 if SOAK else 120)
def test_nothing_is_lost_or_repeated_if_the_database_crashes_while_processes_send(
    own_postgres: Server, tmp_path: Path
) -> None:
    crashes, per_writer = (100, 3000) if SOAK else (3, 60)
    engine = PostgresEngine(tmp_path, own_postgres.url("migrated"))
    reader = Reader(engine)
    writers = [start_writer(engine, f"w{n}", per_writer, 300, PIPE) for n in range(3)]
    for _ in range(crashes):
        for writer in writers:
            assert writer.stdout is not None
            for _ in range(per_writer // (crashes + 1)):
                writer.stdout.readline()
        own_postgres.restart()
        reader.read()
    for writer in writers:
        writer.communicate()
    reader.read()
    engine.close()
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    assert reader.numbers() == {f"w{n}": list(range(per_writer)) for n in range(3)}
    assert not reader.told
