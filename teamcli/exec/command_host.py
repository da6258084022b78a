"""Runs shell commands so that nothing of them outlives its end, its cancellation, or teamcli itself.

One small process per program, the host, forks supervisors (see `command_supervisor`); a supervisor serves many
commands, one after the other, so that a command costs little more than its shell. Safe for any number of threads.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import math
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

from teamcli.config.environment import visible_variables
from teamcli.errors import ToolError
from teamcli.exec import command_supervisor as wire
from teamcli.exec.programs import Programs
from teamcli.exec.running_command import RunningCommand

_PR_SET_DUMPABLE = 4
_NOBODY_IS_WATCHING = {"GIT_TERMINAL_PROMPT": "0", "PAGER": "cat", "GIT_PAGER": "cat"}
_MAX_IDLE_SUPERVISORS = 8
_ANSWER_PATIENCE_SECONDS = 5.0
_FIRST_ANSWER_PATIENCE_SECONDS = 30.0
"""A busy machine must not pass for one on which the sandbox does not work."""
_PLANS = 5
"""Files can change while a sandbox is made for them. If they change that often, someone wants it to fail."""
_OPTIONS = wire.HOST_SOCKET + 1
_EXHAUSTED = tuple(map(os.strerror, (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.ENOSPC)))
"""What the sandbox program says where the system has no room right now: that does not mean that it never works."""
_NO_ROOM_FOR_NAMESPACES = "(ENOSPC)"
"""It says this where all namespaces are in use, and where the system grants none."""


def command_environment(environment: Mapping[str, str], hidden: Iterable[str] = ()) -> dict[str, str]:
    """What commands see of `environment`: no credentials, and settings by which nothing waits for a person."""
    return _NOBODY_IS_WATCHING | visible_variables(environment, hidden)


def hide_secrets(visible: Mapping[str, str]) -> None:
    """Keep what runs below us from reading our credentials in /proc, where the environment we were started with stands.

    Its text is overwritten in place (Python has its own copy), and on Linux our memory is closed to other processes of
    the same user. Root can still look into memory: against that only a sandbox helps.
    """
    import ctypes  # late: only who runs commands needs it

    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    for name in os.environ.keys() - visible.keys():
        address = libc.getenv(os.fsencode(name))
        if address:
            ctypes.memset(address, ord("x"), len(ctypes.string_at(address)))
    if hasattr(libc, "prctl"):
        libc.prctl(_PR_SET_DUMPABLE, 0)


def _is_lack_of_room(complaint: str) -> bool:
    if complaint.endswith(_NO_ROOM_FOR_NAMESPACES):
        needed = ("pid", "ipc", "mnt", *(["user"] if os.geteuid() else []))
        return not any(_grants_none(kind) for kind in needed)
    return complaint.endswith(_EXHAUSTED)


def _grants_none(kind: str) -> bool:
    """Whether an administrator has forbidden this kind of namespace."""
    try:
        return Path(f"/proc/sys/user/max_{kind}_namespaces").read_text(encoding="ascii").strip() == "0"
    except OSError:
        return False


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


def _host_command() -> list[str]:
    """Imported and not run as a script, which Python would compile anew each time. It finds nothing else of teamcli:
    what has the name of a module of Python's own comes after that."""
    module = Path(wire.__file__)
    begin = f"import sys; sys.path.append({str(module.parent)!r}); from {module.stem} import main; main()"
    return [sys.executable, "-I", "-S", "-B", "-c", begin]


class NoSandbox(ToolError):
    """Raised where no sandbox can be made on this machine, whatever the workspace."""


class _Complaint(ToolError):
    """What the sandbox program said before it gave up."""


class Confinement(Protocol):
    """How to start a process so that it is confined."""

    @property
    def options(self) -> tuple[str, ...]: ...

    @property
    def environment(self) -> Mapping[str, str]: ...

    @property
    def to_check(self) -> tuple[bytes, ...]: ...

    def objection(self, identities: Iterable[bytes], mounts: bytes) -> str:
        """Why a sandbox that finds these files at `to_check`, and has these mounts, is not the one that was wanted."""
        ...

    @property
    def port(self) -> int | None:
        """Where commands find the way out, if there is one."""
        ...

    def serve(self, listener: socket.socket) -> Callable[[], None]:
        """Be that way out, for those who connect to a socket inside; returns what ends it."""
        ...

    @property
    def is_outdated(self) -> bool:
        """Whether it no longer closes all that it should: commands to come need another one."""
        ...


