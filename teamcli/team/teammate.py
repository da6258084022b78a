"""A teammate: an agent that works, turns idle, and wakes with all its memory."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from teamcli.agent.events import LimitHit, Outcome, TurnEnded
from teamcli.agent.loop import Agent, Delivery, run_turn
from teamcli.cancel import CancelScope
from teamcli.errors import Cancelled, LeaseLost, LimitReached, TeamcliError, ToolError
from teamcli.team.agent_thread import AgentThread, ThreadState
from teamcli.team.mailbox import Mailbox
from teamcli.team.message import USER, Message
from teamcli.team.piece_of_work import LatestWork, in_a_sentence
from teamcli.team.ports import TeammatePort, TeammateSetup
from teamcli.team.roster import Member, Status
from teamcli.team.task_claims import TaskClaims
from teamcli.team.task_message import BEGUN_BY_USER
from teamcli.team.teammate_work import TeammateWork
from teamcli.team.wake_rules import WakeRules
from teamcli.workspace.bounds import Workspace

logger = logging.getLogger(__name__)

STOPPING_SECONDS = 1.0
"""How long the end of a turn waits for a look at the inbox."""
REPORTING_SECONDS = 5.0
"""How long others wait for a teammate to finish reporting. It writes two lines; a disk may hang."""
HANDED_OVER = "handed over to another host"
"""Why the scope of a teammate was cancelled that continues elsewhere."""


class Teammate(AgentThread):
    def __init__(
        self,
        agent: Agent,
        mailbox: Mailbox,
        scope: CancelScope,
        workspace: Workspace,
        team: TeammatePort,
        setup: TeammateSetup,
        work: TeammateWork,
    ) -> None:
        super().__init__(agent, mailbox, scope, workspace)
        self._team = team
        self._roster = team.roster
        self._setup = setup
        self.work = work
        self._may_resume = False
        """Open work may continue without new mail."""
        self._wake_rules = WakeRules(mailbox, agent.meter, setup.max_wakes)
        self._is_leaving = False
        self._is_handed_over = False
        self._claims = TaskClaims(self.name, team.tasks)

    @property
    def member(self) -> Member:
        return self._roster.get(self.name)

    @property
    def has_work(self) -> bool:
        member = self.member
        if (
            self._is_leaving
            or self._is_handed_over
            or member.paused
            or member.status is Status.SHUTDOWN
            or self.scope.cancelled
        ):
            return False
        return self._has_own_work or self._would_claim(member)

    @property
    def _has_own_work(self) -> bool:
        is_open = self.work.is_open and self._may_resume
        return is_open or self._claims.has_taken or (self._mail_wakes and self.mailbox.has_unread)

    def _would_claim(self, member: Member) -> bool:
        """Whether it takes a task from the board if there is nothing else to do."""
        is_stopped = not self._mail_wakes or (member.interrupted and not self._may_resume)
        may_claim = member.claims and not is_stopped and not member.waiting_for
        return may_claim and self._claims.would_take and self.agent.meter.reached() is None

    def limit_reached(self) -> LimitReached | None:
        """The limit that stops it until the user raises it."""
        return self.agent.meter.reached()

    # What wakes and stops it

    def mail_arrived(self) -> None:
        if self.member.paused:
            if not self._wake_rules.ends_pause():
                return
            self._wake_rules.allow()
            self._roster.update(self.name, paused=False, limit="")
        if not self._mail_wakes and not self._wake_rules.new_mail():
            return  # the bus's watcher reports mail that was there before the stop
        super().resume()

    def resume(self) -> None:
        """Continue open work and read mail again, as the user wishes."""
        self._wake_rules.allow()
        self._claims.allow()
        self._continue()

    def _continue(self) -> None:
        self._may_resume = self._mail_wakes = True
        self.wake()

    def stay_stopped(self) -> None:
        """It was interrupted or paused in an earlier run: wait for the user or for new mail."""
        self._mail_wakes = False
        if self._wake_rules.hold_earlier_mail():
            self.mail_arrived()

    def pause(self, reason: str) -> None:
        """End the turn, from any thread, and wait for the user. Mail from others stays unread."""
        with _at_the_latest(partial(self._stop, self._turn, reason)):
            self._wake_rules.hold(until_user=True)
            self._roster.update(self.name, paused=True)
        self.interrupt(reason)

    def interrupt(self, reason: str) -> bool:
        turn = self._turn
        if turn is None:
            return False
        try:
            # What is read first decides which mail may wake it again. But while the database cannot be reached, what
            # the turn runs must not continue.
            with _at_the_latest(partial(self._stop, turn, reason)):
                self._wake_rules.hold()
        finally:  # an inbox that cannot be read must not prevent the stop
            self._stop(turn, reason)
        return turn.cancelled

    def _stop(self, turn: CancelScope | None, reason: str) -> None:
        if turn is not None and self._turn is turn and not turn.cancelled:
            self._may_resume = False  # also if a /resume came while it worked
            super().interrupt(reason)

    def leave(self) -> None:
        """End the turn, from any thread, and shut down."""
        with self._changed:
            self._is_leaving = True
            is_working = self._turn is not None
        if is_working:
            self.interrupt("shut down")
        else:
            self._remove()

    def leave_if_idle(self) -> bool:
        """From now on no turn begins; false if one is running."""
        with self._changed:
            self.wait_until_reported()  # a task that it is claiming must be its own before its tasks are released
            is_idle = self._turn is None and self.member.status is not Status.WORKING
            self._is_leaving = self._is_leaving or is_idle
        return is_idle

    def hand_over(self, at_once: bool = False) -> None:
        """Another host continues its work: end the thread at its next step, or at once. Nothing is recorded or
        reported, so that the other host finds the work as it was."""
        # Without the lock, which may be held while mail is read from a database that cannot be reached.
        self._is_handed_over = True
        if at_once or self._turn is None:
            self.scope.cancel(HANDED_OVER)

    def dismiss(self) -> str:
        """End the thread and close what it used. Nothing is reported; returns what is left."""
        self.scope.cancel("shut down")
        return self._setup.release()

    def _remove(self) -> None:
        if left := self._team.protocols.remove(self.name):
            self._team.outbox.warn(self.name, left)

    # Its work

    def assign(self, prompt: str, terms: Mapping[str, Any], by_user: bool = False) -> None:
        """Give an idle teammate a new piece of work, on these terms. It is durable when this returns.

        Raises: ToolError, StateError
        """
        if why := self.agent.meter.reached() if by_user else self._wake_rules.limit():
            raise ToolError(f"'{self.name}' cannot work: {in_a_sentence(why)}; only the user can resume it")
        with self._changed:
            if self._is_leaving:
                raise ToolError(f"'{self.name}' is shutting down; spawn it again when that is done")
            if self._turn is not None or self.member.status is not Status.IDLE:
                raise ToolError(f"'{self.name}' is currently working")
            self.work.assign(prompt, terms, by_user)
            self._claims.allow()
            self._wake_rules.note_work(by_user)
        self._continue()

    def step(self) -> bool:
        if self.has_work and (why := self._wake_rules.limit()):  # before mail is taken: it stays unread
            self._state = ThreadState.REPORTING  # a run must not end before the lead knows
            self.agent.emit(LimitHit(self.name, str(why), why.limit, why.is_given))
            self._pause_at(why)
            return False
        self._claim()
        with self._changed:
            before = self.work.latest
            prompt = self._prompt() if self.has_work else None
            if prompt is None:
                return False
            self._may_resume = False
            if self.member.status is not Status.WORKING:
                self._roster.transition(self.name, Status.WORKING, error="", interrupted=False, waiting_for="")
            turn = self._begin_turn()
        try:
            self._begin_work(turn, before)
            ended = run_turn(self.agent, prompt, turn, self._incoming)
            if self._is_handed_over or isinstance(ended.error, LeaseLost):
                self.hand_over(at_once=True)
                return False
            self._state = ThreadState.REPORTING
            self._conclude(ended, turn)
        except Cancelled:  # handed over while its work was pushed: the next host must find it as it was
            return False
        finally:
            self._end_turn(ThreadState.REPORTING)
        if self._is_leaving:
            self._remove()
        elif ended.outcome is Outcome.DONE:
            self._team.protocols.turn_done(self)
        return True

    def _claim(self) -> None:
        """If there is nothing else to do, take a task from the board."""
        with self._changed:
            # In this order: if it is resumed just now, it has its open work, and the task in it must not come again.
            if not self.has_work or self._has_own_work:
                return
            self._state = ThreadState.REPORTING  # it is not idle while the board is written
        self._claims.take()

    def _begin_work(self, turn: CancelScope, before: LatestWork) -> None:
        try:
            is_confined = self._setup.begin_work(turn)
        except Cancelled:
            return  # the turn ends at once, as an interrupted one
        except TeamcliError:  # the user must see to it: only new mail tries again
            self.work.take_back(before)
            self._wake_rules.hold()
            self._mail_wakes = False
            self._claims.give_back()
            raise
        if self.member.unconfined == is_confined:
            self._roster.update(self.name, unconfined=not is_confined)

    def wait_until_reported(self) -> None:
        """If it is just reporting how its work ended, wait until it is idle."""
        if threading.current_thread() is not self._thread:
            with self._changed:
                self._changed.wait_for(lambda: self._state is not ThreadState.REPORTING, REPORTING_SECONDS)

    def _prompt(self) -> Delivery | None:
        """What to work on: new mail, or a task from the board. Empty if open work continues, which the conversation
        has already, such as the prompt of a spawn. None if there is nothing to do."""
        taken = self.mailbox.take_after({})
        task, is_users_task = self._claims.hand_over()
        delivery = taken.delivery(self._attach)
        delivery = delivery._replace(blocks=[*delivery.blocks, *task])
        if self.work.is_open and self._may_resume:
            return delivery
        if not delivery.blocks:
            return None
        self._claims.allow()
        by_user = is_users_task and all(map(_is_begun_by_user, taken.messages))
        self._wake_rules.note_work(by_user)
        if taken.messages and not task and all(message.is_from_command for message in taken.messages):
            by_user = self.work.latest.work.by_user  # this continues what the command was for
        mark = self.work.begin(by_user, taken.messages)
        return delivery._replace(marks={**delivery.marks, **mark})

    def _incoming(self, noted: Mapping[str, Any]) -> Delivery:
        if self._is_handed_over:
            self.scope.cancel(HANDED_OVER)
        self.mailbox.late.flush()
        # A teammate that is leaving makes no further call: its mail stays unread and goes back to the senders.
        return Delivery() if self._is_leaving else self.mailbox.take_after(noted).delivery(self._attach)

    def _conclude(self, ended: TurnEnded, turn: CancelScope) -> None:
        unfinished = self._claims.work_ended(ended.outcome is Outcome.DONE)
        line = "" if self.scope.cancelled else self._setup.end_work(self.scope)
        if self._is_handed_over and self.scope.cancelled:
            raise Cancelled(HANDED_OVER)
        if ended.outcome is Outcome.INTERRUPTED:
            self.work.interrupted(turn.reason, is_reported=not self.scope.cancelled and not self._is_leaving)
        elif isinstance(ended.error, LimitReached) and not ended.error.is_of_work:
            self._pause_at(ended.error)
        else:
            self.work.ended(ended, unfinished, line)

    def _pause_at(self, why: LimitReached) -> None:
        """Wait until the user raises a limit. The work stays open, and mail stays unread."""
        self._wake_rules.hold(until_user=True)
        self.work.paused(why)

    def _on_idle(self) -> None:
        if self._is_handed_over:  # while its work was being reported
            self.scope.cancel(HANDED_OVER)
        elif not self.scope.cancelled and not self.has_work:
            self.work.turn_idle()  # an earlier host may have died between the end of its work and this
        self._team.quiescence.teammate_idle()

    def _on_failure(self, error: Exception) -> None:
        if self._is_handed_over or isinstance(error, LeaseLost):  # the other host records and reports its work
            self.hand_over(at_once=True)
            return
        self._state = ThreadState.REPORTING
        try:
            self.work.failed(error)
        except TeamcliError:
            logger.exception("%s could not report that it failed", self.name)

    def _on_exit(self) -> None:
        self.mailbox.release()  # after its last look


def _is_begun_by_user(message: Message) -> bool:
    return message.sender == USER or message.is_foreign or bool(message.fields.get(BEGUN_BY_USER))


@contextmanager
def _at_the_latest(act: Callable[[], None]) -> Iterator[None]:
    """Call `act` from another thread if the block takes longer than `STOPPING_SECONDS`."""
    timer = threading.Timer(STOPPING_SECONDS, act)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
