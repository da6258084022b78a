"""Permission questions that another program answers: the one that drives teamcli, or an MCP server."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from teamcli.agent.events import Notice, Severity
from teamcli.agent.hooks import PERMISSION_REQUEST, HookEvent, HookResult
from teamcli.agent.permission_question import Answer, Consent, Question
from teamcli.cancel import CancelScope
from teamcli.claude_code.flags import mode_of
from teamcli.claude_code.permission_updates import new_mode, rule_updates
from teamcli.claude_code.tool_inputs import to_theirs
from teamcli.config.options import Mode
from teamcli.errors import TeamcliError, ToolError
from teamcli.hooks.matching import matcher_of
from teamcli.hooks.output import read_object
from teamcli.hooks.payload import their_payload
from teamcli.hooks.runner import RegisteredHook
from teamcli.session.session import Session
from teamcli.storage.files import Json
from teamcli.team.message import LEAD
from teamcli.text.redaction import redact_value


def ask_server(session: Session, tool: str, fields: Json, cancel: CancelScope) -> Json:
    """Ask the tool of an MCP server, as `--permission-prompt-tool` wants it.

    Raises: ToolError, Cancelled
    """
    if session.mcp is None:
        raise ToolError(f"there is no MCP server that has {tool}")
    asked = {name: fields[name] for name in ("tool_name", "input", "tool_use_id")}
    try:
        decision = json.loads(session.mcp.call(tool, asked, cancel))
    except (ValueError, RecursionError) as e:
        raise ToolError(f"{tool} did not answer in JSON") from e
    if not isinstance(decision, dict) or decision.get("behavior") not in ("allow", "deny"):
        raise ToolError(f"{tool} answered neither allow nor deny")
    return decision


class Approval:
    """Asks a program about calls that the rules do not decide. To it, that is what a person is to the terminal.

    It is asked through a hook, which knows the whole call and may change it. If a rule wants a person's own answer, a
    question follows in the same thread, with the same answer.
    """

    def __init__(self, request: Callable[[Json, CancelScope], Json], session: Callable[[], Session]) -> None:
        """`request` asks the program, and returns its decision. Raises: ToolError, Cancelled."""
        self._request = request
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
            decision = self._request(fields, cancel)
        except ToolError as e:  # a question that failed is not a yes
            decision = {"behavior": "deny", "message": f"Asking for permission failed: {e}"}
        updates = decision.get("updatedPermissions")
        if decision.get("behavior") == "allow" and decision.get("updatedInput") in (None, fields["input"]):
            decision = {"behavior": "allow"}
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
