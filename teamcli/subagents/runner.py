"""Runs a sub-agent from the wait for a slot to the report of its end.

The end of a background sub-agent is reported exactly once: first it is written to its transcript, then to its parent's
inbox, then the entry leaves the ledger. A start after a crash continues with the step that was interrupted.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

from teamcli.agent.conversation import text_block
from teamcli.agent.events import Emit, Notice, Outcome, Severity, StatusChanged, TurnEnded
from teamcli.agent.hooks import SUBAGENT_START, HookEvent, hook_note
from teamcli.agent.loop import Agent, run_turn
from teamcli.agent.pending_call import cut_middle
from teamcli.cancel import CancelScope, awaited_in
from teamcli.errors import Cancelled, StateError, TeamcliError
from teamcli.llm.types import Block
from teamcli.storage.files import read_lines
from teamcli.subagents.ledger import Ledger, LedgerEntry, Waiting
from teamcli.subagents.slots import Slots
from teamcli.subagents.snapshot import AgentEvent, EventKind, State
from teamcli.subagents.subagent import BuiltAgent, Ending, SubAgent
from teamcli.subagents.updates import SnapshotListeners, Updates
from teamcli.team.message import LEAD, Message, MessageType, message_id
from teamcli.team.teammate import HANDED_OVER

logger = logging.getLogger(__name__)

LEFT_BEHIND = "ended with the host that ran it, before it had finished"
REPORT_LIMIT = 50_000
"""Characters of a final text in a message; an inbox line holds at most 256 KB."""


class Limits(NamedTuple):
    max_concurrent: int = 5
    timeout_seconds: float = 1800.0
    max_unfinished: int = 100
    """How many of one parent may be running or pending."""


class Parent(NamedTuple):
    agent: Agent
    scope: CancelScope
    """Of the agent, not of its turn: background sub-agents continue when the turn is over."""


class ParentTeam(Protocol):
    """What sub-agents need from the team and from the composition root."""

    def parent(self, name: str) -> Parent | None:
        """None for an agent that is gone."""
        ...

    def has_member(self, name: str) -> bool:
        """Whether an agent of that name exists, or will once all have started."""
        ...

    def build(self, sub: SubAgent, parent: Agent, path: Path) -> BuiltAgent:
        """Build the agent behind a sub-agent, with a transcript at `path`.

        Raises: ToolError, StateError
        """
        ...

    def post(self, message: Message, once: bool = False) -> None:
        """Put a message into an inbox; with `once`, only if it is not there yet."""
        ...

    def on_subagent_end(self) -> None:
        """One of them has ended, so the team may be idle now."""
        ...


class SubAgentRunner:
    def __init__(self, team: ParentTeam, limits: Limits, ledger: Ledger, emit: Emit, cancel: CancelScope) -> None:
        """`cancel` is the program's scope."""
        self.updates = Updates()
        self.on_end = SnapshotListeners()
        self.ledger = ledger
        self._team = team
        self._timeout_seconds = limits.timeout_seconds
        self._emit = emit
        self._cancel = cancel
        self._slots = Slots(limits.max_concurrent)

    def register(self, sub: SubAgent, built: BuiltAgent) -> None:
        """Raises: StateError, with the agent released."""
        sub.attach(built)
        try:
            if sub.is_background:
                self.ledger.add(_ledger_entry(sub))
        except StateError:  # it never runs, so nothing else would close what it has open
            built.release()
            raise

    def run(self, sub: SubAgent, built: BuiltAgent, parent_scope: CancelScope) -> Ending:
        """Work, record how it ended, and report that to the parent. Never raises."""
        try:
            with self._slots.taken(sub.scope):
                sub.begin()
                self.emit_state(sub)
                ending = self._work(sub, built)
        except Cancelled as e:
            ending = Ending(State.CANCELLED, "", e.args[0])
        except Exception as e:  # boundary: a sub-agent never dies silently
            logger.exception("%s failed", sub.id)
            ending = Ending(State.FAILED, sub.activity.text, f"{type(e).__name__}: {e}")
        self._conclude(sub, built, ending, parent_scope)
        return ending

    @contextmanager
    def slot_lent(self, sub: SubAgent | None) -> Iterator[None]:
        """Free the slot of a sub-agent that only waits inside the block.

        Otherwise sub-agents that wait for their own could hold all slots and wait forever.
        """
        if sub is None:
            yield
            return
        if sub.begin_waiting():
            self._slots.give()
        try:
            yield
        finally:
            if sub.end_waiting():
                self._slots.take_back(sub.scope)

    def report_lost(self, transcripts: Path) -> None:
        """At start: report background sub-agents to their parents if teamcli ended before it could.

        Raises: StateError
        """
        if self.ledger.problem:
            self._warn(LEAD, f"What sub-agents of an earlier run were doing is unknown: {self.ledger.problem}")
        for entry in self.ledger.all():
            if self._team.has_member(entry.parent):  # else nobody would ever read the report
                self._team.post(_report(entry, _recorded_ending(transcripts / f"{entry.id}.jsonl")), once=True)
            self.ledger.remove(entry.id)

    def report_left(self, entries: Iterable[LedgerEntry]) -> None:
        """The hosts that ran these for agents that run here now are gone, or have handed those over.

        Raises: StateError
        """
        for entry in entries:
            self._team.post(_report(entry, Ending(State.CANCELLED, "", LEFT_BEHIND)), once=True)

    def emit_state(self, sub: SubAgent) -> None:
        details = {"parent": sub.parent, "description": sub.name, "background": sub.is_background}
        error = {"error": sub.ending.error} if sub.ending and sub.ending.error else {}
        self._emit(StatusChanged(sub.id, sub.state, {**details, **error}))

    # Called by each `SubAgent`

    def changed(self, sub: SubAgent) -> None:
        self.updates.changed(sub.id, sub.snapshot)

    def waits(self, sub: SubAgent, what: str) -> None:
        try:
            self.ledger.show_waiting(Waiting(sub.id, sub.parent, what))
        except StateError as e:  # the question must be asked even if other shells cannot see it
            self._warn(sub.id, f"What {sub.id} waits for cannot be shown elsewhere: {e}")

    def _work(self, sub: SubAgent, built: BuiltAgent) -> Ending:
        timed_out = f"timed out after {self._timeout_seconds:g} s"
        # Started only now: waiting for a slot does not count.
        timer = threading.Timer(self._timeout_seconds, sub.scope.cancel, (timed_out,))
        timer.daemon = True
        timer.start()
        try:
            opening = built.opening._replace(blocks=[*built.opening.blocks, *_said_by_hooks(sub, built.agent)])
            ended = run_turn(built.agent, opening, sub.scope, sub.incoming)
            # What arrived during its last answer was accepted, so it must be read.
            while ended.outcome is Outcome.DONE and (mail := sub.last_incoming()).blocks:
                ended = run_turn(built.agent, mail, sub.scope, sub.incoming)
        finally:
            timer.cancel()
        return _ending(ended, sub, timed_out)

    def _conclude(self, sub: SubAgent, built: BuiltAgent, ending: Ending, parent_scope: CancelScope) -> None:
        sub.begin_ending()  # first: its parent may ask for the state as soon as it has the report
        try:
            if not self._cancel.cancelled:  # else the next start reports it as lost
                # In this order: after a crash, the next start reads how it ended from here, and sends what is missing.
                built.agent.conversation.note({"kind": "end", **ending._asdict()})
                if sub.is_background and not parent_scope.cancelled:
                    self._team.post(_report(_ledger_entry(sub), ending, sub.stopped_by_user))
                if parent_scope.reason != HANDED_OVER:  # else the next host of its parent reports it as lost
                    self.ledger.remove(sub.id)
        except TeamcliError as e:  # for example a full disk; a later start tries again
            self._warn(sub.id, f"The end of {sub.id} could not be reported to {sub.parent}: {e}")
        finally:
            built.release()
            if ending.error:  # only recorded here: the notices of its turn say the same
                sub.activity.add(AgentEvent(EventKind.ERROR, ending.error, is_error=True))
            sub.finish(ending)
            self.emit_state(sub)
            # A foreground sub-agent's parent waits while this runs: a listener that waited for it would deadlock.
            with awaited_in(self._cancel):
                self.on_end.notify(sub.snapshot())

    def _warn(self, agent: str, text: str) -> None:
        self._emit(Notice(agent, text, Severity.WARNING))


