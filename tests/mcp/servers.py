"""Connections to the fake server, for tests."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from teamcli.cancel import CancelScope
from teamcli.exec.command_host import CommandHost
from teamcli.mcp.client import McpClient
from teamcli.mcp.server import (
    Ask,
    Elicitation,
    ElicitationAnswer,
    Kind,
    ServerConfig,
    ServerStatus,
    ServerTimeouts,
    ToolResult,
    decline,
)
from teamcli.mcp.stdio import open_stdio


def _visible(script: Path) -> str:
    """The sandbox hides what is in /tmp, except the environment that runs the tests. Their clone may be there."""
    if not any(script.is_relative_to(place) for place in ("/tmp", "/var/tmp")):
        return str(script)
    copy = Path(sys.prefix) / script.name
    own = copy.with_name(f"{script.name}.{os.getpid()}")  # several workers do this at once
    own.write_bytes(script.read_bytes())
    return str(own.replace(copy))


FAKE = _visible(Path(__file__).with_name("fake_server.py"))
SECONDS = 60.0
"""Generous: nothing here depends on speed."""
PATIENT = ServerTimeouts(SECONDS, SECONDS, SECONDS, 2 * SECONDS)


class Recorder:
    """Notes what a connection reports."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.changes: list[Kind] = []
        self.statuses: list[ServerStatus] = []
        self.questions: list[Elicitation] = []

    def on_change(self, kind: Kind) -> None:
        with self._changed:
            self.changes.append(kind)
            self._changed.notify_all()

    def on_status(self, status: ServerStatus) -> None:
        with self._changed:
            self.statuses.append(status)
            self._changed.notify_all()

    def wait_until(self, condition: Callable[[], bool]) -> bool:
        with self._changed:
            return self._changed.wait_for(condition, SECONDS)

    def accept(self, question: Elicitation, cancel: CancelScope) -> ElicitationAnswer:
        self.questions.append(question)
        return ElicitationAnswer("accept", {"name": "alice"})


@contextmanager
def make_host(environment: Mapping[str, str] | None = None) -> Iterator[CommandHost]:
    """Without a sandbox. The process belongs to the tests."""
    host = CommandHost(os.environ if environment is None else environment, owns_process=False)
    try:
        yield host
    finally:
        host.close()


@contextmanager
def connect(
    *behaviors: str,
    root: Path = Path("/"),
    host: CommandHost | None = None,
    ask: Ask = decline,
    recorder: Recorder | None = None,
    timeouts: ServerTimeouts = PATIENT,
    command: str = sys.executable,
    env: Mapping[str, str] | None = None,
) -> Iterator[McpClient]:
    """A connection to a fake server with these behaviors. It is started by its first use."""
    recorder = recorder or Recorder()
    arguments = ("-I", "-S", FAKE, *behaviors) if command == sys.executable else behaviors
    config = ServerConfig("fake", command, arguments, env or {}, timeouts=timeouts)
    with make_host() as own:
        client = McpClient(
            config,
            lambda receiver: open_stdio(config, host or own, root, receiver),
            root,
            ask,
            recorder.on_change,
            recorder.on_status,
        )
        try:
            yield client
        finally:
            client.close()


def call(client: McpClient, tool: str, **arguments: Any) -> ToolResult:
    return client.call(tool, arguments, CancelScope())


def text_of(result: ToolResult) -> str:
    return "".join(str(block.get("text")) for block in result.content)


def json_of(result: ToolResult) -> Any:
    return json.loads(text_of(result))
