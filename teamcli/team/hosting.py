"""The members that this process runs, of a team on several hosts.

It takes over members whose host has died or that no host runs yet, and hands its own over when it leaves. Who holds a
member is in `store/postgres/leases.py`; `app/host_life.py` says when to look.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Protocol
from zlib import crc32

from teamcli.cancel import CancelScope
from teamcli.errors import Cancelled, LeaseLost, StateError, TeamcliError
from teamcli.team.host_row import HostRow
from teamcli.team.manager import TeammateManager
from teamcli.team.message import LEAD
from teamcli.team.remote_teammate import Order
from teamcli.team.roster import Member
from teamcli.team.roster_file import ANY_HOST
from teamcli.team.teammate import Teammate
from teamcli.text.tags import tagged

DRAIN_SECONDS = 60.0
"""How long a host that leaves waits for the next step of its members."""
SHARING_SECONDS = 15.0
"""How much longer it waits until what they have done is pushed."""
DRAIN_LOOK_SECONDS = 0.5
CLOSING_SECONDS = 2.0
RETRY_SECONDS = 30.0
"""After this time, a host tries again to run a member that it could not run."""
LEFT_SECONDS = 0.5
"""After this time, a host takes a member that it has left to another one and that is still free."""
MOVED = (
    "You run on the host '{host}' now; '{earlier}' is gone or has handed you over. Commands that you had in the"
    " background there have ended. Your checkout starts at the last commit of your branch that was pushed: look at what"
    " is there before you continue."
)
LOST = "'{host}' was frozen or cut off for too long: another host runs {name} now, and nothing more is written here."
logger = logging.getLogger(__name__)


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

    def announce_leave(self) -> None:
        """From now on, this host takes no members, and other hosts need not wait for it."""

    def give_up(self, agent: str) -> None:
        """Leave it to other hosts. From now on, nothing that runs here can write for it."""

    def forget(self, agent: str) -> None:
        """Nothing that was lost or given up of it runs here anymore, so it may be taken again."""

    def free(self) -> Collection[str]:
        """The members that no living host runs."""

    def hosts(self) -> Sequence[HostRow]: ...


class Hosting:
    def __init__(
        self,
        team: TeammateManager,
        leases: LeasePort,
        cancel: CancelScope,
        has_lead: bool,
        on_running: Callable[[str], None],
    ) -> None:
        """`has_lead`: the lead is here, and with it all members that were asked for no host. `on_running` is called
        when a member that was taken runs: orders to it may have come before."""
        self._team = team
        self._leases = leases
        self.name = leases.name
        """Of this host."""
        self._cancel = cancel
        self._has_lead = has_lead
        self._on_running = on_running
        self._failed_at: dict[str, float] = {}
        """When members could not be run here."""
        self._coming: dict[str, threading.Thread] = {}
        """Members that were taken, with the threads that bring them here."""
        self._taking = cancel.child()
        """Ends when this host leaves: it takes no more members."""
        self._ending: set[str] = set()
        """Members that were lost or given up, and may still have threads here."""
        self._left: frozenset[str] = frozenset()
        """Free members that were left to other hosts at the last look."""
        self._wakes = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hosting", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self.look()

    def look(self) -> None:
        """There may be a member that no host runs; from any thread."""
        self._wakes.set()

    def lost(self, names: Sequence[str]) -> None:
        """Other hosts run these now: end them here, without a trace in their conversations. Returns at once."""
        for name in names:
            if name == LEAD:  # which is never taken again: this process ends
                self._cancel.cancel("another teamcli leads this team now")
            else:
                self._see_end(name, self._end(name), LOST.format(name=name, host=self.name))

    def _end(self, name: str) -> Teammate | None:
        """Tell its thread to end. Until `_see_end` has seen that, this host does not take it again: with a new lease,
        what is under way in that thread could still be written."""
        self._ending.add(name)
        if teammate := self._team.agents.remove(name):
            teammate.hand_over(at_once=True)
        return teammate

    def _see_end(self, name: str, teammate: Teammate | None, why: str = "") -> None:
        """In a thread, since its own may be waiting for the database."""
        coming = self._coming.get(name)

        def wait() -> None:
            try:
                ended = teammate
                if coming is not None:  # what brings it here may only now start it
                    coming.join()
                    ended = self._end(name) or teammate
                if ended is not None:
                    if why:
                        self._team.outbox.warn(LEAD, why)
                    ended.join()
                    ended.dismiss()
            except Exception:  # boundary: it runs elsewhere now, whatever is left of it here
                logger.exception("what is left of %s could not be closed", name)
            self._leases.forget(name)
            self._ending.discard(name)
            self.look()

        threading.Thread(target=wait, name=f"end of {name}", daemon=True).start()

    def runs(self, name: str) -> bool:
        """Whether a member runs here, and not only will."""
        return self._team.agents.teammate(name) is not None

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
            case Order.LEAVE | Order.LEAVE_IF_IDLE:
                # What it leaves is removed at the remote, too. Orders to other members do not wait for that.
                arguments = (teammate, order == Order.LEAVE_IF_IDLE)
                threading.Thread(target=self._shut_down, args=arguments, name=f"leave {name}", daemon=True).start()
            case Order.STOP_WAITING:
                self._team.quiescence.end_wait(name)

    def _shut_down(self, teammate: Teammate, only_if_idle: bool) -> None:
        try:
            if not only_if_idle:
                teammate.leave()
            elif teammate.leave_if_idle() and (left := self._team.protocols.remove(teammate.name)):
                self._team.outbox.warn(teammate.name, left)
        except TeamcliError as e:
            logger.warning("%s could not be shut down: %s", teammate.name, e)
        except Exception:  # boundary: nobody else hears of it
            logger.exception("%s could not be shut down", teammate.name)

    def drain(self) -> list[str]:
        """Hand over all members, each at its next step. Returns those that could not be handed over: others take them
        over when the lease of this host has run out."""
        deadline = time.monotonic() + DRAIN_SECONDS
        self._stop_taking(deadline)
        try:
            self._leases.announce_leave()
        except StateError as e:
            logger.warning("that this host leaves could not be announced: %s", e)
        mates = self._team.agents.teammates
        kept = {teammate.name for teammate in mates}
        threads = []
        for teammate in mates:  # none waits for another one, which may be in the middle of a long step
            # One that waits for an answer or for mail has no next step before that comes.
            teammate.hand_over(at_once=bool(teammate.member.waiting_for))
            arguments = (teammate, deadline, kept)
            threads.append(threading.Thread(target=self._hand_over, args=arguments, name="hand over", daemon=True))
            threads[-1].start()
        for thread in threads:
            thread.join(max(0.0, deadline + SHARING_SECONDS - time.monotonic()))
        return sorted(kept)

    def _stop_taking(self, deadline: float) -> None:
        """What was taken a moment ago is handed over like the others, or left as it was."""
        self._taking.cancel("this host leaves")
        for thread in (self._thread, *self._coming.values()):
            while thread.is_alive() and time.monotonic() < deadline and not self._leases.is_away:
                thread.join(DRAIN_LOOK_SECONDS)

    def _hand_over(self, teammate: Teammate, deadline: float, kept: set[str]) -> None:
        while teammate.is_alive and time.monotonic() < deadline and not self._leases.is_away:
            teammate.join(DRAIN_LOOK_SECONDS)
        if self._leases.is_away:
            return
        try:
            self._give_away(teammate)
            kept.discard(teammate.name)
        except TeamcliError as e:
            logger.warning("%s could not be handed over: %s", teammate.name, e)

    def _give_away(self, teammate: Teammate) -> None:
        """Raises: TeamcliError"""
        teammate.hand_over(at_once=True)
        teammate.join(CLOSING_SECONDS)
        teammate.work.save()
        self._team.agents.remove(teammate.name)
        teammate.dismiss()
        self._leases.give_up(teammate.name)

    def _run(self) -> None:
        with self._taking.on_cancel(self._wakes.set):
            while not self._taking.cancelled:
                self._wakes.wait(LEFT_SECONDS if self._left else None)
                self._wakes.clear()
                try:
                    self._take_free()
                except TeamcliError as e:
                    if not self._taking.cancelled:
                        logger.warning("looking for members to run failed: %s", e)
                except Exception:  # boundary: without this thread no member would ever be taken over
                    logger.exception("looking for members to run failed")

    def _take_free(self) -> None:
        left_before, self._left = self._left, frozenset()
        if self._taking.cancelled or not any(member.host for member in self._team.roster.members()):
            return
        found = map(self._team.roster.find, sorted(self._leases.free()))
        wanted = [member for member in found if member and member.is_active and self._is_movable(member)]
        if not wanted:
            return
        hosts = [host for host in self._leases.hosts() if host.is_alive and not host.is_leaving]
        others = [host for host in hosts if host.name != self._leases.name]
        named = [member.name for member in wanted if member.host not in (ANY_HOST, self._leases.name)]
        if named:
            self._team.roster.refresh([f"member/{name}" for name in named])  # whether any host has run them
        found = map(self._team.roster.find, [member.name for member in wanted])
        wanted = [member for member in found if member and self._is_for_this_host(member, others)]
        shared = shared_out([member.name for member in wanted if self._is_for_any(member, others)], hosts)
        for member in wanted:
            here = {mate.name for mate in self._team.agents.teammates if mate.member.host} | self._coming.keys()
            if len(here) >= self._leases.slots or self._taking.cancelled:
                return
            if shared.get(member.name, self._leases.name) == self._leases.name or member.name in left_before:
                self._take(member)
            else:  # the other host may be unable to run it
                self._left |= {member.name}

    def _is_movable(self, member: Member) -> bool:
        failed_at = self._failed_at.get(member.name, -math.inf)
        is_due = time.monotonic() > failed_at + RETRY_SECONDS
        is_here = member.name in (*self._ending, *self._coming) or self.runs(member.name)
        return bool(member.host) and is_due and not is_here

    def _is_for_this_host(self, member: Member, others: Sequence[HostRow]) -> bool:
        if member.host == self._leases.name:
            return True
        is_named = member.host != ANY_HOST
        if is_named and (not member.runs_on or any(host.name == member.host for host in others)):
            return False  # it starts where it was asked to, however long that takes
        # The lead's machine is the user's: it runs such members only if nobody else can.
        return not (self._has_lead and any(host.members < host.slots for host in others))

    def _is_for_any(self, member: Member, others: Sequence[HostRow]) -> bool:
        """Whether it makes no difference which host runs it."""
        return member.host != self._leases.name and bool(others)

    def _take(self, member: Member) -> None:
        if not self._leases.take(member.name):
            return
        # Making a checkout may take minutes. The others of a host that has died do not wait for it.
        thread = threading.Thread(target=self._bring, args=(member,), name=f"bring {member.name}", daemon=True)
        self._coming[member.name] = thread
        thread.start()

    def _bring(self, member: Member) -> None:
        try:
            self.bring_here(member.name, self._taking)
            self._on_running(member.name)
        except LeaseLost:
            logger.info("%s was taken by another host", member.name)
        except Cancelled:  # this host leaves, and others need not know why it did not run here
            self._give_back(member)
        except TeamcliError as e:
            self._give_back(member, str(e))
        except Exception as e:  # boundary: a member that is held and does not run would wait forever
            logger.exception("%s cannot run here", member.name)
            self._give_back(member, str(e))
        finally:
            del self._coming[member.name]
            self.look()

    def _give_back(self, member: Member, why: str = "") -> None:
        """It was taken and does not run."""
        if self._cancel.cancelled:
            return
        self._failed_at[member.name] = time.monotonic()
        ended = self._end(member.name)
        try:
            if why and member.error != why:  # it is tried again and again, and said once
                self._team.outbox.warn(LEAD, f"{member.name} cannot run on '{self._leases.name}': {why}")
                self._team.roster.update(member.name, error=why)
        except TeamcliError as e:
            logger.warning("why %s cannot run here could not be recorded: %s", member.name, e)
        try:
            self._leases.give_up(member.name)
        except StateError as e:  # a later renewal of the lease does it
            logger.warning("%s could not be given up: %s", member.name, e)
        finally:
            self._see_end(member.name, ended)

    def bring_here(self, name: str, cancel: CancelScope) -> None:
        """Run a member whose lease this process holds.

        Raises: TeamcliError, Cancelled
        """
        self._team.roster.refresh([f"member/{name}"])  # as it is now that no other host can change it
        member = self._team.roster.get(name)
        earlier = member.runs_on
        has_moved = earlier not in ("", self._leases.name)
        moved = MOVED.format(host=self._leases.name, earlier=earlier)
        note = tagged("note", moved, "", "") if has_moved else ""
        self._team.take_over(name, note, cancel)
        if self.runs(name):
            self._team.roster.update(name, runs_on=self._leases.name, error="")
            self._team.protocols.restore(name)  # last: it may shut the member down


def shared_out(names: Iterable[str], hosts: Sequence[HostRow]) -> dict[str, str]:
    """Which of these hosts should take which member, so that not all of them try. All come to the same result if they
    look at the same moment. The host of the lead gets none if any other has room."""
    room = {host.name: host.slots - host.members for host in hosts}
    workers = [host.name for host in hosts if not host.has_lead]
    shared: dict[str, str] = {}
    for name in sorted(names):
        with_room = [host for host in workers if room[host] > 0] or [host for host in room if room[host] > 0]
        if not with_room:
            break
        shared[name] = max(with_room, key=lambda host: (room[host], crc32(f"{name} {host}".encode())))
        room[shared[name]] -= 1
    return shared
