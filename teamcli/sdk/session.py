"""`Session`: a lead and its team, used by another program.

It leaves that program alone: no signal handlers, and no change of its directory, environment, logging or garbage
collector. Any number of sessions can be open at once, in different directories, and each can be used from any thread.
"""

from __future__ import annotations

import asyncio
import logging
import os
import weakref
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping
from concurrent.futures import CancelledError
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from teamcli.agent.events import Event, Outcome, PermissionDenied, TurnEnded
from teamcli.app.choices import untrusted_notes
from teamcli.app.host_program import Embedding
from teamcli.cancel import is_awaited_within
from teamcli.config.options import Options
from teamcli.errors import UsageError
from teamcli.llm.host_model import model_factory
from teamcli.llm.langchain import LangChainModels
from teamcli.llm.types import LLM, Usage
from teamcli.permissions.policy import Mode
from teamcli.sdk.arguments import as_hooks, as_rules, as_tools, check_options, find_project, open_running
from teamcli.sdk.callbacks import ApprovalCallback, Ask, EventListeners
from teamcli.sdk.closer import SessionCloser
from teamcli.sdk.submission import LEAVING_SECONDS, Submission
from teamcli.session.session import Session as RunningSession
from teamcli.team.message import LEAD, USER
from teamcli.team.requests import Kind
from teamcli.team.requests import Request as PlanRequest
from teamcli.team.roster import Member

if TYPE_CHECKING:
    from teamcli.commands.reports.inbox import Mail
    from teamcli.hooks.functions import Hook
    from teamcli.sdk.subagents import SubAgents
    from teamcli.sdk.tasks import Tasks
    from teamcli.worktrees.merge import Merged

logging.getLogger("teamcli").addHandler(logging.NullHandler())  # the host program decides where our log goes


class Result(NamedTuple):
    """The result of one task."""

    text: str
    """The lead's last answer."""
    outcome: Outcome
    error: Exception | None
    """Why it failed, if it did."""
    usage: Usage
    """The usage of all agents for this task."""
    cost_usd: float | None
    """None if the price of a model is unknown."""
    denials: tuple[PermissionDenied, ...]
    """The tool calls that were refused."""
    waiting: tuple[str, ...]
    """What still waits for an answer, such as plans to review."""

    @property
    def is_done(self) -> bool:
        return self.outcome is Outcome.DONE


class _Totals(NamedTuple):
    """Usage and refusals up to a moment."""

    usage: Usage
    spent_usd: float
    denials: int


