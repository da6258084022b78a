"""The team: spawns, wakes, stops and restores teammates, carries their messages, and keeps to the protocols.

Its verbs are the tools' (`TeamPort`) and the user's. The order of leaving is written once, in `close`.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from teamcli.agent.events import Emit, MailSent, Notice, Severity
from teamcli.agent.loop import Agent
from teamcli.agent.tool import Access, Calls, Executes, ToolOutput, Writes
from teamcli.cancel import CancelScope
from teamcli.errors import LimitReached, TeamError, ToolError, UnknownRecipient
from teamcli.team.bus import MessageBus
from teamcli.team.lead import Lead
from teamcli.team.mailbox import Mailbox, Taken
from teamcli.team.message import LEAD, USER, Message, MessageType, check_name, find_name, frame, message_id, new_id
from teamcli.team.requests import Kind, Request, State
from teamcli.team.roster import Member, Roster, Status
from teamcli.team.shutdown import LeftMail, Shutdowns
from teamcli.team.teammate import Teammate
from teamcli.text.tags import one_fact

NOBODY_LEFT = "nobody is left who could write to you"
USER_WROTE = "(the user has written to you)"
LEAVING_SECONDS = 1.5
MOST_DESCRIBED = 300
"""Members that a model or the user reads of at once."""


class SpawnRequest(NamedTuple):
    """What a spawn asks for."""

    name: str
    role: str
    prompt: str
    model: str = ""
    tools: tuple[str, ...] | None = None
    plan: bool = False
    by_user: bool = False
    """Its result is shown to the user, and does not wake the lead."""


class TeammateFactory(Protocol):
    """Builds teammates; the composition root's part."""

    def check(self, recruit: SpawnRequest) -> None:
        """Raises: ToolError, for a tool that no teammate can have, or a model that its budget cannot count."""
        ...

    def build_teammate(self, member: Member, prompt: str | None, by_user: bool = False) -> Teammate:
        """The teammate behind a member. With a prompt, one that begins afresh: the prompt is durable when this returns.

        Raises: StateError
        """
        ...


