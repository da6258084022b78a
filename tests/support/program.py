"""Runs the real program as a user would: in its own process, with an empty home and a scratch directory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.fake_api import AnswerLike, FakeAPI, Script

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 60


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        value = json.loads(self.out)
        assert isinstance(value, dict)
        return value

    @property
    def json_lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass
class Program:
    """`teamcli` in `directory`, talking to the endpoint at `url` (or, without one, running the embedded model)."""

    directory: Path
    home: Path
    url: str = ""
    key: str = "test-key-0123456789"
    variables: dict[str, str] = field(default_factory=dict)

    @contextmanager
    def against(self, script: Script | AnswerLike = (), **options: Any) -> Iterator[FakeAPI]:
        """Let it talk to a fake API that answers from `script`. The end of the block fails on a breach of the API."""
        with FakeAPI(script, **options) as api:
            self.url = api.url
            yield api

    def env(self) -> dict[str, str]:
        kept = ("PATH", "LANG", "TMPDIR", "COVERAGE_PROCESS_START")
        env = {name: os.environ[name] for name in kept if name in os.environ}
        env |= {"HOME": str(self.home), "NO_PROXY": "127.0.0.1", "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}
        env["PYDANTIC_DISABLE_PLUGINS"] = "__all__"  # looking for them takes as long as the rest of some tests
        if self.url:
            env |= {"ANTHROPIC_BASE_URL": self.url, "ANTHROPIC_API_KEY": self.key, "MODEL_ID": "test-model"}
        return env | self.variables

    def run(self, *arguments: str, stdin: str | bytes | None = None, env: Mapping[str, str] | None = None) -> Ran:
        """Run to the end."""
        data = stdin.encode() if isinstance(stdin, str) else stdin
        done = subprocess.run(
            self.command(arguments),
            cwd=self.directory,
            env={**self.env(), **(env or {})},
            capture_output=True,
            timeout=PATIENCE_SECONDS,
            **({"stdin": subprocess.DEVNULL} if data is None else {"input": data}),
        )
        ran = Ran(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))
        assert "Traceback" not in ran.err, ran.err
        return ran

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
        """Start and return at once; the test ends it."""
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
        return subprocess.Popen(self.command(arguments), cwd=self.directory, env=self.env(), **pipes)

    def command(self, arguments: Sequence[str]) -> list[str]:
        return [sys.executable, "-m", "teamcli", *arguments]

    def use_test_clock(self) -> Path:
        """The file that sets the wall clock of every process started from now on: `-3600`, or `=0` to stop it."""
        clock = self.home / "clock"
        clock.write_text("0")
        self.variables |= {"PYTHONPATH": f"{ROOT / 'tests/support/clock'}:{ROOT}", "TEST_CLOCK_FILE": str(clock)}
        return clock

    def settings(self, **values: Any) -> None:
        """Write the user's settings."""
        path = self.home / ".teamcli" / "settings.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(values))

    def transcript(self) -> list[dict[str, Any]]:
        return self.lines(".team/transcripts/lead.jsonl")

    def lines(self, path: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.directory / path).read_text().splitlines()]


MakeProgram = Callable[[Path, Path], Program]
