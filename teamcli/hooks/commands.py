"""Hooks that are shell commands: JSON on standard input; exit code 2 to object, or JSON on standard output to say more.

They run like `bash` commands: without credentials, and none of their processes outlives them. Loaded only if the
settings configure some.
"""

from __future__ import annotations

import json
import shlex
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from teamcli.agent.events import Emit, Notice
from teamcli.agent.hooks import (
    PRE_COMPACT,
    PRE_TOOL_USE,
    SESSION_START,
    TASK_COMPLETED,
    TASK_CREATED,
    USER_PROMPT_SUBMIT,
    HookEvent,
    HookResult,
)
from teamcli.cancel import CancelScope
from teamcli.config.settings import HookCommand, HookGroup
from teamcli.errors import ToolError
from teamcli.exec.command_host import CommandHost
from teamcli.exec.command_output import BoundedText
from teamcli.exec.running_command import describe_exit
from teamcli.hooks.runner import RegisteredHook, timeout_of
from teamcli.text.redaction import redact_value

OUTPUT_LIMIT = 30_000
_OBJECTION_EXIT_CODE = 2
_PLAIN_TEXT_IS_CONTEXT = (USER_PROMPT_SUBMIT, SESSION_START, PRE_COMPACT)
"""For these events the model reads whatever a hook prints."""
_STOPPED_BY_CONTINUE = (PRE_TOOL_USE, USER_PROMPT_SUBMIT, TASK_CREATED, TASK_COMPLETED)
"""For these events `"continue": false` is an objection."""
_DECISIONS = {"approve": "allow", "block": "deny"}


def command_hooks(
    groups: Mapping[str, Iterable[HookGroup]], host: CommandHost, root: Path, emit: Emit
) -> Iterator[RegisteredHook]:
    """The hooks of the settings, in their order."""
    for event, of_event in groups.items():
        for group in of_event:
            for hook in group.hooks:
                yield RegisteredHook(event, group.matcher, hook.command, partial(_call, hook, host, root, emit))


def _call(
    hook: HookCommand, host: CommandHost, root: Path, emit: Emit, event: HookEvent, cancel: CancelScope
) -> HookResult:
    """Raises: ToolError, OSError, ValueError, Cancelled."""
    cancel.check()
    out, errors = BoundedText(OUTPUT_LIMIT), BoundedText(OUTPUT_LIMIT)
    # Scripts that were written for Claude Code find their project through this variable.
    command = f"export CLAUDE_PROJECT_DIR={shlex.quote(str(root))}\n{hook.command}"
    payload = {"hook_event_name": event.name, "agent": event.agent, **event.fields}
    # A file, not a pipe: a hook that never reads its input must not block us.
    with tempfile.TemporaryFile() as stdin:
        stdin.write(json.dumps(redact_value(payload)).encode())
        stdin.seek(0)
        running = host.start(command, Path(str(event.fields.get("cwd", root))), stdin)
    with cancel.on_cancel(running.stop):
        ended = running.follow(out.add, lambda text: None, timeout_of(event.name, hook.timeout), on_error=errors.add)
    cancel.check()
    if ended.timed_out:
        raise ToolError("it took too long and was stopped")
    stderr = str(errors).strip()
    if ended.exit_code == _OBJECTION_EXIT_CODE:
        return HookResult(stderr or _blocked_by(event.name))
    if ended.exit_code:
        raise ToolError(f"{describe_exit(ended.exit_code)}: {stderr}".removesuffix(": "))
    return _parse_output(str(out).strip(), event, emit)


def _parse_output(out: str, event: HookEvent, emit: Emit) -> HookResult:
    """Raises: ValueError."""
    if not out.startswith("{"):
        return HookResult(context=out if event.name in _PLAIN_TEXT_IS_CONTEXT else "")
    raw: dict[str, Any] = json.loads(out)
    if message := raw.get("systemMessage"):
        emit(Notice(event.agent, str(message)))
    specific = raw.get("hookSpecificOutput") or {}
    if not isinstance(specific, dict):
        raise ValueError("hookSpecificOutput: should be an object")
    decision = specific.get("permissionDecision") or _DECISIONS.get(str(raw.get("decision")), raw.get("decision"))
    if decision not in (None, "allow", "ask", "deny"):
        raise ValueError(f"its decision is {decision!r}, not one of allow, ask, deny, approve, block")
    reason = str(specific.get("permissionDecisionReason") or raw.get("reason") or raw.get("stopReason") or "")
    context = str(specific.get("additionalContext") or "")
    if decision == "deny" or (raw.get("continue") is False and event.name in _STOPPED_BY_CONTINUE):
        return HookResult(reason or _blocked_by(event.name), context=context)
    changed = specific.get("updatedInput")
    if changed is not None and not isinstance(changed, dict):
        raise ValueError("updatedInput: should be an object")
    return HookResult(None, decision or "", reason if decision == "ask" else "", changed, context)


def _blocked_by(event: str) -> str:
    return f"A {event} hook blocks this."