class TeammateManager:
    def __init__(
        self,
        roster: Roster,
        bus: MessageBus,
        hiring: TeammateFactory,
        emit: Emit,
        cancel: CancelScope,
        is_headless: bool,
        max_members: int | None = None,
        running_aside: Callable[[], list[str]] = list,
    ) -> None:
        """`max_members` bounds how many there are that are not shut down."""
        self.roster = roster
        self.bus = bus
        self._factory = hiring
        self._emit = emit
        self._cancel = cancel
        self._is_headless = is_headless
        self._user_waits_for_lead = False
        self._max_members = max_members
        self.lead: Lead | None = None
        self.lead_waits_for = ""
        self.lead_waits_since = 0.0
        self._teammates: dict[str, Teammate] = {}
        self._not_started: frozenset[str] = frozenset()
        """Members beyond the limit, which a file can hold all the same."""
        self._departed: list[Agent] = []
        """Those of this run that were shut down: what they used still counts."""
        self._dismissed: list[Teammate] = []
        """Those whose thread has not ended yet."""
        self._lock = threading.RLock()
        self._changed = threading.Condition()
        self._waiting: set[str] = set()
        self._shutdowns = Shutdowns(roster, self, emit, cancel)
        self._left_mail = LeftMail(self.post_once, emit, self._can_read)
        self.running_aside = running_aside
        """The background sub-agents that run; nobody is at rest before they have ended."""
        self.is_repeating = False
        """While calls are repeated that a crash had interrupted: what arrived before is not sent again."""
        bus.subscribe(self._mail_came)

    # What tools do

    def spawn(
        self,
        name: str,
        role: str,
        prompt: str,
        model: str,
        tools: tuple[str, ...] | None,
        plan: bool,
        by_user: bool = False,
    ) -> str:
        check_name(name)
        recruit = SpawnRequest(name, role, prompt, model, tools, plan, by_user)
        self._let_settle()
        with self._lock:
            known = self.roster.find(name)
            if known is None or known.status is Status.SHUTDOWN:
                self._check_number()
            if known is None:
                self._hire(recruit, None)
            elif known.name != name:
                raise ToolError(f"name: '{name}' differs from '{known.name}' only in case; use that name or another")
            elif known.status is Status.SHUTDOWN:
                self._hire(recruit, known)
            elif known.status is Status.IDLE:
                self._assign(recruit, known)
            else:
                raise ToolError(f"'{name}' is currently working")
        return f"Spawned '{name}' (role: {role})"

    def _check_number(self) -> None:
        count = len(self.names())
        if self._max_members is not None and count >= self._max_members:
            raise ToolError(
                f"there are {count} teammates, and `limits.teammates` allows no more:"
                " give an idle one the work, or shut one down"
            )

    def describe(self) -> str:
        self._let_settle()
        members = self.roster.members()
        if not members:
            return "No teammates."
        more = len(members) - MOST_DESCRIBED
        lines = ["Team: default", *map(describe_member, members[:MOST_DESCRIBED])]
        return "\n".join([*lines, f"  ... and {more:,} more"] if more > 0 else lines)

    def send(self, agent: str, to: str | tuple[str, ...], content: str, summary: str, key: str) -> str:
        if isinstance(to, str):
            name = self.recipient(agent, to)
            self.post(self._message(agent, name, content, summary, key))
            return f"Sent message to {name}"
        delivered, unknown = [], []
        for each in to:
            try:
                name = self.recipient(agent, each)
                if name not in delivered:
                    self.post(self._message(agent, name, content, summary, key))
                    delivered.append(name)
            except UnknownRecipient:
                unknown.append(each)
        return f"delivered to [{', '.join(delivered)}]; unknown: [{', '.join(unknown)}]"

    def broadcast(self, agent: str, content: str, key: str) -> str:
        names = [member.name for member in self.roster.members() if member.is_active and member.name != agent]
        for name in names:
            parts = (agent, key, name)
            self.post(Message(MessageType.BROADCAST, agent, name, content, time.time(), message_id(*parts)))
        return f"Broadcast to {len(names)} teammates"

    def read_inbox(self, agent: str) -> ToolOutput:
        return _as_output(self._mailbox(agent).take()) or ToolOutput("(no new messages)")

    def wait_for_message(self, agent: str, timeout_seconds: float, cancel: CancelScope) -> ToolOutput:
        self.show_waiting(agent, "message")
        try:
            return self._next_mail(agent, timeout_seconds, cancel)
        finally:  # outside the lock: others are told of it, and may look at the team
            self.show_waiting(agent, "")

    def _next_mail(self, agent: str, timeout_seconds: float, cancel: CancelScope) -> ToolOutput:
        deadline = time.monotonic() + timeout_seconds
        with cancel.on_cancel(self._notify), self._changed:
            self._waiting.add(agent)
            self._changed.notify_all()
            try:
                while True:
                    cancel.check()
                    if output := _as_output(self._mailbox(agent).take()):
                        return output
                    if agent == LEAD and self.lead is not None and self.lead.queued:
                        return ToolOutput(USER_WROTE)
                    if not self._user_may_write(agent) and self._only_waiters_are_left():
                        return ToolOutput(NOBODY_LEFT)
                    remaining = deadline - time.monotonic()
                    if remaining <= 0:
                        return ToolOutput(f"(no message came within {timeout_seconds:g} seconds)")
                    self._changed.wait(remaining)
            finally:
                self._waiting.discard(agent)

    def request_shutdown(self, asker: str, name: str, reason: str) -> str:
        self._let_settle()
        return self._shutdowns.ask(asker, self.roster.get(name), reason)

    def answer_shutdown(self, agent: str, request_id: str, approve: bool, reason: str) -> str:
        return self._shutdowns.answer(agent, request_id, approve, reason)

    def submit_plan(self, agent: str, plan: str) -> str:
        request = self.roster.submit_plan(agent, plan)
        self._post_request(MessageType.PLAN_APPROVAL_REQUEST, agent, LEAD, plan, request)
        return f"Submitted ({request.id}). End your turn now: the answer wakes you."

    def review_plan(self, reviewer: str, request_id: str, approve: bool, feedback: str) -> str:
        request = self.roster.review_plan(request_id, reviewer, approve, feedback)
        self.post(_plan_answer(request))
        return f"{'Approved' if approve else 'Rejected'} the plan of '{request.teammate}'"

    def gate(self, agent: str, tool: str, access: Access) -> str:
        """Why the pipeline refuses a call whatever the rules say; empty where it does not."""
        if agent == LEAD or not isinstance(access, Executes | Writes | Calls):
            return ""
        member = self.roster.get(agent)
        if not member.plan or member.plan_approved:
            return ""
        return f"{tool} is refused until a plan of yours is approved: use submit_plan"

    # What the user does

    def say(self, name: str, text: str) -> str:
        """A message of the user's; it also ends a pause."""
        recipient = self.recipient(USER, name)
        self.post(Message(MessageType.MESSAGE, USER, recipient, text, time.time(), new_id()))
        teammate = self._teammates.get(recipient)
        if teammate and (why := teammate.agent.meter.reached()):
            return f"Sent message to {recipient}, where it waits: {_stays_paused(recipient, why)}"
        return f"Sent message to {recipient}"

    def interrupt(self, name: str) -> bool:
        """End what a teammate does; false if it was idle."""
        return self._active(name).interrupt("stopped by the user")

    def stop(self, name: str) -> str:
        teammate = self._active(name)
        if not self.interrupt(name):
            return f"'{teammate.name}' is not working"
        return f"Stopped '{teammate.name}'; /resume {teammate.name} or a message lets it go on"

    def pause(self, name: str) -> str:
        teammate = self._active(name)
        teammate.pause("paused by the user")
        return f"Paused '{teammate.name}'; /resume {teammate.name} or a message of yours lets it go on"

    def resume(self, name: str) -> str:
        teammate = self._active(name)
        if teammate.member.limit and (why := teammate.agent.meter.reached()):
            return _stays_paused(teammate.name, why)
        member = teammate.member
        self.roster.update(teammate.name, paused=False, limit="")
        teammate.go_on()
        if member.paused or member.interrupted or member.limit:
            return f"'{member.name}' goes on"
        return f"'{member.name}' is {member.status}, neither paused nor interrupted"

    def look_at_limits(self) -> list[str]:
        """A limit was raised: those whom it had stopped go on; who they are."""
        freed = []
        for mate in [mate for mate in tuple(self._teammates.values()) if mate.is_paused_by_budget]:
            if why := mate.agent.meter.reached():
                self.roster.update(mate.name, limit=str(why), error=str(why))
            else:
                self.resume(mate.name)
                freed.append(mate.name)
        return freed

    def forget(self, name: str) -> str:
        member = self.roster.get(name)
        self.roster.forget(member.name)
        return f"Forgot '{member.name}'"

    def mailbox(self, name: str) -> Mailbox | None:
        """Of the lead or an active teammate, to look into."""
        if name == LEAD:
            return self.lead.mailbox if self.lead else None
        teammate = self._teammates.get(name)
        return teammate.mailbox if teammate else None

    def names(self) -> list[str]:
        return [name for name in self.roster.names(active_only=True) if name not in self._not_started]

    # The life of the team

    def start(self, resume_all: bool) -> None:
        """Bring back every member; those with unread mail act at once, interrupted and paused ones wait."""
        self._answer_again()
        active = [member for member in self.roster.members() if member.is_active]
        self._leave_out(active[self._max_members :] if self._max_members is not None else [])
        for member in active[: self._max_members]:
            self._enlist(self._factory.build_teammate(member, None)).report_again()
        self._shutdowns.restore()
        for teammate in tuple(self._teammates.values()):
            member = teammate.member
            is_spent = bool(member.limit and teammate.agent.meter.reached())
            if resume_all and not is_spent:
                self.resume(teammate.name)
            elif member.interrupted or member.paused:
                teammate.hold()
            else:
                teammate.wake()

    def _leave_out(self, members: Sequence[Member]) -> None:
        self._not_started = frozenset(member.name for member in members)
        if members:
            text = (
                f"{len(members):,} teammates are not started, {members[0].name} first: `limits.teammates` allows"
                f" {self._max_members:,}. Raise it, or remove some with /shutdown NAME and /forget NAME."
            )
            self._emit(Notice(LEAD, text, Severity.WARNING))

    @property
    def is_working(self) -> bool:
        return any(not mate.is_quiet for mate in tuple(self._teammates.values()))

    def busy(self) -> list[str]:
        """Who works or has mail to act on, the lead last; whoever waits for a message does neither."""
        waiting = self.waiters()
        names = [
            mate.name for mate in tuple(self._teammates.values()) if not mate.is_quiet and mate.name not in waiting
        ]
        return [*names, *self.running_aside(), *([] if LEAD in waiting or self._lead_rests else [LEAD])]

    def waiters(self) -> list[str]:
        """Who is inside `wait_for_message`."""
        with self._changed:
            return sorted(self._waiting)

    def _answer_again(self) -> None:
        """Answers to plans that a crash may have kept back; what arrived before is dropped by its id."""
        for request in self.roster.requests.all():
            if request.kind is Kind.PLAN and request.state in (State.APPROVED, State.REJECTED):
                member = next((each for each in self.roster.members() if request.concerns(each.name)), None)
                if member is not None and member.is_active and member.incarnation == request.incarnation:
                    self.bus.send_once(_plan_answer(request))

    def wait_until_quiet(self, cancel: CancelScope, timeout_seconds: float | None = None) -> bool:
        """Return when every agent rests, none that may act has unread mail and no background sub-agent runs, or when
        cancelled, or when the time is up; whether all rest."""
        return self._wait_until(self._is_quiet, cancel, timeout_seconds)

    def wait_for_the_busy(self, cancel: CancelScope) -> None:
        """The same for a user who goes on afterwards: agents that wait for a message, of the user maybe, count as
        resting."""
        self._wait_until(self._only_waiters_are_left, cancel)

    def _wait_until(self, is_done: Callable[[], bool], cancel: CancelScope, seconds: float | None = None) -> bool:
        deadline = math.inf if seconds is None else time.monotonic() + seconds
        with cancel.on_cancel(self._notify), self._changed:
            while not (done := is_done()) and not cancel.cancelled:
                if (left := deadline - time.monotonic()) <= 0:
                    break
                self._changed.wait(min(1.0, left))
        return done

    @contextmanager
    def user_waits_for_lead(self) -> Iterator[None]:
        """The user's next line is read only after the block, when the lead's turn has ended: a lead that waits beside
        nobody who works waits for nothing."""
        self._set_user_waits(True)
        try:
            yield
        finally:
            self._set_user_waits(False)

    def _set_user_waits(self, value: bool) -> None:
        with self._changed:
            self._user_waits_for_lead = value
            self._changed.notify_all()

    def _user_may_write(self, agent: str) -> bool:
        """To the agent, or to somebody who would then write to it."""
        return not self._is_headless and not (agent == LEAD and self._user_waits_for_lead)

    def user_wrote(self) -> None:
        """A line for the lead: it ends a wait of the lead's."""
        self._notify()

    def nobody_will_write(self) -> None:
        """The user has said all there is to say: who then waits for a message beside nobody else waits for nothing."""
        with self._changed:
            self._is_headless = True
            self._changed.notify_all()

    def waiting(self) -> list[str]:
        """The open requests, in words."""
        words = {Kind.PLAN: "a plan of {} waits for a review", Kind.SHUTDOWN: "{} was asked to shut down"}
        return [f"{words[r.kind].format(r.teammate)} ({r.id})" for r in self.roster.requests.standing()]

    def agents(self) -> list[Agent]:
        """All agents of this run, the lead first; one that was shut down and hired again stands there twice."""
        lead = [self.lead.agent] if self.lead else []
        return [*lead, *self._departed, *(teammate.agent for teammate in self._teammates.values())]

    def scope_of(self, name: str) -> tuple[Agent, CancelScope] | None:
        """The agent of that name and its scope, which outlives its turns; None where it is not there or leaves."""
        if name == LEAD:
            return (self.lead.agent, self._cancel) if self.lead else None
        teammate = self._teammates.get(name)
        return (teammate.agent, teammate.scope) if teammate else None

    def close(self) -> None:
        """Threads have been told to stop by their cancel scope; wait for them, then write down where they stood."""
        deadline = time.monotonic() + LEAVING_SECONDS
        for teammate in (*self._teammates.values(), *self._dismissed):
            teammate.join(max(0.0, deadline - time.monotonic()))
        self._shutdowns.join(deadline)
        self.roster.settle()
        self.roster.close()
        self.bus.close()

    # Inside

    def _hire(self, recruit: SpawnRequest, earlier: Member | None) -> None:
        """A new member, or a new incarnation of one that was shut down."""
        incarnation = earlier.incarnation + 1 if earlier else 1
        member = Member(
            recruit.name,
            recruit.role,
            Status.SPAWNING,
            incarnation=incarnation,
            model=recruit.model,
            tools=recruit.tools,
            plan=recruit.plan,
            since=time.time(),
            budget=earlier.budget if earlier else {},
            used=earlier.used if earlier else {},
        )
        self._factory.check(recruit)
        teammate = self._factory.build_teammate(member, recruit.prompt, recruit.by_user)
        if earlier is None:
            self.roster.add(member)
        else:
            self.roster.reincarnate(member)
        self._enlist(teammate)
        teammate.go_on()

    def _assign(self, recruit: SpawnRequest, member: Member) -> None:
        """A new piece of work for an idle member: memory kept; all else is what the call says."""
        terms = {"role": recruit.role, "model": recruit.model, "tools": recruit.tools, "plan": recruit.plan}
        self._factory.check(recruit)
        self._active(member.name).assign(recruit.prompt, terms, recruit.by_user)

    def _enlist(self, teammate: Teammate) -> Teammate:
        teammate.post_report, teammate.post_again = self.post_report, self.post_again
        teammate.on_rest, teammate.on_leave = self.at_rest, self.finished
        teammate.on_done = self._shutdowns.turn_ended
        self._left_mail.forget(teammate.name)
        self._teammates[teammate.name] = teammate
        teammate.start()
        return teammate

    def _let_settle(self) -> None:
        """Whoever has told how its work ended is idle a moment later; who has read that may be quicker."""
        for teammate in tuple(self._teammates.values()):
            teammate.settle()

    def teammate(self, name: str) -> Teammate | None:
        return self._teammates.get(name)

    def remove(self, name: str) -> int:
        """Shut a teammate down, with no turn running; how many unread messages were returned to their senders.

        They are returned before the roster says so: if the program is killed in between, the next start does it again.
        """
        if name in self._not_started:
            self._not_started -= {name}
            self.roster.transition(name, Status.SHUTDOWN, interrupted=False, waiting_for="")
            return 0
        if (teammate := self._teammates.pop(name, None)) is None:  # somebody else was quicker
            return 0
        returned = self._left_mail.watch(name, teammate.mailbox)
        self.roster.transition(name, Status.SHUTDOWN, interrupted=False, waiting_for="")
        self._departed.append(teammate.agent)
        self._dismissed = [each for each in (*self._dismissed, teammate) if each.is_alive]
        teammate.dismiss()
        self._notify()
        return returned

    def _can_read(self, name: str) -> bool:
        return name == LEAD or name in self._teammates

    def finished(self, teammate: Teammate) -> None:
        """A teammate leaves, and its turn has ended."""
        self.remove(teammate.name)

    def at_rest(self) -> None:
        """Somebody has come to rest: results that waited may be due, and quiescence may be reached."""
        if self.lead is not None and self.lead.mailbox.has_unread:
            self.lead.mail_came()
        self._notify()

    def post_report(self, message: Message) -> None:
        """A teammate's result or error."""
        self.post(message._replace(timestamp=time.time()))

    def post_again(self, message: Message) -> None:
        """The same after a restart: what stands in the lead's inbox is not sent again."""
        self.post_once(message._replace(timestamp=time.time()))

    def post_once(self, message: Message) -> None:
        self.post(message, once=True)

    def recipient(self, sender: str, name: str) -> str:
        """The exact name of somebody who can be written to.

        Raises: TeamError, listing the names there are.
        """
        names = [*([LEAD] if sender != LEAD else []), *(each for each in self.names() if each != sender)]
        if found := find_name(name, names):
            return found
        there_are = ", ".join(names) or "nobody"
        if name.casefold() == USER:
            raise UnknownRecipient(
                f"to: '{name}' is no address: the user reads your text; you can write to: {there_are}"
            )
        raise UnknownRecipient(f"to: there is no active teammate '{name}'; you can write to: {there_are}")

    def _message(self, agent: str, name: str, content: str, summary: str, key: str) -> Message:
        fields = {"summary": summary} if summary else {}
        return Message(MessageType.MESSAGE, agent, name, content, time.time(), message_id(agent, key, name), fields)

    def post(self, message: Message, once: bool = False) -> None:
        if not (self.bus.send_once if once or self.is_repeating else self.bus.send)(message):
            return
        self._emit(MailSent(message.sender, message.to, message.type, message.content, dict(message.fields)))

    def _post_request(self, kind: MessageType, sender: str, to: str, text: str, request: Request) -> None:
        self.post(Message(kind, sender, to, text, time.time(), message_id(request.id), {"request_id": request.id}))

    def _mailbox(self, agent: str) -> Mailbox:
        if agent == LEAD:
            assert self.lead is not None
            return self.lead.mailbox
        return self._teammates[agent].mailbox

    def _active(self, name: str) -> Teammate:
        member = self.roster.get(name)
        if member.name in self._not_started:
            raise TeamError(f"'{member.name}' is not started: there are more teammates than `limits.teammates` allows")
        if (teammate := self._teammates.get(member.name)) is None:
            raise TeamError(f"'{member.name}' is shut down; spawn it again to use it")
        return teammate

    def _mail_came(self, name: str) -> None:
        if name == LEAD:
            if self.lead is not None:
                self.lead.mail_came()
        elif teammate := self._teammates.get(name):
            teammate.mail_came()
        else:
            self._left_mail.mail_came(name)
        self._notify()

    def show_waiting(self, agent: str, what: str) -> None:
        """Say in the roster what a teammate waits for; empty when it does no longer. The lead is not in it."""
        if agent == LEAD:
            self.lead_waits_for, self.lead_waits_since = what, time.time()
        else:
            self.roster.update(agent, waiting_for=what)

    def _is_quiet(self) -> bool:
        return self._all_rest_but(frozenset())

    def _all_rest_but(self, waiting: Collection[str]) -> bool:
        aside = self.running_aside()  # first: one that ends meanwhile has told its parent by then, who does not rest
        return (
            not aside
            and (LEAD in waiting or self._lead_rests)
            and all(mate.name in waiting or mate.is_quiet for mate in tuple(self._teammates.values()))
            and (LEAD in waiting or self._lead_rests)
        )

    @property
    def _lead_rests(self) -> bool:
        """To be asked once more after the teammates: a result that waited for them is due when the last has come to
        rest, which may be just now."""
        return self.lead is None or self.lead.is_at_rest

    def _only_waiters_are_left(self) -> bool:
        """Nobody else works or has mail to act on, and none of those who wait has any."""
        return self._all_rest_but(self._waiting) and not any(self._mailbox(name).has_unread for name in self._waiting)

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()