def _said_by_hooks(sub: SubAgent, agent: Agent) -> list[Block]:
    """What hooks want a new sub-agent to know.

    Raises: Cancelled
    """
    if not agent.hooks.wants(SUBAGENT_START):
        return []
    result = agent.hooks.run(HookEvent(SUBAGENT_START, sub.id), sub.scope)
    if result.objection:  # there is nothing to block: the user reads it
        agent.emit(Notice(sub.id, result.objection, Severity.WARNING))
    return [text_block(hook_note(SUBAGENT_START, result.context))] if result.context else []


def _ending(ended: TurnEnded, sub: SubAgent, timed_out: str) -> Ending:
    said = ended.text or sub.activity.text
    match ended.outcome:
        case Outcome.DONE:
            return Ending(State.COMPLETED, ended.text or "(done, with nothing to say)")
        case Outcome.INTERRUPTED if sub.scope.reason == timed_out:
            return Ending(State.FAILED, sub.activity.text, timed_out)
        case Outcome.INTERRUPTED:
            return Ending(State.CANCELLED, sub.activity.text, sub.scope.reason)
        case Outcome.FAILED:
            return Ending(State.FAILED, said, str(ended.error))
        case Outcome.MAX_TURNS:
            return Ending(State.FAILED, said, f"stopped at its limit of model calls ({ended.error})")
        case Outcome.MAX_BUDGET:
            return Ending(State.FAILED, said, f"stopped: {ended.error}")
        case Outcome.REFUSED:
            return Ending(State.FAILED, said, "the model refused to continue")
        case _:
            return Ending(State.FAILED, said, "the conversation no longer fits the model's context")


def _recorded_ending(transcript: Path) -> Ending:
    rows = (row for _, row in read_lines(transcript) if row is not None)
    last = next((row for row in rows if row.get("kind") == "end"), {})
    if last.get("state") not in list(State):
        return Ending(State.CANCELLED, "", "teamcli was stopped before it had finished")
    return Ending(State(last["state"]), str(last.get("result", "")), str(last.get("error", "")))


def _ledger_entry(sub: SubAgent) -> LedgerEntry:
    return LedgerEntry(sub.id, sub.parent, sub.task.description, sub.created_at, sub.task.by_user)


def _report(entry: LedgerEntry, ending: Ending, stopped_by_user: bool = False) -> Message:
    """The message to its parent. Its id is the same for each attempt, so that it arrives once."""
    kind = MessageType.RESULT if ending.state is State.COMPLETED else MessageType.ERROR
    fields: dict[str, object] = {"state": ending.state.value}
    if entry.description:
        fields["description"] = entry.description
    if stopped_by_user or entry.by_user:
        fields["by_user"] = True
    unique = message_id(entry.id, str(entry.began), "end")
    text = cut_middle(ending.text, REPORT_LIMIT)
    return Message(kind, entry.id, entry.parent, text, time.time(), unique, fields)
