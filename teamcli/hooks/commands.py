"""Hooks that are shell commands: JSON on standard input, exit code 2 to object, JSON on standard output to say more.

They run like commands of `bash`: without credentials, and nothing of them outlives its end. Loaded only where the
settings name some.
"""

from __future__ import annotations

import json
import re
import shlex
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from teamcli.agent.events import Emit, Notice, Severity
from teamcli.agent.hooks import (
    PRE_COMPACT,
    PRE_TOOL_USE,
    SESSION_END,
    SESSION_START,
    USER_PROMPT_SUBMIT,
    HookEvent,
    HookResult,
)
from teamcli.cancel import CancelScope
from teamcli.config.claude_code import OUR_TOOLS
from teamcli.config.settings import Hook, HookGroup
from teamcli.errors import ToolError
from teamcli.exec.command_host import CommandHost
from teamcli.exec.command_output import BoundedText
from teamcli.exec.running_command import Ended, describe_exit
from teamcli.text.redaction import redact_value

TIMEOUT_SECONDS = 60.0
LEAVING_TIMEOUT_SECONDS = 1.5
"""Of a `SessionEnd` hook that names none: leaving must not take long."""
OUTPUT_LIMIT = 30_000
OBJECTS = 2
"""The exit code by which a hook blocks."""
PLAIN_TEXT_IS_CONTEXT = (USER_PROMPT_SUBMIT, SESSION_START, PRE_COMPACT)
"""Events whose hooks tell the model whatever they print."""
_DECISIONS = {"approve": "allow", "block": "deny"}
_SHOWN_CHARACTERS = 300


class Said(NamedTuple):
    """What came of one hook."""

    out: str
    errors: str
    ended: Ended


class HookCommands:
    """The hooks of the settings. Safe for any number of threads."""

    def __init__(
        self,
        groups: Mapping[str, Iterable[HookGroup]],
        host: CommandHost,
        root: Path,
        emit: Emit,
        facts: Callable[[str], Mapping[str, Any]],
    ) -> None:
        """`facts` tells what each hook is told besides the event, for the agent that it happens to."""
        self._groups = groups
        self._host = host
        self._root = root
        self._emit = emit
        self._facts = facts

    def wants(self, name: str, subject: str = "") -> bool:
        return bool(self._matching(name, subject))

    def run(self, event: HookEvent, cancel: CancelScope) -> HookResult:
        result = HookResult()
        told = {"hook_event_name": event.name, "agent": event.agent, **self._facts(event.agent), **event.fields}
        for hook in self._matching(event.name, event.subject):
            if result.changed_input is not None:
                told["tool_input"] = result.changed_input
            result = joined(result, self._ask(hook, event, told, cancel))
        return result

    def _matching(self, name: str, subject: str) -> list[Hook]:
        groups = [group for group in self._groups.get(name, ()) if matches(group.matcher, subject)]
        return [hook for group in groups for hook in group.hooks]

    def _ask(self, hook: Hook, event: HookEvent, told: Mapping[str, Any], cancel: CancelScope) -> HookResult:
        try:
            said = self._run(hook, event.name, json.dumps(redact_value(told)).encode(), cancel)
            if said.ended.timed_out:
                raise ToolError("it took too long and was ended")
            if said.ended.exit_code == OBJECTS:
                return HookResult(said.errors or f"A {event.name} hook blocks this.")
            if said.ended.exit_code:
                raise ToolError(f"{describe_exit(said.ended.exit_code)}: {said.errors}".removesuffix(": "))
            return self._read(said.out, event)
        except (ToolError, OSError, ValueError) as e:
            words = f"The {event.name} hook `{hook.command}` failed and is ignored: {e}"
            self._emit(Notice(event.agent, words[:_SHOWN_CHARACTERS], Severity.WARNING))
            return HookResult()

    def _run(self, hook: Hook, event: str, told: bytes, cancel: CancelScope) -> Said:
        cancel.check()
        out, errors = BoundedText(OUTPUT_LIMIT), BoundedText(OUTPUT_LIMIT)
        usual = LEAVING_TIMEOUT_SECONDS if event == SESSION_END else TIMEOUT_SECONDS
        # Scripts that users have for Claude Code find their project by this name.
        command = f"export CLAUDE_PROJECT_DIR={shlex.quote(str(self._root))}\n{hook.command}"
        with tempfile.TemporaryFile() as given:
            given.write(told)
            given.seek(0)
            running = self._host.start(command, self._root, given)
        with cancel.on_cancel(running.stop):
            ended = running.follow(out.add, lambda text: None, hook.timeout or usual, on_error=errors.add)
        cancel.check()
        return Said(str(out).strip(), str(errors).strip(), ended)

    def _read(self, out: str, event: HookEvent) -> HookResult:
        """Raises: ValueError."""
        if not out.startswith("{"):
            return HookResult(context=out if event.name in PLAIN_TEXT_IS_CONTEXT else "")
        raw = json.loads(out)
        if message := raw.get("systemMessage"):
            self._emit(Notice(event.agent, str(message)))
        return read_ruling(raw, event.name)


def matches(matcher: str, subject: str) -> bool:
    """Whether a hook wants to hear of `subject`; a tool also has the name by which Claude Code's users know it."""
    if not subject or matcher in ("", "*"):
        return True
    names = (subject, *(theirs for theirs, ours in OUR_TOOLS.items() if ours == subject))
    return any(re.fullmatch(matcher, name) for name in names)


def read_ruling(raw: Mapping[str, Any], event: str) -> HookResult:
    """What a hook says in JSON.

    Raises: ValueError
    """
    specific = raw.get("hookSpecificOutput") or {}
    if not isinstance(specific, dict):
        raise ValueError("hookSpecificOutput: should be an object")
    decision = specific.get("permissionDecision") or _DECISIONS.get(str(raw.get("decision")), raw.get("decision"))
    if decision not in (None, "allow", "ask", "deny"):
        raise ValueError(f"it decides {decision!r}, which is none of allow, ask, deny, approve, block")
    reason = str(specific.get("permissionDecisionReason") or raw.get("reason") or raw.get("stopReason") or "")
    context = str(specific.get("additionalContext") or "")
    if decision == "deny" or (raw.get("continue") is False and event in (PRE_TOOL_USE, USER_PROMPT_SUBMIT)):
        return HookResult(reason or f"A {event} hook blocks this.", context=context)
    changed = specific.get("updatedInput")
    if changed is not None and not isinstance(changed, dict):
        raise ValueError("updatedInput: should be an object")
    return HookResult(None, decision or "", reason if decision == "ask" else "", changed, context)


def joined(one: HookResult, other: HookResult) -> HookResult:
    """Both together: any objection counts, to ask counts more than to allow, the later change stands."""
    objections = [each.objection for each in (one, other) if each.objection is not None]
    wishes = (one.wish, other.wish)
    return HookResult(
        "\n".join(objections) if objections else None,
        "ask" if "ask" in wishes else "allow" if "allow" in wishes else "",
        "\n".join(filter(None, (one.reason, other.reason))),
        one.changed_input if other.changed_input is None else other.changed_input,
        "\n".join(filter(None, (one.context, other.context))),
    )
