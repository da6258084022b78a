"""A large team on one machine: a lead, many workers, and a model that answers at once. Prints what everything takes.

Usage: python -m bench.simulation [--members 400] [--hosts 8] [--messages 2000] [--idle-seconds 30]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.machines import Hosts, cpu_seconds, hosts, read_result
from bench.team import OK, Team, names

SLOTS_TO_SPARE = 1.25


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.simulation", description=__doc__)
    parser.add_argument("--members", type=int, default=400)
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--messages", type=int, default=2000)
    parser.add_argument("--idle-seconds", type=float, default=30.0)
    parser.add_argument("--lead", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.lead:
        lead(options.members, options.messages)
    else:
        for name, value in simulate(options):
            print(f"{name:48}{value}", flush=True)


def simulate(options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    slots = int(options.members / options.hosts * SLOTS_TO_SPARE) + 1
    with hosts(options.hosts, slots, OK, max_connections=str(4 * options.hosts + 50)) as (them, _):
        yield "members, hosts", f"{options.members:,} on {options.hosts}"
        pids = [worker.pid for worker in them.workers]
        yield "memory of a worker without members", megabytes(pids)
        with run_lead(them, options) as lead:
            pids.append(lead.pid)
            started = Sample(them, pids)
            read_result(lead)
            yield "until all have answered once", f"{time.monotonic() - started.time:.1f} s"
            yield "memory of a worker, of the lead", f"{megabytes(pids[:-1])}, {megabytes(pids[-1:])}"
            yield from idle(them, pids, options)
            yield from busy(them, pids, lead, options)


@contextmanager
def run_lead(them: Hosts, options: argparse.Namespace) -> Iterator[subprocess.Popen[str]]:
    lead = them.lead("--lead", "--members", options.members, "--messages", options.messages, module="bench.simulation")
    try:
        yield lead
    finally:
        lead.kill()
        lead.communicate()


class Sample:
    """What has been used until now."""

    def __init__(self, them: Hosts, pids: list[int]) -> None:
        self.time = time.monotonic()
        self.ours = sum(map(cpu_seconds, pids))
        counters = "select xact_commit, pg_current_wal_lsn() - '0/0', (select sum(n_tup_upd) from pg_stat_user_tables"
        query = f"{counters} where relname = 'host') from pg_stat_database where datname = current_database()"
        self.commits, self.wal, self.renewals = map(float, ask(them, query)[0])


def idle(them: Hosts, pids: list[int], options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    time.sleep(15)  # PostgreSQL reports its counters later, and so are the copies of the roster written
    before = Sample(them, pids)
    time.sleep(options.idle_seconds)
    after = Sample(them, pids)
    seconds = after.time - before.time
    ((connections,),) = ask(them, "select count(*) - 1 from pg_stat_activity where datname = current_database()")
    yield "connections", str(connections)
    yield "idle: CPU of lead and workers", f"{(after.ours - before.ours) / seconds:.2%}"
    yield "idle: transactions", f"{(after.commits - before.commits) / seconds:.1f} per second"
    yield "idle: renewals", f"{(after.renewals - before.renewals) / seconds:.2f} per second"
    yield "idle: log of the database", f"{(after.wal - before.wal) / seconds / 1000:.1f} KB per second"


def busy(
    them: Hosts, pids: list[int], lead: subprocess.Popen[str], options: argparse.Namespace
) -> Iterator[tuple[str, str]]:
    assert lead.stdin is not None
    before = Sample(them, pids)
    lead.stdin.write("go\n")
    lead.stdin.flush()
    found = read_result(lead)
    time.sleep(2)  # PostgreSQL reports its counters from time to time
    after = Sample(them, pids)
    count = options.messages
    yield "busy: messages sent", f"{count / found['sent']:.0f} per second"
    yield "busy: messages answered, with a model call each", f"{count / found['answered']:.0f} per second"
    yield "busy: CPU of lead and workers", f"{(after.ours - before.ours) / count * 1000:.1f} ms a message"
    yield "busy: transactions", f"{(after.commits - before.commits) / count:.1f} a message"
    yield "busy: log of the database", f"{(after.wal - before.wal) / count / 1000:.1f} KB a message"


def megabytes(pids: list[int]) -> str:
    pages = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids]
    return f"{sum(pages) * 4096 / len(pages) / 1e6:.0f} MB"


def ask(them: Hosts, query: str) -> list[tuple[Any, ...]]:
    import psycopg

    with psycopg.connect(them.url) as connection:
        return connection.execute(query.encode()).fetchall()


def lead(members: int, messages: int) -> None:
    """The process of the lead."""
    mates = names(members)
    with Team() as team:
        team.spawn(*mates, host="any")
        team.wait_until_idle()
        print(json.dumps("ready"), flush=True)
        sys.stdin.readline()
        started = time.monotonic()
        for number in range(messages):
            team.say(mates[number % members], "What is new?")
        sent = time.monotonic() - started
        team.wait_until_idle()
        print(json.dumps({"sent": sent, "answered": time.monotonic() - started}), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1:])
