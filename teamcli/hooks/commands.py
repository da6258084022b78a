"""Hooks that are shell commands: JSON on standard input; exit code 2 to object, or JSON on standard output to say more.

They run like `bash` commands: without credentials, and none of their processes outlives them. Loaded only if the
settings configure some.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from teamcli.agent.events import Emit, Notice
from teamcli.agent.hooks import POST_TOOL_USE, SESSION_END, SESSION_START, USER_PROMPT_SUBMIT, HookEvent, HookResult
from teamcli.cancel import CancelScope
from teamcli.claude_code.tool_responses import has_failed
from teamcli.config.settings import HookCommand, HookGroup
from teamcli.errors import StateError, ToolError
from teamcli.exec.command_host import CommandHost
from teamcli.exec.command_output import BoundedText
from teamcli.exec.session_lines import SessionLines
from teamcli.hooks.environment import Start, shell_text
from teamcli.hooks.matching import matcher_of
from teamcli.hooks.output import HookOutput, Ran, read_output
from teamcli.hooks.payload import file_of, our_payload, their_payload
from teamcli.hooks.runner import RegisteredHook, timeout_of
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
    release: Callable[[], None] = lambda: None,
) -> HookResult:
    """Raises: ToolError, StateError, OSError, ValueError, Cancelled."""
    try:
        ran = _run(hook, group, ports, event, cancel, release)
        result = read_output(ran, event, lambda text: ports.emit(Notice(event.agent, text)))
    except (ToolError, StateError, OSError, ValueError) as e:
        if hook.raw.get("onFailure") == "block":
            return HookResult(f"The hook `{hook.command}` failed, and then this is blocked: {e}")
        raise
    return ports.long_output.shortened(result) if ports.long_output else result


def _run(
    hook: HookCommand,
    group: HookGroup,
    ports: Ports,
    event: HookEvent,
    cancel: CancelScope,
    release: Callable[[], None],
) -> Ran:
    """Raises: ToolError, StateError, OSError, Cancelled."""
    cancel.check()
    out, errors = HookOutput(JSON_LIMIT, release), BoundedText(OUTPUT_LIMIT)
    is_claudes = bool(group.source)
    lines = ports.lines if event.name == SESSION_START else None
    start = Start(
        str(ports.root),
        str(event.fields.get("session_id", "")),
        file_of(event),
        str(lines.new_file()) if lines else "",
        group.plugin,
        str(_plugin_data(group.plugin, ports)) if group.plugin and ports.plugin_data else "",
    )
    # A file, not a pipe: a hook that never reads its input must not block us.
    with tempfile.TemporaryFile() as stdin:
        stdin.write(_payload(event, ports.transcripts if is_claudes else None, is_claudes))
        stdin.seek(0)
        command = shell_text(hook, start, is_claudes)
        running = ports.host.start(command, Path(str(event.fields.get("cwd", ports.root))), stdin)
    seconds = _claudes_seconds(event.name, hook.timeout) if is_claudes else timeout_of(event.name, hook.timeout)
    with cancel.on_cancel(running.stop):
        ended = running.follow(out.add, lambda text: None, seconds, on_error=errors.add)
    cancel.check()
    if ended.timed_out:
        raise ToolError("it took too long and was stopped")
    if lines:
        lines.read(Path(start.env_file))
    return Ran(ended.exit_code, out.text, str(errors).strip())


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
