"""What the tools of agents do with sub-agents. `parent` is the agent that calls."""

from __future__ import annotations

import time
from collections.abc import Iterable

from teamcli.cancel import CancelScope
from teamcli.errors import Cancelled, ToolError
from teamcli.subagents.describe import describe, describe_whole
from teamcli.subagents.launcher import SubAgentLauncher
from teamcli.subagents.registry import SubAgentRegistry
from teamcli.subagents.runner import SubAgentRunner
from teamcli.subagents.snapshot import State
from teamcli.subagents.subagent import SubAgent
from teamcli.tools.base.context import CallContext, SubAgentTask

STOP_SECONDS = 5.0


class SubAgentTools:
    def __init__(self, registry: SubAgentRegistry, runner: SubAgentRunner, launcher: SubAgentLauncher) -> None:
        self._registry = registry
        self._runner = runner
        self._launcher = launcher

    def run(self, parent: str, task: SubAgentTask, call: CallContext) -> str:
        """Run one and return its final text.

        Raises: ToolError, and Cancelled with what it had said so far
        """
        sub, built, _ = self._launcher.prepare(parent, task, call.cancel.child(), is_background=False)
        with self._runner.slot_lent(self._registry.get(parent)):
            ending = self._launcher.run(sub, built, call.cancel)
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
        if self._registry.get(parent) is not None:
            raise ToolError(
                "background: a sub-agent ends with its last text, so it must wait for its own; leave it out"
            )
        sub, _ = self._launcher.launch(parent, task, None)
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

    def _wait_for_reported(self, subs: Iterable[SubAgent]) -> None:
        """Let those whose end has been reported reach their final state: a parent must not see both."""
        self._registry.wait_for_all([sub for sub in subs if sub.is_ending], STOP_SECONDS)
