"""Runs shell commands so that nothing they start outlives its end, its cancellation, or teamcli itself.

One small process per program, the host, forks supervisors (see `supervisor`). A supervisor serves many commands, one
after another, so that a command costs little more than its shell.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from teamcli.cancel import CancelScope
from teamcli.config.environment import visible_variables
from teamcli.errors import ToolError
from teamcli.exec.at_terminal import run_at_terminal
from teamcli.exec.host_process import HostProcess, SupervisorHandle
from teamcli.exec.host_starter import HostStarter
from teamcli.exec.programs import Programs
from teamcli.exec.running_command import RunningCommand
from teamcli.exec.supervisor import wire
from teamcli.exec.supervisor.processes import SERVER_GRACE_SECONDS
from teamcli.exec.supervisor_pool import MAX_IDLE_SUPERVISORS, SupervisorPool

if TYPE_CHECKING:
    from teamcli.exec.sandbox.sandbox import Sandbox

_PR_SET_DUMPABLE = 4
_UNATTENDED = {"GIT_TERMINAL_PROMPT": "0", "PAGER": "cat", "GIT_PAGER": "cat"}
"""With these variables, programs do not wait for a person."""


def check_command(command: str) -> None:
    """Raises: ToolError"""
    if not command.strip():
        raise ToolError("command: is empty")
    if "\0" in command:
        raise ToolError("command: contains a NUL character")
    try:
        command.encode()
    except UnicodeEncodeError as e:
        raise ToolError(f"command: is not valid Unicode at character {e.start}") from e


class CommandHost:
    """Starts commands. `close` ends all that run; without it they end when the process does, even by SIGKILL.

    All run in one sandbox, so that they find each other's files and servers, and a command costs no more than without
    it. Safe for any number of threads.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        hidden: Iterable[str] = (),
        owns_process: bool = True,
        make_sandbox: Callable[[], Sandbox] | None = None,
        is_required: bool = False,
        programs: Programs | None = None,
        on_unconfined: Callable[[str], None] = lambda why: None,
    ) -> None:
        """`hidden` are patterns of variables that commands must not see, besides the keys.

        If the process is not ours (`owns_process`), its environment and memory stay as they are. `make_sandbox` raises
        NoSandbox if there can be none; commands then run without one, unless it `is_required`. `programs` finds the
        shell. `on_unconfined` is called once, with the reason, if there should be a sandbox and commands are about to
        run without one.
        """
        self._owns_process = owns_process
        visible = visible_variables(environment, hidden)
        self.programs = programs or Programs(visible.get("PATH"))
        self._shell = self.programs.find("bash") or "/bin/sh"
        # Without SHELL, as in a container, every bash would look the user up in /etc/passwd to find it.
        self._attended = {"SHELL": self._shell} | visible
        self._environment = _UNATTENDED | self._attended
        self._starter = HostStarter(self._environment, make_sandbox, is_required)
        self._can_be_confined = make_sandbox is not None
        self._is_required = is_required
        self._separate: list[CommandHost] = []
        self._on_unconfined = on_unconfined
        self._should_report = make_sandbox is not None and not is_required
        self._pool = SupervisorPool(self._start_process)
        self._lock = threading.Lock()

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables that commands see, before the sandbox adds its own."""
        return self._environment

    def prestart(self) -> None:
        """Start the host process, so that the first command does not wait for it. Returns at once."""
        if self._pool.process is not None:
            return
        if self._starter.why_unconfined:
            self._prepare()
        else:
            threading.Thread(target=self._prepare, name="sandbox", daemon=True).start()

    def renew(self) -> None:
        """Run later commands in a new sandbox: the workspace was replaced, maybe by one with the same inode number."""
        with self._lock:
            self._pool.retire()

    def end_processes(self) -> None:
        """End its processes, unless a command runs. The next one starts them again, with the same files in `/tmp`."""
        with self._lock:
            self._pool.end_unused()

    def separate(self, environment: Mapping[str, str], named: Iterable[Path]) -> CommandHost:
        """A host for one program, which neither sees the processes of this one nor is seen by them.

        It has a sandbox of its own, in which it can also read what is `named`, and ends with this one.
        """
        if self._owns_process:
            _hide_secrets(self._environment)
        host = CommandHost(
            environment,
            owns_process=False,
            make_sandbox=partial(self._separate_sandbox, tuple(named)) if self._can_be_confined else None,
            is_required=self._is_required,
            programs=self.programs,
            on_unconfined=self._tell_unconfined,
        )
        with self._lock:
            self._separate = [*(each for each in self._separate if not each._pool.is_closed), host]
        return host

    def why_unconfined(self) -> str:
        """Why commands run without a sandbox; empty if they do not. Waits until that is known."""
        self._decide()
        return self._starter.why_unconfined

    def why_refused(self) -> str:
        """Why no command can run: a sandbox can be made here, but not for this workspace. Usually empty."""
        self._decide()
        return self._starter.why_refused

    def explain(self, output: str) -> str:
        """What the model should know about the sandbox to understand `output`; often nothing."""
        return self._starter.explain(output)

    def start(
        self,
        command: str,
        cwd: Path,
        given: BinaryIO | None = None,
        output: BinaryIO | None = None,
        lingers: bool = False,
    ) -> RunningCommand:
        """Start `command` in a shell; the caller must `follow` it.

        With a file `given` as its standard input, its error output is kept apart from its output. If that goes to the
        file `output`, unchanged, the errors are what is followed. If it `lingers`, what it leaves running is not ended
        before it is stopped or this host is closed.

        Raises: ToolError
        """
        check_command(command)
        request = (
            wire.LINGER if lingers else wire.RUN,
            os.fsencode(cwd),
            os.fsencode(self._shell),
            b"-c",
            b"--",
            command.encode(),
        )
        return self._start(request, given, output)

    def start_server(
        self,
        argv: Sequence[str],
        cwd: Path,
        variables: Mapping[str, str],
        given: BinaryIO,
        output: BinaryIO,
    ) -> RunningCommand:
        """Start a program that answers on `output` what it reads from `given`; the caller must `follow` its errors.

        `variables` are added to those that commands see. It gets 2 seconds to end by itself.

        Raises: ToolError
        """
        assignments = [f"{name}={value}" for name, value in variables.items()]
        # The shell finds the program in the PATH that it will have, and reports one that is missing.
        command = (str(cwd), self._shell, "-c", 'exec "$0" "$@"', *argv)
        fields = (str(len(assignments)), *assignments, *command)
        if any("\0" in field for field in fields):
            raise ToolError("the server cannot be started: its command has a NUL character")
        request = (wire.SERVE, *(field.encode("utf-8", "surrogateescape") for field in fields))
        return self._start(request, given, output, SERVER_GRACE_SECONDS)

    def _start(
        self,
        request: tuple[bytes, ...],
        given: BinaryIO | None,
        output: BinaryIO | None,
        grace_seconds: float = 0.0,
    ) -> RunningCommand:
        pipes: list[tuple[int, int]] = []
        try:
            while len(pipes) < (1 if given is None or output is not None else 2):
                pipes.append(os.pipe())
            sinks = [*([] if output is None else [output.fileno()]), *(sink for _, sink in pipes)]
            supervisor = self._hand_over(request, sinks if given is None else [sinks[0], given.fileno(), sinks[1]])
        except BaseException as e:
            for source, _ in pipes:
                os.close(source)
            if isinstance(e, OSError):
                raise ToolError(f"the command cannot be started: {e.strerror or e}") from e
            raise
        finally:
            for _, sink in pipes:
                os.close(sink)
        sources = tuple(source for source, _ in pipes)
        return RunningCommand(
            supervisor.sock,
            sources,
            lambda reusable: self._take_back(supervisor, reusable),
            grace_seconds,
        )

    def run_at_terminal(self, command: str, cwd: Path, cancel: CancelScope) -> int:
        """Run a command that has the whole terminal until it ends, outside any sandbox. Returns its exit code.

        Raises: ToolError
        """
        check_command(command)
        try:
            return run_at_terminal((self._shell, "-c", "--", command), cwd, self._attended, cancel)
        except OSError as e:
            raise ToolError(f"the terminal cannot be used for this command: {e.strerror}") from e

    def close(self) -> None:
        """End every command, and wait until all are dead."""
        with self._lock:
            closing = [threading.Thread(target=host.close, name="host close") for host in self._separate]
            self._separate = []
        for thread in closing:
            thread.start()
        for thread in closing:
            thread.join()
        with self._lock:
            self._pool.close()
            self._starter.close()

    def _decide(self) -> None:
        if not self._starter.is_decided:
            self._prepare()

    def _prepare(self) -> None:
        with self._lock, contextlib.suppress(OSError, ToolError):  # the first command tries again, and reports it
            self._pool.ensure_process()
        self._report_unconfined()

    def _report_unconfined(self) -> None:
        """Call this without the lock: the callback may wait for a thread that is about to start a command."""
        if not self._should_report:  # for good; other threads hold the lock while they fork
            return
        if self._starter.why_unconfined:
            self._tell_unconfined(self._starter.why_unconfined)

    def _tell_unconfined(self, why: str) -> None:
        with self._lock:
            should_report, self._should_report = self._should_report, False
        if should_report:
            self._on_unconfined(why)

    def _separate_sandbox(self, named: tuple[Path, ...]) -> Sandbox:
        """Raises: NoSandbox, ToolError, OSError"""
        with self._lock:
            return self._starter.sandbox().separate(named)

    def _hand_over(self, request: tuple[bytes, ...], descriptors: list[int]) -> SupervisorHandle:
        tries_left = MAX_IDLE_SUPERVISORS + 1  # all that are idle may have been killed; the last one is new
        while True:
            with self._lock:
                supervisor = self._pool.take()
            tries_left -= 1
            self._report_unconfined()
            try:
                wire.send_frame(supervisor.sock, *request, descriptors=descriptors)
                return supervisor
            except BaseException as e:
                self._take_back(supervisor, reusable=False)
                was_killed_while_idle = isinstance(e, ConnectionError)
                if not was_killed_while_idle or not tries_left:
                    raise

    def _take_back(self, supervisor: SupervisorHandle, reusable: bool) -> None:
        with self._lock:
            self._starter.clear()
            self._pool.give_back(supervisor, reusable)

    def _start_process(self) -> HostProcess:
        """Raises: ToolError, OSError"""
        if self._owns_process:
            _hide_secrets(self._environment)
        return self._starter.start()


def _hide_secrets(visible: Mapping[str, str]) -> None:
    """Keep commands from reading our credentials in /proc, which shows the environment we were started with.

    Its text is overwritten in place (Python has its own copy), and on Linux our memory is closed to other processes of
    the same user. Root can still read memory: only a sandbox helps against that.
    """
    import ctypes  # late: only a program that runs commands needs it

    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    for name in os.environ.keys() - visible.keys():
        address = libc.getenv(os.fsencode(name))
        if address:
            ctypes.memset(address, ord("x"), len(ctypes.string_at(address)))
    if hasattr(libc, "prctl"):
        libc.prctl(_PR_SET_DUMPABLE, 0)
