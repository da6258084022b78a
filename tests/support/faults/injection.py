"""Patches the functions through which a program changes files below `.team/`.

A fault is a JSON object: `operation` (of `OPERATIONS`, `flock` or `START`), `file` (relative to `.team/`, as `site`
writes it; for `START`, the name of the command's directory), `number` (which of these calls, from 1; 0: all of them)
and `how`:

- `before`, `after`: the program is killed before or after the call;
- `torn`: the call is done halfway, then the program is killed;
- the name of an error (`EIO`): the call fails with it.

With `{"log": PATH}` nothing fails: every call is noted in that file, to know which there are.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

OPERATIONS = ("write", "pwrite", "fsync", "ftruncate", "rename", "replace", "link")
START = "start"
"""A command that is started, git included. Killed after that means: while it runs. Only in runs of `Forks`."""
_TEMPORARY = re.compile(r"^(\..+\.)[a-z0-9_]{8}$")
_readlink, _kill, _write = os.readlink, os.kill, os.write


def inject(fault: str) -> None:
    """Patch this process."""
    plan = _Plan(json.loads(fault))
    for operation in OPERATIONS:
        setattr(os, operation, plan.wrapped(operation, getattr(os, operation)))
    fcntl.flock = plan.wrapped("flock", fcntl.flock)  # type: ignore[assignment]
    if commands := sys.modules.get("teamcli.exec.command_host"):  # loaded before a fork, else not yet
        commands.CommandHost.start = plan.wrapped(START, commands.CommandHost.start)


def site(path: str) -> str | None:
    """A file as faults name it: relative to `.team/`, without what differs from run to run; None for any other file."""
    _, found, below = os.fsdecode(path).rpartition("/.team/")
    if not found:
        return None
    folder, _, name = below.rpartition("/")
    name = re.sub(r"[0-9]{6,}", "#", _TEMPORARY.sub(r"\1*", name))
    return f"{folder}/{name}" if folder else name


class _Plan:
    def __init__(self, fault: dict[str, Any]) -> None:
        self._fault = fault
        self._count = 0
        self._lock = threading.Lock()
        self._log = os.open(fault["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600) if "log" in fault else -1

    def wrapped(self, operation: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            file = arguments[2].name if operation == START else site(_path(operation, arguments))
            if file is None:
                return function(*arguments, **named)
            if self._log >= 0:
                _write(self._log, f"{operation} {file}\n".encode())
            if not self._is_meant(operation, file):
                return function(*arguments, **named)
            return self._fail(operation, function, arguments)

        return call

    def _is_meant(self, operation: str, file: str) -> bool:
        fault = self._fault
        if fault.get("operation") != operation or fault.get("file", file) != file:
            return False
        with self._lock:
            self._count += 1
            return fault.get("number", 0) in (0, self._count)

    def _fail(self, operation: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        how = self._fault["how"]
        if hasattr(errno, how):
            number = getattr(errno, how)
            raise OSError(number, os.strerror(number))
        if how == "torn" and operation in ("write", "pwrite"):
            fd, data, *rest = arguments
            function(fd, bytes(data)[: len(data) // 2], *rest)
        if how == "after":
            function(*arguments)
        _kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("survived SIGKILL")


def _path(operation: str, arguments: tuple[Any, ...]) -> str:
    if operation in ("rename", "replace", "link"):
        return os.path.join(os.getcwd(), os.fspath(arguments[1]))  # noqa: PTH109, PTH118 - cheap: called very often
    fd = arguments[0] if isinstance(arguments[0], int) else arguments[0].fileno()
    if sys.platform == "darwin":
        return fcntl.fcntl(fd, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0").decode()
    path = _readlink(f"/proc/self/fd/{fd}")
    return path + "/." if path.endswith("/.team") else path
