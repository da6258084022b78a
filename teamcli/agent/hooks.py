"""Hooks as the loop and the tool pipeline see them: an event happens, and the user's own programs may react.

`teamcli.hooks` runs them. Without any, `NO_HOOKS` costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from teamcli.cancel import CancelScope
from teamcli.config.settings import HOOK_EVENTS
from teamcli.errors import PromptBlocked
from teamcli.text.tags import tagged

# The settings list the events, in this order: they are a layer below and need the names to check hook files.
(
    PRE_TOOL_USE,
    POST_TOOL_USE,
    USER_PROMPT_SUBMIT,
    STOP,
    SUBAGENT_STOP,
    TEAMMATE_IDLE,
    SESSION_START,
    SESSION_END,
    PRE_COMPACT,
    TASK_CREATED,
    TASK_COMPLETED,
) = HOOK_EVENTS

MAX_SENT_BACK = 3
"""How often in one turn hooks may send an agent back to work."""


class HookEvent(NamedTuple):
    """Something that happens to `agent`."""

    name: str
    agent: str
    fields: Mapping[str, Any] = MappingProxyType({})
    """The details that a hook receives."""
    subject: str = ""
    """What matchers are compared with: the tool's name, or how a session began."""


class HookResult(NamedTuple):
    """The combined result of all hooks of one event."""

    objection: str | None = None
    """Why the event is blocked; None if it is not."""
    wish: str = ""
    """For a tool call: `allow` to skip the permission question, `ask` to require it."""
    reason: str = ""
    """Why the user must be asked."""
    changed_input: Mapping[str, Any] | None = None
    """The input that replaces the tool call's own."""
    context: str = ""
    """Additional information for the model."""


NO_RESULT = HookResult()


class Hooks(Protocol):
    def wants(self, name: str, subject: str = "") -> bool:
        """Whether any hook matches this event."""
        ...

    def run(self, event: HookEvent, cancel: CancelScope) -> HookResult:
        """Run all matching hooks in order. A hook that fails is reported to the user and otherwise ignored.

        Raises: Cancelled
        """
        ...


class _NoHooks:
    def wants(self, name: str, subject: str = "") -> bool:
        return False

    def run(self, event: HookEvent, cancel: CancelScope) -> HookResult:
        return NO_RESULT


NO_HOOKS: Hooks = _NoHooks()


def check_prompt(hooks: Hooks, agent: str, prompt: str, cancel: CancelScope) -> str:
    """Return what hooks add to the user's prompt for an agent; empty if they add nothing.

    Raises: PromptBlocked, Cancelled
    """
    if not hooks.wants(USER_PROMPT_SUBMIT):
        return ""
    result = hooks.run(HookEvent(USER_PROMPT_SUBMIT, agent, {"prompt": prompt}), cancel)
    if result.objection is not None:
        raise PromptBlocked(result.objection)
    return hook_note(USER_PROMPT_SUBMIT, result.context) if result.context else ""


def hook_note(event: str, text: str) -> str:
    """A hook's text for the model, in a tag that the text cannot close."""
    return tagged("note", f"The user's {event} hook says:\n{text}")
