"""`Notification` hooks: when the user's attention is wanted."""

from __future__ import annotations

import threading

from teamcli.agent.events import Outcome, PermissionAsked, TurnEnded, TurnStarted
from teamcli.agent.hooks import HookEvent, HookResult
from teamcli.cancel import CancelScope
from teamcli.hooks.matching import matcher_of
from teamcli.hooks.notifications import Notifications
from teamcli.hooks.runner import HookRunner, RegisteredHook
from tests.tools.shell import wait_until


class Heard:
    def __init__(self, matcher: str, idle_seconds: float) -> None:
        self.kinds: list[str] = []
        hook = RegisteredHook("Notification", matcher_of("Notification", matcher), "note", self._note)
        runner = HookRunner([hook], lambda event: None, lambda agent: {})
        self.notifications = Notifications(runner, "lead", CancelScope(), idle_seconds)

    def _note(self, event: HookEvent, cancel: CancelScope) -> HookResult:
        self.kinds.append(event.fields["notification_type"])
        return HookResult()


def ended(agent: str) -> TurnEnded:
    return TurnEnded(agent, Outcome.DONE, "", 0.0)


def test_a_question_and_an_idle_lead_are_notified() -> None:
    heard = Heard("", idle_seconds=0.01)
    heard.notifications(PermissionAsked("alice", "bash", "$ make"))
    wait_until(lambda: heard.kinds == ["permission_prompt"])
    heard.notifications(ended("lead"))
    wait_until(lambda: heard.kinds == ["permission_prompt", "idle_prompt"])


def test_a_lead_that_works_again_and_an_idle_teammate_are_not() -> None:
    heard = Heard("idle_prompt", idle_seconds=600)
    before = threading.active_count()
    heard.notifications(PermissionAsked("lead", "bash", "$ make"))
    heard.notifications(ended("alice"))
    assert threading.active_count() == before
    heard.notifications(ended("lead"))
    assert threading.active_count() == before + 1
    heard.notifications(TurnStarted("lead"))
    wait_until(lambda: threading.active_count() == before)
    assert heard.kinds == []
