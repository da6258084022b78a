"""The sub-agents of a program, as the user, the library and the program use them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

from teamcli.agent.events import Emit
from teamcli.agent.loop import Agent
from teamcli.cancel import CancelScope, is_awaited_within
from teamcli.errors import ToolError
from teamcli.storage.files import Json
from teamcli.subagents.launcher import SubAgentLauncher
from teamcli.subagents.ledger import Ledger, LedgerEntry, Waiting
from teamcli.subagents.registry import SubAgentRegistry
from teamcli.subagents.runner import Limits, ParentTeam, SubAgentRunner
from teamcli.subagents.snapshot import Snapshot
from teamcli.subagents.tools import SubAgentTools
from teamcli.subagents.updates import Listener
from teamcli.team.message import LEAD, USER, Message, MessageType, new_id
from teamcli.tools.base.context import SubAgentTask

FORK = "fork"
LEAVING_SECONDS = 1.5


class SubAgentManager:
    def __init__(
        self, team: ParentTeam, limits: Limits, transcripts: Path, ledger: Ledger, emit: Emit, cancel: CancelScope
    ) -> None:
        """`cancel` is the program's scope."""
        self.limits = limits
        self._transcripts = transcripts
        self._cancel = cancel
        self._registry = SubAgentRegistry(transcripts, limits.max_unfinished)
        self._runner = SubAgentRunner(team, limits, ledger, emit, cancel)
        self._launcher = SubAgentLauncher(team, transcripts, self._registry, self._runner)
        self.tools = SubAgentTools(self._registry, self._runner, self._launcher)

    # For the user and the library

    def launch(self, task: SubAgentTask, scope: CancelScope | None) -> tuple[Snapshot, Future[Snapshot]]:
        """Start one for the user, as a child of the lead; returns its state now and in the end.

        It ends with `scope`. Without one it runs in the background, and its end is reported to the lead.

        Raises: ToolError
        """
        sub, ended = self._launcher.launch(LEAD, task._replace(by_user=True), scope)
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
        self._launcher.join(LEAVING_SECONDS)
        self._runner.updates.close()
