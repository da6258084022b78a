"""Hooks that the program that drives teamcli answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from teamcli.agent.hooks import PRE_TOOL_USE, USER_PROMPT_SUBMIT, HookEvent, HookResult
from teamcli.cancel import CancelScope
from teamcli.config.settings import HOOK_EVENTS
from teamcli.errors import ToolError
from teamcli.hooks.matching import matcher_of
from teamcli.hooks.output import read_object
from teamcli.hooks.payload import their_payload
from teamcli.hooks.runner import RegisteredHook
from teamcli.storage.files import Json
from teamcli.text.redaction import redact_value
from teamcli.ui.control.channel import ControlChannel

HOOK_SECONDS = 60.0
_BLOCKED_BY_SILENCE = (PRE_TOOL_USE, USER_PROMPT_SUBMIT)
"""Events that are blocked if the program does not answer in time."""


def hooks_of(initialize: Json, channel: ControlChannel) -> Iterator[RegisteredHook]:
    """The hooks that the program asks for when it begins."""
    events = initialize.get("hooks")
    for event, groups in (events if isinstance(events, dict) else {}).items():
        for group in groups if event in HOOK_EVENTS and isinstance(groups, list) else ():
            matches = matcher_of(event, str(group.get("matcher") or ""), is_claudes=True)
            for id in group.get("hookCallbackIds", ()):
                call = partial(_call_hook, channel, str(id), group)
                yield RegisteredHook(event, matches, f"{event} of the program", call)


def _call_hook(
    channel: ControlChannel, id: str, group: Mapping[str, Any], event: HookEvent, cancel: CancelScope
) -> HookResult:
    """Raises: ToolError, ValueError, Cancelled."""
    payload = redact_value(their_payload(event))
    fields = {"callback_id": id, "input": payload, "tool_use_id": event.fields.get("tool_use_id")}
    seconds = group.get("timeout")
    timeout = float(seconds) if isinstance(seconds, int | float) and seconds > 0 else HOOK_SECONDS
    try:
        return read_object(channel.request("hook_callback", fields, cancel, timeout), event, lambda text: None)
    except (ToolError, ValueError) as e:
        must_block = group.get("onFailure", "continue") != "continue"
        if must_block or (event.name in _BLOCKED_BY_SILENCE and "too long" in str(e)):
            return HookResult(f"A hook of the program failed, and then this is blocked: {e}")
        raise
