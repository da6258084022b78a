"""A teammate: an agent with a thread of its own that works, rests at no cost, and wakes with all its memory.

One piece of work is `step`, which needs no thread to be tried; the thread around it cannot die silently.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from teamcli.agent.conversation import text_block
from teamcli.agent.events import LimitHit, Outcome, TurnEnded
from teamcli.agent.limits import MAX_TURNS
from teamcli.agent.loop import Agent, Delivery, run_turn
from teamcli.agent.tool_calls import Toolset
from teamcli.cancel import CancelScope
from teamcli.errors import LimitReached, TeamcliError, ToolError
from teamcli.llm.types import Preamble
from teamcli.storage.files import Json
from teamcli.team.mailbox import Mailbox
from teamcli.team.message import LEAD, USER, WAITED, Message, MessageType, message_id, new_id
from teamcli.team.roster import Member, Roster, Status

logger = logging.getLogger(__name__)

WORK = "work"
"""The mark of the line that begins a piece of work."""
SETTLING_SECONDS = 5.0
"""It takes the writing of two lines; on a disk that hangs, others go on."""
WOKEN = "Other agents have woken it"
"""How the one limit begins that is none of a budget."""


class Work(NamedTuple):
    """A piece of work: what began it, its number in this incarnation, and what names it for good."""

    number: int
    by_user: bool
    key: str

    @classmethod
    def begin(cls, number: int, by_user: bool) -> Work:
        return cls(number, by_user, secrets.token_hex(6))

    def to_mark(self) -> Json:
        return self._asdict()

    @classmethod
    def from_mark(cls, raw: Any) -> Work:
        fields = raw if isinstance(raw, dict) else {}
        number, key = fields.get("number"), fields.get("key", fields.get("began"))  # an earlier version noted the time
        return cls(number if isinstance(number, int) else 0, fields.get("by_user") is True, str(key))


class AgentSetup(NamedTuple):
    """What a teammate works with: how its requests begin, and the tools behind them. A new task may change it."""

    preamble: Preamble
    toolset: Toolset


class Report(NamedTuple):
    """How a piece of work ended, as its transcript line and as the message to the lead."""

    type: MessageType
    text: str
    work: Work

    def to_row(self) -> Json:
        return {"kind": "end", "type": self.type, "text": self.text, WORK: self.work.to_mark()}


class Teammate:
    def __init__(
        self,
        agent: Agent,
        mailbox: Mailbox,
        roster: Roster,
        cancel: CancelScope,
        set_up: Callable[[Member], AgentSetup],
        work: Work,
        has_open_work: bool,
        report: Report | None = None,
        release: Callable[[], None] = lambda: None,
        attach: Callable[[str], Delivery] | None = None,
        max_wakes: int | None = None,
    ) -> None:
        """`set_up` says what a member of the team is to work with.

        `work` is the latest piece, as the transcript says: either it is open, or `report` says how it ended.
        """
        self.agent = agent
        self.mailbox = mailbox
        self._roster = roster
        self._cancel = cancel
        self._set_up = set_up
        self._work = work
        self._has_open_work = has_open_work
        self._report = report
        self._release = release
        self._may_go_on = False
        self._ignores_mail = False
        self._held_mail: frozenset[str] = frozenset()
        """What was unread when it was stopped or paused."""
        self._only_user_ends_pause = False
        self._leaves = False
        self._attach = attach
        self.max_wakes = max_wakes
        """How often in a row other agents may wake it, without a word of the user's."""
        self._wakes_in_a_row = 0
        self._turn: CancelScope | None = None
        self._is_busy = False
        """A turn runs, or the lead has not been told yet how it ended, or why there will be none."""
        self._ending = threading.Lock()
        """Held from the word about the end of a turn until it rests."""
        self._wakes = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=agent.name, daemon=True)
        self.post_report: Callable[[Message], None] = lambda message: None
        self.post_again: Callable[[Message], None] = lambda message: None
        self.on_rest: Callable[[], None] = lambda: None
        self.on_done: Callable[[Teammate], None] = lambda teammate: None
        self.on_leave: Callable[[Teammate], None] = lambda teammate: None

    @property
    def scope(self) -> CancelScope:
        """Of the teammate, not of its turn."""
        return self._cancel

    @property
    def name(self) -> str:
        return self.agent.name

    @property
    def member(self) -> Member:
        return self._roster.get(self.name)

    @property
    def may_act(self) -> bool:
        """Whether there is something to do, and nothing that holds it back."""
        member = self.member
        if self._leaves or member.paused or member.status is Status.SHUTDOWN or self._cancel.cancelled:
            return False
        return (self._has_open_work and self._may_go_on) or (not self._ignores_mail and self.mailbox.has_unread)

    @property
    def is_paused_by_budget(self) -> bool:
        """Whether more to use would let it go on; not one that others have woken too often."""
        return bool(self.member.limit) and not self.member.limit.startswith(WOKEN)

    @property
    def is_quiet(self) -> bool:
        """At rest, with nothing to do."""
        with self._lock:
            return not self._is_busy and not self.may_act

    def start(self) -> None:
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Its thread has not ended yet."""
        return self._thread.is_alive()

    def join(self, timeout_seconds: float) -> None:
        if self._thread is not threading.current_thread():
            self._thread.join(timeout_seconds)

    def wake(self) -> None:
        """Something may be there to do."""
        self._wakes.set()

    def mail_came(self) -> None:
        if self.member.paused and not self._ends_pause():
            return
        if self._ignores_mail and not self._new_mail():
            return  # word of what had come before the stop, from the bus's other thread
        self._ignores_mail = False
        self.wake()

    def hold(self) -> None:
        """Interrupted or paused in an earlier run: wait for the user, or for a new message. What the user has sent
        since then, while nothing ran, is one."""
        self._ignores_mail = True
        self._hold_mail(of_all=False)
        if new := {message.read_as for message in self.mailbox.look() if message.fields.get(WAITED)}:
            self._held_mail -= new
            self.mail_came()

    def pause(self, reason: str) -> None:
        """End the turn, from any thread, and wait for the user: what others write waits as well."""
        self._hold_mail(of_all=True)
        self._roster.update(self.name, paused=True)
        self.interrupt(reason)

    def _hold_mail(self, of_all: bool) -> None:
        self._only_user_ends_pause = of_all
        self._hold_what_is_there()

    def _hold_what_is_there(self) -> None:
        self._held_mail = frozenset(message.read_as for message in self.mailbox.look())

    def _new_mail(self) -> list[Message]:
        """What has come since it was stopped or paused."""
        return [message for message in self.mailbox.look() if message.read_as not in self._held_mail]

    def _ends_pause(self) -> bool:
        """Whether what has come since the pause ends it; nothing does while a limit is reached that only the user can
        raise."""
        if self.agent.meter.reached():
            return False
        new = self._new_mail()
        if self._only_user_ends_pause:
            new = [message for message in new if message.sender == USER and not message.is_foreign]
        if new:
            self._wakes_in_a_row = 0
            self._roster.update(self.name, paused=False, limit="")
        return bool(new)

    def go_on(self) -> None:
        """Take up what stands in the transcript and has not ended, as the user wishes."""
        self._wakes_in_a_row = 0
        self._take_up()

    def _take_up(self) -> None:
        self._may_go_on = True
        self._ignores_mail = False
        self.wake()

    def assign(self, prompt: str, terms: Mapping[str, Any], by_user: bool = False) -> None:
        """A new piece of work, for an idle teammate, on these terms; it is durable when this returns.

        Raises: ToolError, StateError
        """
        if why := self.agent.meter.reached() if by_user else self._limit():
            raise ToolError(f"'{self.name}' can do nothing: {_in_a_sentence(why)}; only the user can let it go on")
        with self._lock:
            if self._leaves:
                raise ToolError(f"'{self.name}' is shutting down; spawn it again when that is done")
            if self._turn is not None or self.member.status is not Status.IDLE:
                raise ToolError(f"'{self.name}' is currently working")
            setup = self._set_up(replace(self.member, **terms))
            work = self._next_work(by_user)
            self.agent.conversation.add_user([text_block(prompt)], marks={WORK: work.to_mark()})
            self._has_open_work = True
            if setup.preamble != self.agent.preamble:
                self.agent.use(*setup)
            self._roster.reassign(self.name, **terms)
            self._wakes_in_a_row = 0 if by_user else self._wakes_in_a_row + 1
        self._take_up()

    def interrupt(self, reason: str) -> bool:
        """End the turn, from any thread; false when it was at rest. Then only new mail wakes it."""
        turn = self._turn
        if turn is None:
            return False
        try:
            self._hold_what_is_there()
        finally:  # an inbox that cannot be read keeps nobody from stopping it
            self._ignores_mail = True
            self._may_go_on = False  # also where a /resume came while it worked
            turn.cancel(reason)
        return True

    def leave(self) -> None:
        """End the turn and be shut down, from any thread."""
        with self._lock:
            self._leaves = True
            is_working = self._turn is not None
        if not is_working:
            self.on_leave(self)
        else:
            self.interrupt("shut down")

    def leave_if_idle(self) -> bool:
        """From now on no turn begins, unless one runs: then false."""
        with self._lock:
            is_idle = self._turn is None and self.member.status is not Status.WORKING
            self._leaves = self._leaves or is_idle
        return is_idle

    def dismiss(self) -> None:
        """End the thread and what it has running; nothing is told to anybody."""
        self._cancel.cancel("shut down")
        self._release()

    def report_again(self) -> None:
        """After a restart: send the report that a crash may have kept back. Repeats are harmless."""
        if self._report is not None:
            self.post_again(self._message(self._report))

    def step(self) -> bool:
        """Do one piece of work, if there is one; false when there was none.

        Raises: StateError
        """
        if self.may_act and (why := self._limit()):  # before mail is taken: it stays unread
            self._is_busy = True  # until the lead is told: a run must not end before that
            self.agent.emit(LimitHit(self.name, str(why), why.limit, why.is_given))
            self._pause_at(why)
            return False
        with self._lock:
            prompt = self._prompt() if self.may_act else None
            if prompt is None:
                return False
            self._has_open_work, self._may_go_on = True, False
            if self.member.status is not Status.WORKING:
                self._roster.transition(self.name, Status.WORKING, error="", interrupted=False, waiting_for="")
            turn = self._turn = self._cancel.child()
            self._is_busy = True
        try:
            ended = run_turn(self.agent, prompt, turn, self._incoming)
            with self._ending:
                self._conclude(ended, turn)
                if self._end_turn():
                    self.on_leave(self)
                elif ended.outcome is Outcome.DONE:
                    self.on_done(self)
        finally:
            self._end_turn()
        return True

    def _incoming(self, noted: Mapping[str, Any]) -> Delivery:
        """Between two model calls. One that leaves makes no further call: what has come stays unread."""
        return Delivery() if self._leaves else self.mailbox.take_after(noted).delivery(self._attach)

    def _end_turn(self) -> bool:
        """Whether it is to leave now."""
        with self._lock:
            self._turn = None
            return self._leaves

    def settle(self) -> None:
        """Wait, where it has just told how its work ended, until it rests: who has read that finds it idle."""
        is_own = threading.current_thread() is self._thread
        if not is_own and self._ending.acquire(timeout=SETTLING_SECONDS):
            self._ending.release()

    def _prompt(self) -> Delivery | None:
        """What to work on: mail, or what is open already together with the mail that has come."""
        taken = self.mailbox.take_after({})
        if self._has_open_work and self._may_go_on:
            return taken.delivery(self._attach)
        if not taken.messages:
            return None
        by_user = all(message.sender == USER or message.is_foreign for message in taken.messages)
        self._wakes_in_a_row = 0 if by_user else self._wakes_in_a_row + 1
        work = self._next_work(by_user)
        delivery = taken.delivery(self._attach)
        return delivery._replace(marks={**delivery.marks, WORK: work.to_mark()})

    def _limit(self) -> LimitReached | None:
        """Why it may not begin."""
        if self.max_wakes is not None and self._wakes_in_a_row >= self.max_wakes and not self._user_has_written():
            text = f"{WOKEN} {self._wakes_in_a_row:,} times in a row, without a word of the user's"
            return LimitReached(text, MAX_TURNS, is_given=False)
        return self.agent.meter.reached()

    def _user_has_written(self) -> bool:
        return any(message.sender == USER and not message.is_foreign for message in self.mailbox.look())

    def _next_work(self, by_user: bool) -> Work:
        self._work = Work.begin(self._work.number + 1, by_user)
        self.agent.meter.begin_work()
        return self._work

    def _conclude(self, ended: TurnEnded, turn: CancelScope) -> None:
        """Record how the work ended, tell the lead, and rest."""
        if ended.outcome is Outcome.INTERRUPTED:
            self._rest(interrupted=True)
            if not self._cancel.cancelled and not self._leaves:
                self._tell_of_interruption(turn.reason)
            return
        if isinstance(ended.error, LimitReached) and not ended.error.is_of_work:
            self._pause_at(ended.error)
            return
        self._has_open_work = False
        report = Report(*_told(ended), self._work)
        self.agent.conversation.note(report.to_row())
        self.post_report(self._message(report))
        self._rest(error=report.text if report.type is MessageType.ERROR else "")

    def _tell_of_interruption(self, reason: str) -> None:
        """It was the user, who knows: the lead hears of it with its next turn, and is not woken."""
        fields = {"by_user": True}
        self.post_report(Message(MessageType.ERROR, self.name, LEAD, f"was {reason}", 0.0, new_id(), fields))

    def _pause_at(self, why: LimitReached) -> None:
        """Wait for the user to raise a limit; the work stays open, and what others write stays unread."""
        self._hold_mail(of_all=True)
        fields = {"paused": True, "limit": str(why), "error": str(why)}
        if self.member.status in (Status.WORKING, Status.SPAWNING):
            self._roster.transition(self.name, Status.IDLE, **fields)
        else:
            self._roster.update(self.name, **fields)
        text = f"is paused: {_in_a_sentence(why)}. Only the user can let it go on; what you write to it waits."
        self.post_report(Message(MessageType.ERROR, self.name, LEAD, text, 0.0, new_id()))

    def _message(self, report: Report) -> Message:
        """Its id comes from the transcript: the same again after a restart, and another for each piece of work."""
        work = report.work
        unique = message_id(self.name, work.key, str(work.number), report.type)
        fields = {"by_user": True} if work.by_user else {}
        return Message(report.type, self.name, LEAD, report.text, 0.0, unique, fields)

    def _rest(self, **fields: Any) -> None:
        if self.member.status is Status.WORKING:
            self._roster.transition(self.name, Status.IDLE, **fields)

    def _run(self) -> None:
        with self._cancel.on_cancel(self._wakes.set):
            while not self._cancel.cancelled:
                self._wakes.wait()
                self._wakes.clear()
                try:
                    while not self._cancel.cancelled and self.step():
                        pass
                except Exception as e:  # boundary: a teammate never dies silently
                    logger.exception("%s failed", self.name)
                    self._fail(e)
                self._is_busy = False  # only now: by then the lead knows how each turn ended, also one that failed
                self.on_rest()
        self.mailbox.release()  # after its last look

    def _fail(self, error: Exception) -> None:
        try:
            self._rest(error=str(error))
            text = f"{type(error).__name__}: {error}"
            self.post_report(Message(MessageType.ERROR, self.name, LEAD, text, 0.0, new_id()))
        except TeamcliError:
            logger.exception("%s could not tell that it failed", self.name)


def _told(ended: TurnEnded) -> tuple[MessageType, str]:
    """What the lead is told of the end of a piece of work."""
    match ended.outcome:
        case Outcome.DONE:
            return MessageType.RESULT, ended.text or "(done, with nothing to say)"
        case Outcome.FAILED:
            return MessageType.ERROR, str(ended.error)
        case Outcome.MAX_TURNS | Outcome.MAX_BUDGET:
            return MessageType.ERROR, f"stopped: {_in_a_sentence(ended.error)}; a message lets it go on"
        case Outcome.REFUSED:
            return MessageType.ERROR, ended.text or "the model refused to continue"
        case _:
            return MessageType.ERROR, "the conversation no longer fits the model's context"


def _in_a_sentence(error: Exception | None) -> str:
    text = str(error)
    return text[:1].lower() + text[1:]
