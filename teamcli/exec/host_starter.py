"""Starts host processes, in a sandbox whenever one can be made."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from teamcli.errors import ToolError
from teamcli.exec.host_process import HostProcess, SandboxedHostProcess, SandboxRefused
from teamcli.exec.sandbox import NoSandbox

if TYPE_CHECKING:
    from teamcli.exec.sandbox.sandbox import Sandbox

_PLANS = 5
"""Files can change while a sandbox is made for them. If they change that often, someone wants it to fail."""
_EXHAUSTED = tuple(map(os.strerror, (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.ENOSPC)))
"""What the sandbox program says if the system is out of resources. That does not mean that it never works."""
_NO_NAMESPACES = "(ENOSPC)"
"""What it says if all namespaces are in use, and also if the system grants none."""


class HostStarter:
    """Decides about the sandbox: commands run without one only if none can be made, or if the user wants none.

    If one can be made, but not for this workspace or not now, commands are refused: nothing in a directory turns the
    sandbox off. Not safe for threads.
    """

    def __init__(
        self, environment: Mapping[str, str], make_sandbox: Callable[[], Sandbox] | None, is_required: bool
    ) -> None:
        self._environment = environment
        self._make_sandbox = make_sandbox
        self._is_required = is_required
        self._sandbox: Sandbox | None = None
        self._was_sandboxed = False
        self.why_unconfined = "" if make_sandbox else "the settings say so"
        self.why_refused = ""

    @property
    def is_decided(self) -> bool:
        return bool(self._was_sandboxed or self.why_unconfined or self.why_refused)

    def sandbox(self) -> Sandbox:
        """The sandbox that commands get.

        Raises: NoSandbox, ToolError, OSError
        """
        if self._make_sandbox is None or self.why_unconfined:
            raise NoSandbox(self.why_unconfined)
        self._sandbox = self._sandbox or self._make_sandbox()
        return self._sandbox

    def start(self) -> HostProcess:
        """Raises: ToolError, OSError"""
        if self._make_sandbox is not None and not self.why_unconfined:
            try:
                return self._start_sandboxed()
            except NoSandbox as e:
                self.why_unconfined = str(e)
            except (ToolError, OSError) as e:  # the next command tries again: the reason may be gone
                self.why_refused = str(e)
                raise ToolError(
                    f"commands are refused, because their sandbox cannot be set up: {e} "
                    "(teamcli doctor says more; the user can turn it off with the setting `sandbox`)"
                ) from e
        if self._is_required:
            raise ToolError(f"commands must run in a sandbox, and there is none: {self.why_unconfined}")
        return HostProcess(self._environment)

    def explain(self, output: str) -> str:
        return self._sandbox.explain(output) if self._sandbox else ""

    def clear(self) -> None:
        """Call this after each command."""
        if self._sandbox is not None:
            self._sandbox.clear()

    def close(self) -> None:
        if self._sandbox is not None:
            self._sandbox.clear()
            self._sandbox.close()
            self._sandbox = None

    def _start_sandboxed(self) -> HostProcess:
        """Raises: NoSandbox, ToolError, OSError"""
        sandbox = self.sandbox()
        try:
            process = self._start_as_planned(sandbox)
        except (ToolError, OSError) as e:
            if not self._was_sandboxed and (why := self._why_none_can_be_made(sandbox)):
                sandbox.close()
                self._sandbox = None
                raise NoSandbox(why) from e
            raise
        self._was_sandboxed, self.why_refused = True, ""
        return process

    def _start_as_planned(self, sandbox: Sandbox) -> HostProcess:
        """Raises: ToolError, OSError"""
        for tries_left in reversed(range(_PLANS)):
            plan = sandbox.plan(self._environment)
            try:
                return SandboxedHostProcess(sandbox.program, plan)
            except (ToolError, OSError):
                if not plan.is_outdated or not tries_left:
                    raise
        raise AssertionError

    def _why_none_can_be_made(self, sandbox: Sandbox) -> str:
        """Empty unless the sandbox program refuses even the simplest sandbox, and not for lack of resources."""
        try:
            SandboxedHostProcess(sandbox.program, sandbox.trial(self._environment)).close()
        except SandboxRefused as e:
            return "" if _is_lack_of_resources(str(e)) else str(e)
        except (ToolError, OSError):
            return ""
        return ""


def _is_lack_of_resources(complaint: str) -> bool:
    if complaint.endswith(_NO_NAMESPACES):
        needed = ("pid", "ipc", "mnt", *(["user"] if os.geteuid() else []))
        return not any(map(_are_forbidden, needed))
    return complaint.endswith(_EXHAUSTED)


def _are_forbidden(kind: str) -> bool:
    """Whether an administrator has forbidden this kind of namespace."""
    try:
        return Path(f"/proc/sys/user/max_{kind}_namespaces").read_text(encoding="ascii").strip() == "0"
    except OSError:
        return False
