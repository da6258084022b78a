"""A real terminal that wraps long lines again when it is resized: tmux, with a server of its own for each test."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.program import Program
from tests.support.waiting import wait_until


class Tmux:
    def __init__(self, socket: Path) -> None:
        self._command = ["tmux", "-f", "/dev/null", "-S", str(socket)]

    def run(self, *arguments: str) -> str:
        command = [*self._command, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout

    def start(self, program: Program, *arguments: str, columns: int = 80, lines: int = 24) -> None:
        environment = [item for pair in program.env().items() for item in ("-e", "=".join(pair))]
        options = ["-d", "-x", str(columns), "-y", str(lines), *environment, "-c", str(program.directory)]
        # The limit counts for panes that are made later, so it is set before the program starts.
        self.run(
            "start-server",
            ";",
            "set-option",
            "-g",
            "history-limit",
            "20000",
            ";",
            "new-session",
            *options,
            *program.command(arguments),
        )

    def type(self, *keys: str) -> None:
        self.run("send-keys", *keys)

    def resize(self, columns: int, lines: int) -> None:
        self.run("resize-window", "-x", str(columns), "-y", str(lines))

    def copied(self) -> str:
        """The screen and all that has scrolled away, with wrapped rows joined as copying does."""
        return self.run("capture-pane", "-J", "-p", "-S-").replace(" \n", "\n")

    def wait_for(self, text: str) -> None:
        wait_until(lambda: text in self.copied(), every_seconds=0.05)  # each time a process starts

    def rows(self) -> list[str]:
        """What a person sees, without the scrollback."""
        return self.run("capture-pane", "-p").split("\n")[:-1]

    def end(self) -> None:
        subprocess.run([*self._command, "kill-server"], capture_output=True, check=False)
