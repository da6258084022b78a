"""Which agent the screen shows, and turning it to another. For any thread."""

from __future__ import annotations

import threading
from collections.abc import Callable

from teamcli.session.session import Session
from teamcli.team.message import LEAD, is_subagent
from teamcli.text.escaping import one_line
from teamcli.ui.terminal.render_thread import RenderThread
from teamcli.ui.terminal.views import Turn


class ViewSwitch:
    def __init__(self, session: Session, render_thread: RenderThread, on_turn: Callable[[str, str], None]) -> None:
        """`on_turn` is called with the name of the agent that was shown, and of the one that is shown now."""
        self._session = session
        self._render_thread = render_thread
        self._on_turn = on_turn
        self._lock = threading.Lock()
        self.shown = LEAD

    @property
    def is_watching(self) -> bool:
        return self.shown != LEAD

    def turn_to(self, name: str, most_rows: int = 0) -> None:
        """Show an agent, and at most so many rows of its past; 0: no limit."""
        with self._lock:
            before, self.shown = self.shown, name
            about = self._about(name)
            if name == LEAD:
                self._render_thread.change(lambda views: views.back(about))
            else:
                # The snapshot is queued while no event is: each later event is behind it, and continues it.
                self._session.watching.watch(
                    name,
                    lambda snapshot: self._render_thread.change(
                        lambda views: views.turn_to(Turn(snapshot, about, most_rows))
                    ),
                )
        self._on_turn(before, name)

    def turn_by(self, step: int, most_rows: int) -> bool:
        """To the next agent or the previous one. Returns False if there is no other."""
        names = [LEAD, *self._session.team.roster.names(active_only=True)]
        at = names.index(self.shown) if self.shown in names else 0
        following = names[(at + step) % len(names)]
        if following == self.shown:
            return False
        self.turn_to(following, most_rows)
        return True

    def say(self, name: str, text: str) -> str:
        """Send a line that the user typed while this agent was shown; returns what to show.

        Raises: TeamcliError
        """
        if is_subagent(name) and (subagents := self._session.subagents):
            return subagents.send(name, text)
        return self._session.say(name, text)

    def _about(self, name: str) -> str:
        if name == LEAD:
            return "idle" if self._session.lead.is_idle else "working"
        member = self._session.team.roster.find(name)
        if member is None:
            return "sub-agent"
        notes = [word for word in ("interrupted", "paused", "error") if getattr(member, word)]
        return " · ".join([one_line(member.role, 60), ", ".join([member.status, *notes])])
