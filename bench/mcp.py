"""What MCP servers cost: a `tools/call` on a local one, beyond writing a line to the same server and reading its
answer; and a start with ten of them.

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

from bench.client_run import TEAMCLI, fresh_directory, run_client
from bench.prompt import time_to_prompt
from teamcli.cancel import CancelScope
from teamcli.exec.command_host import CommandHost
from teamcli.mcp.client import McpClient
from teamcli.mcp.pool import LISTING_SECONDS
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
        lists = {"initialize": about, "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}}
        result = lists.get(message["method"])
        if result is None:
            result = {"content": [{"type": "text", "text": message["params"]["arguments"]["text"]}]}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""
_COMMAND = (sys.executable, "-I", "-S", "-c", _SERVER)
_TEXT = "x" * 1000
SERVERS = 10
WAIT_MS = 1000 * (LISTING_SECONDS + 1)
"""The bound for their lists, and a second for everything else."""
SETTINGS = {"mcpServers": {f"s{each}": {"command": _COMMAND[0], "args": _COMMAND[1:]} for each in range(SERVERS)}}


def rows(quick: bool = False) -> list[Row]:
    ours, raw = compare(200 if quick else 2000)
    ready, ready_without = measure_ready(5 if quick else 21)
    return [
        ("MCP tools/call, local server, ours", ours - raw, 2.0, 1.0, "ms", "the promise"),
        (f"prompt ready, {SERVERS} MCP servers", ready, ready_without, 1.05, "ms", "without servers"),
        (f"first request, {SERVERS} new MCP servers", measure_first_request(), WAIT_MS, 1.0, "ms", "the promise"),
    ]


def measure_ready(repetitions: int) -> tuple[float, float]:
    """From starting the process to the prompt, in ms: with servers, and without."""
    with_servers, without = [], []
    with fresh_directory(SETTINGS) as one, fresh_directory() as other:
        for _ in range(repetitions):
            with_servers.append(time_to_prompt(one))
            without.append(time_to_prompt(other))
    return median(with_servers) * 1000, median(without) * 1000


def measure_first_request() -> float:
    """From starting the process to the first request, in ms, if no server has been asked before."""
    return run_client(TEAMCLI, "hi", SETTINGS).first_request_seconds * 1000


def compare(calls: int) -> tuple[float, float]:
    """The median of a call in ms: of the client, and of plain pipes."""
    return measure_client(calls), measure_pipes(calls)


def measure_client(calls: int) -> float:
    config = ServerConfig("echo", _COMMAND[0], _COMMAND[1:])
    host = CommandHost(os.environ)
    client = McpClient(config, lambda receiver: open_stdio(config, host, Path("/"), receiver), Path("/"))
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
