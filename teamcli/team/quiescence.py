"""Waiting: for mail, and until everyone is idle."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from teamcli.agent.tool import ToolOutput
from teamcli.cancel import CancelScope
from teamcli.team.mailbox import Mailbox, Taken
from teamcli.team.message import LEAD, frame
from teamcli.team.roster import Roster
from teamcli.team.running_agents import RunningAgents
from teamcli.team.team_activity import BackgroundWork, TeamActivity

NOBODY_LEFT = "nobody is left who could write to you"
USER_WROTE = "(the user has written to you)"


class Quiescence:
    def __init__(self, agents: RunningAgents, roster: Roster, background: BackgroundWork, is_headless: bool) -> None:
        """`is_headless`: the user types nothing that could end a wait for a message."""
        self._agents = agents
        self._roster = roster
        self._activity = TeamActivity(agents, background)
        self._is_headless = is_headless
        self._user_waits_for_lead = False
        self._waiting: set[str] = set()
        """Agents inside `wait_for_message`."""
        self._deserted: set[str] = set()
        """Agents whose wait another process has ended."""
        self._changed = threading.Condition()
        self._changes = 0
        """How often something has changed."""
        self.lead_waits_for = ""
        self.lead_waits_since = 0.0

    def notify(self) -> None:
        """Something has changed: every thread that waits here looks again."""
        with self._changed:
            self._changes += 1
            self._changed.notify_all()

    def teammate_idle(self) -> None:
        """A teammate has nothing to do: results that waited for it may be due."""
        if self._agents.lead is not None:
            self._agents.lead.teammate_idle()
        self.notify()

    # Looking

    @property
    def is_working(self) -> bool:
        """Whether a teammate is not idle."""
        return self._activity.are_teammates_working

    def busy(self) -> list[str]:
        """Who works or has mail to act on, the lead last. An agent that waits for a message is not busy."""
        return self._activity.busy(self.waiters())

    def waiters(self) -> list[str]:
        """Who is inside `wait_for_message`."""
        with self._changed:
            return sorted(self._waiting)

    def show_waiting(self, agent: str, what: str) -> None:
        """Record what an agent waits for; empty when the wait is over."""
        if agent == LEAD:  # it is not in the roster
            self.lead_waits_for, self.lead_waits_since = what, time.time()
        else:
            self._roster.update(agent, waiting_for=what)

    # Waiting

    def wait_until_idle(self, cancel: CancelScope, timeout_seconds: float | None = None) -> bool:
        """Wait until every agent is idle and no background sub-agent runs; false if cancelled or out of time."""
        return self._wait_until(self._are_all_idle, cancel, timeout_seconds)

    def wait_until_stopped(self, timeout_seconds: float) -> bool:
        """After the program's scope was cancelled: wait until nobody in this process works. Members on other hosts
        continue, and nothing here asks the database, which may not answer."""
        return self._wait_until(lambda: not self._activity.is_any_in_turn, CancelScope(), timeout_seconds)

    def wait_for_busy(self, cancel: CancelScope) -> None:
        """The same for a user who types more afterwards: agents that wait for a message count as idle."""
        self._wait_until(self._are_others_idle, cancel)

    @contextmanager
    def user_waits_for_lead(self) -> Iterator[None]:
        """Inside the block the user's next line is not read: a lead that waits for a message must not wait for it."""
        self._set_user_waits(True)
        try:
            yield
        finally:
            self._set_user_waits(False)

    def nobody_will_write(self) -> None:
        """The user will type nothing more."""
        with self._changed:
            self._is_headless = True
            self.notify()

    def end_wait(self, agent: str) -> None:
        """Nobody on any host is left who could write to this agent."""
        with self._changed:
            self._deserted.add(agent)
            self.notify()

    def wait_for_message(self, agent: str, timeout_seconds: float, cancel: CancelScope) -> ToolOutput:
        """Raises: Cancelled, StateError."""
        self.show_waiting(agent, "message")
        try:
            with self._mailbox(agent).late.wanted():
                return self._next_mail(agent, timeout_seconds, cancel)
        finally:  # outside the lock: this emits an event, whose consumers may look at the team
            self.show_waiting(agent, "")

    def _next_mail(self, agent: str, timeout_seconds: float, cancel: CancelScope) -> ToolOutput:
        deadline = time.monotonic() + timeout_seconds
        with cancel.on_cancel(self.notify):
            with self._changed:
                self._waiting.add(agent)
                self.notify()
            try:
                while True:
                    seen = self._changes
                    cancel.check()
                    # Without the lock, which those need who end the wait: the database of the inbox may not answer.
                    if output := as_output(self._mailbox(agent).take()):
                        return output
                    with self._changed:
                        remaining = deadline - time.monotonic()
                        reason = self._end_of_wait(agent)
                        if not reason and remaining <= 0:
                            reason = f"(no message came within {timeout_seconds:g} seconds)"
                        if reason:
                            self._waiting.discard(agent)  # before another agent looks, to which this one may write
                            return ToolOutput(reason)
                        if self._changes == seen:
                            self._changed.wait(remaining)
            finally:
                with self._changed:
                    self._waiting.discard(agent)
                    self._deserted.discard(agent)

    def _end_of_wait(self, agent: str) -> str:
        """Why an agent need not wait any longer although it has no mail; empty if it must."""
        lead = self._agents.lead
        if agent == LEAD and lead is not None and lead.lines.queued:
            return USER_WROTE
        user_may_write = not self._is_headless and not (agent == LEAD and self._user_waits_for_lead)
        is_deserted = agent in self._deserted or (not user_may_write and self._are_others_idle())
        return NOBODY_LEFT if is_deserted else ""

    def _wait_until(self, is_done: Callable[[], bool], cancel: CancelScope, seconds: float | None = None) -> bool:
        deadline = math.inf if seconds is None else time.monotonic() + seconds
        with cancel.on_cancel(self.notify), self._changed:
            while not (done := is_done()) and not cancel.cancelled:
                if (left := deadline - time.monotonic()) <= 0:
                    break
                self._changed.wait(min(1.0, left))
        return done

    def _set_user_waits(self, value: bool) -> None:
        with self._changed:
            self._user_waits_for_lead = value
            self.notify()

    def _are_all_idle(self) -> bool:
        if self._activity.are_idle_except(()):
            return True
        # Those who wait here notice by themselves that nobody is left. Other hosts see only their own members.
        waiting = self._agents.waiting_elsewhere if self._is_headless else []
        if waiting and self._activity.are_idle_except({*self._waiting, *(mate.name for mate in waiting)}):
            for mate in waiting:
                mate.stop_waiting()
        return False

    def _are_others_idle(self) -> bool:
        """No other agent works or has mail to act on, and no waiting agent has mail."""
        return self._activity.are_idle_except(self._waiting) and not any(
            self._mailbox(name).has_unread for name in self._waiting
        )

    def _mailbox(self, name: str) -> Mailbox:
        thread = self._agents.get(name)
        assert thread is not None  # it is the one that asks, or waits here
        return thread.mailbox


def as_output(taken: Taken) -> ToolOutput | None:
    return ToolOutput("\n".join(map(frame, taken.messages)), marks=taken.marks) if taken.messages else None
