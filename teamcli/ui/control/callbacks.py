"""Hooks and permission questions that the program that drives teamcli answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from teamcli.agent.events import Notice, Severity
from teamcli.agent.hooks import PERMISSION_REQUEST, PRE_TOOL_USE, USER_PROMPT_SUBMIT, HookEvent, HookResult
from teamcli.agent.permission_question import Answer, Consent, Question
from teamcli.cancel import CancelScope
from teamcli.claude_code.flags import mode_of
from teamcli.claude_code.permission_updates import new_mode, rule_updates
from teamcli.claude_code.tool_inputs import to_theirs
from teamcli.config.options import Mode
from teamcli.config.settings import HOOK_EVENTS
from teamcli.errors import TeamcliError, ToolError
from teamcli.hooks.matching import matcher_of
from teamcli.hooks.output import read_object
from teamcli.hooks.payload import their_payload
from teamcli.hooks.runner import RegisteredHook
from teamcli.session.session import Session
from teamcli.storage.files import Json
from teamcli.team.message import LEAD
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


class ProgramApproval:
    """Asks the program about calls that the rules do not decide. To it, that is what a person is to the terminal.

    It is asked through a hook, which knows the whole call and may change it. If a rule wants a person's own answer, a
    question follows in the same thread, with the same answer.
    """

    def __init__(self, channel: ControlChannel, session: Callable[[], Session]) -> None:
        self._channel = channel
        self._session = session
        self._latest = threading.local()

    @property
    def hook(self) -> RegisteredHook:
        return RegisteredHook(PERMISSION_REQUEST, matcher_of(PERMISSION_REQUEST, ""), "can_use_tool", self._call)

    def ask(self, question: Question) -> None:
        is_allowed = getattr(self._latest, "is_allowed", False)
        question.answer(Answer(Consent.ONCE if is_allowed else Consent.NOBODY))

    def _call(self, event: HookEvent, cancel: CancelScope) -> HookResult:
        """Raises: ValueError, Cancelled."""
        self._latest.is_allowed = False
        fields = _question(event)
        try:
            decision = self._channel.request("can_use_tool", fields, cancel)
        except ToolError as e:  # a question that failed is not a yes
            decision = {"behavior": "deny", "message": f"Asking for permission failed: {e}"}
        updates = decision.get("updatedPermissions")
        if decision.get("behavior") == "allow" and decision.get("updatedInput") in (None, fields["input"]):
            decision = {**decision, "updatedInput": None}
        result = read_object({"hookSpecificOutput": {"decision": decision}}, event, lambda text: None)
        self._latest.is_allowed = result.wish == "allow"
        if self._latest.is_allowed:
            self._update(updates)
        return result

    def _update(self, updates: Any) -> None:
        """Remember what the program wants to be decided without a question from now on."""
        session = self._session()
        policy = session.live_policy
        try:
            for behavior, rule, is_saved in rule_updates(updates):
                if is_saved and behavior == "allow":
                    policy.always_allow(rule)
                else:
                    policy.add_for_session(behavior, rule)
            if mode := new_mode(updates):
                policy.set_mode(Mode(mode_of(mode)))
        except (TeamcliError, ValueError) as e:  # the call is allowed all the same
            session.events(Notice(LEAD, f"A permission of the program was not remembered: {e}", Severity.WARNING))


def _question(event: HookEvent) -> Json:
    call = their_payload(event)
    given = redact_value(_only_theirs(call["tool_input"], event))
    agent = {"agent_id": event.fields["agent_id"]} if event.fields.get("agent_id") else {}
    id = event.fields.get("tool_use_id")
    offered = {"permission_suggestions": redact_value(call.get("permission_suggestions", []))}
    return {"tool_name": call["tool_name"], "input": given, "tool_use_id": id, **offered, **agent}


def _only_theirs(given: Mapping[str, Any], event: HookEvent) -> Json:
    """Without our words for the same fields, which a hook would get in addition."""
    theirs = to_theirs(event.subject, event.fields.get("tool_input"), Path("/")).input
    return {name: value for name, value in given.items() if name in theirs}
