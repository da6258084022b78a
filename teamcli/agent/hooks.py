"""Hooks as the loop and the tool pipeline see them: an event happens, and the user's own programs may react.

`teamcli.hooks` runs them. Without any, `NO_HOOKS` costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from teamcli.cancel import CancelScope
from teamcli.config.settings import HOOK_EVENTS
from teamcli.errors import PromptBlocked
from teamcli.text.tags import tagged

if TYPE_CHECKING:
    from teamcli.agent.tool import PreparedCall

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
    POST_TOOL_USE_FAILURE,
    PERMISSION_REQUEST,
    NOTIFICATION,
    SUBAGENT_START,
    POST_COMPACT,
    STOP_FAILURE,
    POST_TOOL_BATCH,
) = HOOK_EVENTS

MAX_SENT_BACK = 8
"""How often in one turn hooks may send an agent back to work."""


class HookEvent(NamedTuple):
    """Something that happens to `agent`."""

    name: str
    agent: str
    fields: Mapping[str, Any] = MappingProxyType({})
    """The details that a hook receives."""
    subject: str = ""
    """What matchers are compared with: the tool's name, or how a session began."""
    prepared: PreparedCall | None = None
    """The tool call that it is about."""
    original: str | None = None
    """What was in the file before a call changed it, if that is known."""


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
    stop: str | None = None
    """Why the agent must end its turn; None if it may continue."""
    changed_output: str | None = None
    """The text that replaces the result of a tool call."""
    rules: tuple[str, ...] = ()
    """With the answer to a permission question: rules that allow more calls like it in this session."""
    mode: str = ""
    """With the answer to a permission question: the permission mode from now on; empty to keep it."""


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
    refusal = result.objection if result.stop is None else result.stop
    if refusal is not None:
        raise PromptBlocked(refusal)
    return hook_note(USER_PROMPT_SUBMIT, result.context) if result.context else ""


def hook_note(event: str, text: str) -> str:
    """A hook's text for the model, in a tag that the text cannot close."""
    return tagged("note", f"The user's {event} hook says:\n{text}")
