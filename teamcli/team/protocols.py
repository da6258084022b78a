"""The team's protocols: asking a teammate to shut down, and approving its plan.

An idle teammate shuts down at once. The model of a working one answers; if its turn ends normally without an answer,
that counts as approval. The user's word always counts: asked twice, a teammate is stopped.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from teamcli.agent.tool import Access, Calls, Executes, Writes
from teamcli.cancel import CancelScope
from teamcli.errors import TeamcliError, TeamError
from teamcli.team.message import LEAD, USER, Message, MessageType, message_id
from teamcli.team.outbox import Outbox
from teamcli.team.quiescence import Quiescence
from teamcli.team.requests import Kind, Request, State
from teamcli.team.roster import Member, Roster, Status
from teamcli.team.running_agents import RunningAgents
from teamcli.team.teammate import Teammate
from teamcli.team.undelivered_mail import UndeliveredMail
from teamcli.text.counting import counted
from teamcli.text.tags import one_fact

if TYPE_CHECKING:
    from teamcli.team.remote_teammate import RemoteTeammate

SILENT = "It ended its turn without an answer, which counts as approval."
STOPPING_SECONDS = 5.0
"""How long the user's command waits for the end of a turn that it has stopped."""
SHOWN_CHARACTERS = 300
"""Of the reason for a refusal."""
logger = logging.getLogger(__name__)


class TaskReleasePort(Protocol):
    def left(self, name: str) -> None:
        """A teammate was shut down."""


