"""Hooks that are shell commands: JSON on standard input; exit code 2 to object, or JSON on standard output to say more.

They run like `bash` commands: without credentials, and none of their processes outlives them. Loaded only if the
settings configure some.
"""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from teamcli.agent.events import Emit, Notice
from teamcli.agent.hooks import (
    NO_RESULT,
    POST_TOOL_USE,
    SESSION_END,
    SESSION_START,
    USER_PROMPT_SUBMIT,
    HookEvent,
    HookResult,
)
from teamcli.cancel import CancelScope
from teamcli.claude_code.tool_responses import has_failed
from teamcli.config.settings import HookCommand, HookGroup
from teamcli.errors import StateError, ToolError
from teamcli.exec.command_host import CommandHost
from teamcli.exec.command_output import BoundedText
from teamcli.exec.running_command import Ended, RunningCommand
from teamcli.exec.shell_prelude import SessionLines
from teamcli.hooks.environment import HookContext, shell_text
from teamcli.hooks.matching import matcher_of
from teamcli.hooks.output import HookOutput, Ran, read_output
from teamcli.hooks.payload import file_of, our_payload, their_payload
from teamcli.hooks.runner import RegisteredHook, timeout_of
from teamcli.hooks.together import Release
from teamcli.storage.files import make_private_dir
from teamcli.text.redaction import redact_value

if TYPE_CHECKING:
    from teamcli.hooks.claude_transcript import ClaudeTranscripts
    from teamcli.hooks.long_output import LongOutput

OUTPUT_LIMIT = 30_000
"""Of error output. More is cut in the middle."""
JSON_LIMIT = 2_000_000
"""Of output, which may be a JSON object and must not be cut."""
_CLAUDES_SECONDS: Mapping[str, float] = {USER_PROMPT_SUBMIT: 30.0, SESSION_END: 1.5}
_CLAUDES_DEFAULT_SECONDS, _LONGEST_LEAVING_SECONDS = 600.0, 60.0


class Ports(NamedTuple):
    """What command hooks work with."""

    host: CommandHost
    root: Path
    emit: Emit
    transcripts: ClaudeTranscripts | None = None
    """In Claude Code's format, for its hooks."""
    long_output: LongOutput | None = None
    lines: SessionLines | None = None
    """What hooks want to run before each command."""
    is_about: Callable[[str, HookEvent], bool] = lambda rule, event: True
    """Whether a permission rule is about a call."""
    plugin_data: Path | None = None
    """Below it, each plugin has a folder for its files."""
    lingering: threading.Semaphore | None = None
    """Taken by each hook that has ended and left programs running; None if none may."""


def command_hooks(groups: Mapping[str, Iterable[HookGroup]], ports: Ports) -> Iterator[RegisteredHook]:
    """The hooks of the settings, in their order."""
    for event, of_event in groups.items():
        for group in of_event:
            for hook in group.hooks:
                yield _registered(event, group, hook, ports)


def _registered(event: str, group: HookGroup, hook: HookCommand, ports: Ports) -> RegisteredHook:
    is_claudes = bool(group.source)
    return RegisteredHook(
        event,
        matcher_of(event, group.matcher, is_claudes),
        hook.command,
        partial(_call, hook, group, ports),
        partial(_accepts, hook, group.role, ports) if is_claudes else lambda event: True,
        json.dumps([hook.command, hook.raw.get("args"), group.plugin]) if is_claudes else "",
        hook.raw.get("async") is True or hook.raw.get("asyncRewake") is True,
        hook.raw.get("asyncRewake") is True,
        partial(_call, hook, group, ports) if is_claudes else None,
    )


def _accepts(hook: HookCommand, role: str, ports: Ports, event: HookEvent) -> bool:
    if role and str(event.fields.get("agent_type", "")).casefold() != role.casefold():
        return False
    if event.name == POST_TOOL_USE and has_failed(event.subject, event.fields):
        return False  # there, another event says so
    rule = hook.raw.get("if")
    return not isinstance(rule, str) or not rule or ports.is_about(rule, event)


def _call(
    hook: HookCommand,
    group: HookGroup,
    ports: Ports,
    event: HookEvent,
    cancel: CancelScope,
    release: Release | None = None,
) -> HookResult:
    """Raises: ToolError, StateError, OSError, ValueError, Cancelled."""
    try:
        return _Run(hook, group, ports, event, release).to_its_end(cancel)
    except (ToolError, StateError, OSError, ValueError) as e:
        if hook.raw.get("onFailure") == "block":
            return HookResult(f"The hook `{hook.command}` failed, and then this is blocked: {e}")
        raise


