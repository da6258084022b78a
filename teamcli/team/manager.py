"""The team: spawns, assigns, stops and restores teammates.

Its verbs are those of the tools (`TeamPort`) and of the user. The order of leaving is written once, in `close`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from teamcli.agent.conversation import text_block
from teamcli.cancel import CancelScope
from teamcli.errors import StateError, ToolError
from teamcli.team.bring_up import changed_terms
from teamcli.team.message import LEAD, check_name
from teamcli.team.outbox import Outbox
from teamcli.team.piece_of_work import in_a_sentence
from teamcli.team.ports import CheckoutSource, PlacementPort, TeamFilePort, TeammateFactory
from teamcli.team.protocols import Protocols
from teamcli.team.quiescence import Quiescence
from teamcli.team.roster import Member, Roster, Status
from teamcli.team.roster_file import ANY_HOST, NOT_ENFORCED
from teamcli.team.running_agents import RunningAgents
from teamcli.team.team_mail import TeamMail, stays_paused
from teamcli.team.team_tasks import TeamTasks
from teamcli.team.teammate import Teammate
from teamcli.team.terms import TERMS, TERMS_FIELD
from teamcli.team.undelivered_mail import UndeliveredMail
from teamcli.team.wake_rules import is_budget
from teamcli.text.counting import counted
from teamcli.text.tags import one_fact
from teamcli.tools.base.context import SpawnRequest

if TYPE_CHECKING:
    from teamcli.team.merging import Merging
    from teamcli.team.remote_teammate import RemoteTeammate

logger = logging.getLogger(__name__)
LEAVING_SECONDS = 1.5
MOST_DESCRIBED = 300
"""How many members a description names."""


class TeamParts(NamedTuple):
    """What the team, its protocols and those who wait for it share."""

    roster: Roster
    agents: RunningAgents
    outbox: Outbox
    mail: TeamMail
    undelivered_mail: UndeliveredMail
    quiescence: Quiescence
    protocols: Protocols
    tasks: TeamTasks
    file: TeamFilePort
    checkouts: CheckoutSource
    placement: PlacementPort
    open_merging: Callable[[], Merging]
    """Called when the first merge is wanted."""


class TeammateManager:
    def __init__(self, parts: TeamParts, factory: TeammateFactory, max_members: int | None = None) -> None:
        """`max_members` bounds how many there are that are not shut down."""
        self.roster = parts.roster
        self.agents = parts.agents
        self.outbox = parts.outbox
        self.mail = parts.mail
        self.quiescence = parts.quiescence
        self.protocols = parts.protocols
        self.tasks = parts.tasks
        self.checkouts = parts.checkouts
        self._open_merging = parts.open_merging
        self._undelivered_mail = parts.undelivered_mail
        self._file = parts.file
        self._placement = parts.placement
        self._factory = factory
        self._max_members = max_members
        self._spawning = threading.RLock()
        self.outbox.bus.subscribe(self._mail_arrived)

    @cached_property
    def merging(self) -> Merging:
        return self._open_merging()

    # What tools do

    def spawn(self, request: SpawnRequest, cancel: CancelScope | None = None) -> str:
        """Hire a teammate, or give an idle one its next task.

        Raises: ToolError, TeamError, StateError, Cancelled
        """
        name = request.name
        check_name(name)
        request = self._with_standing_terms(request)
        if running := self.agents.find(name):
            running.wait_until_reported()
        where = ""
        with self._spawning:
            known = self.roster.find(name)
            if known is None or known.status is Status.SHUTDOWN:
                self._check_number()
                where = self._spawn_new(request, known, cancel)
            elif known.name != name:
                raise ToolError(f"name: '{name}' differs from '{known.name}' only in case; use that name or another")
            elif known.status is not Status.IDLE:
                raise ToolError(f"'{name}' is currently working")
            else:  # it keeps its memory; everything else is as the request says
                if self._factory.check(request).worktree and not known.worktree:
                    raise ToolError(f"'{name}' works in the shared directory: shut it down, then spawn it again")
                self._assign(self.agents.active(name), request)
        return f"Spawned '{name}' (role: {request.role})" + (f" {where}" if where else "")

    def _assign(self, teammate: Teammate | RemoteTeammate, request: SpawnRequest) -> None:
        terms = {each: getattr(request, each) for each in TERMS}
        if isinstance(teammate, Teammate):
            teammate.assign(request.prompt, terms, request.by_user)
        elif why := teammate.limit_reached():
            raise ToolError(f"'{teammate.name}' cannot work: {in_a_sentence(why)}; only the user can resume it")
        elif not teammate.is_idle:
            raise ToolError(f"'{teammate.name}' is currently working")
        else:
            self.mail.send_work(request, {TERMS_FIELD: terms})

    def describe(self) -> str:
        for teammate in self.agents.teammates:  # an agent that has read a result must find its sender idle
            teammate.wait_until_reported()
        self.roster.refresh()
        members = self.roster.members()
        if not members:
            return "No teammates."
        more = len(members) - MOST_DESCRIBED
        holders = self._placement.holders() if any(member.host for member in members) else {}
        shown = [describe_member(member, holders) for member in members[:MOST_DESCRIBED]]
        lines = [f"Team: {one_fact(self.roster.team_name)}", *shown]
        return "\n".join([*lines, f"  ... and {more:,} more"] if more > 0 else lines)

    # What the user does

    def interrupt(self, name: str) -> bool:
        """End what a teammate does; false if it was idle."""
        return self._active(name).interrupt("stopped by the user")

    def stop(self, name: str) -> str:
        teammate = self._active(name)
        if not self.interrupt(name):
            return f"'{teammate.name}' is not working"
        return f"Stopped '{teammate.name}'; /resume {teammate.name} or a message lets it resume"

    def pause(self, name: str) -> str:
        teammate = self._active(name)
        teammate.pause("paused by the user")
        return f"Paused '{teammate.name}'; /resume {teammate.name} or a message from you lets it resume"

    def resume(self, name: str) -> str:
        teammate = self._active(name)
        member = teammate.member
        if member.limit and (why := teammate.limit_reached()):
            return stays_paused(teammate.name, why)
        self.roster.update(teammate.name, paused=False, limit="")
        teammate.resume()
        if member.paused or member.interrupted or member.limit:
            return f"'{member.name}' resumes"
        return f"'{member.name}' is {member.status}, neither paused nor interrupted"

    def resume_within_limits(self) -> list[str]:
        """A limit was raised: resume those that it had stopped, and return their names."""
        resumed = []
        for mate in [mate for mate in self.agents.teammates if is_budget(mate.member.limit)]:
            if why := mate.agent.meter.reached():
                self.roster.update(mate.name, limit=str(why), error=str(why))
            else:
                self.resume(mate.name)
                resumed.append(mate.name)
        self.tasks.look()  # members that could not afford a free task may take it now
        return resumed

    def forget(self, name: str) -> str:
        member = self.roster.get(name)
        self.roster.forget(member.name)
        self.tasks.left(member.name)
        kept = self.checkouts.end(member)
        return f"Forgot '{member.name}'" + (f". {kept}" if kept else "")

    def save(self, replaces: bool) -> str:
        """Write the team to the team file; returns what to show the user.

        Raises: UsageError, StateError
        """
        active = [member for member in self.roster.members() if member.is_active]
        return self._file.save(self.roster.team_name, active, replaces)

    def names(self) -> list[str]:
        """Those that are started."""
        return self.mail.names()

    # The life of the team

    def start(self, resume_all: bool) -> None:
        """Bring back every member. Those with unread mail act at once; interrupted and paused ones wait."""
        self.protocols.repeat_plan_answers()
        self.tasks.restore()
        active = [each for each in self.roster.members() if each.is_active and self._placement.is_here(each)]
        if self._max_members is not None:
            self._leave_out(active[self._max_members :])
        for member in active[: self._max_members]:
            self._restore(member)
        self.protocols.restore()
        self.tasks.start()
        for teammate in self.agents.teammates:
            member = teammate.member
            if resume_all and not (member.limit and teammate.agent.meter.reached()):
                self.resume(teammate.name)
            elif member.interrupted or member.paused:
                teammate.stay_stopped()
            else:
                teammate.wake()

    def take_over(self, name: str, note: str, cancel: CancelScope) -> None:
        """Run a member here that another host has run, or nobody yet. `note` is added to its conversation. What it was
        working on continues, unless it was decided meanwhile that it shuts down.

        Raises: TeamcliError, Cancelled
        """
        member = self.roster.get(name)
        self._factory.prepare(member, cancel)
        teammate = self._factory.build_teammate(self, member, None)
        if note and teammate.agent.conversation.messages:
            teammate.work.reopen()
            teammate.agent.conversation.add_user([text_block(note)])
        teammate.work.report_again()
        self.tasks.taken_over(name)
        if member.interrupted or member.paused:
            teammate.stay_stopped()
        elif member.status in (Status.WORKING, Status.SPAWNING):
            teammate.resume()  # before its thread starts, which would find nothing to do and turn idle
        else:
            teammate.wake()
        if self.protocols.is_to_leave(member):
            self._add(teammate)
            teammate.leave()
            return
        self._start(teammate)
        self._factory.report_left(self, name)

    def _restore(self, member: Member) -> None:
        terms = dict(changed_terms(member, planned)) if (planned := self._file.find(member.name)) else {}
        # Where a member works is decided when it is built. Open work ends where it began.
        is_isolated = terms.pop("worktree", member.worktree)
        if is_isolated != member.worktree and not member.interrupted:
            member = self.roster.update(member.name, worktree=is_isolated)
        teammate = self._factory.build_teammate(self, member, None)
        teammate.work.change_terms(terms)
        self._start(teammate)
        teammate.work.report_again()

    def close(self) -> None:
        """The program's scope is cancelled: wait for the threads, then record where they stopped."""
        deadline = time.monotonic() + LEAVING_SECONDS
        self.agents.join(deadline)
        self.protocols.join(deadline)
        try:
            self.roster.mark_interrupted(self._placement.stops_with_us)
            self.roster.close()
        except StateError as e:  # the next start marks them; a signal must keep its exit code
            logger.warning("where members stopped was not recorded: %s", e)
        self.outbox.bus.close()

    def _with_standing_terms(self, request: SpawnRequest) -> SpawnRequest:
        """What the request leaves open is as the team file says."""
        planned = self._file.find(request.name)
        if planned is None:
            return request
        return request._replace(
            model=request.model or planned.model,
            tools=planned.tools if request.tools is None else request.tools,
            **{flag: getattr(request, flag) or getattr(planned, flag) for flag in ("plan", "worktree", "claims")},
        )

    def _spawn_new(self, request: SpawnRequest, earlier: Member | None, cancel: CancelScope | None) -> str:
        """A new member, or a new incarnation of one that was shut down. Returns where it works, if not here."""
        cancel = cancel or CancelScope()
        self.agents.wait_until_left(request.name, cancel)
        planned = self._file.find(request.name)
        host = self._placement.choose(request.host, planned.host if planned else "")
        request = self._factory.check(request)
        member = Member(
            request.name,
            request.role,
            Status.SPAWNING,
            incarnation=self._placement.next_incarnation(request.name, earlier.incarnation if earlier else 0),
            model=request.model,
            tools=request.tools,
            plan=request.plan,
            worktree=request.worktree or bool(host),
            claims=request.claims,
            host=host,
            cwd=planned.cwd if planned else "",
            prompt=planned.prompt if planned else "",
            since=time.time(),
            budget=earlier.budget if earlier else {},
            used=earlier.used if earlier else {},
        )
        if host:
            return self._spawn_elsewhere(request, member, earlier, cancel)
        self._placement.claim(member.name, cancel)
        where = self._factory.prepare(member, cancel)
        member = member._replace(unconfined=NOT_ENFORCED in where)
        teammate = self._factory.build_teammate(self, member, request.prompt, request.by_user)
        if earlier is None:
            self.roster.add(member)
        else:
            self.tasks.left(earlier.name)
            self.roster.reincarnate(member)
        self._start(teammate)
        teammate.resume()
        return where

    def _spawn_elsewhere(
        self, request: SpawnRequest, member: Member, earlier: Member | None, cancel: CancelScope
    ) -> str:
        """A host takes it as soon as it may. Its work waits in its inbox before that, and its branch at the remote."""
        branch, problem = self.checkouts.branches.announce(member, cancel)
        member = member._replace(status=Status.IDLE, remote_branch=branch)
        no_room = self._placement.why_no_room(member, self.roster.members())
        try:
            self._placement.begin(member.name, member.incarnation, cancel)
            self.mail.send_work(request, {})
            if earlier is None:
                self.roster.add(member)
            else:
                self.tasks.left(earlier.name)
                self.roster.reincarnate(member)
            # After the roster knows the branch: if the program is killed here, it is still this member's.
            problem = problem or self.checkouts.branches.begin(member, cancel)
        finally:
            self._placement.release(member.name)
        where = f"on {'any host' if member.host == ANY_HOST else f'the host {member.host}'}"
        problems = [problem] if problem else []
        problems += [f"{no_room}: {member.name} starts when there is room"] if no_room else []
        return f"{where} ({'; '.join(problems)})" if problems else where

    def _start(self, teammate: Teammate) -> None:
        self._add(teammate)
        teammate.start()

    def _add(self, teammate: Teammate) -> None:
        self._undelivered_mail.forget(teammate.name)
        self.agents.add(teammate)

    def _check_number(self) -> None:
        count = len(self.names())
        if self._max_members is not None and count >= self._max_members:
            raise ToolError(
                f"there {'is' if count == 1 else 'are'} {counted(count, 'teammate')}, and `limits.teammates` allows no"
                " more: give an idle one the work, or shut one down"
            )

    def _leave_out(self, members: Sequence[Member]) -> None:
        self.agents.leave_out(member.name for member in members)
        if members:
            text = (
                f"{counted(len(members), 'teammate is', 'teammates are')} not started, {members[0].name} first:"
                f" `limits.teammates` allows {self._max_members:,}. Raise it, or remove some with /shutdown NAME and"
                " /forget NAME."
            )
            self.outbox.warn(LEAD, text)

    def _active(self, name: str) -> Teammate | RemoteTeammate:
        name = self.roster.get(name).name
        if self.agents.teammate(name) is None:
            self.roster.refresh([f"member/{name}"])  # what its host has changed is known here a moment later
        return self.agents.active(name)

    def _mail_arrived(self, name: str) -> None:
        if thread := self.agents.get(name):
            thread.mail_arrived()
        else:
            self._undelivered_mail.mail_arrived(name)
        self.quiescence.notify()


def describe_member(member: Member, holders: Mapping[str, str] | None = None) -> str:
    """One line of the roster, as models and people read it. `holders` are the living hosts of members, if known."""
    marks = [_where(member, holders)] if member.host else []
    marks += [member.branch] if member.branch else []
    marks += [mark for mark in ("interrupted", "paused") if getattr(member, mark)]
    marks += [f"waiting for {one_fact(member.waiting_for)}"] if member.waiting_for else []
    marks += ["stuck"] if member.stuck_since else []
    marks += [f"{'limit' if member.limit else 'error'}: {one_fact(member.error, 500)}"] if member.error else []
    return f"  {member.name} ({one_fact(member.role)}): {member.status}" + (f" ({'; '.join(marks)})" if marks else "")


def _where(member: Member, holders: Mapping[str, str] | None) -> str:
    """On which host a member runs, and whether that is alive."""
    if holders is None or not member.is_active or member.name in holders:
        return f"on {one_fact((holders or {}).get(member.name) or member.runs_on or member.host)}"
    if member.runs_on:
        return f"on {one_fact(member.runs_on)}, which is not running: any other host continues its work"
    return f"no host runs it yet: it is for {one_fact(member.host)}"