class Protocols:
    def __init__(
        self,
        roster: Roster,
        agents: RunningAgents,
        outbox: Outbox,
        undelivered_mail: UndeliveredMail,
        quiescence: Quiescence,
        cancel: CancelScope,
        tasks: TaskReleasePort,
    ) -> None:
        self._roster = roster
        self._requests = roster.requests
        self._agents = agents
        self._outbox = outbox
        self._undelivered_mail = undelivered_mail
        self._quiescence = quiescence
        self._cancel = cancel
        self._tasks = tasks
        self._watching: set[threading.Thread] = set()

    def open_requests(self) -> list[str]:
        """The open requests, in words."""
        words = {Kind.PLAN: "a plan of {} waits for a review", Kind.SHUTDOWN: "{} was asked to shut down"}
        return [f"{words[r.kind].format(r.teammate)} ({r.id})" for r in self._requests.all_open()]

    def restore(self, name: str = "") -> None:
        """At the start, or for one member that was taken over: carry out what was approved before a crash, and watch
        the deadlines of what is open."""
        for request in self._requests.all():
            is_about = not name or request.concerns(name)
            if is_about and _is_decided(request) and (teammate := self._asked(request)):
                _stop(teammate)
        self._expire()
        for request in self._requests.all_open(name, Kind.SHUTDOWN):
            self._watch(request)

    def join(self, deadline: float) -> None:
        """Wait for all threads, once the program's scope is cancelled."""
        for thread in tuple(self._watching):
            thread.join(max(0.0, deadline - time.monotonic()))

    # Plans

    def submit_plan(self, agent: str, plan: str) -> str:
        request = self._roster.submit_plan(agent, plan)
        fields = {"request_id": request.id}
        self._post(MessageType.PLAN_APPROVAL_REQUEST, agent, LEAD, plan, message_id(request.id), fields)
        return f"Submitted ({request.id}). End your turn now: the answer wakes you."

    def review_plan(self, reviewer: str, request_id: str, approve: bool, feedback: str) -> str:
        request = self._roster.review_plan(request_id, reviewer, approve, feedback)
        self._outbox.post(_plan_answer(request))
        return f"{'Approved' if approve else 'Rejected'} the plan of '{request.teammate}'"

    def gate(self, agent: str, tool: str, access: Access) -> str:
        """Why the pipeline refuses a call whatever the rules say; empty if it does not."""
        if agent == LEAD or not isinstance(access, Executes | Writes | Calls):
            return ""
        member = self._roster.get(agent)
        if not member.plan or member.plan_approved:
            return ""
        return f"{tool} is refused until a plan of yours is approved: use submit_plan"

    def repeat_plan_answers(self) -> None:
        """At the start: send answers that a crash may have kept back. What has arrived is dropped by its id."""
        for request in self._requests.all():
            if request.kind is Kind.PLAN and request.state in (State.APPROVED, State.REJECTED):
                member = next((each for each in self._roster.members() if request.concerns(each.name)), None)
                if member is not None and member.is_active and member.incarnation == request.incarnation:
                    self._outbox.bus.send_once(_plan_answer(request))

    # Shutdown

    def request_shutdown(self, asker: str, name: str, reason: str) -> str:
        """Raises: TeamError, StateError."""
        member = self._roster.get(name)
        name = member.name
        if teammate := self._agents.find(name):
            teammate.wait_until_reported()
            member = teammate.member
        if member.status is Status.SHUTDOWN:
            return f"'{name}' is shut down already"
        if teammate is None or teammate.leave_if_idle():
            return self._leave_now(name)
        request = self._open(asker, member, reason)
        if request is None:
            teammate.leave()
            teammate.join(STOPPING_SECONDS)
            if teammate.member.is_active:
                return f"'{name}' is stopping; /team shows when it is shut down"
            return f"Stopped '{name}'; it is shut down"
        text, fields = reason or "Please shut down.", {"request_id": request.id}
        self._post(MessageType.SHUTDOWN_REQUEST, asker, name, text, message_id(request.id), fields)
        self._watch(request)
        if teammate.leave_if_idle():  # its turn ended in the meantime, and did not see the request
            return self._leave_now(name)
        again = f"; /shutdown {name} again stops it" if asker == USER else ""
        if not _has_host(teammate):
            return f"Asked '{name}' to shut down ({request.id}); no host runs it now: it answers when one does"
        return f"Asked '{name}' to shut down ({request.id}); it is working and answers when it can{again}"

    def answer_shutdown(self, agent: str, request_id: str, approve: bool, reason: str) -> str:
        """Raises: TeamError, StateError."""
        request = self._requests.answer(request_id, agent, approve, reason, self._roster.get(agent).incarnation)
        if request.asker == LEAD:
            text = reason or ("Shutting down." if approve else "Not now.")
            fields = {"request_id": request.id, "approve": approve, "reason": reason}
            self._post(MessageType.SHUTDOWN_RESPONSE, agent, LEAD, text, message_id(request.id, "answer"), fields)
        elif not approve:
            why = f": {one_fact(reason, SHOWN_CHARACTERS)}" if reason else ""
            text = f"{agent} refuses to shut down{why}; /shutdown {agent} again stops it."
            self._outbox.warn_user(agent, text, message_id(request.id, "refused"))
        if approve and (teammate := self._agents.teammate(agent)):
            teammate.leave()
        return "You are shut down after this." if approve else "Your refusal is sent. Continue."

    def turn_done(self, teammate: Teammate) -> None:
        """A turn has ended normally: a request that its model has not answered counts as approved."""
        for request in self._requests.all_open(teammate.name, Kind.SHUTDOWN):
            try:
                self.answer_shutdown(teammate.name, request.id, True, SILENT)
            except TeamError:  # it has expired, or another request has replaced it
                continue

    def is_to_leave(self, member: Member) -> bool:
        """Whether it was decided that it shuts down, and no host has run it since."""
        decided = [each for each in self._requests.all() if _is_decided(each) and each.concerns(member.name)]
        return any(request.incarnation == member.incarnation for request in decided)

    def remove(self, name: str) -> str:
        return self._shut_down(name)[1]

    def _shut_down(self, name: str) -> tuple[int, str]:
        """For a teammate that runs no turn: how many unread messages went back to the sender, and what is left."""
        if self._agents.forget_left_out(name):
            self._roster.transition(name, Status.SHUTDOWN, interrupted=False, waiting_for="")
            self._tasks.left(name)
            return 0, ""
        if (teammate := self._agents.remove(name)) is None:  # another thread was faster
            return 0, ""
        with self._agents.leaving(name):
            # Mail goes back before the roster changes: after a crash in between, the next start repeats both.
            returned = self._undelivered_mail.watch(name, teammate.mailbox)
            self._roster.transition(name, Status.SHUTDOWN, interrupted=False, waiting_for="")
            self._tasks.left(name)
            left = teammate.dismiss()
        self._quiescence.notify()
        return returned, left

    def _open(self, asker: str, member: Member, reason: str) -> Request | None:
        """None if the user repeats a request."""
        if asker != USER:
            return self._requests.open_shutdown(member.name, member.incarnation, asker, reason)
        replaced = [each for each in self._requests.all_open(member.name, Kind.SHUTDOWN) if each.asker == LEAD]
        request = self._requests.insist(member.name, member.incarnation, reason)
        for each in replaced:
            text = f"the user has asked {member.name} to shut down; your request ({each.id}) is void"
            unique, fields = message_id(each.id, "void"), {"by_user": True}
            self._post(MessageType.ERROR, member.name, LEAD, text, unique, fields)
        return request

    def _leave_now(self, name: str) -> str:
        returned, left = self._shut_down(name)
        unread = f"; {counted(returned, 'unread message')} went back to the sender" if returned else ""
        return f"'{name}' was idle and is shut down now{unread}" + (f". {left}" if left else "")

    def _is_ours(self, request: Request) -> bool:
        """Whether this process closes it when its time is up. Any other may not write for its member."""
        return self._agents.lead is not None or self._agents.teammate(request.teammate) is not None

    def _asked(self, request: Request) -> Teammate | RemoteTeammate | None:
        """The teammate that was asked, if it is still there in the same incarnation."""
        teammate = self._agents.find(request.teammate)
        return teammate if teammate and teammate.member.incarnation == request.incarnation else None

    def _watch(self, request: Request) -> None:
        thread = threading.Thread(
            target=self._expire_later, args=(request,), name=f"deadline {request.id}", daemon=True
        )
        self._watching.add(thread)
        thread.start()

    def _expire_later(self, request: Request) -> None:
        if not self._cancel.wait(self._requests.seconds_left(request)):
            self._expire()
        self._watching.discard(threading.current_thread())

    def _expire(self) -> None:
        """Requests that were not answered in time: report them to the lead, and do what the user asked for."""
        if self._cancel.cancelled:
            return
        try:
            self._report_expired()
        except TeamcliError as e:  # another host has just taken the member over, or the disk is full
            logger.warning("a request to shut down that was not answered in time could not be closed: %s", e)

    def _report_expired(self) -> None:
        """Raises: TeamcliError"""
        for expired in self._requests.expire(self._is_ours):
            name, by_user = expired.teammate, expired.asker == USER
            text = f"{name} did not answer the request to shut down ({expired.id}); it has lapsed"
            teammate = self._asked(expired) if by_user else None
            if by_user:
                outcome = "it was stopped"
                if teammate and not _has_host(teammate):
                    outcome = "no host runs it now, and the next one shuts it down"
                text = f"{name} did not answer the user's request to shut down ({expired.id}); {outcome}"
            fields = {"by_user": True} if by_user else {}
            self._post(MessageType.ERROR, name, LEAD, text, message_id(expired.id, "lapsed"), fields)
            if teammate:
                _stop(teammate)

    def _post(self, kind: MessageType, sender: str, to: str, text: str, id: str, fields: Mapping[str, object]) -> None:
        self._outbox.post(Message(kind, sender, to, text, time.time(), id, fields))


def _is_decided(request: Request) -> bool:
    """Whether a shutdown has to happen: it was approved, or the user has asked for it and got no answer in time."""
    is_insisted = request.state is State.LAPSED and request.asker == USER
    return request.kind is Kind.SHUTDOWN and (request.state is State.APPROVED or is_insisted)


def _has_host(teammate: Teammate | RemoteTeammate) -> bool:
    return isinstance(teammate, Teammate) or teammate.has_host


def _stop(teammate: Teammate | RemoteTeammate) -> None:
    with suppress(TeamError):  # no host runs it: the next one does this, see `is_to_leave`
        teammate.leave()


def _plan_answer(request: Request) -> Message:
    approve = request.state is State.APPROVED
    text = request.feedback or ("Approved: go ahead." if approve else "Rejected: submit another plan.")
    fields = {"request_id": request.id, "approve": approve, "feedback": request.feedback}
    kind, sender = MessageType.PLAN_APPROVAL_RESPONSE, request.answered_by
    return Message(kind, sender, request.teammate, text, time.time(), message_id(request.id, "answer"), fields)
