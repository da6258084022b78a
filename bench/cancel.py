"""How long a cancel takes to take effect, in ms, the worst of several: printed as one JSON object.

Usage: python -m bench.cancel DIRECTORY
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Literal

from teamcli.cancel import CancelScope
from teamcli.errors import Cancelled
from teamcli.exec.command_host import CommandHost
from teamcli.exec.commands import Commands
from teamcli.llm.backoff import Backoff
from teamcli.llm.client import Client, connect
from teamcli.llm.credentials import Endpoint
from teamcli.llm.types import Message, Preamble, Request
from teamcli.tools.base.context import AgentContext
from teamcli.tools.bash import BASH
from teamcli.workspace.bounds import Workspace
from teamcli.workspace.known_files import KnownFiles, PathLocks
from tests.support.fake_api import FakeAPI, answer, stall_after, stall_before_headers, text

ClientName = Literal["direct", "sdk"]

TIMES = 5
REQUEST = Request(Preamble("claude-opus-5-5", "", (), 1000), (Message("user", ({"type": "text", "text": "hi"},)),))


def main(directory: Path) -> None:
    found = {
        "a stalled stream (direct)": worst(stalled_stream, "direct"),
        "a stalled stream (sdk)": worst(stalled_stream, "sdk"),
        "a wait for headers (direct)": worst(missing_headers, "direct"),
        "a wait for headers (sdk)": worst(missing_headers, "sdk"),
        "a running command": max(running_command(directory) for _ in range(TIMES)),
    }
    print(json.dumps(found))


def worst(measure: Callable[[ClientName], float], client: ClientName) -> float:
    return max(measure(client) for _ in range(TIMES))


def stalled_stream(client: ClientName) -> float:
    """Cancel after the beginning has been read: before that the client would be busy, not waiting."""
    arrived = threading.Event()
    with FakeAPI([answer(text("Hello"), stall_after(3))]) as api, model(api, client) as llm:
        return time_cancel(lambda scope: llm.stream(REQUEST, lambda _: arrived.set(), scope), arrived.wait)


def missing_headers(client: ClientName) -> float:
    with FakeAPI([stall_before_headers()]) as api, model(api, client) as llm:
        return time_cancel(lambda scope: llm.stream(REQUEST, lambda _: None, scope), api.wait_for_stall)


def model(api: FakeAPI, client: ClientName) -> closing[Client]:
    return closing(connect(Endpoint(client, "the benchmark", api.url, "test"), Backoff()))


def running_command(directory: Path) -> float:
    host = CommandHost(os.environ)
    bash = BASH.bind(AgentContext(Workspace(directory.resolve()), Commands(host), KnownFiles(PathLocks())))
    running = threading.Event()
    call = bash.prepare({"command": "echo started; setsid sleep 60 & sleep 60"})
    took = time_cancel(lambda scope: call.run(scope, lambda _: running.set()), running.wait)
    host.close()
    return took


def time_cancel(work: Callable[[CancelScope], object], wait_until_under_way: Callable[[], object]) -> float:
    """From the cancel to the moment when the work has ended, in ms."""
    scope = CancelScope()
    ended: list[float] = []

    def run() -> None:
        try:
            work(scope)
        except Cancelled:
            ended.append(time.monotonic())

    worker = threading.Thread(target=run)
    worker.start()
    wait_until_under_way()
    started = time.monotonic()
    scope.cancel("the benchmark says so")
    worker.join()
    return (ended[0] - started) * 1000


if __name__ == "__main__":
    main(Path(sys.argv[1]))