def _plan_answer(request: Request) -> Message:
    approve = request.state is State.APPROVED
    text = request.feedback or ("Approved: go on." if approve else "Rejected: submit another plan.")
    fields = {"request_id": request.id, "approve": approve, "feedback": request.feedback}
    parts = (request.id, "answer")
    kind, sender = MessageType.PLAN_APPROVAL_RESPONSE, request.answered_by
    return Message(kind, sender, request.teammate, text, time.time(), message_id(*parts), fields)


def _stays_paused(name: str, why: LimitReached) -> str:
    text = str(why)
    return f"'{name}' stays paused: {text[:1].lower()}{text[1:]}; /budget shows the limits, and raises them"


def describe_member(member: Member) -> str:
    """One line of the roster, as models and people read it."""
    marks = [mark for mark in ("interrupted", "paused") if getattr(member, mark)]
    marks += [f"waiting for {one_fact(member.waiting_for)}"] if member.waiting_for else []
    marks += ["stuck"] if member.stuck_since else []
    marks += [f"{'limit' if member.limit else 'error'}: {one_fact(member.error, 500)}"] if member.error else []
    return f"  {member.name} ({one_fact(member.role)}): {member.status}" + (f" ({'; '.join(marks)})" if marks else "")


def _as_output(taken: Taken) -> ToolOutput | None:
    if not taken.messages:
        return None
    return ToolOutput("\n".join(map(frame, taken.messages)), marks=taken.marks)
