"""The sub-agents of a session, as the host program starts, sees and steers them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager

from teamcli.cancel import CancelScope
from teamcli.errors import UsageError
from teamcli.sdk.refusal import checked_input, refusals_raised
from teamcli.subagents.manager import SubAgentManager
from teamcli.subagents.runner import Limits
from teamcli.subagents.snapshot import Snapshot
from teamcli.tools.agent import AGENT
from teamcli.tools.base.context import SubAgentTask


class SubAgents:
    """All of them, by their ids (`sa-1`). Everything here can be used before the first was started."""

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
        """Have a sub-agent do one job: wait for its end, or with `background` return while it works.

        Without a `subagent_type` it is a copy of the lead that knows the lead's conversation; with one (a role, or
        `general`) it knows only the prompt. `tools` are the names of those that it may use, `cwd` is where it works.
        The lead reads of the end of a background one with its next turn. How a job went is in the snapshot: one that
        failed raises nothing. An exception in the waiting thread (Ctrl-C) cancels it.

        Raises: UsageError, TeamError
        """
        task = _errand(prompt, description, subagent_type, tools, model, cwd)
        if background:
            return self._launch(task, None)[0]
        with self._given_up_on_error() as scope:
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
        """The same for asyncio; cancelling the task cancels the sub-agent."""
        task = _errand(prompt, description, subagent_type, tools, model, cwd)
        if background:
            return (await asyncio.to_thread(self._launch, task, None))[0]
        with self._given_up_on_error() as scope:
            _, ended = await asyncio.to_thread(self._launch, task, scope)
            with self._manager.waiting_here():
                return await asyncio.wrap_future(ended)

    def _launch(self, task: SubAgentTask, scope: CancelScope | None) -> tuple[Snapshot, Future[Snapshot]]:
        self._check_in_use()
        with refusals_raised():
            return self._manager.launch(task, scope)

    @contextmanager
    def _given_up_on_error(self) -> Iterator[CancelScope]:
        """The scope of one that nobody wants if an exception leaves the block; it may not even have started by then."""
        scope = self._manager.new_scope()
        try:
            yield scope
        except BaseException:
            scope.cancel("nobody waits for it")
            raise

    @property
    def limits(self) -> Limits:
        """How many may run at once and how long each, as the settings say."""
        return self._manager.limits

    def snapshots(self) -> tuple[Snapshot, ...]:
        """How each stands, in the order in which they were started."""
        return self._manager.snapshots()

    def snapshot(self, id: str) -> Snapshot:
        """Raises: TeamError, for an unknown id."""
        with refusals_raised():
            return self._manager.snapshot(id)

    def wait(self, id: str, timeout_seconds: float | None = None) -> Snapshot:
        """Wait until it has ended or the time is up; how it stands then.

        Raises: TeamError, for an unknown id; UsageError, in a tool or hook that this one waits for
        """
        with refusals_raised():
            if self._manager.waits_here(id):
                raise UsageError(f"{id} waits for this function, which cannot wait for it")
            with self._manager.waiting_here():
                return self._manager.wait(id, timeout_seconds)

    def cancel(self, id: str) -> bool:
        """End one; false where it had ended before.

        Raises: TeamError, for an unknown id
        """
        with refusals_raised():
            return self._manager.cancel_one(id)

    def cancel_all(self) -> int:
        """End all that run or wait; how many there were."""
        return self._manager.cancel_all()

    def send(self, id: str, text: str) -> None:
        """A message that it reads at its next step.

        Raises: TeamError, for an unknown id or one that has ended
        """
        with refusals_raised():
            self._manager.send(id, text)

    def broadcast(self, text: str) -> list[str]:
        """The same for all that run or wait; the ids that were reached."""
        return self._manager.broadcast(text)

    def on_update(self, listener: Callable[[Snapshot], None]) -> Callable[[], None]:
        """Call it as each comes along: at most ten times a second, and always at the end.

        Call what this returns to remove the listener. One that raises is removed.
        """
        return self._manager.on_update(listener)

    def on_end(self, listener: Callable[[Snapshot], None]) -> Callable[[], None]:
        """Call it once for each that has ended; remove it as with `on_update`."""
        return self._manager.on_end(listener)


def _errand(
    prompt: str, description: str, subagent_type: str, tools: Iterable[str] | None, model: str, cwd: str
) -> SubAgentTask:
    given = {"prompt": prompt, "description": description, "subagent_type": subagent_type, "model": model}
    args = checked_input(AGENT, given)
    only = None if tools is None else (tools,) if isinstance(tools, str) else tuple(tools)
    return SubAgentTask(args.prompt, args.description, args.subagent_type, args.model, cwd, only)
