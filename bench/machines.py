"""What a team in a database costs: lead and workers as real processes, and a PostgreSQL that waits for its disk.

Members on other hosts always work in their own checkouts, so the file engine is compared with checkouts as well.

Usage: python -m bench.machines [--quick]
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.synchronize import Barrier
from pathlib import Path
from statistics import median
from typing import IO, Any, NamedTuple

from bench.client_run import client_environment, fresh_directory
from bench.team import (
    MODEL_SECONDS,
    OK,
    Row,
    Team,
    check_requests,
    names,
    print_rows,
    time_teammates,
    time_wakes,
    wake_rows,
)
from tests.support.fake_api_process import FakeAPIProcess
from tests.support.postgres import Server, prepare, programs

WRITERS = 16
DURABLE = {"fsync": "on", "full_page_writes": "on", "wal_level": "replica", "autovacuum": "on"}
TICKS = os.sysconf("SC_CLK_TCK")
GIT = ("git", "-c", "user.name=bench", "-c", "user.email=bench@example.org")


class Counts(NamedTuple):
    """How many of everything."""

    wakes: int = 300
    sends: int = 300
    members: int = 100
    turns: int = 10
    rounds: int = 3
    idlers: int = 200
    idle_seconds: float = 30.0
    workers: int = 4


FULL = Counts()
QUICK = Counts(wakes=100, sends=100, rounds=1, idle_seconds=10.0)


def why_not() -> str:
    """Why nothing can be measured here; empty if it can."""
    try:
        import psycopg  # noqa: F401
    except ImportError:
        return "psycopg is not installed"
    return "" if programs() else "PostgreSQL is not installed (Debian: apt-get install postgresql)"


def rows(quick: bool = False, counts: Counts | None = None) -> list[Row]:
    if why := why_not():
        print(f"not measured: a team in a database ({why})", file=sys.stderr)
        return []
    counts = counts or (QUICK if quick else FULL)
    return [*waking(counts), *sending(counts), *working(counts), *idling(counts)]


class Hosts:
    """A database, and clones of one repository with a worker in each; the lead's clone is the first."""

    def __init__(self, directory: Path, url: str, api: FakeAPIProcess) -> None:
        self._directory = directory
        self.url = url
        self._environment = client_environment(directory, api.url) | {"TEAMCLI_STORE": url}
        self.workers: list[subprocess.Popen[bytes]] = []

    def start(self, workers: int, slots: int) -> None:
        make_repository(self._directory / "work")
        make_team = [sys.executable, "-m", "bench.machines", "team"]
        subprocess.run(make_team, cwd=self._directory / "work", env=self._environment, check=True)
        for number in range(workers):
            self._start_worker(f"box{number}", slots)
        for worker in self.workers:
            self._wait_until_ready(worker)

    def _start_worker(self, name: str, slots: int) -> None:
        place = self._directory / name
        subprocess.run([*GIT, "clone", "-q", str(self._directory / "work"), str(place)], check=True)
        subprocess.run([*GIT, "remote", "remove", "origin"], cwd=place, check=True)
        options = ("--permission-mode", "bypassPermissions")
        line = [sys.executable, "-m", "teamcli", "worker", "--name", name, "--slots", str(slots), *options]
        nothing, pipe = subprocess.DEVNULL, subprocess.PIPE
        self.workers.append(
            subprocess.Popen(line, cwd=place, env=self._environment, stdin=nothing, stdout=nothing, stderr=pipe)
        )

    def _wait_until_ready(self, worker: subprocess.Popen[bytes]) -> None:
        assert worker.stderr is not None
        said = b""
        while b"is ready for" not in (line := worker.stderr.readline()):
            said += line
            if not line:
                raise RuntimeError(f"a worker did not start: {said.decode()[-2000:]}")
        threading.Thread(target=read_all, args=(worker.stderr,), daemon=True).start()  # or its pipe would be full

    def lead(self, what: str, *arguments: object, module: str = "bench.machines") -> subprocess.Popen[str]:
        """One of `MEASURES`, or what another module does, in the process of the lead."""
        line = [sys.executable, "-m", module, what, *map(str, arguments)]
        place, pipe = self._directory / "work", subprocess.PIPE
        return subprocess.Popen(line, cwd=place, env=self._environment, stdin=pipe, stdout=pipe, text=True)

    def close(self) -> None:
        for worker in self.workers:
            worker.kill()  # there is nothing to hand over
        for worker in self.workers:
            worker.wait()


