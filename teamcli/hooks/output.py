"""What a hook says, as Claude Code understands it: its exit code, and text or one JSON object on standard output."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from teamcli.agent.hooks import (
    NOTIFICATION,
    PERMISSION_REQUEST,
    PRE_COMPACT,
    PRE_TOOL_USE,
    SESSION_START,
    STOP_FAILURE,
    TASK_COMPLETED,
    TASK_CREATED,
    USER_PROMPT_SUBMIT,
    HookEvent,
    HookResult,
)
from teamcli.claude_code.permission_updates import read_updates
from teamcli.errors import ToolError
from teamcli.exec.command_output import BoundedText
from teamcli.exec.running_command import describe_exit
from teamcli.hooks.payload import changed_input

OBJECTION_EXIT_CODE = 2
_PLAIN_TEXT_IS_CONTEXT = (USER_PROMPT_SUBMIT, SESSION_START, PRE_COMPACT)
"""For these events the model reads whatever a hook prints."""
_STOPPED_BY_CONTINUE = (USER_PROMPT_SUBMIT, PRE_COMPACT, TASK_CREATED, TASK_COMPLETED)
"""For these events `"continue": false` is an objection and no more."""
_NEVER_BLOCKED = (PERMISSION_REQUEST, NOTIFICATION, STOP_FAILURE)
"""For these events exit code 2 means nothing."""
_DECISIONS = {"approve": "allow", "block": "deny", "defer": "ask"}
_WISHES = (None, "allow", "ask", "deny")

Tell = Callable[[str], None]
"""Shows a sentence to the user."""


class Ran(NamedTuple):
    exit_code: int
    out: str
    errors: str


class HookOutput:
    """What a hook prints. With `{"async": true}` as its first line, it says that nothing needs to wait for it."""

    def __init__(self, limit: int, release: Callable[[], None]) -> None:
        self._printed = BoundedText(limit)
        self._release = release
        self._is_open = True
        """Whether the first line may still be incomplete."""
        self._read_from = 0

    @property
    def text(self) -> str:
        return str(self._printed)[self._read_from :].strip()

    def add(self, text: str) -> None:
        self._printed.add(text)
        if self._is_open and "\n" in text:
            self._is_open = False
            first = str(self._printed).partition("\n")[0]
            if _says_async(first):
                self._read_from = len(first)
                self._release()


def _says_async(line: str) -> bool:
    try:
        return line.startswith("{") and _parsed(line).get("async") is True
    except ValueError:
        return False


def read_output(ran: Ran, event: HookEvent, tell: Tell) -> HookResult:
    """Raises: ToolError, if the hook failed; ValueError, if it prints what it must not."""
    if ran.exit_code == OBJECTION_EXIT_CODE:
        return _objection(ran, event, tell)
    if ran.exit_code == 0:
        return _read(ran.out, event, tell)
    result = _read_if_valid(ran.out, event, tell)
    if result is None:
        raise ToolError(f"{describe_exit(ran.exit_code)}: {ran.errors}".removesuffix(": "))
    return result


def read_object(raw: Mapping[str, Any], event: HookEvent, tell: Tell) -> HookResult:
    """What a hook says with a JSON object.

    Raises: ValueError
    """
    if message := raw.get("systemMessage"):
        tell(str(message))
    specific = raw.get("hookSpecificOutput") or {}
    if not isinstance(specific, Mapping):
        raise ValueError("hookSpecificOutput: should be an object")
    said = _about_question(specific, event) if event.name == PERMISSION_REQUEST else _decided(raw, specific, event)
    if raw.get("continue") is not False:
        return said
    why = str(raw.get("stopReason") or said.objection or blocked_by(event.name))
    if event.name in _STOPPED_BY_CONTINUE:
        return said._replace(objection=why)
    return said._replace(stop=why, objection=why if event.name == PRE_TOOL_USE else said.objection)


def blocked_by(event: str) -> str:
    return f"A {event} hook blocks this."


def _objection(ran: Ran, event: HookEvent, tell: Tell) -> HookResult:
    """JSON counts with exit code 2 as well, but cannot lift the objection."""
    said = _read_if_valid(ran.out, event, tell) or HookResult()
    if event.name in _NEVER_BLOCKED:
        return said
    return said._replace(objection=ran.errors or said.objection or blocked_by(event.name))


def _read_if_valid(out: str, event: HookEvent, tell: Tell) -> HookResult | None:
    try:
        return read_object(_parsed(out), event, tell) if out.startswith("{") else None
    except ValueError:
        return None


def _read(out: str, event: HookEvent, tell: Tell) -> HookResult:
    if out.startswith("{"):
        return read_object(_parsed(out), event, tell)
    return HookResult(context=out if event.name in _PLAIN_TEXT_IS_CONTEXT else "")


def _parsed(out: str) -> Mapping[str, Any]:
    try:
        raw = json.loads(out)
    except RecursionError as e:
        raise ValueError("its output is nested too deeply") from e
    if not isinstance(raw, dict):
        raise ValueError("its output is not a JSON object")
    return raw


def _decided(raw: Mapping[str, Any], specific: Mapping[str, Any], event: HookEvent) -> HookResult:
    decision = specific.get("permissionDecision") or raw.get("decision")
    decision = _DECISIONS.get(str(decision), decision)
    if decision not in _WISHES:
        raise ValueError(f"its decision is {decision!r}, not one of allow, ask, deny, defer, approve, block")
    reason = str(specific.get("permissionDecisionReason") or raw.get("reason") or "")
    context = str(specific.get("additionalContext") or raw.get("additionalContext") or "")
    if decision == "deny":
        return HookResult(reason or blocked_by(event.name), context=context)
    wish, reason = str(decision or ""), reason if decision == "ask" else ""
    return HookResult(None, wish, reason, _input(specific, event), context, changed_output=_output(specific))


def _about_question(specific: Mapping[str, Any], event: HookEvent) -> HookResult:
    """The answer to a permission question."""
    decision = specific.get("decision") or {}
    if not isinstance(decision, Mapping):
        raise ValueError("decision: should be an object")
    if decision.get("behavior") == "allow":
        rules, mode = read_updates(decision.get("updatedPermissions"))
        return HookResult(wish="allow", changed_input=_input(decision, event), rules=rules, mode=mode)
    if decision.get("behavior") == "deny":
        why = str(decision.get("message") or "A hook refused this call.")
        return HookResult(why, stop=why if decision.get("interrupt") else None)
    return HookResult()


def _input(specific: Mapping[str, Any], event: HookEvent) -> Mapping[str, Any] | None:
    updated = specific.get("updatedInput")
    if updated is None:
        return None
    if not isinstance(updated, dict):
        raise ValueError("updatedInput: should be an object")
    return changed_input(event, updated)


def _output(specific: Mapping[str, Any]) -> str | None:
    """The text in a changed result, which has the shape of a tool's response. Other shapes are ignored, as there."""
    updated = specific.get("updatedToolOutput", specific.get("updatedMCPToolOutput"))
    if isinstance(updated, Mapping):
        updated = updated.get("stdout", updated.get("content"))
    return updated if isinstance(updated, str) else None
