"""A teammate's work: how a piece of it begins, on which terms, and how its end is recorded and reported."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from teamcli.agent.conversation import Marks, text_block
from teamcli.agent.events import TurnEnded
from teamcli.agent.loop import Agent
from teamcli.errors import LimitReached, TeamcliError
from teamcli.team.message import LEAD, Message, MessageType, new_id
from teamcli.team.outbox import Outbox
from teamcli.team.piece_of_work import WORK, LatestWork, Report, Work, in_a_sentence
from teamcli.team.ports import TeammateSetup
from teamcli.team.roster import Member, Roster, Status
from teamcli.team.terms import terms_in


class TeammateWork:
    """In the transcript, in the roster, and as messages to the lead. From its first turn on, only the teammate changes
    it: with its lock, or in its thread."""

    def __init__(self, agent: Agent, setup: TeammateSetup, roster: Roster, outbox: Outbox, latest: LatestWork) -> None:
        """`latest` is the latest piece of work, as the transcript records it."""
        self._agent = agent
        self._setup = setup
        self._roster = roster
        self._outbox = outbox
        self._latest = latest
        self._next_terms: Mapping[str, Any] = {}
        """What changes with its next piece of work."""

    @property
    def latest(self) -> LatestWork:
        return self._latest

    @property
    def is_open(self) -> bool:
        return self._latest.is_open

    @property
    def _member(self) -> Member:
        return self._roster.get(self._agent.name)

    # Before its first turn, and after its thread has ended

    def change_terms(self, terms: Mapping[str, Any]) -> None:
        """Work on other terms, from the next piece of work on."""
        self._next_terms = terms
        if not self._latest.is_open:
            self._take_next_terms()

    def reopen(self) -> None:
        """On another host: work that ended and was not recorded was not pushed either. Let it look at what is left."""
        if self._latest.report is not None and not self._latest.is_recorded:
            self._latest = LatestWork(self._latest.work, is_open=True)

    def report_again(self) -> None:
        """After a restart: send the report that a crash may have kept back. Repeats are harmless."""
        if (report := self._latest.report) is None:
            return
        if not self._latest.is_recorded and (line := self._setup.end_work()):
            report = report.ending_with(line)
            self._agent.conversation.note(report.to_row())
        self._outbox.post(report.message(self._agent.name), once=True)

    def save(self) -> None:
        """Push what it has begun, for the next host."""
        if self._member.status is Status.WORKING:
            self._setup.end_work()

    # Beginning

    def assign(self, prompt: str, terms: Mapping[str, Any], by_user: bool) -> None:
        """Begin a piece of work on these terms. It is durable when this returns.

        Raises: StateError
        """
        terms, self._next_terms = {**self._next_terms, **terms}, {}
        setup = self._setup.set_up(self._member._replace(**terms))
        work = self._next(by_user)
        self._agent.conversation.add_user([text_block(prompt)], marks={WORK: work.to_mark()})
        self._latest = LatestWork(work, is_open=True)
        if setup.preamble != self._agent.preamble:  # the same prefix keeps the model's cache
            self._agent.use(*setup)
        self._roster.reassign(self._agent.name, **terms)

    def begin(self, by_user: bool, messages: Iterable[Message]) -> Marks:
        """Begin the piece of work that these messages give. Returns the mark for the line that records them."""
        for message in messages:  # they may come from another host, and bring terms
            self._next_terms = {**self._next_terms, **terms_in(message)}
        self._take_next_terms()
        self._latest = LatestWork(self._next(by_user), is_open=True)
        return {WORK: self._latest.work.to_mark()}

    def take_back(self, before: LatestWork) -> None:
        """It could not begin: the conversation has nothing of it."""
        self._latest = before

    def _take_next_terms(self) -> None:
        if self._next_terms:
            terms, self._next_terms = self._next_terms, {}
            self._agent.use(*self._setup.set_up(self._member._replace(**terms)))
            self._roster.update(self._agent.name, **terms)

    def _next(self, by_user: bool) -> Work:
        self._agent.meter.begin_work()
        return Work.begin(self._latest.work.number + 1, by_user)

    # Ending

    def ended(self, ended: TurnEnded, unfinished: str, line: str) -> None:
        """Record how it ended, report that to the lead, and turn idle, in this order: a crash loses nothing."""
        report = Report.of(ended, self._latest.work).ending_with(unfinished).ending_with(line)
        self._latest = LatestWork(report.work, is_open=False)
        self._agent.conversation.note(report.to_row())
        self._outbox.post(report.message(self._agent.name))
        self.turn_idle(error=report.text if report.type is MessageType.ERROR else "")

    def interrupted(self, reason: str, is_reported: bool) -> None:
        """It stays open."""
        self.turn_idle(interrupted=True)
        if is_reported:  # the user did this and knows: the lead reads it with its next turn and is not woken
            self._report_error(f"was {reason}", by_user=True)

    def paused(self, why: LimitReached) -> None:
        """It stays open until the user raises a limit."""
        fields = {"paused": True, "limit": str(why), "error": str(why)}
        # First: on another host, a run would end as soon as the roster says that nobody works.
        self._report_error(f"is paused: {in_a_sentence(why)}. Only the user can resume it. Messages stay queued.")
        if self._member.status in (Status.WORKING, Status.SPAWNING):
            self._roster.transition(self._agent.name, Status.IDLE, **fields)
        else:
            self._roster.update(self._agent.name, **fields)

    def failed(self, error: Exception) -> None:
        """Raises: StateError."""
        self.turn_idle(error=str(error))
        # Ours are whole sentences. Of any other, the type says more than the text.
        self._report_error(str(error) if isinstance(error, TeamcliError) else f"{type(error).__name__}: {error}")

    def turn_idle(self, **fields: Any) -> None:
        if self._member.status is Status.WORKING:
            self._roster.transition(self._agent.name, Status.IDLE, **fields)

    def _report_error(self, text: str, by_user: bool = False) -> None:
        fields = {"by_user": True} if by_user else {}
        message = Message(MessageType.ERROR, self._agent.name, LEAD, text, time.time(), new_id(), fields)
        self._outbox.post(message)
