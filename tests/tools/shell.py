"""One agent's shell tools on real processes, and ways to see what is left of these."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from teamcli.agent.tool import ToolOutput
from teamcli.cancel import CancelScope
from teamcli.exec.command_host import CommandHost
from teamcli.exec.commands import Commands, Report
from teamcli.exec.job_list import JobList
from teamcli.exec.supervisor import serve
from teamcli.tools.base.context import AgentContext
from teamcli.tools.base.tool import Tool
from teamcli.tools.bash import BASH
from teamcli.workspace.bounds import Workspace
from teamcli.workspace.known_files import KnownFiles, PathLocks

DEADLINE_SECONDS = 30

needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


class Shell:
    def __init__(
        self,
        root: Path,
        host: CommandHost | None = None,
        on_end: Callable[[Report], None] | None = None,
        jobs: JobList | None = None,
    ) -> None:
        self.host = host or CommandHost(os.environ)
        self.jobs = jobs or JobList()
        self.commands = Commands(self.host, on_end, "alice", self.jobs)
        self.context = AgentContext(Workspace(root), self.commands, KnownFiles(PathLocks()))
        self.cancel = CancelScope()
        self.progress: list[str] = []
        self.on_progress: Callable[[str], None] = lambda text: None

    def call(self, tool: Tool[Any], **arguments: object) -> ToolOutput:
        return tool.bind(self.context).prepare(arguments).run(self.cancel, self._note_progress)

    def bash(self, command: str, **arguments: object) -> str:
        return self.call(BASH, command=command, **arguments).content

    def in_background(self, command: str) -> str:
        return self.bash(command, background=True).split()[5].rstrip(";")

    def close(self) -> None:
        self.commands.close()
        self.host.close()

    def _note_progress(self, text: str) -> None:
        self.progress.append(text)
        self.on_progress(text)


def wait_until(condition: Callable[[], object], what: str = "") -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain: {what or condition}"
        threading.Event().wait(0.01)


def new_mark() -> str:
    return f"mark-{uuid.uuid4().hex}"


def processes_with(mark: str) -> list[int]:
    """Processes whose environment contains `mark`; a dead one has no environment."""
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit() and _environment_has(path, mark)]


def _environment_has(process: Path, mark: str) -> bool:
    try:
        return mark.encode() in (process / "environ").read_bytes()
    except OSError:
        return False


def children_of(parent: int) -> dict[int, str]:
    """Process ids with their states, zombies (Z) included."""
    children = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                state, ppid = (path / "stat").read_text().rpartition(")")[2].split()[:2]
            except OSError:
                continue
            if int(ppid) == parent:
                children[int(path.name)] = state
    return children


def alter_supervisor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, change: str) -> None:
    """Let commands run under a copy of the supervisor whose `module` ends with this change."""
    package = tmp_path / "altered" / "supervisor"
    shutil.copytree(Path(serve.__file__).parent, package)
    with (package / f"{module}.py").open("a") as source:
        source.write(f"\n{change}\n")
    monkeypatch.setattr(serve, "__file__", str(package / "serve.py"))
