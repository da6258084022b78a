"""The sub-agents of a program: starts them, so many at once, watches over them and tells their parents how they ended.

A background sub-agent's end is told once, whatever happens: first it stands in its transcript, then in its parent's
inbox, then it leaves the ledger; a start goes on from wherever a crash left that.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

from teamcli.agent.events import Emit, Notice, Outcome, Severity, StatusChanged, TurnEnded
from teamcli.agent.limits import Meter
from teamcli.agent.loop import Agent, run_turn
from teamcli.agent.tool_calls import cut_middle
from teamcli.cancel import CancelScope, awaited_in, is_awaited_within
from teamcli.errors import Cancelled, StateError, TeamcliError, ToolError
from teamcli.storage.files import read_lines
from teamcli.subagents.describe import describe, describe_whole
from teamcli.subagents.ledger import Ledger, Open, Waiting
from teamcli.subagents.slots import Slots
from teamcli.subagents.snapshot import AgentEvent, EventKind, Snapshot, State
from teamcli.subagents.subagent import BuiltAgent, Ending, SubAgent
from teamcli.subagents.updates import Listener, Listeners, Updates
from teamcli.team.message import LEAD, USER, Message, MessageType, message_id, new_id
from teamcli.tools.context import CallContext, SubAgentTask

logger = logging.getLogger(__name__)

KEPT = 200
"""So many that have ended are remembered; of older ones only what they used."""
EARLIER = "earlier sub-agents"
STOP_SECONDS = 5.0
LEAVING_SECONDS = 1.5
TOLD_LIMIT = 50_000
"""Characters of a final text in a message; an inbox takes no more than 256 KB."""
LOST = "ended when teamcli was stopped, before it had finished"
NOTHING_SAID = "(done, with nothing to say)"


class Limits(NamedTuple):
    max_concurrent: int = 5
    timeout_seconds: float = 1800.0
    max_unfinished: int = 100
    """Of one parent, running or waiting."""


class Parent(NamedTuple):
    agent: Agent
    scope: CancelScope
    """Of the agent, not of its turn: background sub-agents go on when the turn is over."""


class Staffing(Protocol):
    """Builds sub-agents; the composition root's part."""

    def parent(self, name: str) -> Parent | None:
        """None for an agent that is no longer there."""
        ...

    def has_member(self, name: str) -> bool:
        """Whether an agent of that name is there, or will be once all have started."""
        ...

    def build(self, sub: SubAgent, parent: Agent, path: Path) -> BuiltAgent:
        """The agent behind a sub-agent, with a transcript at `path`.

        Raises: ToolError, StateError
        """
        ...


class Post(Protocol):
    """Puts a message into an inbox; with `once`, only where it does not stand there already."""

    def __call__(self, message: Message, once: bool = False) -> None: ...