class Confiner(Protocol):
    """The sandbox that commands run in."""

    @property
    def program(self) -> str: ...

    def plan(self, environment: Mapping[str, str]) -> Confinement: ...

    def trial(self, environment: Mapping[str, str]) -> Confinement:
        """The least of a sandbox, to see whether any can be made here."""
        ...

    def explain(self, output: str) -> str: ...

    def clear(self) -> None:
        """Called after each command."""
        ...

    def close(self) -> None: ...


class _Supervisor(NamedTuple):
    pid: int
    sock: socket.socket
    process: _HostProcess


class CommandHost:
    """Starts commands. `close` ends all that run; without it they end when the process does, even by SIGKILL.

    All run in one sandbox, so that they find each other's files and servers, and none costs more than without it.
    Without one they run only where none can be made, or where the user wants none. If one can be made, but not for this
    workspace or not now, they are refused: nothing in a directory turns the sandbox off.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        hidden: Iterable[str] = (),
        owns_process: bool = True,
        make_sandbox: Callable[[], Confiner] | None = None,
        is_required: bool = False,
        programs: Programs | None = None,
        on_unconfined: Callable[[str], None] = lambda why: None,
    ) -> None:
        """`hidden` are patterns of variables that commands must not see, besides the keys.

        A process that is not ours (`owns_process`) keeps its environment and its memory as they are. `make_sandbox`
        raises NoSandbox where there can be none; commands run without, unless it `is_required`. `programs` finds the
        shell. `on_unconfined` is called once, with the reason, if there should be a sandbox and commands are about to
        run without one.
        """
        self._owns_process = owns_process
        self._environment = command_environment(environment, hidden)
        self.programs = programs or Programs(self._environment.get("PATH"))
        self._shell = self.programs.find("bash") or "/bin/sh"
        self._lock = threading.Lock()
        self._process: _HostProcess | None = None
        self._retired: list[_HostProcess] = []
        """Those that commands still run in, and no new ones are started in."""
        self._idle: list[_Supervisor] = []
        self._busy: set[_Supervisor] = set()
        self._is_closed = False
        self._numbers = itertools.count(1)
        self._make_sandbox = make_sandbox
        self._is_required = is_required
        self._sandbox: Confiner | None = None
        self._was_confined = False
        self._why_unconfined = "" if make_sandbox else "the settings say so"
        self._why_refused = ""
        self._on_unconfined = on_unconfined
        self._untold = ""

    def prestart(self) -> None:
        """Start the host process, so that the first command need not wait for it. Returns at once."""
        if self._process is not None:
            return
        if self._make_sandbox is None or self._why_unconfined:
            self._prepare()
        else:
            threading.Thread(target=self._prepare, name="sandbox", daemon=True).start()

    def _prepare(self) -> None:
        with self._lock, contextlib.suppress(OSError, ToolError):  # the first command tries again, and tells
            self._host_process()
        self._tell_unconfined()

    def _tell_unconfined(self) -> None:
        """Outside the lock: who is told may be about to call us, in a thread that others wait for."""
        with self._lock:
            why, self._untold = self._untold, ""
        if why:
            self._on_unconfined(why)

    def why_unconfined(self) -> str:
        """Why commands run without a sandbox; empty if they do not. Waits until that is known."""
        self._settle()
        return self._why_unconfined

    def why_refused(self) -> str:
        """Why no command can run: a sandbox can be made here, but not for this workspace. Mostly empty."""
        self._settle()
        return self._why_refused

    def _settle(self) -> None:
        if not (self._was_confined or self._why_unconfined or self._why_refused):
            self._prepare()

    def explain(self, output: str) -> str:
        """What the model should know of the sandbox to understand `output`; often nothing."""
        return self._sandbox.explain(output) if self._sandbox else ""

    def next_id(self) -> str:
        """A name for a background command, unique in this program."""
        return f"bg-{next(self._numbers)}"

    def start(self, command: str, cwd: Path, given: BinaryIO | None = None) -> RunningCommand:
        """Start `command` in a shell; the caller must `follow` it.

        With a file `given` on its standard input, what it writes as errors is kept apart from its output.

        Raises: ToolError
        """
        check_command(command)
        request = (wire.RUN, os.fsencode(cwd), os.fsencode(self._shell), b"-c", b"--", command.encode())
        pipes: list[tuple[int, int]] = []
        try:
            while len(pipes) < (1 if given is None else 2):
                pipes.append(os.pipe())
            sinks = [sink for _, sink in pipes]
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
        return RunningCommand(supervisor.sock, sources, lambda reusable: self._take_back(supervisor, reusable))

    def close(self) -> None:
        """End every command, and wait until all are dead."""
        with self._lock:
            self._is_closed = True
            for supervisor in self._busy:
                with contextlib.suppress(OSError):  # lost: `follow` has noticed, or will
                    supervisor.sock.shutdown(socket.SHUT_RDWR)  # it ends its command; `follow` gets an error
            self._close_process()
            for process in self._retired:
                process.close()
            self._retired.clear()
            if self._sandbox is not None:
                self._sandbox.clear()
                self._sandbox.close()
                self._sandbox = None

    def _hand_over(self, request: tuple[bytes, ...], descriptors: list[int]) -> _Supervisor:
        tries_left = _MAX_IDLE_SUPERVISORS + 1
        while True:
            supervisor = self._take()
            tries_left -= 1
            self._tell_unconfined()
            try:
                wire.send_frame(supervisor.sock, *request, descriptors=descriptors)
                return supervisor
            except BaseException as e:
                self._take_back(supervisor, reusable=False)
                was_killed_while_idle = isinstance(e, ConnectionError)
                if not was_killed_while_idle or not tries_left:
                    raise

    def _take(self) -> _Supervisor:
        with self._lock:
            if self._process is not None and self._process.is_outdated:
                self._retire_process()
            supervisor = self._idle.pop() if self._idle else self._fork_supervisor()
            self._busy.add(supervisor)
            return supervisor

    def _take_back(self, supervisor: _Supervisor, reusable: bool) -> None:
        with self._lock:
            self._busy.remove(supervisor)
            if self._sandbox is not None:
                self._sandbox.clear()
            is_current = supervisor.process is self._process
            if reusable and is_current and not self._is_closed and len(self._idle) < _MAX_IDLE_SUPERVISORS:
                self._idle.append(supervisor)
                return
            supervisor.sock.close()
            if is_current:
                try:
                    supervisor.process.bury(supervisor)
                except ConnectionError:  # the host is lost as well
                    self._close_process()
            else:
                self._close_retired()

    def _fork_supervisor(self) -> _Supervisor:
        process = self._host_process()
        if self._idle:  # it has just proved itself by making one
            return self._idle.pop()
        try:
            return process.fork()
        except ConnectionError:  # somebody has killed the host: another one
            self._close_process()
            self._host_process()
            return self._idle.pop() if self._idle else self._host_process().fork()

    def _host_process(self) -> _HostProcess:
        if self._is_closed:
            raise ToolError("the command cannot be started: teamcli is about to end")
        if self._process is None:
            if self._owns_process:
                hide_secrets(self._environment)
            self._process = self._confined_process() or _HostProcess(self._environment)
        return self._process

    def _confined_process(self) -> _HostProcess | None:
        """None where there is no sandbox and none is required."""
        if self._make_sandbox is not None and not self._why_unconfined:
            try:
                return self._start_confined(self._make_sandbox)
            except NoSandbox as e:
                self._why_unconfined = str(e)
                self._untold = "" if self._is_required else self._why_unconfined
            except (ToolError, OSError) as e:  # the next command tries again: the reason may have gone
                self._why_refused = str(e)
                raise ToolError(
                    f"commands are refused, because their sandbox cannot be set up: {e} "
                    "(teamcli doctor says more; the user can turn it off with the setting `sandbox`)"
                ) from e
        if self._is_required:
            raise ToolError(f"commands must run in a sandbox, and there is none: {self._why_unconfined}")
        return None

    def _start_confined(self, make_sandbox: Callable[[], Confiner]) -> _HostProcess:
        """Raises: NoSandbox, ToolError, OSError"""
        sandbox = self._sandbox = self._sandbox or make_sandbox()
        try:
            process = self._start_as_planned(sandbox)
        except (ToolError, OSError) as e:
            if not self._was_confined and (why := self._why_none_can_be_made(sandbox)):
                sandbox.close()
                self._sandbox = None
                raise NoSandbox(why) from e
            raise
        self._was_confined, self._why_refused = True, ""
        return process

    def _start_as_planned(self, sandbox: Confiner) -> _HostProcess:
        """Raises: ToolError, OSError"""
        for tries_left in reversed(range(_PLANS)):
            plan = sandbox.plan(self._environment)
            try:
                return self._start(sandbox, plan)
            except (ToolError, OSError):
                if not plan.is_outdated or not tries_left:
                    raise
        raise AssertionError

    def _why_none_can_be_made(self, sandbox: Confiner) -> str:
        """Empty unless the sandbox program itself refuses the least that it could do, for no lack of resources."""
        try:
            self._start(sandbox, sandbox.trial(self._environment)).close()
        except _Complaint as e:
            return "" if _is_lack_of_room(str(e)) else str(e)
        except (ToolError, OSError):
            return ""
        finally:
            self._drop_idle()
        return ""

    def _start(self, sandbox: Confiner, confinement: Confinement) -> _HostProcess:
        process = _ConfinedHostProcess(sandbox.program, confinement)
        self._idle.append(process.prove())
        return process

    def _retire_process(self) -> None:
        """Let what runs in it go on."""
        if self._process is not None:
            self._retired.append(self._process)
            self._process = None
        self._drop_idle()
        self._close_retired()

    def _close_retired(self) -> None:
        in_use = {id(supervisor.process) for supervisor in self._busy}
        for process in [each for each in self._retired if id(each) not in in_use]:
            self._retired.remove(process)
            process.close()

    def _close_process(self) -> None:
        self._drop_idle()
        if self._process is not None:
            self._process.close()
            self._process = None

    def _drop_idle(self) -> None:
        for supervisor in self._idle:
            supervisor.sock.close()
        self._idle.clear()


class _HostProcess:
    """The long-lived child process, in a session of its own: Ctrl-C at the terminal does not reach it."""

    is_outdated = False
    _leaving_patience_seconds = 5.0

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Raises: OSError"""
        self._sock, theirs = socket.socketpair()
        self._sock.settimeout(_ANSWER_PATIENCE_SECONDS)
        try:
            with theirs:
                self.pid = self._spawn(theirs.fileno(), environment)
        except BaseException:
            self._sock.close()
            raise
        with contextlib.suppress(OSError):  # if it has died already, the first question finds out
            wire.send_frame(self._sock, *(os.fsencode(f"{name}={value}") for name, value in environment.items()))

    def fork(self) -> _Supervisor:
        """Raises: OSError"""
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                kind, number = self._ask(wire.FORK, descriptors=(theirs.fileno(),))
            if kind == wire.FAILED:
                raise OSError(int(number), os.strerror(int(number)))
        except BaseException:
            ours.close()
            raise
        return _Supervisor(int(number), ours, self)

    def bury(self, supervisor: _Supervisor) -> None:
        """See to the end of a supervisor that has lost its socket, and of what it leaves.

        Raises: OSError
        """
        self._ask(wire.BURY, str(supervisor.pid).encode())

    def close(self) -> None:
        """It ends when its socket does, after all that it has started; else it is made to."""
        self._sock.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGCONT)  # a command may have stopped it
        deadline = time.monotonic() + self._leaving_patience_seconds
        while not self._has_died():
            if time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGKILL)  # something cannot be ended: not worth more of the user's time
                deadline = math.inf
            time.sleep(0.001)

    def _ask(self, *fields: bytes, descriptors: tuple[int, ...] = ()) -> list[bytes]:
        try:
            wire.send_frame(self._sock, *fields, descriptors=descriptors)
            frame = wire.receive_frame(self._sock)
        except TimeoutError:
            frame = None
        if frame is None:
            raise ConnectionResetError("the process that runs commands was killed or hangs; try again")
        return frame[0]

    def _spawn(self, sock: int, environment: Mapping[str, str]) -> int:
        nowhere = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)]
        return os.posix_spawn(
            sys.executable,
            _host_command(),
            environment,
            file_actions=[(os.POSIX_SPAWN_DUP2, sock, wire.HOST_SOCKET), *nowhere],
            setsid=True,
            setsigmask=(),
        )

    def _has_died(self) -> bool:
        try:
            return os.waitpid(self.pid, os.WNOHANG)[0] != 0
        except ChildProcessError:  # whoever started teamcli has set SIGCHLD to be ignored
            return True


