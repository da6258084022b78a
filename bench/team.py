"""What a team costs: how fast a message wakes a teammate, and what many working and many idle teammates cost.

Each is measured in a process of its own, against a fake API in another one.

Usage: python -m bench.team [--quick]
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple

from bench.client_run import client_environment, fresh_directory
from tests.support.fake_api_process import FakeAPIProcess

Row = tuple[str, float, float, float, str, str]
"""The arguments of a `Figure`."""

MODEL_SECONDS = 0.05
OK = {"rules": [["", "ok"]]}
"""A script that says ok to everything."""


class Counts(NamedTuple):
    """How many of everything."""

    wakes: int = 300
    workers: int = 100
    turns: int = 10
    rounds: int = 3
    idlers: int = 200
    idle_seconds: float = 5.0


FULL = Counts()
QUICK = Counts(wakes=100, rounds=1, idle_seconds=3.0)


def rows(quick: bool = False, counts: Counts | None = None) -> list[Row]:
    counts = counts or (QUICK if quick else FULL)
    return [*waking(counts), *working(counts), *idling(counts)]


def waking(counts: Counts) -> list[Row]:
    """From sending to an idle teammate to its request being complete at the server; in between, two appends and the
    roster go to the disk."""
    sent_at, log = run("wakes", OK, counts.wakes)
    return wake_rows("message → idle teammate's request", sent_at, log, 10, 50)


def wake_rows(name: str, sent_at: Sequence[float], log: Sequence[dict[str, Any]], p50: float, p99: float) -> list[Row]:
    """From each sending to the request that followed it; `p50` and `p99` are the promises in ms."""
    arrived_at = [entry["t"] for entry in log if entry["event"] == "request"][-len(sent_at) :]
    took_ms = [(arrived - sent) * 1000 for sent, arrived in zip(sent_at, arrived_at, strict=True)]
    return [
        (f"{name}, p50", median(took_ms), p50, 1.0, "ms", "the promise"),
        (f"{name}, p99", quantiles(took_ms, n=100)[98], p99, 1.0, "ms", "the promise"),
    ]


def working(counts: Counts) -> list[Row]:
    """From the first spawn until all are idle. Measured alternately, so that a busy moment affects both."""
    pairs = [(work("teammates", counts), work("threads", counts)) for _ in range(counts.rounds)]
    ours, bare = (median(times) for times in zip(*pairs, strict=True))
    name = f"{counts.workers} teammates, {counts.turns} tool turns each"
    return [(name, ours, bare, 1.3, "ms", "bare threads")]


def work(who: str, counts: Counts) -> float:
    """How long all take together, in ms."""
    seconds, log = run(who, f"slow_turns:{counts.turns}:{MODEL_SECONDS}", counts.workers, counts.turns)
    check_requests(log, counts.workers, counts.turns)
    return float(seconds) * 1000


def check_requests(log: Sequence[dict[str, Any]], members: int, turns: int) -> None:
    """Each member has made its turns and its last call, as has the one that loads everything."""
    requests = sum(entry["event"] == "request" for entry in log)
    expected = (members + 1) * (turns + 1)
    if requests != expected:
        raise RuntimeError(f"{requests} requests came instead of {expected}")


def idling(counts: Counts) -> list[Row]:
    (cpu_share, kilobytes), _ = run("idlers", OK, counts.idlers, counts.idle_seconds)
    return [
        (f"{counts.idlers} idle teammates: CPU", cpu_share * 100, 1, 1.0, "%", "the promise"),
        (f"{counts.idlers} idle teammates: memory of each", kilobytes, 300, 1.0, "KB", "the promise"),
    ]


def run(what: str, script: str | dict[str, Any], *numbers: float) -> tuple[Any, list[dict[str, Any]]]:
    """Do one of `MEASURES` in a separate process; what it found, and the log of the server."""
    with fresh_directory() as directory, FakeAPIProcess(script, directory / "api.jsonl", keep_bodies=0) as api:
        done = subprocess.run(
            [sys.executable, "-m", "bench.team", what, *map(str, numbers)],
            cwd=directory / "work",
            env=client_environment(directory, api.url),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{what} ended with {done.returncode}: {done.stderr[-2000:]}")
        return json.loads(done.stdout), api.log()


# What runs in those processes. It loads teamcli late, so that the process that starts them stays small.


class Team:
    """A session in which one teammate has worked, so that everything is loaded."""

    def __init__(self) -> None:
        from teamcli.app.build import open_session
        from teamcli.cancel import CancelScope
        from teamcli.config.options import Options
        from teamcli.config.project import inspect_project

        options = Options(permission_mode="bypassPermissions", client="direct")
        self._session = open_session(options, inspect_project(Path.cwd()))
        self._cancel = CancelScope()

    def __enter__(self) -> Team:
        self._session.start()
        self.spawn("warm")
        self.wait_until_idle()
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def spawn(self, *names: str, worktree: bool = False, host: str = "") -> None:
        from teamcli.tools.base.context import SpawnRequest

        for name in names:
            self._session.team.spawn(SpawnRequest(name, "worker", "go", worktree=worktree, host=host))

    def say(self, name: str, text: str) -> None:
        self._session.team.mail.say(name, text)

    def wait_until_idle(self) -> None:
        self._session.team.quiescence.wait_until_idle(self._cancel)


def names(count: float) -> list[str]:
    return [f"mate{number}" for number in range(int(count))]


def time_wakes(wakes: float, host: str = "") -> list[float]:
    """When each message was sent."""
    sent_at = []
    mates = names(10)
    with Team() as team:
        team.spawn(*mates, host=host)
        team.wait_until_idle()
        for number in range(int(wakes)):
            sent_at.append(time.monotonic())
            team.say(mates[number % len(mates)], "What is new?")
            team.wait_until_idle()
    return sent_at


def time_teammates(workers: float, _turns: float = 0, **terms: Any) -> float:
    """`terms` are those of each spawn."""
    with Team() as team:
        started = time.monotonic()
        team.spawn(*names(workers), **terms)
        team.wait_until_idle()
        return time.monotonic() - started


def time_threads(workers: float, turns: float) -> float:
    work = bare_worker(int(turns))
    work("warm")
    gc.freeze()  # as a session does
    threads = [threading.Thread(target=work, args=(name,), daemon=True) for name in names(workers)]
    started = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.monotonic() - started


def bare_worker(turns: int) -> Callable[[str], None]:
    """The same requests and the same tool, and nothing else: no transcript, no timeline, no roster, no rules."""
    from teamcli.agent.prompt import SHARED_PLACE, TEAMMATE_PROMPT, system_prompt
    from teamcli.cancel import CancelScope
    from teamcli.exec.command_host import CommandHost
    from teamcli.exec.commands import Commands
    from teamcli.llm.backoff import Backoff
    from teamcli.llm.client import connect
    from teamcli.llm.credentials import Endpoint
    from teamcli.llm.types import Message, Preamble, Request
    from teamcli.tools.base.context import AgentContext
    from teamcli.tools.catalog import TEAMMATE_TOOLS, bind_tools
    from teamcli.workspace.bounds import Workspace
    from teamcli.workspace.known_files import KnownFiles, PathLocks

    endpoint = Endpoint("direct", "the benchmark", os.environ["ANTHROPIC_BASE_URL"], os.environ["ANTHROPIC_API_KEY"])
    commands, backoff, cancel = Commands(CommandHost(os.environ)), Backoff(), CancelScope()
    tools = bind_tools(TEAMMATE_TOOLS, AgentContext(Workspace(Path.cwd()), commands, KnownFiles(PathLocks())))
    specs = tuple(tool.spec for tool in tools.values())

    def work(name: str) -> None:
        system = system_prompt(TEAMMATE_PROMPT.format(name=name, role="worker", place=SHARED_PLACE), [])
        preamble = Preamble(os.environ["MODEL_ID"], system, specs, 32_000)
        llm = connect(endpoint, backoff)
        messages = [Message("user", ({"type": "text", "text": "go"},))]
        for _ in range(turns):
            reply = llm.stream(Request(preamble, tuple(messages)), lambda event: None, cancel)
            (call,) = reply.tool_calls
            output = tools["bash"].prepare(call["input"]).run(cancel, lambda text: None, call["id"])
            result = {"type": "tool_result", "tool_use_id": call["id"], "content": output.content}
            messages += [Message("assistant", reply.content), Message("user", (result,))]
        llm.stream(Request(preamble, tuple(messages)), lambda event: None, cancel)

    return work


def measure_idlers(idlers: float, seconds: float) -> tuple[float, float]:
    """The share of a processor that all use together, and how many KB each takes."""
    with Team() as team:
        gc.collect()
        before = resident_kilobytes()
        team.spawn(*names(idlers))
        team.wait_until_idle()
        gc.collect()
        each = (resident_kilobytes() - before) / idlers
        used = time.process_time()
        time.sleep(seconds)
        return (time.process_time() - used) / seconds, each


def resident_kilobytes() -> float:
    command = ["ps", "-o", "rss=", "-p", str(os.getpid())]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


MEASURES: dict[str, Callable[..., Any]] = {
    "wakes": time_wakes,
    "teammates": time_teammates,
    "threads": time_threads,
    "idlers": measure_idlers,
}


def main(arguments: Sequence[str]) -> None:
    if arguments and arguments[0] in MEASURES:
        what, *numbers = arguments
        print(json.dumps(MEASURES[what](*map(float, numbers))))
        return
    print_rows(rows("--quick" in arguments))


def print_rows(found: Sequence[Row]) -> None:
    for name, ours, reference, bound, unit, against in found:
        print(f"{name}: {ours:.1f} {unit}, {against}: {reference:.1f} {unit}, {ours / reference:.2f} (≤ {bound:g})")


if __name__ == "__main__":
    main(sys.argv[1:])
