"""Hooks as the loop and the pipeline see them: something happens, and the user's own programs may have a say.

Who runs them is above this layer; without any, `NO_HOOKS` costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from teamcli.cancel import CancelScope
from teamcli.errors import PromptBlocked
from teamcli.text.tags import tagged

PRE_TOOL_USE = "PreToolUse"
POST_TOOL_USE = "PostToolUse"
USER_PROMPT_SUBMIT = "UserPromptSubmit"
STOP = "Stop"
SUBAGENT_STOP = "SubagentStop"
TEAMMATE_IDLE = "TeammateIdle"
SESSION_START = "SessionStart"
SESSION_END = "SessionEnd"
PRE_COMPACT = "PreCompact"

MAX_SENT_BACK = 3
"""How often in one turn hooks may send an agent back to work."""


class HookEvent(NamedTuple):
    """Something that happens to `agent`."""

    name: str
    agent: str
    fields: Mapping[str, Any] = MappingProxyType({})
    """What a hook is told of it."""
    subject: str = ""
    """What a matcher is held against: the tool, or how a session began."""


class HookResult(NamedTuple):
    """What all hooks of one event say together."""

    objection: str | None = None
    """Why it must not be; None where nobody objects."""
    wish: str = ""
    """About a call: `allow`, so that nobody need be asked, or `ask`, so that somebody must be."""
    reason: str = ""
    """Why somebody must be asked."""
    changed_input: Mapping[str, Any] | None = None
    """What a call is to be made with instead."""
    context: str = ""
    """What the model should know besides."""


NOTHING_SAID = HookResult()


class Hooks(Protocol):
    def wants(self, name: str, subject: str = "") -> bool:
        """Whether anybody wants to hear of such an event."""
        ...

    def run(self, event: HookEvent, cancel: CancelScope) -> HookResult:
        """Tell all whom it concerns, one after the other. What fails is shown to the user and changes nothing.

        Raises: Cancelled
        """
        ...


class _NoHooks:
    def wants(self, name: str, subject: str = "") -> bool:
        return False

    def run(self, event: HookEvent, cancel: CancelScope) -> HookResult:
        return NOTHING_SAID


NO_HOOKS: Hooks = _NoHooks()


def check_prompt(hooks: Hooks, agent: str, prompt: str, cancel: CancelScope) -> str:
    """What hooks add to words of the user's for an agent; empty where they add nothing.

    Raises: PromptBlocked, Cancelled
    """
    if not hooks.wants(USER_PROMPT_SUBMIT):
        return ""
    result = hooks.run(HookEvent(USER_PROMPT_SUBMIT, agent, {"prompt": prompt}), cancel)
    if result.objection is not None:
        raise PromptBlocked(result.objection)
    return hook_note(USER_PROMPT_SUBMIT, result.context) if result.context else ""


def hook_note(event: str, words: str) -> str:
    """What a hook tells the model, in a frame that nothing in it can close."""
    return tagged("note", f"The user's {event} hook says:\n{words}")
