"""The sub-agents of a session, as the host program uses them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager

from teamcli.cancel import CancelScope
from teamcli.errors import UsageError
from teamcli.sdk.checks import checked_input, tool_errors_raised
from teamcli.subagents.manager import SubAgentManager
from teamcli.subagents.runner import Limits
from teamcli.subagents.snapshot import Snapshot
from teamcli.tools.agent import AGENT
from teamcli.tools.base.context import SubAgentTask


class SubAgents:
    """All sub-agents, by id (`sa-1`). Usable before the first one is started."""

    def __init__(self, manager: SubAgentManager, check_in_use: Callable[[], object]) -> None:
        """`check_in_use` raises once the session is closed."""
        self._manager = manager
        self._check_in_use = check_in_use

    def run(
        self,
        prompt: str,
        *,
        description: str = "",
        subagent_type: str = "",
        tools: Iterable[str] | None = None,
        model: str = "",
        cwd: str = "",
        background: bool = False,
    ) -> Snapshot:
        """Run a sub-agent on one job and wait for its end; with `background`, return while it works.

        Without a `subagent_type` it is a copy of the lead that knows the lead's conversation. With one (a role, or
        `general`) it knows only the prompt. `tools` names the tools it may use, `cwd` is where it works. The end of a
        background one is reported to the lead with its next turn. The snapshot says how the job went: a failure
        raises nothing. An exception in the waiting thread (Ctrl-C) cancels the sub-agent.

        Raises: UsageError, TeamError
        """
        task = _task_from(prompt, description, subagent_type, tools, model, cwd)
        if background:
            return self._launch(task, None)[0]
        with self._cancelled_on_error() as scope:
            _, ended = self._launch(task, scope)
            with self._manager.waiting_here():
                return ended.result()

    async def run_async(
        self,
        prompt: str,
        *,
        description: str = "",
        subagent_type: str = "",
        tools: Iterable[str] | None = None,
        model: str = "",
        cwd: str = "",
        background: bool = False,
    ) -> Snapshot:
        """`run` for asyncio; cancelling the task cancels the sub-agent."""
        task = _task_from(prompt, description, subagent_type, tools, model, cwd)
        if background:
            return (await asyncio.to_thread(self._launch, task, None))[0]
        with self._cancelled_on_error() as scope:
            _, ended = await asyncio.to_thread(self._launch, task, scope)
            with self._manager.waiting_here():
                return await asyncio.wrap_future(ended)

    def _launch(self, task: SubAgentTask, scope: CancelScope | None) -> tuple[Snapshot, Future[Snapshot]]:
        self._check_in_use()
        with tool_errors_raised():
            return self._manager.launch(task, scope)

    @contextmanager
    def _cancelled_on_error(self) -> Iterator[CancelScope]:
        """A scope for one sub-agent, cancelled if an exception leaves the block, even before the sub-agent starts."""
        scope = self._manager.new_scope()
        try:
            yield scope
        except BaseException:
            scope.cancel("its caller no longer waits for it")
            raise

    @property
    def limits(self) -> Limits:
        """How many may run at once, and how long each, from the settings."""
        return self._manager.limits

    def snapshots(self) -> tuple[Snapshot, ...]:
        """The state of each, in the order in which they were started."""
        return self._manager.snapshots()

    def snapshot(self, id: str) -> Snapshot:
        """Raises: TeamError, for an unknown id."""
        with tool_errors_raised():
            return self._manager.snapshot(id)

    def wait(self, id: str, timeout_seconds: float | None = None) -> Snapshot:
        """Wait until it has ended or the time is up, and return its state.

        Raises: TeamError, for an unknown id; UsageError, in a tool or hook that this sub-agent waits for
        """
        with tool_errors_raised():
            if self._manager.waits_here(id):
                raise UsageError(f"{id} waits for this function, so it cannot wait for {id}")
            with self._manager.waiting_here():
                return self._manager.wait(id, timeout_seconds)

    def cancel(self, id: str) -> bool:
        """Stop one; false if it had ended.

        Raises: TeamError, for an unknown id
        """
        with tool_errors_raised():
            return self._manager.cancel_one(id)

    def cancel_all(self) -> int:
        """Stop all that are running or pending; returns how many there were."""
        return self._manager.cancel_all()

    def send(self, id: str, text: str) -> None:
        """Send a message that it reads at its next step.

        Raises: TeamError, for an unknown id or one that has ended
        """
        with tool_errors_raised():
            self._manager.send(id, text)

    def broadcast(self, text: str) -> list[str]:
        """Send to all that are running or pending; returns their ids."""
        return self._manager.broadcast(text)

    def on_update(self, listener: Callable[[Snapshot], None]) -> Callable[[], None]:
        """Call `listener` as each makes progress: at most ten times a second, and always at the end.

        Returns a function that removes it. A listener that raises is removed.
        """
        return self._manager.on_update(listener)

    def on_end(self, listener: Callable[[Snapshot], None]) -> Callable[[], None]:
        """Call `listener` once for each that has ended. Returns a function that removes it."""
        return self._manager.on_end(listener)


def _task_from(
    prompt: str, description: str, subagent_type: str, tools: Iterable[str] | None, model: str, cwd: str
) -> SubAgentTask:
    given = {"prompt": prompt, "description": description, "subagent_type": subagent_type, "model": model}
    args = checked_input(AGENT, given)
    only = None if tools is None else (tools,) if isinstance(tools, str) else tuple(tools)
    return SubAgentTask(args.prompt, args.description, args.subagent_type, args.model, cwd, only)