class SubAgentManager:
    def __init__(
        self,
        staffing: Staffing,
        limits: Limits,
        transcripts: Path,
        ledger: Ledger,
        post: Post,
        emit: Emit,
        cancel: CancelScope,
        on_rest: Callable[[], None],
    ) -> None:
        """`cancel` is the program's scope; `on_rest` is called whenever one of them has ended."""
        self._staffing = staffing
        self.limits = limits
        self._transcripts = transcripts
        self._ledger = ledger
        self._post = post
        self._emit = emit
        self._cancel = cancel
        self._on_rest = on_rest
        self._slots = Slots(limits.max_concurrent)
        self._updates = Updates()
        self._on_end = Listeners()
        self._all: dict[str, SubAgent] = {}
        self._preparing: dict[str, str] = {}
        """Those that are being built, and who for."""
        self._ended: deque[str] = deque()
        self._earlier: Agent | None = None
        self._threads: set[threading.Thread] = set()
        self._last_number: int | None = None
        self._changed = threading.Condition()

    # What tools do

    def run(self, parent: str, task: SubAgentTask, call: CallContext) -> str:
        """Do it now and return its final text.

        Raises: ToolError, and Cancelled with what it had said so far
        """
        sub, staffed, _ = self._prepare(parent, task, call.cancel.child(), is_background=False)
        with self._slot_given_up(parent):
            ending = self._work(sub, staffed, call.cancel)
        if call.cancel.cancelled and ending.state is State.CANCELLED:
            raise Cancelled(call.cancel.reason, ending.result)
        if ending.state is not State.COMPLETED:
            raise ToolError(f"{sub.id} {_how_it_ended(ending)}")
        return ending.result

    def start(self, parent: str, task: SubAgentTask) -> str:
        """Let it run beside its parent; returns what the parent is told of it now.

        Raises: ToolError
        """
        if self.owns(parent):
            raise ToolError("background: a sub-agent is gone with its last text, so it waits for its own; leave it out")
        sub, _ = self._launch(parent, task, None)
        return f"Started {sub.id} in the background. Its end reaches you by itself as a message: do not poll."

    def status(self, parent: str, id: str, wait_seconds: float, cancel: CancelScope) -> str:
        """How one stands, or all that `parent` has started; with a time, once one of those in question has ended.

        Raises: ToolError, Cancelled
        """
        mine = [sub for sub in self._list() if sub.parent == parent]
        if id:
            mine = [self._find(id, mine)]
        self._wait_for_one(mine, wait_seconds, cancel)
        self._let_settle(mine)
        now = time.time()
        if id:
            return describe_whole(mine[0].snapshot(), now)
        return "\n".join(describe(sub.snapshot(), now) for sub in mine) or "(none)"

    def stop(self, parent: str, ids: Iterable[str]) -> str:
        """End some; says of each what became of it."""
        mine = {sub.id: sub for sub in self._list() if sub.parent == parent}
        wanted = list(dict.fromkeys(ids))
        self._let_settle([mine[id] for id in wanted if id in mine])
        running = [id for id in wanted if id in mine and self._stop(mine[id], "stopped by its parent")]
        self._wait_for_all([mine[id] for id in running], STOP_SECONDS)
        return "\n".join(f"{id}: {_stopped(mine.get(id), id in running)}" for id in wanted) or "(none)"

    # What the user and the library do

    def launch(self, task: SubAgentTask, scope: CancelScope | None) -> tuple[Snapshot, Future[Snapshot]]:
        """Start one for the user, as a child of the lead: how it stands now, and how it will have ended.

        It ends with `scope`; without one it runs in the background, and the lead is told of its end.

        Raises: ToolError
        """
        sub, ended = self._launch(LEAD, task._replace(by_user=True), scope)
        return sub.snapshot(), ended

    def new_scope(self) -> CancelScope:
        """Ends with the program, or before."""
        return self._cancel.child()

    def waits_here(self, id: str) -> bool:
        """Whether this sub-agent waits for the function that this runs in.

        Raises: ToolError, for an unknown id
        """
        return is_awaited_within(self._find(id, self._list()).scope)

    @contextmanager
    def waiting_here(self) -> Iterator[None]:
        """If a sub-agent waits for the function that this runs in, others may have its slot inside the block."""
        caller = next((sub.id for sub in self._list() if is_awaited_within(sub.scope)), "")
        with self._slot_given_up(caller):
            yield

    def snapshots(self) -> tuple[Snapshot, ...]:
        return tuple(sub.snapshot() for sub in self._list())

    def snapshot(self, id: str) -> Snapshot:
        """Raises: ToolError, for an unknown id."""
        return self._find(id, self._list()).snapshot()

    def wait(self, id: str, timeout_seconds: float | None = None) -> Snapshot:
        """Wait until it has ended or the time is up; how it stands then.

        Raises: ToolError, for an unknown id
        """
        sub = self._find(id, self._list())
        self._wait_for_all([sub], timeout_seconds)
        return sub.snapshot()

    def cancel_one(self, id: str) -> bool:
        """The user stops one; false where it had ended before.

        Raises: ToolError, for an unknown id
        """
        return self._stop(self._find(id, self._list()), "stopped by the user", by_user=True)

    def cancel_all(self) -> int:
        """Stop all that run or wait; how many there were."""
        return sum(self._stop(sub, "stopped by the user", by_user=True) for sub in self._list())

    def send(self, id: str, text: str, sender: str = USER) -> str:
        """A message that it reads at its next step.

        Raises: ToolError, for an unknown id or one that has ended
        """
        sub = self._find(id, self._list())
        if not sub.send(Message(MessageType.MESSAGE, sender, id, text, time.time(), new_id())):
            raise ToolError(f"{id} has ended ({sub.state}): nobody would read it")
        return f"Sent message to {id}"

    def broadcast(self, text: str, sender: str = USER) -> list[str]:
        """The same for all that run or wait; the ids that were reached."""
        reached = []
        for sub in self._list():
            if not sub.state.is_final:
                self.send(sub.id, text, sender)
                reached.append(sub.id)
        return reached

    def on_update(self, listener: Listener) -> Callable[[], None]:
        """Call it, in a thread of its own, as each comes along: at most ten times a second, and always at the end.

        Returns what removes it again, as `on_end` does.
        """
        return self._updates.subscribe(listener)

    def on_end(self, listener: Listener) -> Callable[[], None]:
        """Call it once for each that has ended, in the thread of that one."""
        return self._on_end.add(listener)

    # The life of the program

    def owns(self, id: str) -> bool:
        return id in self._all

    def parent_of(self, id: str) -> str:
        """The lead or teammate that it works for; an agent that is no sub-agent stands for itself."""
        sub = self._all.get(id)
        return sub.root if sub else id

    def waiting(self) -> tuple[Waiting, ...]:
        """Those that wait for an answer of the user's."""
        return self._ledger.waiting()

    def running_aside(self) -> list[str]:
        """Those that run while no agent waits for them."""
        return [sub.id for sub in self._list() if sub.is_aside and not sub.state.is_final]

    def agents(self) -> list[Agent]:
        """Of all sub-agents of this run; those that nobody remembers are summed up in one."""
        earlier = [self._earlier] if self._earlier else []
        return [*earlier, *(sub.agent for sub in self._list() if sub.agent)]

    def report_lost(self) -> None:
        """At a start: tell parents of background sub-agents whose end they were not told, because teamcli ended first.

        Raises: StateError
        """
        if self._ledger.problem:
            self._warn(LEAD, f"What sub-agents of an earlier run were doing is not known: {self._ledger.problem}")
        for entry in self._ledger.all():
            if self._staffing.has_member(entry.parent):
                ending = self._recorded_ending(entry.id) or Ending(State.CANCELLED, "", LOST)
                self._post(_report(entry, ending), once=True)
            self._ledger.remove(entry.id)

    def close(self) -> None:
        """They have been told to stop by the program's scope; wait for them."""
        deadline = time.monotonic() + LEAVING_SECONDS
        for thread in self._threads - {threading.current_thread()}:  # a listener may be the one who closes
            thread.join(max(0.0, deadline - time.monotonic()))
        self._updates.close()

    # Inside

    def _prepare(
        self, parent: str, task: SubAgentTask, scope: CancelScope | None, is_background: bool
    ) -> tuple[SubAgent, BuiltAgent, CancelScope]:
        above = self._parent(parent)
        if above is None:
            raise ToolError(f"'{parent}' is leaving: no sub-agent can be started for it")
        nested_in = self._all.get(parent)
        if nested_in and not task.role:  # a copy knows paths as its parent writes them
            task = task._replace(cwd=task.cwd or nested_in.cwd)
        with self._changed:
            self._check_number(parent)
            id = self._next_id()
            self._preparing[id] = parent
        try:
            scope = scope or above.scope.child()
            sub = SubAgent(id, parent, task, scope, is_background, self._has_changed, nested_in, self._is_waiting)
            staffed = self._staffing.build(sub, above.agent, self._transcript(id))
            sub.agent, sub.tools = staffed.agent, staffed.tools
            if is_background:
                self._enter(sub, staffed)
            with self._changed:
                self._all[id] = sub
        except TeamcliError as e:
            raise ToolError(str(e)) from e
        finally:
            with self._changed:
                del self._preparing[id]
        self._tell_state(sub)
        return sub, staffed, above.scope

    def _enter(self, sub: SubAgent, staffed: BuiltAgent) -> None:
        """Raises: StateError, once all is given up again that it had."""
        try:
            self._ledger.add(_entry(sub))
        except StateError:
            staffed.release()
            raise

    def _parent(self, name: str) -> Parent | None:
        sub = self._all.get(name)
        if sub is None:
            return self._staffing.parent(name)
        return Parent(sub.agent, sub.scope) if sub.agent else None

    @contextmanager
    def _slot_given_up(self, parent: str) -> Iterator[None]:
        """A sub-agent that waits for its own does nothing: they may have its slot, without which all could wait."""
        sub = self._all.get(parent)
        if sub is None:
            yield
            return
        with self._changed:
            sub.waited_for += 1
            is_first = sub.waited_for == 1
        if is_first:
            self._slots.give()
        try:
            yield
        finally:
            with self._changed:
                sub.waited_for -= 1
                is_last = not sub.waited_for
            if is_last:
                self._slots.take_back(sub.scope)

    def _check_number(self, parent: str) -> None:
        under_way = [sub.parent for sub in self._all.values() if not sub.state.is_final]
        count = [*under_way, *self._preparing.values()].count(parent)
        if count >= self.limits.max_unfinished:
            text = f"{count} sub-agents of yours run or wait, and `limits.subagents` allows no more"
            raise ToolError(f"{text}: wait for some to end, or stop some with agent_stop")

    def _next_id(self) -> str:
        """Unique also beside those of earlier runs, whose transcripts are kept."""
        if self._last_number is None:
            numbers = (path.stem.partition("-")[2] for path in self._transcripts.glob("sa-*.jsonl"))
            self._last_number = max((int(number) for number in numbers if number.isdecimal()), default=0)
        self._last_number += 1
        return f"sa-{self._last_number}"

    def _transcript(self, id: str) -> Path:
        return self._transcripts / f"{id}.jsonl"

    def _launch(self, parent: str, task: SubAgentTask, scope: CancelScope | None) -> tuple[SubAgent, Future[Snapshot]]:
        """In a thread of its own; without a scope, in the background."""
        sub, staffed, above = self._prepare(parent, task, scope, is_background=scope is None)
        ended: Future[Snapshot] = Future()
        ended.set_running_or_notify_cancel()  # it ends by its scope, not by a cancelled future
        thread = threading.Thread(target=self._run_aside, args=(sub, staffed, above, ended), name=sub.id, daemon=True)
        with self._changed:
            self._threads.add(thread)
        thread.start()
        return sub, ended

    def _run_aside(self, sub: SubAgent, staffed: BuiltAgent, above: CancelScope, ended: Future[Snapshot]) -> None:
        try:
            self._work(sub, staffed, above)
        finally:
            with self._changed:
                self._threads.discard(threading.current_thread())
            ended.set_result(sub.snapshot())

    def _work(self, sub: SubAgent, staffed: BuiltAgent, above: CancelScope) -> Ending:
        """Everything from waiting for a slot to telling the parent; never raises."""
        try:
            with self._slots.taken(sub.scope):
                sub.begin()
                self._tell_state(sub)
                ending = self._do_turns(sub, staffed)
        except Cancelled as e:
            ending = Ending(State.CANCELLED, "", e.args[0])
        except Exception as e:  # boundary: a sub-agent never dies silently
            logger.exception("%s failed", sub.id)
            ending = Ending(State.FAILED, sub.activity.text, f"{type(e).__name__}: {e}")
        self._conclude(sub, staffed, ending, above)
        return ending

    def _do_turns(self, sub: SubAgent, staffed: BuiltAgent) -> Ending:
        timed_out = f"timed out after {self.limits.timeout_seconds:g} s"
        timer = threading.Timer(self.limits.timeout_seconds, sub.scope.cancel, (timed_out,))
        timer.daemon = True
        timer.start()
        try:
            ended = run_turn(staffed.agent, staffed.opening, sub.scope, sub.incoming)
            while ended.outcome is Outcome.DONE and (mail := sub.last_incoming()).blocks:
                ended = run_turn(staffed.agent, mail, sub.scope, sub.incoming)
        finally:
            timer.cancel()
        return _ending(ended, sub, timed_out)

    def _conclude(self, sub: SubAgent, staffed: BuiltAgent, ending: Ending, above: CancelScope) -> None:
        """Write down how it ended, tell its parent, and let go of all that it had."""
        sub.is_ending = True
        try:
            if not self._cancel.cancelled:
                staffed.agent.conversation.note({"kind": "end", **ending._asdict()})
                if sub.is_background and not above.cancelled:
                    self._post(_report(_entry(sub), ending, sub.stopped_by_user))
                self._ledger.remove(sub.id)
        except TeamcliError as e:  # the disk is full, say: a start later on tries again
            self._warn(sub.id, f"{sub.parent} could not be told that {sub.id} has ended: {e}")
        finally:
            staffed.release()
            if ending.error:  # recorded here alone: the notices of its turn say the same
                sub.activity.add(AgentEvent(EventKind.ERROR, ending.error, is_error=True))
            sub.finish(ending)
            self._has_ended(sub)

    def _let_settle(self, subs: Iterable[SubAgent]) -> None:
        """A parent that has just read of an end finds it in the state as well."""
        self._wait_for_all([sub for sub in subs if sub.is_ending], STOP_SECONDS)

    def _has_ended(self, sub: SubAgent) -> None:
        self._tell_state(sub)
        with awaited_in(self._cancel):  # the parent of a foreground one waits meanwhile
            self._on_end.tell(sub.snapshot())
        with self._changed:
            self._ended.append(sub.id)
            if len(self._ended) > KEPT:
                self._forget(self._all.pop(self._ended.popleft()))
            self._changed.notify_all()
        self._on_rest()

    def _forget(self, sub: SubAgent) -> None:
        if sub.agent is None:
            return
        if self._earlier is None:
            self._earlier = sub.agent
            self._earlier.name = EARLIER
        else:
            _add_up(self._earlier.meter, sub.agent.meter)

    def _has_changed(self, sub: SubAgent) -> None:
        self._updates.changed(sub.id, sub.snapshot)

    def _is_waiting(self, sub: SubAgent, what: str) -> None:
        try:
            self._ledger.show_waiting(Waiting(sub.id, sub.parent, what))
        except StateError as e:  # whoever asks must be asked all the same
            self._warn(sub.id, f"What {sub.id} waits for cannot be shown elsewhere: {e}")

    def _tell_state(self, sub: SubAgent) -> None:
        details = {"parent": sub.parent, "description": sub.name, "background": sub.is_background}
        error = {"error": sub.ending.error} if sub.ending and sub.ending.error else {}
        self._emit(StatusChanged(sub.id, sub.state, {**details, **error}))

    def _stop(self, sub: SubAgent, reason: str, by_user: bool = False) -> bool:
        if sub.state.is_final:
            return False
        sub.stopped_by_user = by_user
        sub.scope.cancel(reason)
        return True

    def _list(self) -> list[SubAgent]:
        with self._changed:
            return sorted(self._all.values(), key=lambda sub: sub.number)

    def _find(self, id: str, among: Iterable[SubAgent]) -> SubAgent:
        by_id = {sub.id: sub for sub in among}
        if id not in by_id:
            raise ToolError(f"id: there is no sub-agent '{id}'; there are: {', '.join(by_id) or 'none'}")
        return by_id[id]

    def _wait_for_one(self, subs: list[SubAgent], seconds: float, cancel: CancelScope) -> None:
        running = [sub for sub in subs if not sub.state.is_final]
        if seconds <= 0 or not running:
            return
        with cancel.on_cancel(self._notify), self._changed:
            self._changed.wait_for(lambda: cancel.cancelled or any(sub.state.is_final for sub in running), seconds)
        cancel.check()

    def _wait_for_all(self, subs: list[SubAgent], seconds: float | None) -> None:
        with self._changed:
            self._changed.wait_for(lambda: all(sub.state.is_final for sub in subs), seconds)

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _recorded_ending(self, id: str) -> Ending | None:
        rows = (row for _, row in read_lines(self._transcript(id)) if row is not None)
        last = next((row for row in rows if row.get("kind") == "end"), None)
        if last is None or last.get("state") not in list(State):
            return None
        return Ending(State(last["state"]), str(last.get("result", "")), str(last.get("error", "")))

    def _warn(self, agent: str, text: str) -> None:
        self._emit(Notice(agent, text, Severity.WARNING))


