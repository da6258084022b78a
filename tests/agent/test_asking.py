"""Asking about a call: what is known of it by the time a person can see the question."""

from __future__ import annotations

import pytest

from teamcli.agent.permission_question import Answer, Ask, Consent, Permissions, Question, nobody_to_ask
from teamcli.agent.tool import Display, Executes, PreparedCall, ToolOutput
from teamcli.cancel import CancelScope
from teamcli.errors import ToolError
from teamcli.permissions.policy import Decision, Verdict


def clear(ask: Ask, happened: list[str]) -> None:
    permissions = Permissions(
        lambda tool, access, given: Decision(Verdict.ASK, "it asks"),
        ask,
        remember=lambda rule: None,
        show_waiting=lambda agent, what: happened.append(f"{agent} waits for {what}" if what else f"{agent} goes on"),
    )
    call = PreparedCall(Display("$ ls"), Executes("ls"), lambda cancel, progress, call_id="": ToolOutput(""))
    permissions.check("alice", "bash", call, CancelScope(), lambda event: happened.append(type(event).__name__))


def test_the_agent_is_waiting_before_a_question_is_shown() -> None:
    happened: list[str] = []

    def ask(question: Question) -> None:
        happened.append("it is seen")
        question.answer(Answer(Consent.ONCE))

    clear(ask, happened)
    assert happened == ["PermissionAsked", "alice waits for permission: bash: $ ls", "it is seen", "alice goes on"]


def test_an_agent_does_not_wait_if_nobody_can_be_asked() -> None:
    happened: list[str] = []
    with pytest.raises(ToolError, match="nobody can be asked"):
        clear(nobody_to_ask, happened)
    assert happened == ["PermissionDenied"]