def read_all(stream: IO[bytes]) -> None:
    with stream:
        stream.read()


def make_repository(place: Path) -> None:
    (place / "start.txt").write_text("start\n")
    for line in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "start"]):
        subprocess.run([*GIT, *line], cwd=place, check=True)


@contextmanager
def database(**settings: str) -> Iterator[str]:
    """The URL of a database with the tables, on a server of its own that keeps what it has committed."""
    with tempfile.TemporaryDirectory(prefix="teamcli-pg-", dir="/tmp") as place:
        server = Server(Path(place), **DURABLE, **settings)
        server.create()
        server.start()
        prepare(server)
        try:
            yield server.url("migrated")
        finally:
            server.stop()


@contextmanager
def hosts(workers: int, slots: int, script: str | dict[str, Any], **settings: str) -> Iterator[tuple[Hosts, Any]]:
    with (
        database(**settings) as url,
        fresh_directory({"client": "direct", "limits": {"teammates": 10_000}}) as directory,
        FakeAPIProcess(script, directory / "api.jsonl", keep_bodies=0) as api,
    ):
        them = Hosts(directory, url, api)
        try:
            them.start(workers, slots)
            yield them, api
        finally:
            them.close()


def waking(counts: Counts) -> list[Row]:
    """From sending in the lead's process to the request of an idle member of another process being complete."""
    with hosts(1, 10, OK) as (them, api):
        sent_at = result_of(them.lead("wakes", counts.wakes))
        return wake_rows("message → idle member of another host", sent_at, api.log(), 15, 60)


def sending(counts: Counts) -> list[Row]:
    """Times per message, so that less is better: half the throughput is twice the time."""
    with database() as url:
        import psycopg

        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("create table raw (writer integer, number integer, body text)")
        pairs = [(send_all(send_many, url, counts), send_all(insert_many, url, counts)) for _ in range(counts.rounds)]
    ours, raw = (median(times) for times in zip(*pairs, strict=True))
    return [(f"durable sends of {WRITERS} processes", ours, raw, 1 / 0.5, "µs", "INSERT and COMMIT")]


def send_all(write: Callable[..., None], url: str, counts: Counts) -> float:
    """Microseconds per message, from the common start until all are committed."""
    context = multiprocessing.get_context("spawn")
    start, end = context.Barrier(WRITERS + 1), context.Barrier(WRITERS + 1)
    work = (url, counts.sends, start, end)
    processes = [context.Process(target=write, args=(number, *work)) for number in range(WRITERS)]
    for process in processes:
        process.start()
    start.wait()
    began = time.perf_counter()
    end.wait()
    seconds = time.perf_counter() - began
    for process in processes:
        process.join()
    return seconds / (WRITERS * counts.sends) * 1e6


def send_many(number: int, url: str, messages: int, start: Barrier, end: Barrier) -> None:
    from bench.bus import message
    from teamcli.store.postgres.bus import PostgresBus
    from teamcli.store.postgres.newest import Newest
    from tests.support.postgres import hold_lease, open_test_team

    team = open_test_team(url, "bench")
    fence = hold_lease(team, f"writer{number}")
    bus = PostgresBus(team, fence, Newest(), Path("/nonexistent"))
    to, sender = f"reader{number}", f"writer{number}"
    bus.send(message(os.urandom(12).hex(), to)._replace(sender=sender))
    start.wait()
    for _ in range(messages):
        bus.send(message(os.urandom(12).hex(), to)._replace(sender=sender))
    end.wait()
    team.database.close()


def insert_many(number: int, url: str, messages: int, start: Barrier, end: Barrier) -> None:
    import psycopg

    with psycopg.connect(url) as connection:
        start.wait()
        for n in range(messages):
            connection.execute("insert into raw values (%s, %s, %s)", (number, n, "x" * 400))
            connection.commit()
        end.wait()


