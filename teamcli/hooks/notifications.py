"""`Notification`: the user's attention is wanted. Nothing waits for these hooks."""

from __future__ import annotations

import threading

from teamcli.agent.events import PermissionAsked, TurnEnded, TurnStarted
from teamcli.agent.hooks import NOTIFICATION, HookEvent, Hooks
from teamcli.cancel import CancelScope
from teamcli.claude_code.hook_words import IS_IDLE, NEEDS_PERMISSION
from teamcli.claude_code.names import their_tool
from teamcli.errors import Cancelled

PERMISSION, IDLE = "permission_prompt", "idle_prompt"
IDLE_SECONDS = 60.0
_TITLE = "teamcli"


class Notifications:
    """A consumer of events."""

    KINDS = (PermissionAsked, TurnStarted, TurnEnded)

    def __init__(self, hooks: Hooks, lead: str, cancel: CancelScope, idle_seconds: float = IDLE_SECONDS) -> None:
        self._hooks = hooks
        self._lead = lead
        self._cancel = cancel
        self._idle_seconds = idle_seconds
        self._timer: threading.Timer | None = None

    def __call__(self, event: PermissionAsked | TurnStarted | TurnEnded) -> None:
        match event:
            case PermissionAsked() if self._hooks.wants(NOTIFICATION, PERMISSION):
                about = (PERMISSION, f"{NEEDS_PERMISSION} to use {their_tool(event.tool)}", event.agent)
                threading.Thread(target=self._run, args=about, name="notification", daemon=True).start()
            case TurnStarted(agent=self._lead):
                self.close()
            case TurnEnded(agent=self._lead):
                self._wait_for_the_user()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait_for_the_user(self) -> None:
        self.close()
        if self._hooks.wants(NOTIFICATION, IDLE):
            args = (IDLE, IS_IDLE, self._lead)
            self._timer = threading.Timer(self._idle_seconds, self._run, args)
            self._timer.daemon = True
            self._timer.start()

    def _run(self, kind: str, message: str, agent: str) -> None:
        fields = {"message": message, "title": _TITLE, "notification_type": kind}
        try:
            self._hooks.run(HookEvent(NOTIFICATION, agent, fields, kind), self._cancel)
        except Cancelled:  # the program ends
            return