class Session:
    """A lead and its team. Close it, or use it in a `with` block."""

    def __init__(
        self,
        directory: str | os.PathLike[str] = ".",
        *,
        model: str | None = None,
        llm: LLM | Callable[[], LLM] | None = None,
        tools: Iterable[Any] = (),
        hooks: Iterable[Hook] = (),
        ask: Ask | None = None,
        permission_mode: Mode | str | None = None,
        allowed_tools: str | Iterable[str] = (),
        disallowed_tools: str | Iterable[str] = (),
        max_turns: int | None = None,
        max_budget_usd: float | None = None,
        append_system_prompt: str = "",
        api_key: str = "",
        base_url: str = "",
        offline: bool = False,
        trust: bool = False,
        team: bool | str = True,
        continue_: bool = False,
        resume: str | None = None,
        add_dirs: Iterable[str | os.PathLike[str]] = (),
        settings: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """The options are those of the command line; see docs/library.md.

        Raises: ConfigError, UsageError
        """
        options = Options(
            headless=True,
            model=model or (llm.model_name if isinstance(llm, LangChainModels) else "") or None,
            permission_mode=permission_mode,
            allowed_tools=as_rules(allowed_tools),
            disallowed_tools=as_rules(disallowed_tools),
            max_turns=max_turns,
            max_budget_usd=max_budget_usd,
            continue_last=continue_,
            resume=resume,
            append_system_prompt=append_system_prompt,
            offline=offline,
            trust=trust,
            add_dirs=tuple(map(Path, add_dirs)),
            no_team=team is False,
            team=team if isinstance(team, str) else "",
        )
        check_options(options)
        embedding = Embedding(model_factory(llm), as_tools(tools), as_hooks(hooks), settings)
        project = find_project(directory, trust, api_key, base_url)
        approval = ApprovalCallback(ask) if ask is not None else None
        model_notes = llm.notes if isinstance(llm, LangChainModels) else ()
        self._session = open_running(options, project, approval, embedding)
        self._listeners = EventListeners(self._session.events)
        self._closer = SessionCloser(self._session, self._listeners, *([approval] if approval else []))
        # If the program forgets to close it, the garbage collector or the end of the interpreter does.
        self._finalizer = weakref.finalize(self, self._closer.abandon)
        self.notes: tuple[str, ...] = (*self._session.record.notes, *untrusted_notes(project), *model_notes)
        """Remarks on how this session was set up, for the user."""

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, *error: object) -> None:
        await asyncio.to_thread(self.close)

    # Working

    def submit(self, text: str) -> Generator[Event, None, None]:
        """Send the lead a line, and iterate over everything that happens until the end of the lead's turn.

        The line has been sent when this returns. Closing the iterator, as leaving the loop does, interrupts the turn.

        Raises: UsageError, for an empty text and once the session is closed
        """
        events: SimpleQueue[Event | None] = SimpleQueue()
        return self._events(self._begin(text, events.put), events)

    async def submit_async(self, text: str) -> AsyncGenerator[Event, None]:
        """`submit` for asyncio. The line is sent at the first step; cancelling the task interrupts the turn."""
        loop, events = asyncio.get_running_loop(), asyncio.Queue[Event | None]()

        def put(event: Event | None) -> None:
            with suppress(RuntimeError):  # the loop has ended, so no one is listening
                loop.call_soon_threadsafe(events.put_nowait, event)

        turn = self._begin(text, put)
        try:
            while (event := await events.get()) is not None:
                yield event
            await asyncio.to_thread(self._listeners.flush, LEAVING_SECONDS)
        finally:
            if turn.abandon():
                await asyncio.wait([asyncio.wrap_future(turn.ended)], timeout=LEAVING_SECONDS)

    def run(self, text: str) -> Result:
        """Give the lead a task and wait until the whole team is idle, as `teamcli -p` does.

        Raises: UsageError, once the session is closed, and in a tool or hook of this session
        """
        self._check_not_awaited()
        before = self._totals()
        turn = self._begin(text, lambda event: None)
        try:
            ended = turn.ended.result()
        except CancelledError as e:
            raise UsageError("the session was closed before the task started") from e
        except BaseException:
            turn.abandon()
            raise
        self.wait()
        # Results of teammates may have woken the lead again: its last answer counts.
        return self._result(before, self._session.lead.last or ended)

    async def run_async(self, text: str) -> Result:
        """`run` for asyncio; cancelling the task interrupts the turn.

        Raises: UsageError, once the session is closed, and in a tool or hook of this session
        """
        self._check_not_awaited()
        before, ended = self._totals(), None
        async for event in self.submit_async(text):
            ended = event
        await self.wait_async()
        return self._result(before, self._session.lead.last or cast(TurnEnded, ended))

    def interrupt(self) -> bool:
        """End the lead's turn, from any thread; false if it was idle. Teammates continue."""
        return self._session.interrupt()

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait until every agent is idle and has no mail to act on, or the time is up; whether they are.

        Raises: UsageError, in a tool or hook of this session
        """
        self._check_not_awaited()
        is_idle = self._session.team.quiescence.wait_until_idle(self._session.cancel, timeout_seconds)
        self._listeners.flush(LEAVING_SECONDS)
        return is_idle

    async def wait_async(self, timeout_seconds: float | None = None) -> bool:
        """`wait` for asyncio."""
        self._check_not_awaited()
        scope = self._session.cancel.child()  # lets the thread that waits end if our task is cancelled
        try:
            is_idle = await asyncio.to_thread(self._session.team.quiescence.wait_until_idle, scope, timeout_seconds)
            await asyncio.to_thread(self._listeners.flush, LEAVING_SECONDS)
            return is_idle
        finally:
            scope.cancel("the wait was cancelled")

    # The team

    def send(self, name: str, text: str) -> None:
        """Send a message as the user to a teammate, or to a sub-agent by its id, which reads it at its next step.

        Raises: TeamError, listing the possible recipients; PromptBlocked, by a hook; UsageError, once the session is
        closed
        """
        session = self._in_use()
        if session.subagents is not None and session.subagents.owns(name):
            self.agents.send(name, text)
        else:
            session.say(name, text)

    @property
    def team(self) -> tuple[Member, ...]:
        """The teammates and their state."""
        return self._session.team.roster.members()

    def spawn(
        self,
        name: str,
        role: str,
        prompt: str,
        *,
        model: str = "",
        tools: Iterable[str] | None = None,
        plan: bool = False,
        worktree: bool = False,
        claims: bool = False,
        host: str = "",
    ) -> Member:
        """Start a teammate, or give an idle one its next task. Returns while it works.

        `tools` names the tools it may use. With `plan`, it changes nothing until its plan is approved. With `worktree`,
        it works in its own checkout of the repository. With `claims`, it takes free tasks from the board whenever it is
        idle. `host` is where it starts, of a team in a database: the name of a host, or `any`.

        Raises: UsageError; TeamError, for an invalid name or a teammate that is working; StateError
        """
        from teamcli.sdk.checks import checked_input, tool_errors_raised
        from teamcli.tools.base.context import SpawnRequest
        from teamcli.tools.spawn_teammate import SPAWN_TEAMMATE

        session = self._in_use()
        if not session.has_team_tools:
            raise UsageError("this session has no team: open it without team=False")
        only = None if tools is None else [tools] if isinstance(tools, str) else list(tools)
        given = {"name": name, "role": role, "prompt": prompt, "model": model, "tools": only, "plan": plan}
        args = checked_input(SPAWN_TEAMMATE, {**given, "worktree": worktree, "claims": claims, "host": host})
        with tool_errors_raised():
            chosen = None if only is None else args.tools
            request = SpawnRequest(args.name, args.role, args.prompt, args.model, chosen, args.plan, args.worktree)
            session.team.spawn(request._replace(claims=args.claims, host=args.host, by_user=True))
        return session.team.roster.get(name)

    def stop(self, name: str) -> bool:
        """Interrupt a teammate, the lead or a sub-agent, as `/stop` does; false if it was idle.

        A teammate keeps its memory, and continues with `resume` or a message. A sub-agent ends.

        Raises: TeamError
        """
        session = self._in_use()
        if session.subagents is not None and session.subagents.owns(name):
            return self.agents.cancel(name)
        return session.interrupt() if name.casefold() == LEAD else session.team.interrupt(name)

    def pause(self, name: str) -> Member:
        """Interrupt a teammate. Only `resume` or a message from you wakes it.

        Raises: TeamError
        """
        return self._after(name, self._in_use().team.pause)

    def resume(self, name: str) -> Member:
        """Resume a paused or interrupted teammate. If its budget is used up, it stays paused, and `limit` says why.

        Raises: TeamError
        """
        return self._after(name, self._in_use().team.resume)

    def shutdown(self, name: str, reason: str = "") -> Member:
        """Ask a teammate to shut down, as `/shutdown` does. An idle one is shut down when this returns. A working one
        answers when it can, so the returned status is still `working`. A second request stops it at once.

        Raises: TeamError
        """
        return self._after(name, lambda name: self._in_use().team.protocols.request_shutdown(USER, name, reason))

    def merge(self, name: str, message: str = "") -> Merged:
        """Merge the branch of an idle teammate that works in a worktree into the branch that is checked out, as
        `/merge` does. `message` is for what it has not committed. Returns what was merged.

        Raises: TeamError, with the reason; nothing has changed then, and a conflict or a failed gate is reported to the
        teammate; StateError
        """
        from teamcli.sdk.checks import tool_errors_raised

        session = self._in_use()
        with tool_errors_raised():
            return session.team.merging.run(USER, name, message, session.cancel.child(), lambda text: None)

    @property
    def plans(self) -> tuple[PlanRequest, ...]:
        """The plans that wait for `approve` or `reject`, oldest first. Each has an `id`, a `teammate` and a `text`."""
        return self._session.team.roster.requests.all_open(kind=Kind.PLAN)

    def approve(self, request_id: str, feedback: str = "") -> None:
        """Approve a plan. Its teammate continues, and may run commands and change files.

        Raises: TeamError, if it has been answered or is void
        """
        self._in_use().team.protocols.review_plan(USER, request_id, True, feedback)

    def reject(self, request_id: str, feedback: str = "") -> None:
        """Reject a plan; `feedback` says what should change.

        Raises: TeamError, if it has been answered or is void
        """
        self._in_use().team.protocols.review_plan(USER, request_id, False, feedback)

    def inbox(self, name: str = LEAD) -> tuple[Mail, ...]:
        """All messages to the lead or a teammate, oldest first, read and unread. Consumes nothing.

        Raises: TeamError, StateError
        """
        from teamcli.commands.reports.inbox import inbox_of

        return tuple(inbox_of(self._in_use(), name))

    @property
    def agents(self) -> SubAgents:
        """The sub-agents."""
        from teamcli.sdk.subagents import SubAgents

        return SubAgents(self._session.subagent_source.open(self._session.team), self._in_use)

    @property
    def tasks(self) -> Tasks:
        """The task board."""
        from teamcli.sdk.tasks import Tasks

        return Tasks(self._session.board.open(), self._in_use)

    def subscribe(self, listener: Callable[[Any], object], *kinds: type[Event]) -> Callable[[], None]:
        """Call `listener` with every event, or with those of these kinds. Returns a function that removes it.

        Listeners run in a separate thread, one event after the other, and may use the session. One that raises is
        removed. When `run`, `wait` or a loop over `submit` ends, they have received everything up to that point.
        """
        return self._listeners.add(listener, *kinds)

    # What it is, and what it has used

    @property
    def id(self) -> str:
        """Pass it as `resume` to continue this session."""
        return self._session.id

    @property
    def directory(self) -> Path:
        return self._session.workspace.root

    @property
    def model(self) -> str:
        return self._session.model

    @property
    def usage(self) -> Usage:
        """The usage of all agents so far."""
        return self._session.usage

    @property
    def cost_usd(self) -> float | None:
        """None if the price of a model is unknown."""
        budget = self._session.budget
        return budget.spent_usd if budget.is_known else None

    def close(self) -> None:
        """Stop all agents and wait for them. Closing again does nothing."""
        self._finalizer.detach()
        self._closer.close()

    def _in_use(self) -> RunningSession:
        """Raises: UsageError, once it is closed."""
        if self._closer.is_closed:
            raise UsageError("the session is closed: open a new one")
        return self._session

    def _after(self, name: str, act: Callable[[str], object]) -> Member:
        """Act on a teammate, and return its new state."""
        act(name)
        return self._session.team.roster.get(name)

    def _check_not_awaited(self) -> None:
        """Raises: UsageError, if an agent waits for the function that is calling: both would wait forever."""
        if is_awaited_within(self._session.cancel):
            raise UsageError("an agent of this session waits for this function, so it cannot wait for them: use send()")

    def _begin(self, text: str, put: Callable[[Event | None], None]) -> Submission:
        if not text.strip():
            raise UsageError("the text is empty: say what to do")
        return Submission(self._in_use(), text, put)

    def _events(self, turn: Submission, events: SimpleQueue[Event | None]) -> Generator[Event, None, None]:
        try:  # this frame holds `self`: the session is not collected while someone iterates
            while (event := events.get()) is not None:
                yield event
            self._listeners.flush(LEAVING_SECONDS)
        finally:
            if turn.abandon():
                turn.wait()

    def _totals(self) -> _Totals:
        session = self._session
        return _Totals(session.usage, session.budget.spent_usd, len(session.record.denials))

    def _result(self, before: _Totals, ended: TurnEnded) -> Result:
        after, session = self._totals(), self._session
        return Result(
            ended.text,
            ended.outcome,
            ended.error,
            after.usage - before.usage,
            after.spent_usd - before.spent_usd if session.budget.is_known else None,
            tuple(session.record.denials[before.denials :]),
            (*session.team.protocols.open_requests(), *session.team.agents.waiting_for_room),
        )
