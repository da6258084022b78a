"""The members that this process runs, of a team on several hosts.

It takes members that no host runs, and hands its own over when it leaves.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from teamcli.cancel import CancelScope
from teamcli.errors import LeaseLost, TeamcliError
from teamcli.team.manager import ANY_HOST, TeammateManager
from teamcli.team.message import LEAD
from teamcli.team.remote_teammate import Order
from teamcli.team.roster import Member
from teamcli.team.teammate import Teammate
from teamcli.text.tags import tagged

DRAIN_SECONDS = 60.0
"""How long a host that leaves waits for the next step of its members."""
DRAIN_LOOK_SECONDS = 0.5
CLOSING_SECONDS = 2.0
RETRY_SECONDS = 30.0
"""After this time, a host tries again to run a member that it could not run."""
MOVED = (
    "You run on the host '{host}' now; '{earlier}' is gone or has handed you over. Your checkout starts at the last"
    " commit of your branch that was pushed: look at what is there before you continue."
)
logger = logging.getLogger(__name__)


class OtherHost(Protocol):
    """Another process that can run members."""

    @property
    def name(self) -> str: ...

    @property
    def is_alive(self) -> bool: ...

    @property
    def slots(self) -> int: ...

    @property
    def members(self) -> int: ...


class LeasePort(Protocol):
    """Which process runs which member. All raise StateError."""

    @property
    def name(self) -> str:
        """Of this host."""

    @property
    def slots(self) -> int:
        """How many members it runs at most."""

    @property
    def is_away(self) -> bool:
        """Whether nothing can be handed over now."""

    def take(self, agent: str) -> bool: ...

    def give_up(self, agent: str) -> None: ...

    def holders(self) -> Mapping[str, str]:
        """The living host of each agent that has one."""

    def hosts(self) -> Sequence[OtherHost]: ...


class Hosting:
    def __init__(self, team: TeammateManager, leases: LeasePort, cancel: CancelScope, has_lead: bool) -> None:
        """`has_lead`: the lead is here, and with it all members that were asked for no host."""
        self._team = team
        self._leases = leases
        self.name = leases.name
        """Of this host."""
        self._cancel = cancel
        self._has_lead = has_lead
        self._is_leaving = False
        self._failed_at: dict[str, float] = {}
        """When members could not be run here."""
        self._stuck: set[str] = set()
        """Members that are taken and do not run."""
        self._wakes = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hosting", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self.look()

    def look(self) -> None:
        """There may be a member that no host runs; from any thread."""
        self._wakes.set()

    def lost(self, names: Sequence[str]) -> None:
        """Other hosts run these now: end them here, without a trace."""
        ended = [teammate for name in names if (teammate := self._end(name))]
        # Afterwards nothing knows any more that they must not write.
        deadline = time.monotonic() + CLOSING_SECONDS
        for teammate in ended:
            teammate.join(max(0.0, deadline - time.monotonic()))
        if LEAD in names:
            self._cancel.cancel("another teamcli leads this team now")

    def _end(self, name: str) -> Teammate | None:
        if teammate := self._team.agents.remove(name):
            teammate.hand_over(at_once=True)
            teammate.dismiss()
        return teammate

    def obey(self, name: str, order: str, text: str) -> None:
        """Raises: TeamcliError"""
        teammate = self._team.agents.teammate(name)
        if teammate is None:
            return
        match order:
            case Order.INTERRUPT:
                teammate.interrupt(text)
            case Order.PAUSE:
                teammate.pause(text)
            case Order.RESUME:
                self._team.roster.update(name, paused=False, limit="")  # this host may just have written a pause
                teammate.resume()
            case Order.LEAVE:
                teammate.leave()
            case Order.LEAVE_IF_IDLE:
                if teammate.leave_if_idle():
                    self._team.protocols.remove(name)
            case Order.STOP_WAITING:
                self._team.quiescence.end_wait(name)

    def drain(self) -> None:
        """Hand over all members, each at its next step."""
        self._is_leaving = True
        deadline = time.monotonic() + DRAIN_SECONDS
        mates = self._team.agents.teammates
        for teammate in mates:
            teammate.hand_over()
        for teammate in mates:
            while teammate.is_alive and time.monotonic() < deadline and not self._leases.is_away:
                teammate.join(DRAIN_LOOK_SECONDS)
            if self._leases.is_away:
                return  # others take them over when this host's lease has run out
            teammate.hand_over(at_once=True)
            teammate.join(CLOSING_SECONDS)
            teammate.save_work()
            self._team.agents.remove(teammate.name)
            teammate.dismiss()
            self._leases.give_up(teammate.name)

    def _run(self) -> None:
        with self._cancel.on_cancel(self._wakes.set):
            while not self._cancel.cancelled:
                self._wakes.wait()
                self._wakes.clear()
                try:
                    self._take_free()
                except TeamcliError as e:
                    if not self._cancel.cancelled:
                        logger.warning("looking for members to run failed: %s", e)
                except Exception:  # boundary: without this thread no member would ever be taken over
                    logger.exception("looking for members to run failed")

    def _take_free(self) -> None:
        wanted = [member for member in self._team.roster.members() if member.is_active and self._is_movable(member)]
        if not wanted or self._is_leaving:
            return
        holders, hosts = self._leases.holders(), self._leases.hosts()
        others = [host for host in hosts if host.is_alive and host.name != self._leases.name]
        for member in wanted:
            free = self._leases.slots - sum(mate.member.host != "" for mate in self._team.agents.teammates)
            if free <= 0 or self._cancel.cancelled:
                return
            if (member.name not in holders or member.name in self._stuck) and self._is_for_this_host(member, others):
                self._take(member)

    def _is_movable(self, member: Member) -> bool:
        failed_at = self._failed_at.get(member.name, -math.inf)
        is_due = time.monotonic() > failed_at + RETRY_SECONDS
        return bool(member.host) and is_due and self._team.agents.teammate(member.name) is None

    def _is_for_this_host(self, member: Member, others: Sequence[OtherHost]) -> bool:
        if member.host == self._leases.name:
            return True
        is_named = member.host != ANY_HOST
        if is_named and (not member.runs_on or any(host.name == member.host for host in others)):
            return False  # it starts where it was asked to, however long that takes
        # The lead's machine is the user's: it runs such members only if nobody else can.
        return not (self._has_lead and any(host.members < host.slots for host in others))

    def _take(self, member: Member) -> None:
        if not self._leases.take(member.name):
            self._stuck.discard(member.name)
            return
        self._stuck.add(member.name)
        try:
            self.bring_here(member.name)
            self._stuck.discard(member.name)
        except LeaseLost:
            logger.info("%s was taken by another host", member.name)
        except Exception as e:  # boundary: a member that is held and does not run would wait forever
            if self._cancel.cancelled:
                return
            if not isinstance(e, TeamcliError):
                logger.exception("%s cannot run here", member.name)
            self._failed_at[member.name] = time.monotonic()
            self._end(member.name)
            self._team.outbox.warn(member.name, f"{member.name} cannot run on '{self._leases.name}': {e}")
            self._team.roster.update(member.name, error=str(e))
            self._leases.give_up(member.name)
            self._stuck.discard(member.name)

    def bring_here(self, name: str) -> None:
        """Run a member whose lease this process holds.

        Raises: TeamcliError
        """
        member = self._team.roster.get(name)
        earlier = member.runs_on
        has_moved = earlier not in ("", self._leases.name)
        moved = MOVED.format(host=self._leases.name, earlier=earlier)
        note = tagged("note", moved, "", "") if has_moved else ""
        self._team.take_over(name, note)
        self._team.roster.update(name, runs_on=self._leases.name, error="")


class LeadsMembers:
    """Which members are for this process: those whose lease it holds, and for the lead those without a host."""

    def __init__(self, holds: Callable[[str], bool], has_lead: bool) -> None:
        self._holds = holds
        self._has_lead = has_lead

    def __call__(self, member: Member) -> bool:
        return self._holds(member.name) or (self._has_lead and not member.host)
