"""Notices a teammate that works without progress. It only warns: what to do about it is up to the user.

One thread watches all teammates. It starts with the first event of a teammate and sleeps until one could be stuck, or
until one that is stuck shows progress. Only this thread changes the roster: the thread that reports an event must
not wait for a disk or a database.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from teamcli.agent.events import Emit, Event, Notice, RetryScheduled, Severity, StatusChanged
from teamcli.cancel import CancelScope
from teamcli.errors import UnknownTeammate
from teamcli.team.message import LEAD
from teamcli.team.roster import Member, Roster, Status


class StallDetector:
    """Consumes events: every event of an agent is a sign of progress."""

    def __init__(
        self,
        roster: Roster,
        emit: Emit,
        cancel: CancelScope,
        stuck_after_seconds: float,
        clock: Callable[[], float] = time.time,
        whose: Callable[[str], str] = str,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        """`whose` maps a sub-agent to its parent, whose progress it is. `ticks` measures how long ago a sign was;
        `clock` is for people."""
        self._whose = whose
        self._roster = roster
        self._emit = emit
        self._cancel = cancel
        self._patience_seconds = stuck_after_seconds
        self._clock = clock
        self._ticks = ticks
        self._signs: dict[str, float] = {}
        self._stuck: set[str] = set()
        self._is_needed = threading.Event()
        self._thread: threading.Thread | None = None

    def __call__(self, event: Event) -> None:
        name = self._whose(event.agent)
        says_stuck = isinstance(event, StatusChanged) and event.details.get("stuck_since")
        if name == LEAD or isinstance(event, Notice) or says_stuck:
            return
        self._signs[name] = self._ticks() + (event.delay_seconds if isinstance(event, RetryScheduled) else 0.0)
        if name in self._stuck:
            self._is_needed.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="stall detector", daemon=True)
            self._thread.start()

    def join(self, timeout_seconds: float) -> None:
        """Wait for the thread, once its scope is cancelled."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout_seconds)

    def look(self) -> float:
        """Mark each teammate that has shown no sign for too long, once, and unmark those that have shown one since;
        returns the seconds until the next could be."""
        now = self._ticks()
        wait = self._patience_seconds
        for member in self._roster.members():
            if member.status is Status.WORKING and not member.waiting_for:
                silent_since = self._signs.setdefault(member.name, now)
                remaining = silent_since + self._patience_seconds - now
                if remaining > 0:
                    wait = min(wait, remaining)
                elif not member.stuck_since:
                    self._mark(member, now - silent_since)
        for name in [each for each in self._stuck if self._signs.get(each, now) + self._patience_seconds > now]:
            self._stuck.discard(name)
            self._note(name, 0.0)
        return wait

    def _mark(self, member: Member, seconds: float) -> None:
        self._stuck.add(member.name)  # first: from now on, a sign ends the wait for the next look
        self._note(member.name, self._clock() - seconds)
        text = f"{member.name} has shown no progress for {seconds:.0f} s; /stop {member.name} would end it."
        self._emit(Notice(member.name, text, Severity.WARNING))

    def _note(self, name: str, silent_since: float) -> None:
        try:
            self._roster.update(name, stuck_since=silent_since)
        except UnknownTeammate:  # the user has removed it
            self._signs.pop(name, None)

    def _run(self) -> None:
        with self._cancel.on_cancel(self._is_needed.set):
            while True:
                self._is_needed.clear()
                if self._cancel.cancelled:
                    return
                self._is_needed.wait(self.look())
