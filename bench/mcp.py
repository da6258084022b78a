"""What a `tools/call` on a local server costs, beyond writing a line to the same server and reading its answer.

Usage: python -m bench.mcp [--quick]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from teamcli.cancel import CancelScope
from teamcli.exec.command_host import CommandHost
from teamcli.mcp.client import Client
from teamcli.mcp.server import ServerConfig
from teamcli.mcp.stdio import open_stdio

Row = tuple[str, float, float, float, str, str]
"""The arguments of a `Figure`."""

_SERVER = """
import json, sys
about = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "echo", "version": "1"}}
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        is_start = message["method"] == "initialize"
        result = about if is_start else {"content": [{"type": "text", "text": message["params"]["arguments"]["text"]}]}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""
_COMMAND = (sys.executable, "-I", "-S", "-c", _SERVER)
_TEXT = "x" * 1000


def rows(quick: bool = False) -> list[Row]:
    ours, raw = compare(200 if quick else 2000)
    return [("MCP tools/call, local server, ours", ours - raw, 2.0, 1.0, "ms", "the promise")]


def compare(calls: int) -> tuple[float, float]:
    """The median of a call in ms: of the client, and of plain pipes."""
    return measure_client(calls), measure_pipes(calls)


def measure_client(calls: int) -> float:
    config = ServerConfig("echo", _COMMAND[0], _COMMAND[1:])
    host = CommandHost(os.environ)
    client = Client(config, lambda receiver: open_stdio(config, host, Path("/"), receiver), Path("/"))
    try:
        client.start(CancelScope())
        return _median_ms(calls, lambda: client.call("echo", {"text": _TEXT}, CancelScope()))
    finally:
        client.close()
        host.close()


def measure_pipes(calls: int) -> float:
    with subprocess.Popen(_COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        given, output = server.stdin, server.stdout
        assert given is not None
        assert output is not None
        params = {"name": "echo", "arguments": {"text": _TEXT}}
        line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode() + b"\n"

        def call() -> None:
            given.write(line)
            given.flush()
            json.loads(output.readline())

        call()
        took = _median_ms(calls, call)
        given.close()
        return took


def _median_ms(times: int, action: Callable[[], object]) -> float:
    samples = []
    for _ in range(times):
        started = time.perf_counter()
        action()
        samples.append((time.perf_counter() - started) * 1000)
    return median(samples)


if __name__ == "__main__":
    for row in rows("--quick" in sys.argv):
        print(*row)
