"""Runs one client once, in a separate home and directory, against a fake API in a separate process.

Every time is CLOCK_MONOTONIC, which all processes of a machine share; gaps are taken at the server. This module stays
small on purpose: a child's peak memory is never reported as less than that of the process which started it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.support.fake_api_process import FakeAPIProcess

REPOSITORY = Path(__file__).parents[1]
TEAMCLI = ("-m", "teamcli", "-p", "--permission-mode", "bypassPermissions", "--client", "direct")
NAIVE = ("-m", "bench.naive")
NAIVE_STREAMING = ("-m", "bench.naive", "--stream")
FLOOR = ("-m", "bench.floor")


@dataclass(frozen=True)
class ClientRun:
    first_request_seconds: float
    """From starting the process to its first request being complete at the server."""
    peak_memory_mb: float
    gaps_ms: list[float]
    """From the end of each answer to the next request being complete at the server."""
    first_request: dict[str, Any]


def run_client(client: tuple[str, ...], script: str, settings: Mapping[str, Any] = MappingProxyType({})) -> ClientRun:
    """Raises RuntimeError when the client fails: a figure from a failed run means nothing."""
    with fresh_directory(settings) as directory, FakeAPIProcess(script, directory / "api.jsonl", keep_bodies=1) as api:
        started = time.monotonic()
        peak_memory_mb = _run([*client, "hi"], directory, client_environment(directory, api.url))
        return _read_log(api.log(), started, peak_memory_mb)


@contextmanager
def fresh_directory(settings: Mapping[str, Any] = MappingProxyType({})) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="teamcli-bench-") as name:
        directory = Path(name)
        (directory / "work").mkdir()
        (directory / ".teamcli").mkdir()
        (directory / ".teamcli" / "settings.json").write_text(json.dumps({"sandbox": "off", **settings}))
        yield directory


def client_environment(home: Path, url: str) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(REPOSITORY),
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "test",
        "MODEL_ID": "claude-opus-5-5",
        "NO_PROXY": "127.0.0.1",
    }


def _run(command: list[str], directory: Path, environment: dict[str, str]) -> float:
    """Run python with these arguments; its peak memory in MB."""
    with (directory / "output").open("w+b") as output:
        process = subprocess.Popen(
            [sys.executable, *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=directory / "work",
            env=environment,
        )
        _, wait_status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(wait_status)
        if process.returncode != 0:
            output.seek(0)
            said = output.read().decode(errors="replace")[-2000:]
            raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}: {said}")
    divisor = 1024 * 1024 if sys.platform == "darwin" else 1024
    return usage.ru_maxrss / divisor


def _read_log(log: list[dict[str, Any]], started: float, peak_memory_mb: float) -> ClientRun:
    requests = {entry["n"]: entry for entry in log if entry["event"] == "request"}
    answered = {entry["n"]: entry["t"] for entry in log if entry["event"] == "answered"}
    gaps = [(requests[n + 1]["t"] - answered[n]) * 1000 for n in range(len(requests) - 1)]
    return ClientRun(requests[0]["t"] - started, peak_memory_mb, gaps, requests[0]["body"])


def system_and_tools_characters(request: dict[str, Any]) -> int:
    """What precedes the conversation in every request."""
    system = request.get("system", "")
    text = system if isinstance(system, str) else "".join(block["text"] for block in system)
    return len(text) + len(json.dumps(request.get("tools", []), ensure_ascii=False, separators=(",", ":")))
