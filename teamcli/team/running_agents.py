"""The agents of this process that have a thread: the lead, and the teammates that are not shut down. Of a team on
several hosts, also the others."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from teamcli.agent.loop import Agent
from teamcli.cancel import CancelScope
from teamcli.errors import StateError, TeamError, ToolError
from teamcli.team.agent_thread import AgentThread
from teamcli.team.lead import Lead
from teamcli.team.message import LEAD
from teamcli.team.teammate import Teammate

if TYPE_CHECKING:
    from teamcli.team.remote_teammate import OtherHosts, RemoteTeammate

CLEANING_SECONDS = 30.0
"""How long a spawn waits until the last teammate of that name is cleaned up, which may take long over a network."""


class RunningAgents:
    """Reading needs no lock: the tables are replaced or copied, never iterated while they change."""

    def __init__(self, others: OtherHosts | None = None) -> None:
        """`others` are the members that other hosts run, if there can be any."""
        self._others = others
        self._lead: Lead | None = None
        self._teammates: dict[str, Teammate] = {}
        self._left_out: frozenset[str] = frozenset()
        """Members beyond the limit: the team file has them, but they are not started."""
        self._departed: list[Agent] = []
        """Those of this run that were shut down: what they used still counts."""
        self._stopping: list[Teammate] = []
        """Those that were shut down and whose thread may still be running."""
        self._leaving: set[str] = set()
        """Those that were shut down and whose checkout and branch are still being cleaned up."""
        self._has_left = threading.Condition()

    @property
    def lead(self) -> Lead | None:
        """None until it is built, which is after the team."""
        return self._lead

    @property
    def teammates(self) -> tuple[Teammate, ...]:
        """Those of this process."""
        return tuple(self._teammates.values())

    @property
    def all_teammates(self) -> tuple[Teammate | RemoteTeammate, ...]:
        """Also those that other hosts run."""
        return (*self.teammates, *self._elsewhere)

    @property
    def _elsewhere(self) -> list[RemoteTeammate]:
        others = self._others.teammates() if self._others else ()
        return [each for each in others if each.name not in self._teammates]

    @property
    def is_current(self) -> bool:
        """Whether this process knows all that members on other hosts have done.

        Raises: StateError
        """
        return self._others is None or self._others.is_current

    @property
    def agents(self) -> list[Agent]:
        """All agents of this run, the lead first. One that was shut down and spawned again is in the list twice."""
        lead = [self._lead.agent] if self._lead else []
        return [*lead, *self._departed, *(teammate.agent for teammate in self.teammates)]

    @property
    def waiting_elsewhere(self) -> list[RemoteTeammate]:
        """Those on other hosts that wait for a message."""
        return [each for each in self._elsewhere if each.is_waiting]

    @property
    def waiting_for_room(self) -> list[str]:
        """Those that have work and that no host takes, in words. Nothing if the database does not answer."""
        try:
            waiting = [(each.name, each.waits_for_room) for each in self._elsewhere]
        except StateError:
            return []
        return [f"{name} starts when there is room: {why}" for name, why in waiting if why]

    def get(self, name: str) -> AgentThread | None:
        return self._lead if name == LEAD else self._teammates.get(name)

    def teammate(self, name: str) -> Teammate | None:
        """One of this process."""
        return self._teammates.get(name)

    def find(self, name: str) -> Teammate | RemoteTeammate | None:
        """One of this process, or of another host."""
        return self._teammates.get(name) or (self._others.teammate(name) if self._others else None)

    def active(self, name: str) -> Teammate | RemoteTeammate:
        """Raises: TeamError, for one that is not started or shut down."""
        if name in self._left_out:
            raise TeamError(f"'{name}' is not started: there are more teammates than `limits.teammates` allows")
        if (teammate := self.find(name)) is None:
            raise TeamError(f"'{name}' is shut down; spawn it again to use it")
        return teammate

    def add_lead(self, lead: Lead) -> None:
        self._lead = lead

    def add(self, teammate: Teammate) -> None:
        self._teammates[teammate.name] = teammate

    def remove(self, name: str) -> Teammate | None:
        """None if it is not there."""
        if (teammate := self._teammates.pop(name, None)) is not None:
            self._departed.append(teammate.agent)
            self._stopping = [each for each in (*self._stopping, teammate) if each.is_alive]
        return teammate

    @contextmanager
    def leaving(self, name: str) -> Iterator[None]:
        """Inside the block, a teammate that was removed is cleaned up: its name must not be used again yet."""
        with self._has_left:
            self._leaving.add(name)
        try:
            yield
        finally:
            with self._has_left:
                self._leaving.discard(name)
                self._has_left.notify_all()

    def wait_until_left(self, name: str, cancel: CancelScope) -> None:
        """Raises: ToolError, if the last teammate of that name is still being cleaned up; Cancelled"""
        with cancel.notifying(self._has_left), self._has_left:
            self._has_left.wait_for(lambda: name not in self._leaving or cancel.cancelled, CLEANING_SECONDS)
        cancel.check()
        if name in self._leaving:
            raise ToolError(f"'{name}' is shut down, and this host is still cleaning up; try again later")

    def leave_out(self, names: Iterable[str]) -> None:
        self._left_out = frozenset(names)

    def is_left_out(self, name: str) -> bool:
        return name in self._left_out

    def forget_left_out(self, name: str) -> bool:
        """Whether it was one of those that are not started."""
        was_left_out = name in self._left_out
        self._left_out -= {name}
        return was_left_out

    def join(self, deadline: float) -> None:
        """Wait for the teammates' threads, once their scopes are cancelled."""
        for teammate in (*self.teammates, *self._stopping):
            teammate.join(max(0.0, deadline - time.monotonic()))