class _ConfinedHostProcess(_HostProcess):
    """The same in a sandbox. `pid` is that of the sandbox program outside, with which all ends that runs inside."""

    _leaving_patience_seconds = 1.0  # to kill it leaves nothing behind either

    def __init__(self, program: str, plan: Confinement) -> None:
        """Raises: OSError"""
        self._program = program
        self._plan = plan
        self._close_way_out: Callable[[], None] = lambda: None
        self._is_dead = threading.Event()
        self._complaints, self._sink = os.pipe()
        try:
            super().__init__(plan.environment)
        except BaseException:
            os.close(self._complaints)
            raise
        finally:
            os.close(self._sink)

    @property
    def is_outdated(self) -> bool:  # type: ignore[override]
        return self._plan.is_outdated

    def prove(self) -> _Supervisor:
        """The first supervisor: when there is one, the sandbox works.

        Raises: ToolError, with the reason why it does not
        """
        self._sock.settimeout(_FIRST_ANSWER_PATIENCE_SECONDS)
        try:
            if self._plan.port is not None:
                self._close_way_out = self._plan.serve(self._lent_socket())
            _, *identities, mounts = self._ask(wire.LOOK, *self._plan.to_check)
            if objection := self._plan.objection(identities, mounts):
                self.close()
                raise ToolError(objection)
            supervisor = self.fork()
            self._sock.settimeout(_ANSWER_PATIENCE_SECONDS)
            return supervisor
        except OSError as e:
            self.close()
            complaint = os.read(self._complaints, 4096).decode("utf-8", "replace").strip()
            if complaint:
                raise _Complaint(complaint.splitlines()[-1]) from e
            raise ToolError(f"bwrap does not answer: {e}") from e
        finally:
            os.close(self._complaints)

    def close(self) -> None:
        super().close()
        self._close_way_out()

    def _lent_socket(self) -> socket.socket:
        frame = wire.receive_frame(self._sock)
        if frame is None or not frame[1]:
            raise ConnectionResetError("it has no network of its own")
        return socket.socket(fileno=frame[1][0])

    def _spawn(self, sock: int, environment: Mapping[str, str]) -> int:
        """The sandbox ends with the thread that has started it, so that thread stays."""
        answers: queue.SimpleQueue[int | OSError] = queue.SimpleQueue()
        threading.Thread(target=self._start_and_wait, args=(sock, answers), name="sandbox process", daemon=True).start()
        answer = answers.get()
        if isinstance(answer, OSError):
            raise answer
        return answer

    def _start_and_wait(self, sock: int, answers: queue.SimpleQueue[int | OSError]) -> None:
        try:
            pid = self._start(sock)
        except OSError as e:
            answers.put(e)
            return
        answers.put(pid)
        with contextlib.suppress(ChildProcessError):  # whoever started teamcli has set SIGCHLD to be ignored
            os.waitpid(pid, 0)
        self._is_dead.set()

    def _start(self, sock: int) -> int:
        options = os.memfd_create("options")  # not as arguments, which `ps` would show to every command
        try:
            os.write(options, b"\0".join(map(os.fsencode, self._plan.options)))
            os.lseek(options, 0, os.SEEK_SET)
            wanted = {2: self._sink, wire.HOST_SOCKET: sock, _OPTIONS: options}
            with contextlib.ExitStack() as open_copies:
                copies = {}
                for number, descriptor in wanted.items():  # high ones first, or one would overwrite another
                    copies[number] = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _OPTIONS + 1)
                    open_copies.callback(os.close, copies[number])
                port = () if self._plan.port is None else (str(self._plan.port),)
                ours = (*_host_command(), wire.CONFINED, *port)
                return os.posix_spawn(
                    self._program,
                    [self._program, "--args", str(_OPTIONS), *ours],
                    self._plan.environment,
                    file_actions=[
                        *((os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1)),
                        *((os.POSIX_SPAWN_DUP2, copy, number) for number, copy in copies.items()),
                    ],
                    setsid=True,
                    setsigmask=(),
                )
        finally:
            os.close(options)

    def _has_died(self) -> bool:
        return self._is_dead.is_set()
