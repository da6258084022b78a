"""Builds sub-agents, and runs them in the thread of their parent or in one of their own."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from pathlib import Path

from teamcli.cancel import CancelScope
from teamcli.errors import TeamcliError, ToolError
from teamcli.subagents.registry import SubAgentRegistry
from teamcli.subagents.runner import Parent, ParentTeam, SubAgentRunner
from teamcli.subagents.snapshot import Snapshot
from teamcli.subagents.subagent import BuiltAgent, Ending, SubAgent
from teamcli.tools.base.context import SubAgentTask


class SubAgentLauncher:
    def __init__(self, team: ParentTeam, transcripts: Path, registry: SubAgentRegistry, runner: SubAgentRunner) -> None:
        self._team = team
        self._transcripts = transcripts
        self._registry = registry
        self._runner = runner
        self._threads: set[threading.Thread] = set()

    def prepare(
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
                self._registry.add(sub)  # inside the block, so that it counts toward the limit at every moment
        except TeamcliError as e:
            raise ToolError(str(e)) from e
        self._runner.emit_state(sub)
        return sub, built, found.scope

    def launch(self, parent: str, task: SubAgentTask, scope: CancelScope | None) -> tuple[SubAgent, Future[Snapshot]]:
        """Run one in its own thread; without a scope, in the background."""
        sub, built, parent_scope = self.prepare(parent, task, scope, is_background=scope is None)
        ended: Future[Snapshot] = Future()
        ended.set_running_or_notify_cancel()  # only its scope can end it: the future cannot be cancelled

        def run() -> None:
            try:
                self.run(sub, built, parent_scope)
            finally:
                self._threads.discard(thread)
                ended.set_result(sub.snapshot())

        thread = threading.Thread(target=run, name=sub.id, daemon=True)
        self._threads.add(thread)
        thread.start()
        return sub, ended

    def run(self, sub: SubAgent, built: BuiltAgent, parent_scope: CancelScope) -> Ending:
        try:
            return self._runner.run(sub, built, parent_scope)
        finally:
            self._registry.retire(sub)
            self._team.on_subagent_end()

    def join(self, timeout_seconds: float) -> None:
        """Wait for the threads, which the program's scope has stopped."""
        deadline = time.monotonic() + timeout_seconds
        for thread in self._threads - {threading.current_thread()}:  # a listener may be the one that closes
            thread.join(max(0.0, deadline - time.monotonic()))