class _Run:
    """One run of a hook. `release` is called when nothing needs to wait for it, although it has not ended."""

    def __init__(
        self, hook: HookCommand, group: HookGroup, ports: Ports, event: HookEvent, release: Release | None
    ) -> None:
        self._hook = hook
        self._group = group
        self._ports = ports
        self._event = event
        self._release = release or (lambda result: None)
        self._may_linger = release is not None and ports.lingering is not None
        self._is_lingering = False
        self._out = HookOutput(JSON_LIMIT, lambda: self._release(NO_RESULT))
        self._errors = BoundedText(OUTPUT_LIMIT)
        self._lines = ports.lines if event.name == SESSION_START else None
        self._env_file = str(self._lines.new_file()) if self._lines else ""

    def to_its_end(self, cancel: CancelScope) -> HookResult:
        """Raises: ToolError, StateError, OSError, ValueError, Cancelled."""
        cancel.check()
        running = self._start()
        try:
            with cancel.on_cancel(running.stop):
                ended = self._follow(running)
        except ToolError:  # the program ends, and with it what the hook has left running
            if not self._is_lingering:
                raise
        if self._is_lingering and self._ports.lingering is not None:
            self._ports.lingering.release()
            return NO_RESULT  # what it had to say is known
        cancel.check()
        if ended.timed_out:
            raise ToolError("it took too long and was stopped")
        return self._result(ended.exit_code)

    def _follow(self, running: RunningCommand) -> Ended:
        event, timeout = self._event.name, self._hook.timeout
        seconds = _claudes_seconds(event, timeout) if self._group.source else timeout_of(event, timeout)
        on_exit = partial(self._linger, running)
        return running.follow(self._out.add, lambda text: None, seconds, on_error=self._errors.add, on_exit=on_exit)

    def _start(self) -> RunningCommand:
        group, ports, event = self._group, self._ports, self._event
        is_claudes = bool(group.source)
        start = HookContext(
            str(ports.root),
            str(event.fields.get("session_id", "")),
            file_of(event),
            self._env_file,
            group.plugin,
            str(_plugin_data(group.plugin, ports)) if group.plugin and ports.plugin_data else "",
        )
        # A file, not a pipe: a hook that never reads its input must not block us.
        with tempfile.TemporaryFile() as stdin:
            stdin.write(_payload(event, ports.transcripts if is_claudes else None, is_claudes))
            stdin.seek(0)
            command, cwd = shell_text(self._hook, start, is_claudes), Path(str(event.fields.get("cwd", ports.root)))
            return ports.host.start(command, cwd, stdin, lingers=self._may_linger)

    def _linger(self, running: RunningCommand, exit_code: int) -> None:
        """The hook has ended, and a program that it has started in the background has not."""
        if self._ports.lingering is None or not self._ports.lingering.acquire(blocking=False):
            running.stop()
            return
        self._is_lingering = True
        try:
            self._release(self._result(exit_code))
        except (ToolError, OSError, ValueError):  # a failure is reported when all has ended
            self._is_lingering = False
            self._ports.lingering.release()
            running.stop()

    def _result(self, exit_code: int) -> HookResult:
        """Raises: ToolError, OSError, ValueError."""
        if self._lines:
            lines, self._lines = self._lines, None
            lines.read(Path(self._env_file))
        ran, ports = Ran(exit_code, self._out.text, str(self._errors).strip()), self._ports
        result = read_output(ran, self._event, lambda text: ports.emit(Notice(self._event.agent, text)))
        return ports.long_output.shortened(result) if ports.long_output else result


def _plugin_data(plugin: str, ports: Ports) -> Path:
    """Raises: StateError."""
    folder = (ports.plugin_data or ports.root) / Path(plugin).name
    make_private_dir(folder)
    return folder


def _payload(event: HookEvent, transcripts: ClaudeTranscripts | None, is_claudes: bool) -> bytes:
    if not is_claudes:
        return json.dumps(redact_value(our_payload(event))).encode()
    payload = their_payload(event, *(transcripts.paths_for(event) if transcripts else ()))
    # As JavaScript writes it: guards without jq search for `"command":"git push`, and for letters beyond ASCII.
    text = json.dumps(redact_value(payload), ensure_ascii=False, separators=(",", ":"))
    return text.encode(errors="backslashreplace")


def _claudes_seconds(event: str, configured: float | None) -> float:
    seconds = configured or _CLAUDES_SECONDS.get(event, _CLAUDES_DEFAULT_SECONDS)
    return min(seconds, _LONGEST_LEAVING_SECONDS) if event == SESSION_END else seconds
