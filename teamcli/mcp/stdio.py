"""The stdio transport: a server that runs as a command does, with one JSON message per line.

It runs under a supervisor (see `exec.command_host`) and so ends with teamcli, however that dies. It has a sandbox of
its own, because in that of commands or of other servers it would find their keys in /proc. One thread reads its
answers, another its errors.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from teamcli.errors import McpError, ToolError
from teamcli.exec.command_host import CommandHost
from teamcli.exec.running_command import RunningCommand, describe_exit
from teamcli.mcp.messages import LARGEST_MESSAGE, decode, encode, kind_of
from teamcli.mcp.peer import Receiver
from teamcli.mcp.secrets import without_keys
from teamcli.mcp.server import Json, ServerConfig

logger = logging.getLogger(__name__)

EOF_PATIENCE_SECONDS = 2.0
"""How long a server may take to exit after the end of its input, before it gets a signal."""
_DEATH_PATIENCE_SECONDS = 5.0
_KEPT_ERRORS = 4_000
"""Characters of the error output that explain a crash."""
_LARGEST_BACKLOG = 64_000_000
_MOST_UNASKED = 128_000_000
"""Bytes between two answers. A server that writes more would keep a processor busy for ever."""
_COST_OF_A_LINE = 256
"""Reading a short line takes about as long as so many bytes of a longer one."""
_CHUNK = 65_536


def open_stdio(config: ServerConfig, host: CommandHost, root: Path, receiver: Receiver) -> StdioTransport:
    """Start the server in `root`, unless its configuration names another directory. `host` is that of commands.

    Raises: McpError
    """
    with contextlib.ExitStack() as undo:
        own = host.separate(without_keys(host.environment), named_paths(config, root))
        undo.callback(own.close)
        (given, write_to), (read_from, output) = os.pipe(), os.pipe()
        undo.callback(os.close, write_to)
        undo.callback(os.close, read_from)
        try:
            with os.fdopen(given, "rb", 0) as theirs, os.fdopen(output, "wb", 0) as answers:
                command, directory = (config.command, *config.args), root / config.cwd
                running = own.start_server(command, directory, config.env, theirs, answers)
        except ToolError as e:
            raise McpError(f"MCP server {config.name} cannot be started: {e}") from e
        undo.pop_all()
    return StdioTransport(config.name, own, running, write_to, read_from, receiver)


def named_paths(config: ServerConfig, root: Path) -> list[Path]:
    """What its configuration names and is there: the script that it runs, for example."""
    directory = root / config.cwd
    words = (word.rpartition("=")[2] for word in (config.command, *config.args) if "/" in word or "." in word)
    return [path for path in (directory, *map(directory.joinpath, words)) if os.path.exists(path)]  # noqa: PTH110 - for any text


class StdioTransport:
    def __init__(
        self, name: str, host: CommandHost, running: RunningCommand, write_to: int, read_from: int, receiver: Receiver
    ) -> None:
        """`host` runs nothing else."""
        self._name = name
        self._host = host
        self._running = running
        self._receiver = receiver
        self._errors = _Tail(_KEPT_ERRORS)
        self._writer = _Writer(name, write_to)
        self._end = ""
        """How the process ended."""
        self._hint = ""
        """What the sandbox has to do with that."""
        self._is_dead = threading.Event()
        self._has_reported = threading.Event()
        self._start_thread("errors", self._follow)
        self._start_thread("reader", lambda: self._read(read_from))

    def send(self, message: Json, headers: Mapping[str, str]) -> None:
        self._writer.write(encode(message) + b"\n")

    def abandon(self, id: int, notice: Json | None) -> None:
        if notice is not None:
            with contextlib.suppress(McpError):  # it does not read, so it does not matter to it
                self.send(notice, {})

    def close(self) -> None:
        """Close its input; after 2 seconds it gets SIGTERM, after 2 more SIGKILL."""
        self._writer.close()
        if not self._is_dead.wait(EOF_PATIENCE_SECONDS):
            self._running.stop()
            self._is_dead.wait(_DEATH_PATIENCE_SECONDS)

    def _start_thread(self, what: str, target: Callable[[], None]) -> None:
        # Daemon: nothing here may delay the end of the program, and the supervisor ends the server in any case.
        threading.Thread(target=target, name=f"mcp {what} {self._name}", daemon=True).start()

    def _follow(self) -> None:
        try:
            ended = self._running.follow(self._note_errors, lambda text: None)
            self._end = describe_exit(ended.exit_code)
        except ToolError as e:
            self._end = str(e)
        self._hint = self._host.explain(self._errors.text)
        self._is_dead.set()
        self._writer.close()
        self._host.close()
        # What it wrote last may still be in the pipe; only if the pipe never ends, the end is reported from here.
        if not self._has_reported.wait(_DEATH_PATIENCE_SECONDS):
            self._report_end()

    def _note_errors(self, text: str) -> None:
        self._errors.add(text)
        logger.debug("MCP server %s: %s", self._name, text.rstrip("\n"))

    def _read(self, read_from: int) -> None:
        what = ""
        try:
            unasked = 0
            for line, size in _lines(read_from):
                unasked = 0 if self._take(line) else unasked + size + _COST_OF_A_LINE
                if unasked > _MOST_UNASKED:
                    what = "was ended, because it wrote too much without an answer"
                    break
        finally:
            os.close(read_from)
            # Usually it ends a moment after its output. Without its output it is useless, so it is not left running.
            if not what and self._is_dead.wait(0.5):
                self._report_end()
            else:
                self._running.stop()
                self._is_dead.wait(_DEATH_PATIENCE_SECONDS)
                self._report(what or "has closed its output")

    def _take(self, line: bytes | None) -> bool:
        """Whether it is an answer. None is a line that is too long."""
        if line is None:
            error = f"MCP server {self._name} sent a message of more than {LARGEST_MESSAGE:,} bytes"
            self._receiver.fail_all(McpError(f"{error}, which was dropped; ask it for less"))
        elif (message := decode(line)) is not None:
            self._receiver.receive(message)
            return kind_of(message) == "response"
        elif line.strip():
            logger.debug("MCP server %s: not a message: %r", self._name, line[:200])
        return False

    def _report_end(self) -> None:
        self._report(f"has ended ({self._end})" + (f"; {self._hint}" if self._hint else ""))

    def _report(self, what: str) -> None:
        self._has_reported.set()
        self._receiver.lose(McpError(f"MCP server {self._name} {what}", self._errors.text.strip()))


class _Writer:
    """Writes whole lines in order, without ever waiting for the server."""

    def __init__(self, name: str, write_to: int) -> None:
        self._name = name
        self._write_to = write_to
        self._lock = threading.Lock()
        self._backlog: deque[bytes] = deque()
        self._backlog_size = 0
        self._is_closed = False
        os.set_blocking(write_to, False)

    def write(self, line: bytes) -> None:
        """After the end nothing is written: the reader reports that end.

        Raises: McpError, if too much waits already
        """
        with self._lock:
            if self._is_closed:
                return
            if not self._backlog:
                line = line[self._write_now(line) :]
            if not line:
                return
            if self._backlog_size + len(line) > _LARGEST_BACKLOG:
                raise McpError(f"MCP server {self._name} does not read what is sent to it")
            self._backlog.append(line)
            self._backlog_size += len(line)
            is_first = len(self._backlog) == 1
        if is_first:
            threading.Thread(target=self._drain, name=f"mcp writer {self._name}", daemon=True).start()

    def close(self) -> None:
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            if not self._backlog:  # otherwise the thread that drains it closes it
                os.close(self._write_to)

    def _write_now(self, line: bytes) -> int:
        """How much the pipe takes at once."""
        try:
            return os.write(self._write_to, line)
        except BlockingIOError:
            return 0
        except OSError:  # its end is gone: the reader reports how the server ended
            return len(line)

    def _drain(self) -> None:
        """Only for what does not fit into the pipe: a large message, or a server that is busy."""
        writable = select.poll()
        writable.register(self._write_to, select.POLLOUT)
        while True:
            writable.poll()
            with self._lock:
                written = self._write_now(self._backlog[0])
                self._backlog_size -= written
                rest = self._backlog.popleft()[written:]
                if rest and not self._is_closed:
                    self._backlog.appendleft(rest)
                if self._is_closed:
                    self._backlog.clear()
                    os.close(self._write_to)
                if not self._backlog:
                    return


class _Tail:
    """The end of a text of any length."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.text = ""

    def add(self, text: str) -> None:
        self.text = (self.text + text)[-self._limit :]


def _lines(read_from: int) -> Iterator[tuple[bytes | None, int]]:
    """The lines that a server writes, with their sizes: None for one that is too long, nothing for the rest of that."""
    parts: list[bytes] = []
    size = 0
    is_too_long = False
    while data := os.read(read_from, _CHUNK):
        *ended, rest = data.split(b"\n")
        for piece in ended:
            if not is_too_long:
                yield b"".join((*parts, piece)), size + len(piece)
            parts, size, is_too_long = [], 0, False
        size += len(rest)
        if size > LARGEST_MESSAGE:
            yield b"" if is_too_long else None, size
            parts, size, is_too_long = [], 0, True
        elif rest and not is_too_long:
            parts.append(rest)
