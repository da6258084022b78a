"""A large team on one machine: a lead, many workers, and a model that answers at once. Prints what everything takes.

Statements are counted by the extension pg_stat_statements, which comes with PostgreSQL. Its count of transactions would
mislead: each notification adds one for every listening connection, and that is reported many seconds later.

Usage: python -m bench.simulation [--members 400] [--hosts 8] [--messages 2000] [--idle-seconds 30] [--statements 0]

`--statements N` also prints the N statements that ran most often.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
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
    parser.add_argument("--statements", type=int, default=0)
    parser.add_argument("--lead", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.lead:
        lead(options.members, options.messages)
    else:
        for name, value in simulate(options):
            print(f"{name:48}{value}", flush=True)


def simulate(options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    slots = int(options.members / options.hosts * SLOTS_TO_SPARE) + 1
    settings = {"max_connections": str(4 * options.hosts + 50), "shared_preload_libraries": "pg_stat_statements"}
    with hosts(options.hosts, slots, OK, **settings) as (them, _):
        run(them, "create extension pg_stat_statements")
        yield "members, hosts", f"{options.members:,} on {options.hosts}"
        pids = [worker.pid for worker in them.workers]
        yield "memory of a worker without members", megabytes(pids)
        with run_lead(them, options) as lead:
            pids.append(lead.pid)
            started = Sample(them, pids)
            read_result(lead)
            ready = Sample(them, pids)
            statements = ready.statements_since(started)
            yield "until all have answered once", f"{ready.time - started.time:.1f} s"
            each = (ready.ours - started.ours) / options.members * 1000
            yield "until then: CPU of lead and workers", f"{each:.0f} ms a member"
            yield "until then: notifications", f"{notifications(statements) / options.members:.2f} a member"
            yield "until then: statements", f"{statements.total() / options.members:.1f} a member"
            yield from most_frequent(statements, options.members, options)
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
        ((wal,),) = ask(them, "select pg_current_wal_lsn() - '0/0'")
        self.wal = float(wal)
        calls = ask(them, "select query, sum(calls) from pg_stat_statements group by query")
        self.calls = Counter({" ".join(query.split()): int(count) for query, count in calls})

    def statements_since(self, before: Sample) -> Counter[str]:
        return self.calls - before.calls


def notifications(statements: Counter[str]) -> int:
    """Each wakes the server's process of every listening connection."""
    return sum(count for statement, count in statements.items() if "pg_notify" in statement)


def most_frequent(statements: Counter[str], divisor: float, options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    for statement, count in statements.most_common(options.statements):
        yield f"    {count / divisor:.2f}", statement[:120]


def idle(them: Hosts, pids: list[int], options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    time.sleep(2)  # the copies of the roster are written later
    before = Sample(them, pids)
    time.sleep(options.idle_seconds)
    after = Sample(them, pids)
    seconds, statements = after.time - before.time, after.statements_since(before)
    ((connections,),) = ask(them, "select count(*) - 1 from pg_stat_activity where datname = current_database()")
    yield "connections", str(connections)
    yield "idle: CPU of lead and workers", f"{(after.ours - before.ours) / seconds:.2%}"
    yield "idle: log of the database", f"{(after.wal - before.wal) / seconds / 1000:.1f} KB per second"
    yield "idle: statements", f"{statements.total() / seconds:.1f} per second"
    yield from most_frequent(statements, seconds, options)


def busy(
    them: Hosts, pids: list[int], lead: subprocess.Popen[str], options: argparse.Namespace
) -> Iterator[tuple[str, str]]:
    assert lead.stdin is not None
    before = Sample(them, pids)
    lead.stdin.write("go\n")
    lead.stdin.flush()
    found = read_result(lead)
    time.sleep(1)  # the last changes are still being read
    after = Sample(them, pids)
    count, statements = options.messages, after.statements_since(before)
    yield "busy: messages sent", f"{count / found['sent']:.0f} per second"
    yield "busy: messages answered, with a model call each", f"{count / found['answered']:.0f} per second"
    yield "busy: CPU of lead and workers", f"{(after.ours - before.ours) / count * 1000:.1f} ms a message"
    yield "busy: log of the database", f"{(after.wal - before.wal) / count / 1000:.1f} KB a message"
    yield "busy: notifications", f"{notifications(statements) / count:.2f} a message"
    yield "busy: statements", f"{statements.total() / count:.1f} a message"
    yield from most_frequent(statements, count, options)


def megabytes(pids: list[int]) -> str:
    pages = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids]
    return f"{sum(pages) * 4096 / len(pages) / 1e6:.0f} MB"


def ask(them: Hosts, query: str) -> list[tuple[Any, ...]]:
    import psycopg

    with psycopg.connect(them.url) as connection:
        return connection.execute(query.encode()).fetchall()


def run(them: Hosts, statement: str) -> None:
    import psycopg

    with psycopg.connect(them.url) as connection:
        connection.execute(statement.encode())


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
