"""The sub-agents of a program, as tools, the user and the library use them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

from teamcli.agent.events import Emit
from teamcli.agent.loop import Agent
from teamcli.cancel import CancelScope, is_awaited_within
from teamcli.errors import Cancelled, TeamcliError, ToolError
from teamcli.storage.files import Json
from teamcli.subagents.describe import describe, describe_whole
from teamcli.subagents.ledger import Ledger, LedgerEntry, Waiting
from teamcli.subagents.registry import SubAgentRegistry
from teamcli.subagents.runner import Limits, Parent, ParentTeam, SubAgentRunner
from teamcli.subagents.snapshot import Snapshot, State
from teamcli.subagents.subagent import BuiltAgent, Ending, SubAgent
from teamcli.subagents.updates import Listener
from teamcli.team.message import LEAD, USER, Message, MessageType, new_id
from teamcli.tools.base.context import CallContext, SubAgentTask

STOP_SECONDS = 5.0
FORK = "fork"
LEAVING_SECONDS = 1.5


class SubAgentManager:
    def __init__(
        self, team: ParentTeam, limits: Limits, transcripts: Path, ledger: Ledger, emit: Emit, cancel: CancelScope
    ) -> None:
        """`cancel` is the program's scope."""
        self.limits = limits
        self._team = team
        self._transcripts = transcripts
        self._cancel = cancel
        self._registry = SubAgentRegistry(transcripts, limits.max_unfinished)
        self._runner = SubAgentRunner(team, limits, ledger, emit, cancel)
        self._threads: set[threading.Thread] = set()

    # For tools

    def run(self, parent: str, task: SubAgentTask, call: CallContext) -> str:
        """Run one and return its final text.

        Raises: ToolError, and Cancelled with what it had said so far
        """
        sub, built, _ = self._prepare(parent, task, call.cancel.child(), is_background=False)
        with self._runner.slot_lent(self._registry.get(parent)):
            ending = self._run(sub, built, call.cancel)
        if call.cancel.cancelled and ending.state is State.CANCELLED:
            raise Cancelled(call.cancel.reason, ending.result)
        if ending.state is not State.COMPLETED:
            said = f"\nWhat it had said:\n{ending.result}" if ending.result else ""
            raise ToolError(f"{sub.id} {ending.state}: {ending.error}{said}")
        return ending.result

    def start(self, parent: str, task: SubAgentTask) -> str:
        """Start one in the background, and return what to tell the parent's model.

        Raises: ToolError
        """
        if self.owns(parent):
            raise ToolError(
                "background: a sub-agent ends with its last text, so it must wait for its own; leave it out"
            )
        sub, _ = self._launch(parent, task, None)
        return f"Started {sub.id} in the background. Its end reaches you by itself as a message: do not poll."

    def status(self, parent: str, id: str, wait_seconds: float, cancel: CancelScope) -> str:
        """Describe one, or all that `parent` has started; with a time, wait until one of them has ended.

        Raises: ToolError, Cancelled
        """
        subs = [self._registry.find(id, parent)] if id else self._registry.all(parent)
        self._registry.wait_for_any(subs, wait_seconds, cancel)
        self._wait_for_reported(subs)
        now = time.time()
        if id:
            return describe_whole(subs[0].snapshot(), now)
        return "\n".join(describe(sub.snapshot(), now) for sub in subs) or "(none)"

    def stop(self, parent: str, ids: Iterable[str]) -> str:
        """Stop some; the answer has a line for each."""
        children = {sub.id: sub for sub in self._registry.all(parent)}
        wanted = list(dict.fromkeys(ids))
        subs = [children[id] for id in wanted if id in children]
        self._wait_for_reported(subs)
        running = [sub for sub in subs if sub.stop("stopped by its parent")]
        self._registry.wait_for_all(running, STOP_SECONDS)

        def outcome(sub: SubAgent | None) -> str:
            if sub is None:
                return "unknown"
            if sub not in running:
                return f"had ended before ({sub.state})"
            return str(sub.state) if sub.state.is_final else "is being stopped"

        return "\n".join(f"{id}: {outcome(children.get(id))}" for id in wanted) or "(none)"

    # For the user and the library

    def launch(self, task: SubAgentTask, scope: CancelScope | None) -> tuple[Snapshot, Future[Snapshot]]:
        """Start one for the user, as a child of the lead; returns its state now and in the end.

        It ends with `scope`. Without one it runs in the background, and its end is reported to the lead.

        Raises: ToolError
        """
        sub, ended = self._launch(LEAD, task._replace(by_user=True), scope)
        return sub.snapshot(), ended

    def new_scope(self) -> CancelScope:
        """A scope that is cancelled with the program, if not before."""
        return self._cancel.child()

    def waits_here(self, id: str) -> bool:
        """Whether this sub-agent waits for the function that is calling.

        Raises: ToolError, for an unknown id
        """
        return is_awaited_within(self._registry.find(id).scope)

    @contextmanager
    def waiting_here(self) -> Iterator[None]:
        """If a sub-agent waits for the function that is calling, lend its slot to others inside the block."""
        caller = next((sub for sub in self._registry.all() if is_awaited_within(sub.scope)), None)
        with self._runner.slot_lent(caller):
            yield

    def snapshots(self) -> tuple[Snapshot, ...]:
        return tuple(sub.snapshot() for sub in self._registry.all())

    def snapshot(self, id: str) -> Snapshot:
        """Raises: ToolError, for an unknown id."""
        return self._registry.find(id).snapshot()

    def wait(self, id: str, timeout_seconds: float | None = None) -> Snapshot:
        """Wait until it has ended or the time is up, and return its state.

        Raises: ToolError, for an unknown id
        """
        sub = self._registry.find(id)
        self._registry.wait_for_all([sub], timeout_seconds)
        return sub.snapshot()

    def cancel_one(self, id: str) -> bool:
        """Stop one for the user; false if it had ended.

        Raises: ToolError, for an unknown id
        """
        return self._registry.find(id).stop("stopped by the user", by_user=True)

    def cancel_all(self) -> int:
        """Stop all that run or are pending; returns how many there were."""
        return sum(sub.stop("stopped by the user", by_user=True) for sub in self._registry.all())

    def send(self, id: str, text: str, sender: str = USER) -> str:
        """Send a message that it reads at its next step.

        Raises: ToolError, for an unknown id or one that has ended
        """
        sub = self._registry.find(id)
        if not sub.send(Message(MessageType.MESSAGE, sender, id, text, time.time(), new_id())):
            raise ToolError(f"{id} has ended ({sub.state}) and reads no more messages")
        return f"Sent message to {id}"

    def broadcast(self, text: str, sender: str = USER) -> list[str]:
        """Send to all that run or are pending; returns their ids."""
        reached = [sub.id for sub in self._registry.all() if not sub.state.is_final]
        for id in reached:
            self.send(id, text, sender)
        return reached

    def on_update(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` from its own thread as they progress: at most ten times a second each, and at the end.

        Returns a function that removes it, as `on_end` does.
        """
        return self._runner.updates.subscribe(listener)

    def on_end(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` once for each that has ended, in the thread of that one."""
        return self._runner.on_end.add(listener)

    # For the program

    def owns(self, id: str) -> bool:
        return self._registry.get(id) is not None

    def parent_of(self, id: str) -> str:
        """The lead or teammate that a sub-agent works for; for any other agent, that agent."""
        sub = self._registry.get(id)
        return sub.root if sub else id

    def type_of(self, id: str) -> str:
        """What a sub-agent is, for hooks: its role, or a fork; empty for any other agent."""
        sub = self._registry.get(id)
        return (sub.task.role or FORK) if sub else ""

    def waiting(self) -> tuple[Waiting, ...]:
        """Those that wait for the user."""
        return self._runner.ledger.waiting()

    def running_detached(self) -> list[str]:
        """Those that run while no agent waits for them."""
        return [sub.id for sub in self._registry.all() if sub.is_detached and not sub.state.is_final]

    def agents(self) -> list[Agent]:
        """The agents of all sub-agents of this run. Forgotten ones are summed up in one."""
        return self._registry.agents()

    def report_lost(self) -> None:
        """At start: report to their parents the background sub-agents whose end teamcli could not report.

        Raises: StateError
        """
        self._runner.report_lost(self._transcripts)

    def report_left(self, rows: Iterable[Json]) -> None:
        """Report to their parents those that another host ran.

        Raises: StateError
        """
        self._runner.report_left(map(LedgerEntry.from_row, rows))

    def close(self) -> None:
        """Wait for their threads, which the program's scope has stopped."""
        deadline = time.monotonic() + LEAVING_SECONDS
        for thread in self._threads - {threading.current_thread()}:  # a listener may be the one that closes
            thread.join(max(0.0, deadline - time.monotonic()))
        self._runner.updates.close()

    def _prepare(
        self, parent: str, task: SubAgentTask, scope: CancelScope | None, is_background: bool
    ) -> tuple[SubAgent, BuiltAgent, CancelScope]:
        """Build one, and return it with the scope of its parent. Raises: ToolError."""
        above = self._registry.get(parent)
        if above is None:
            found = self._team.parent(parent)
        else:
            found = Parent(above.built.agent, above.scope) if above.built else None
        if found is None:
            raise ToolError(f"'{parent}' is leaving: no sub-agent can be started for it")
        if above and above.built and not task.role:  # a fork uses paths as its parent writes them
            task = task._replace(cwd=task.cwd or above.built.cwd)
        try:
            with self._registry.reserved_id(parent) as id:
                scope = scope or found.scope.child()
                sub = SubAgent(id, parent, task, scope, is_background, self._runner, above)
                built = self._team.build(sub, found.agent, self._transcripts / f"{id}.jsonl")
                self._runner.register(sub, built)
                self._registry.add(sub)
        except TeamcliError as e:
            raise ToolError(str(e)) from e
        self._runner.emit_state(sub)
        return sub, built, found.scope

    def _launch(self, parent: str, task: SubAgentTask, scope: CancelScope | None) -> tuple[SubAgent, Future[Snapshot]]:
        """Run one in its own thread; without a scope, in the background."""
        sub, built, parent_scope = self._prepare(parent, task, scope, is_background=scope is None)
        ended: Future[Snapshot] = Future()
        ended.set_running_or_notify_cancel()  # only its scope can end it: the future cannot be cancelled

        def run() -> None:
            try:
                self._run(sub, built, parent_scope)
            finally:
                self._threads.discard(thread)
                ended.set_result(sub.snapshot())

        thread = threading.Thread(target=run, name=sub.id, daemon=True)
        self._threads.add(thread)
        thread.start()
        return sub, ended

    def _run(self, sub: SubAgent, built: BuiltAgent, parent_scope: CancelScope) -> Ending:
        try:
            return self._runner.run(sub, built, parent_scope)
        finally:
            self._registry.retire(sub)
            self._team.on_subagent_end()

    def _wait_for_reported(self, subs: Iterable[SubAgent]) -> None:
        """Let those whose end has been reported reach their final state: a parent must not see both."""
        self._registry.wait_for_all([sub for sub in subs if sub.is_ending], STOP_SECONDS)