def working(counts: Counts) -> list[Row]:
    """From the first spawn until all are idle. Measured alternately, so that a busy moment affects both."""
    pairs = [(work_on_hosts(counts), work_in_files(counts)) for _ in range(counts.rounds)]
    ours, files = (median(times) for times in zip(*pairs, strict=True))
    name = f"{counts.members} members, {counts.turns} tool turns each, {counts.workers} hosts"
    return [(name, ours, files, 1.5, "ms", "files, one process")]


def work_on_hosts(counts: Counts) -> float:
    script = f"slow_turns:{counts.turns}:{MODEL_SECONDS}"
    with hosts(counts.workers, counts.members // counts.workers, script) as (them, api):
        seconds = result_of(them.lead("members", counts.members, "any"))
        check_requests(api.log(), counts.members, counts.turns)
    return float(seconds) * 1000


def work_in_files(counts: Counts) -> float:
    script = f"slow_turns:{counts.turns}:{MODEL_SECONDS}"
    with fresh_directory() as directory, FakeAPIProcess(script, directory / "api.jsonl", keep_bodies=0) as api:
        make_repository(directory / "work")
        line = [sys.executable, "-m", "bench.machines", "members", str(counts.members), ""]
        environment = client_environment(directory, api.url)
        pipe = subprocess.PIPE
        files = subprocess.Popen(line, cwd=directory / "work", env=environment, stdin=pipe, stdout=pipe, text=True)
        seconds = result_of(files)
        check_requests(api.log(), counts.members, counts.turns)
    return float(seconds) * 1000


def idling(counts: Counts) -> list[Row]:
    """The lead's process counts, too."""
    with hosts(counts.workers, counts.idlers // counts.workers, OK) as (them, _):
        lead = them.lead("idle", counts.idlers)
        read_result(lead)
        time.sleep(2)  # the copies of the roster are written a moment later
        ours = [lead.pid, *(worker.pid for worker in them.workers)]
        before = sum(map(cpu_seconds, ours))
        time.sleep(counts.idle_seconds)
        share = (sum(map(cpu_seconds, ours)) - before) / counts.idle_seconds
        connections = count_connections(them.url) / len(ours)
        lead.communicate()
    name = f"{counts.idlers} idle members, {counts.workers} hosts"
    return [
        (f"{name}: CPU of all", share * 100, 1, 1.0, "%", "the promise"),
        (f"{name}: connections of each", connections, 2, 1.0, "", "the promise"),
    ]


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def count_connections(url: str) -> int:
    import psycopg

    with psycopg.connect(url) as connection:
        query = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
        row = connection.execute(query).fetchone()
    assert row is not None
    return int(row[0])


def read_result(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    if not (line := process.stdout.readline()):
        raise RuntimeError(f"{process.args!r} ended with {process.wait()}")
    return json.loads(line)


def result_of(process: subprocess.Popen[str]) -> Any:
    found = read_result(process)
    process.communicate()
    return found


# What runs in the process of the lead. It prints its result, and stays until its standard input is closed.


def make_team() -> None:
    from teamcli.store.location import root_commit
    from teamcli.store.postgres.teams import open_team

    open_team(os.environ["TEAMCLI_STORE"], root_commit(Path.cwd()), "", create=True).database.close()


def measure_wakes(wakes: str) -> list[float]:
    return time_wakes(int(wakes), "any")


def time_members(members: str, host: str) -> float:
    return time_teammates(int(members), worktree=True, host=host)


def stay_idle(members: str) -> None:
    with Team() as team:
        team.spawn(*names(int(members)), host="any")
        team.wait_until_idle()
        print(json.dumps("idle"), flush=True)
        sys.stdin.read()


MEASURES: dict[str, Callable[..., Any]] = {
    "team": make_team,
    "wakes": measure_wakes,
    "members": time_members,
    "idle": stay_idle,
}


def main(arguments: Sequence[str]) -> None:
    if arguments and arguments[0] in MEASURES:
        what, *rest = arguments
        found = MEASURES[what](*rest)
        if found is not None:
            print(json.dumps(found), flush=True)
        return
    wanted = [each for each in (waking, sending, working, idling) if each.__name__ in arguments]
    counts = QUICK if "--quick" in arguments else FULL
    found = [row for measure in wanted for row in measure(counts)] if wanted else rows(counts=counts)
    print_rows(found)


if __name__ == "__main__":
    main(sys.argv[1:])
