"""The shell commands of one agent: those it waits for, and those that run in the background until they are stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from teamcli.cancel import CancelScope
from teamcli.errors import Cancelled, ToolError
from teamcli.exec.command_host import CommandHost
from teamcli.exec.command_output import WATCHED_CHARACTERS, BoundedText
from teamcli.exec.job_list import JobList
from teamcli.exec.running_command import Ended, RunningCommand

OUTPUT_LIMIT = 30_000
"""Characters of output that the model reads at a time."""
MAX_BACKGROUND = 20
_MAX_KEPT_ENDED = 20
_STOP_PATIENCE_SECONDS = 5.0


class Finished(NamedTuple):
    """A command that was waited for."""

    output: str
    ended: Ended


class BackgroundStatus(NamedTuple):
    """A background command at one moment."""

    id: str
    command: str
    seconds: float
    """How long it has been running, or ran."""
    new_output: str
    ended: Ended | None
    """None while it runs."""
    lost: str = ""
    """Why its end is unknown."""
    stopped_by_user: bool = False

    @property
    def is_running(self) -> bool:
        return self.ended is None and not self.lost


Report = Callable[[], BackgroundStatus | None]
"""How a command ended; None if its agent knows already. The agent knows it after the call."""


class Commands:
    """Safe for the threads of one agent's calls."""

    def __init__(
        self,
        host: CommandHost,
        on_end: Callable[[Report], None] | None = None,
        agent: str = "",
        jobs: JobList | None = None,
        prelude: Callable[[], str] = str,
    ) -> None:
        """`on_end` is called when a background command has ended, in the thread that follows it.

        `jobs` lists those of all agents for the user. `prelude` returns lines that run before each command.
        """
        self._host = host
        self._on_end = on_end
        self._agent = agent
        self._jobs = jobs or JobList()
        self._prelude = prelude
        self._lock = threading.Lock()
        self._background: dict[str, _BackgroundCommand] = {}

    @property
    def reports_ends(self) -> bool:
        """Whether the agent is notified when a background command ends."""
        return self._on_end is not None

    def run(
        self,
        command: str,
        cwd: Path,
        timeout_seconds: float,
        cancel: CancelScope,
        progress: Callable[[str], None],
        pace: int = WATCHED_CHARACTERS,
    ) -> Finished:
        """Run `command` to its end. `progress` gets at most `pace` characters at once.

        Raises: ToolError, or Cancelled with the output so far, when everything it started is dead
        """
        cancel.check()
        output = BoundedText(OUTPUT_LIMIT)
        running = self._host.start(self._prelude() + command, cwd)
        with cancel.on_cancel(running.stop):
            ended = running.follow(output.add, progress, timeout_seconds, pace)
        text = str(output).rstrip("\n")
        if cancel.cancelled:
            raise Cancelled(cancel.reason, text)
        return Finished(text, ended)

    def run_at_terminal(self, command: str, cwd: Path, cancel: CancelScope) -> int:
        """Run a command that has the whole terminal until it ends. Returns its exit code.

        Raises: ToolError
        """
        return self._host.run_at_terminal(command, cwd, cancel)

    def start_background(self, command: str, cwd: Path) -> str:
        """Start `command` and return its id.

        Raises: ToolError
        """
        with self._lock:
            ended = [id for id, background in self._background.items() if background.is_over]
            if len(self._background) - len(ended) >= MAX_BACKGROUND:
                raise ToolError(f"{MAX_BACKGROUND} commands run in the background already; end one with bash_stop")
            for id in ended[: max(0, len(ended) - _MAX_KEPT_ENDED)]:
                del self._background[id]
            running = self._host.start(self._prelude() + command, cwd)
            background = _BackgroundCommand(self._agent, command, running, self._on_end, self._jobs)
            self._background[background.id] = background
        return background.id

    def program(self, name: str) -> str | None:
        """The path of a program that teamcli itself can run."""
        return self._host.programs.find(name)

    def explain(self, output: str) -> str:
        """What the model should know about the sandbox to understand `output`; often nothing."""
        return self._host.explain(output)

    def status(self, id: str) -> BackgroundStatus:
        """The state of a command, with the output since the last call.

        Raises: ToolError
        """
        return self._find(id).status()

    def stop(self, id: str) -> BackgroundStatus:
        """End it, and wait until it is dead.

        Raises: ToolError
        """
        background = self._find(id)
        background.stop()
        background.join()
        return background.status()

    def close(self) -> None:
        """End all that run in the background, and wait until they are dead."""
        with self._lock:
            background = list(self._background.values())
        for each in background:
            each.stop()
        for each in background:
            each.join()

    def _find(self, id: str) -> _BackgroundCommand:
        with self._lock:
            if id in self._background:
                return self._background[id]
            known = ", ".join(self._background) or "none"
        raise ToolError(f"id: there is no background command {id!r} (there are: {known})")


class _BackgroundCommand:
    """A command with a thread that reads its output."""

    def __init__(
        self,
        agent: str,
        command: str,
        running: RunningCommand,
        on_end: Callable[[Report], None] | None,
        jobs: JobList,
    ) -> None:
        self._on_end = on_end
        self._running = running
        self._stopped_by_user = False
        self._lock = threading.Lock()
        self._new_output = BoundedText(OUTPUT_LIMIT)
        self._ended: Ended | None = None
        self._lost = ""
        self._is_known = False
        """The agent has stopped it, or has seen that it ended."""
        self._thread = threading.Thread(target=self._follow, name=f"command of {agent}", daemon=True)
        with self._lock:  # the user may want to stop it as soon as it is listed
            self._job = jobs.add(agent, command, self._stop_for_user)
            self._thread.start()

    @property
    def id(self) -> str:
        return self._job.id

    @property
    def is_over(self) -> bool:
        return self._job.is_over

    def stop(self) -> None:
        self._is_known = True
        self._running.stop()

    def join(self) -> None:
        self._thread.join(_STOP_PATIENCE_SECONDS)

    def status(self) -> BackgroundStatus:
        with self._lock:
            status = self._status()
            self._new_output.clear()
            self._is_known = self._is_known or self.is_over
            return status

    def report(self) -> BackgroundStatus | None:
        with self._lock:
            is_known, self._is_known = self._is_known, True
            return None if is_known else self._status()

    def _status(self) -> BackgroundStatus:
        new_output, job = str(self._new_output).rstrip("\n"), self._job
        return BackgroundStatus(
            job.id, job.command, job.seconds, new_output, self._ended, self._lost, self._stopped_by_user
        )

    def _stop_for_user(self) -> None:
        """Its agent does not know, so it gets a report."""
        with self._lock:
            self._stopped_by_user = not self.is_over
        self._running.stop()
        self.join()

    def _follow(self) -> None:
        ended, lost = None, ""
        try:
            ended = self._running.follow(self._add, progress=lambda _: None)
        except ToolError as e:
            lost = str(e)
        with self._lock:
            self._ended, self._lost = ended, lost
            self._job.end()
        if self._on_end is not None:
            self._on_end(self.report)

    def _add(self, text: str) -> None:
        self._job.add(text)
        with self._lock:
            self._new_output.add(text)