def _ending(ended: TurnEnded, sub: SubAgent, timed_out: str) -> Ending:
    said = ended.text or sub.activity.text
    match ended.outcome:
        case Outcome.DONE:
            return Ending(State.COMPLETED, ended.text or NOTHING_SAID)
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


def _entry(sub: SubAgent) -> Open:
    return Open(sub.id, sub.parent, sub.task.description, sub.created_at, sub.task.by_user)


def _report(entry: Open, ending: Ending, stopped_by_user: bool = False) -> Message:
    """What its parent reads. The id is the same for each try, so that it arrives once."""
    kind = MessageType.RESULT if ending.state is State.COMPLETED else MessageType.ERROR
    fields = {"state": ending.state.value}
    fields |= {"description": entry.description} if entry.description else {}
    unique = message_id(entry.id, str(entry.began), "end")
    text = cut_middle(ending.text, TOLD_LIMIT)
    more = {"by_user": True} if stopped_by_user or entry.by_user else {}
    return Message(kind, entry.id, entry.parent, text, time.time(), unique, {**fields, **more})


def _how_it_ended(ending: Ending) -> str:
    said = f"\nWhat it had said:\n{ending.result}" if ending.result else ""
    return f"{ending.state}: {ending.error}{said}"


def _stopped(sub: SubAgent | None, was_running: bool) -> str:
    if sub is None:
        return "unknown"
    if not was_running:
        return f"had ended before ({sub.state})"
    return str(sub.state) if sub.state.is_final else "is being stopped"


def _add_up(sum: Meter, used: Meter) -> None:
    sum.turns += used.turns
    sum.tool_calls += used.tool_calls
    sum.usage += used.usage
    sum.cost_usd = None if sum.cost_usd is None or used.cost_usd is None else sum.cost_usd + used.cost_usd
