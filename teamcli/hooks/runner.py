"""Runs the hooks of an event one after the other and combines their results."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from teamcli.agent.events import Emit, Notice, Severity
from teamcli.agent.hooks import NO_RESULT, SESSION_END, HookEvent, HookResult
from teamcli.cancel import CancelScope
from teamcli.claude_code.names import names_of
from teamcli.errors import ToolError

_TIMEOUT_SECONDS = 60.0
_LEAVING_TIMEOUT_SECONDS = 1.5
_NOTICE_LIMIT = 300


class RegisteredHook(NamedTuple):
    """A hook of either kind, ready to be called."""

    event: str
    matcher: str
    name: str
    """For the user, if it fails."""
    call: Callable[[HookEvent, CancelScope], HookResult]
    """Raises: ToolError, OSError, ValueError, which count as failures; Cancelled."""


class HookRunner:
    """Safe to use from any number of threads, as far as the hooks are."""

    def __init__(self, hooks: Iterable[RegisteredHook], emit: Emit, facts: Callable[[str], Mapping[str, Any]]) -> None:
        """`facts` returns the fields that every event of an agent has."""
        self._hooks = tuple(hooks)
        self._emit = emit
        self._facts = facts

    def wants(self, name: str, subject: str = "") -> bool:
        return bool(self._matching(name, subject))

    def run(self, event: HookEvent, cancel: CancelScope) -> HookResult:
        result = NO_RESULT
        fields = {**self._facts(event.agent), **event.fields}
        for hook in self._matching(event.name, event.subject):
            if result.changed_input is not None:  # each hook sees the input as the one before it left it
                fields["tool_input"] = result.changed_input
            try:
                latest = hook.call(event._replace(fields=dict(fields)), cancel)
            except (ToolError, OSError, ValueError) as e:
                text = f"The {event.name} hook `{hook.name}` failed and is ignored: {e}"
                self._emit(Notice(event.agent, text[:_NOTICE_LIMIT], Severity.WARNING))
            else:
                result = combine(result, latest)
        return result

    def _matching(self, name: str, subject: str) -> list[RegisteredHook]:
        return [hook for hook in self._hooks if hook.event == name and _matches(hook.matcher, subject)]


def timeout_of(event: str, configured: float | None) -> float:
    """How long a hook may run. By default, `SessionEnd` gets little time: leaving must not take long."""
    return configured or (_LEAVING_TIMEOUT_SECONDS if event == SESSION_END else _TIMEOUT_SECONDS)


def combine(first: HookResult, second: HookResult) -> HookResult:
    """Every objection counts, `ask` wins over `allow`, and the later input replaces the earlier one."""
    objections = [each.objection for each in (first, second) if each.objection is not None]
    wishes = (first.wish, second.wish)
    return HookResult(
        "\n".join(objections) if objections else None,
        "ask" if "ask" in wishes else "allow" if "allow" in wishes else "",
        "\n".join(filter(None, (first.reason, second.reason))),
        first.changed_input if second.changed_input is None else second.changed_input,
        "\n".join(filter(None, (first.context, second.context))),
    )


def _matches(matcher: str, subject: str) -> bool:
    # Some events, such as Stop, have no subject that a matcher could apply to.
    if not subject or matcher in ("", "*"):
        return True
    # matchers written for Claude Code use its tool names
    return any(re.fullmatch(matcher, name) for name in names_of(subject))
