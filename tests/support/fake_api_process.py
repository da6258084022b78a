"""The fake API in its own process: for benchmarks, and for clients that are killed and started again.

    with FakeAPIProcess("turns:30", log=tmp_path / "api.jsonl") as api:
        run(ANTHROPIC_BASE_URL=api.url)
        assert not api.breaches()

A script file is a JSON list in the words of `answers.py`: `"hi"`, `{"text": "hi"}`, `{"tool": "bash", "input":
{"command": "ls"}}`, `{"answer": [...], "stop_reason": "max_tokens"}`, `{"status": 529, "retry_after": 1}`,
`{"cut_after": 3}`, `{"stall_after": 3}`, `{"answer": ["hi", {"delay": 0.05}]}`, `{"repeat": 5, "answer": [...]}`;
`{"rules": [["pattern", ANSWER], ...]}` instead of the list answers by pattern.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support import answers
from tests.support.answers import (
    Answer,
    AnswerLike,
    Fault,
    Json,
    Part,
    Script,
    Status,
    answer,
    rules,
    slowly,
    text,
    tool,
    turns,
)
from tests.support.fake_api import PATIENCE_SECONDS, FakeAPI

END_SIGNALS = {signal.SIGTERM, signal.SIGINT}
REPOSITORY = Path(__file__).parents[2]
FAULTS: dict[str, Callable[[Any], Fault]] = {
    "cut_after": answers.cut_after,
    "stall_after": answers.stall_after,
    "delay": answers.delay,
    "drip": answers.drip,
    "malformed_event": answers.malformed_event,
    "ping": answers.ping,
    "unknown_event": answers.unknown_event,
    "comment": answers.comment,
}
BARE = {
    "stall_before_headers": answers.stall_before_headers,
    "cut_before_headers": answers.cut_before_headers,
    "error_event": answers.error_event,
    "not_json": answers.not_json,
}


class FakeAPIProcess:
    """Runs the fake API next to the test; everything it saw is in its log."""

    def __init__(self, script: str | list[Any] | Json, log: Path, *, keep_bodies: int | None = None) -> None:
        """
        Args:
            script: A named script (`hi`, `turns:N`, `turns:N:COMMAND`, `slow_turns:N:SECONDS`, `sleeps:N`), or what a
                script file would hold.
            log: Where it writes one JSON line per request, finished answer and breach; starts empty.
            keep_bodies: How many request bodies the log holds (None: all).
        """
        log.write_bytes(b"")
        self.log_path = log
        options = ["--log", str(log)]
        if keep_bodies is not None:
            options += ["--keep-bodies", str(keep_bodies)]
        if isinstance(script, str):
            options += ["--script", script]
        else:
            script_file = log.with_suffix(".script.json")
            script_file.write_text(json.dumps(script))
            options += ["--script-file", str(script_file)]
        self._command = [sys.executable, "-m", "tests.support.fake_api", "--stop-on-stdin-eof", *options]

    def __enter__(self) -> FakeAPIProcess:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=REPOSITORY, text=True
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        return self

    def __exit__(self, _kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._process.communicate()  # closes its stdin, which ends it
        breaches = "\n".join(self.breaches())
        if error is None:
            assert not breaches, f"breaches of the Messages API:\n{breaches}"
        elif breaches:
            error.add_note(f"breaches of the Messages API:\n{breaches}")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def log(self) -> list[Json]:
        """Every finished line of the log."""
        lines = self.log_path.read_bytes().split(b"\n")[:-1]
        return [json.loads(line) for line in lines]

    def requests(self) -> list[Json]:
        """The `request` entries: `n, t, size, connection, path, body`."""
        return [entry for entry in self.log() if entry["event"] == "request"]

    def breaches(self) -> list[str]:
        return [f"request {entry['n']}: {entry['breach']}" for entry in self.log() if entry["event"] == "breach"]

    def wait_for_requests(self, n: int, timeout: float = PATIENCE_SECONDS) -> list[Json]:
        deadline = time.monotonic() + timeout
        while len(found := self.requests()) < n:
            assert time.monotonic() < deadline, f"waited {timeout:g} s for {n} requests, have {len(found)}"
            time.sleep(0.005)
        return found


def serve(arguments: list[str]) -> int:
    options = _options(arguments)
    lock = threading.Lock()
    if not options.stop_on_stdin_eof:
        # before any thread starts (threads inherit it), and before the port is printed: a signal may follow at once
        signal.pthread_sigmask(signal.SIG_BLOCK, END_SIGNALS)
    with Path(options.log or os.devnull).open("ab", buffering=0) as log:

        def record(entry: Json) -> None:
            with lock:
                log.write(json.dumps(entry).encode() + b"\n")

        api = FakeAPI(
            _script(options),
            default=text(options.default_text) if options.default_text else None,
            keep_bodies=options.keep_bodies,
            on_record=record,
            port=options.port,
        ).start()
        print(api.port, flush=True)
        _wait_for_the_end(options.stop_on_stdin_eof)
        api.close()
    return 1 if api.breaches else 0


def _wait_for_the_end(stop_on_stdin_eof: bool) -> None:
    if stop_on_stdin_eof:
        sys.stdin.read()
        return
    signal.sigwait(END_SIGNALS)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.support.fake_api", description=__doc__)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--text", help="answer this text, always")
    source.add_argument("--script", help="hi, turns:N[:COMMAND], slow_turns:N:SECONDS, sleeps:N")
    source.add_argument("--script-file", type=Path)
    parser.add_argument("--default-text", help="the answer when the script has run out")
    parser.add_argument("--log", help="append one JSON line per request, answer and breach")
    parser.add_argument("--keep-bodies", type=int, help="how many request bodies to keep and log")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--stop-on-stdin-eof", action="store_true")
    return parser.parse_args(arguments)


def _script(options: argparse.Namespace) -> Script:
    if options.text is not None:
        return lambda _request, _n: text(options.text)
    if options.script is not None:
        return named_script(options.script)
    return parse_script(json.loads(options.script_file.read_text()))


def named_script(name: str) -> Script:
    kind, *details = name.split(":", 2)
    if kind == "hi":
        return [text("hi")]
    if kind == "turns":
        return turns(int(details[0]), *details[1:])
    if kind == "slow_turns":
        return slowly(turns(int(details[0])), float(details[1]))
    if kind == "sleeps":
        return [answer(*(tool("bash", command="sleep 1") for _ in range(int(details[0])))), text("done")]
    raise ValueError(f"no script is called {name!r}")


def parse_script(raw: Any) -> Script:
    if isinstance(raw, dict):
        return rules(*((pattern, parse_answer(reply)) for pattern, reply in raw["rules"]))
    script: list[AnswerLike] = []
    for item in raw:
        times = item.get("repeat", 1) if isinstance(item, dict) else 1
        script += [parse_answer(item)] * times
    return script


def parse_answer(raw: Any) -> AnswerLike:
    part = _parse_part(raw)
    if isinstance(part, (Part, Fault, str, Answer, Status)):
        return part
    raise ValueError(f"no answer: {raw!r}")


def _parse_part(raw: Any) -> Any:
    if isinstance(raw, str):
        return BARE[raw]() if raw in BARE else raw
    if "answer" in raw:
        blocks = [_parse_part(item) for item in raw["answer"]]
        return answer(*blocks, stop_reason=raw.get("stop_reason"), usage=raw.get("usage"), model=raw.get("model"))
    if "status" in raw:
        return answers.status(raw["status"], raw.get("retry_after"), raw.get("body"), raw.get("message", ""))
    for name, fault in FAULTS.items():
        if name in raw:
            return fault(raw[name])
    return _parse_block(raw)


def _parse_block(raw: Json) -> Part:
    if "tool" in raw:
        return tool(raw["tool"], raw.get("id"), **raw.get("input", {}))
    if "thinking" in raw:
        return answers.thinking(raw["thinking"], raw.get("signature", ""))
    return text(raw["text"], raw.get("pieces", 4))
