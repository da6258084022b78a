"""A REPL that runs during the test: type lines one by one, and wait for what it prints."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from types import TracebackType

from tests.support.program import PATIENCE_SECONDS, Program
from tests.support.waiting import wait_until


class Running:
    """`with Running(program) as repl: repl.type("list"); repl.wait_for("No teammates")`."""

    def __init__(self, program: Program, *arguments: str) -> None:
        self.process = program.start(*arguments, stdin=subprocess.PIPE, stderr=subprocess.STDOUT)
        self._out = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Running:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE_SECONDS)
        self._reader.join(PATIENCE_SECONDS)
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()

    @property
    def out(self) -> str:
        return self._out.decode(errors="replace")

    def type(self, line: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def wait_for(self, text: str, times: int = 1) -> None:
        wait_until(lambda: self.out.count(text) >= times or not self._reader.is_alive())
        assert self.out.count(text) >= times, self.out

    def leave(self) -> int:
        """Returns the exit code, once everything it has printed is in `out`."""
        self.type("q")
        code = self.process.wait(PATIENCE_SECONDS)
        self._reader.join(PATIENCE_SECONDS)
        return code

    def _read(self) -> None:
        assert self.process.stdout
        while data := os.read(self.process.stdout.fileno(), 65_536):
            self._out += data
