"""Members that run on other hosts, as this process sees them: through the roster, and by orders to their hosts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Protocol

from teamcli.agent.limits import MAX_BUDGET
from teamcli.errors import LimitReached
from teamcli.team.roster import Member, Roster, Status

LEAVING_SECONDS = 5.0
"""How long to wait for the host of a member that is to leave. One that has died does not answer."""


class Order(StrEnum):
    """What can be asked of the host that runs a member. An order is about this moment: a later host ignores it."""

    INTERRUPT = "interrupt"
    PAUSE = "pause"
    RESUME = "resume"
    LEAVE = "leave"
    LEAVE_IF_IDLE = "leave_if_idle"
    STOP_WAITING = "stop_waiting"
    """Nobody is left who could write to it."""


class HostPort(Protocol):
    """What this process can do about members on other hosts."""

    def order(self, name: str, order: Order, text: str = "") -> None:
        """Raises: StateError; TeamError, if no host runs it and none would obey later"""

    def has_unread(self, name: str) -> bool:
        """Raises: StateError"""

    def why_no_room(self, name: str) -> str:
        """Why no host takes this member, because all that would are full; empty if that is not so.

        Raises: StateError
        """

    def is_running(self, name: str) -> bool:
        """Whether a living host runs this member.

        Raises: StateError
        """

    @property
    def is_current(self) -> bool:
        """Whether all changes of the roster and all mail have been heard of.

        Raises: StateError
        """

    def wait(self, is_done: Callable[[], bool], timeout_seconds: float) -> bool:
        """Wait until the roster says so; false if the time is up."""


class RemoteTasksPort(Protocol):
    """What the board says about members on other hosts."""

    @property
    def has_new(self) -> bool:
        """Whether there is a free task that nobody has had yet."""

    def held(self, name: str) -> Sequence[object]:
        """The member's tasks in progress."""


class RemoteTeammate:
    """Does what a `Teammate` does for those who steer it. Its work is known only from the roster and the board."""

    def __init__(self, name: str, roster: Roster, hosts: HostPort, tasks: Callable[[], RemoteTasksPort]) -> None:
        self.name = name
        self._roster = roster
        self._hosts = hosts
        self._tasks = tasks

    @property
    def member(self) -> Member:
        return self._roster.get(self.name)

    @property
    def is_in_turn(self) -> bool:
        return self.member.status in (Status.SPAWNING, Status.WORKING)

    @property
    def is_idle(self) -> bool:
        member = self.member
        if member.status in (Status.SPAWNING, Status.WORKING):
            return False
        if member.paused or member.interrupted or not member.is_active:
            return True
        return not self._has_work(member) or bool(self._hosts.why_no_room(self.name))

    def _has_work(self, member: Member) -> bool:
        return self._hosts.has_unread(self.name) or self._will_take_task(member)

    @property
    def waits_for_room(self) -> str:
        """Why it does not begin the work that it has, until a host has a free slot; empty if that is not so."""
        member = self.member
        if self.is_in_turn or member.paused or member.interrupted or not member.is_active or not self._has_work(member):
            return ""
        return self._hosts.why_no_room(self.name)

    def _will_take_task(self, member: Member) -> bool:
        if not member.claims or member.error or member.waiting_for:
            return False
        tasks = self._tasks()
        # A host may die between a claim and the turn that begins with it: the next host finds the task.
        return tasks.has_new or (bool(tasks.held(self.name)) and not self.has_host)

    @property
    def has_host(self) -> bool:
        """Whether a living host runs it.

        Raises: StateError
        """
        return self._hosts.is_running(self.name)

    @property
    def is_waiting(self) -> bool:
        """Whether it is inside `wait_for_message`, without mail."""
        return self.member.waiting_for == "message" and not self._hosts.has_unread(self.name)

    def stop_waiting(self) -> None:
        """Nobody is left who could write to it."""
        self._hosts.order(self.name, Order.STOP_WAITING)

    @property
    def turns_begun(self) -> int:
        return self.member.turns

    @property
    def is_paused_by_budget(self) -> bool:
        return False  # its host knows its budget

    def limit_reached(self) -> LimitReached | None:
        limit = self.member.limit
        return LimitReached(limit, MAX_BUDGET, is_given=False) if limit else None

    def wait_until_reported(self) -> None:
        """How it is now: changes that are only shown reach this process a moment later."""
        self._roster.refresh([f"member/{self.name}"])

    def interrupt(self, reason: str) -> bool:
        if not self.is_in_turn:
            return False
        self._hosts.order(self.name, Order.INTERRUPT, reason)
        return True

    def pause(self, reason: str) -> None:
        self._roster.update(self.name, paused=True)
        self._hosts.order(self.name, Order.PAUSE, reason)

    def resume(self) -> None:
        self._hosts.order(self.name, Order.RESUME)

    def leave(self) -> None:
        """Raises: TeamError, if no host runs it; StateError"""
        self._hosts.order(self.name, Order.LEAVE)

    def leave_if_idle(self) -> bool:
        if self.is_in_turn or not self.has_host:
            return False
        self._hosts.order(self.name, Order.LEAVE_IF_IDLE)
        self.join(LEAVING_SECONDS)
        return not self.member.is_active

    def join(self, timeout_seconds: float) -> None:
        self._hosts.wait(lambda: not self.member.is_active, timeout_seconds)


class OtherHosts:
    """The members that other processes run, or may run: also one that this process is about to run."""

    def __init__(
        self,
        roster: Roster,
        hosts: HostPort,
        tasks: Callable[[], RemoteTasksPort],
        is_only_here: Callable[[Member], bool],
    ) -> None:
        """`is_only_here` says of a member whether no other process ever runs it."""
        self._roster = roster
        self._hosts = hosts
        self._tasks = tasks
        self._is_only_here = is_only_here

    def teammate(self, name: str) -> RemoteTeammate | None:
        member = self._roster.find(name)
        if member is None or not member.is_active or self._is_only_here(member):
            return None
        return RemoteTeammate(member.name, self._roster, self._hosts, self._tasks)

    @property
    def is_current(self) -> bool:
        """Raises: StateError"""
        return self._hosts.is_current

    def teammates(self) -> list[RemoteTeammate]:
        elsewhere = [each for each in self._roster.members() if each.is_active and not self._is_only_here(each)]
        return [RemoteTeammate(member.name, self._roster, self._hosts, self._tasks) for member in elsewhere]
