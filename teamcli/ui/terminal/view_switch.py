"""Which agent the screen shows, and turning it to another. For any thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial

from teamcli.agent.events import Event
from teamcli.errors import TeamcliError
from teamcli.session.session import Session
from teamcli.team.message import LEAD, is_subagent
from teamcli.text.escaping import one_line
from teamcli.ui.terminal.render_thread import RenderThread
from teamcli.ui.terminal.views import Turn, Views

LOOK_SECONDS = 0.3
"""How often a member on another host is looked at while it is watched."""
logger = logging.getLogger(__name__)


class ViewSwitch:
    def __init__(self, session: Session, render_thread: RenderThread, on_turn: Callable[[str, str], None]) -> None:
        """`on_turn` is called with the name of the agent that was shown, and of the one that is shown now."""
        self._session = session
        self._render_thread = render_thread
        self._on_turn = on_turn
        self._lock = threading.Lock()
        self._watch_number = 0
        """Counts views of members on other hosts, so that only the last one is followed."""
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
            elif self._runs_elsewhere(name):
                self._watch_number += 1
                thread = partial(self._follow, name, about, most_rows, self._watch_number)
                threading.Thread(target=thread, name=f"watching {name}", daemon=True).start()
            else:
                # The snapshot is queued while no event is: each later event is behind it, and continues it.
                self._session.watching.watch(
                    name,
                    lambda snapshot: self._render_thread.change(
                        lambda views: views.turn_to(Turn(snapshot, about, most_rows))
                    ),
                )
        self._on_turn(before, name)

    def _runs_elsewhere(self, name: str) -> bool:
        member = self._session.team.roster.find(name)
        has_host = self._session.team_host is not None and member is not None and bool(member.host)
        return has_host and self._session.team.agents.teammate(name) is None

    def _follow(self, name: str, about: str, most_rows: int, number: int) -> None:
        """Show what a member on another host records, as long as this is what the user watches."""
        assert self._session.team_host is not None
        recorded = self._session.team_host.open_recorded(name)
        try:
            turn = Turn(recorded.begin(), about, is_recorded=True, most_rows=most_rows)
            self._render_thread.change(lambda views: views.turn_to(turn) if self.shown == name else "")
            while self.shown == name and self._watch_number == number and not self._session.cancel.wait(LOOK_SECONDS):
                if steps := recorded.new_steps():
                    self._render_thread.change(partial(_add, name=name, steps=steps))
        except TeamcliError as e:
            logger.warning("%s cannot be watched: %s", name, e)
        finally:
            recorded.close()

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
        where = [f"on {one_line(member.runs_on or member.host, 40)}"] if member.host else []
        return " · ".join([one_line(member.role, 60), *where, ", ".join([member.status, *notes])])


def _add(views: Views, name: str, steps: Sequence[Event]) -> str:
    return views.add(name, steps)
