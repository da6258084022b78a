"""`Session`: a lead and its team in the hands of another program.

It leaves that program alone: no signal handlers, no change of directory, environment, log or garbage collector. Any
number of sessions can be open at once, in different directories, and each can be used from any thread.
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
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from teamcli.agent.events import Event, Outcome, PermissionDenied, TurnEnded
from teamcli.app.build import untrusted_notes
from teamcli.app.embedding import Embedding
from teamcli.cancel import is_awaited_within
from teamcli.config.options import Options
from teamcli.errors import UsageError
from teamcli.llm.langchain import LangChainModels
from teamcli.llm.own_model import model_factory
from teamcli.llm.types import LLM, Usage
from teamcli.permissions.policy import Mode
from teamcli.sdk.asker import Ask, Asker
from teamcli.sdk.closing import Closing
from teamcli.sdk.listeners import Listeners
from teamcli.sdk.opening import (
    above_zero,
    as_tools,
    at_least_one,
    checked_hooks,
    mode_of,
    open_running,
    place_of,
    rules_of,
)
from teamcli.sdk.turn import LEAVING_SECONDS, Turn
from teamcli.session.session import LEAD
from teamcli.session.session import Session as Running
from teamcli.team.message import USER
from teamcli.team.requests import Kind
from teamcli.team.requests import Request as PlanRequest
from teamcli.team.roster import Member

if TYPE_CHECKING:
    from teamcli.commands.reports.inbox import Mail
    from teamcli.hooks.functions import Hook
    from teamcli.sdk.subagents import SubAgents

logging.getLogger("teamcli").addHandler(logging.NullHandler())  # what is logged goes where the host program sends it


class Result(NamedTuple):
    """What came of one task."""

    text: str
    """The lead's last answer."""
    outcome: Outcome
    error: Exception | None
    """Why it failed, where it did."""
    usage: Usage
    """What all agents have used for it."""
    cost_usd: float | None
    """None where the price of a model is not known."""
    denials: tuple[PermissionDenied, ...]
    """The calls that were refused."""
    waiting: tuple[str, ...]
    """What still waits for somebody: plans to be reviewed, say."""

    @property
    def is_done(self) -> bool:
        return self.outcome is Outcome.DONE


class _Books(NamedTuple):
    """What was used and refused up to a moment."""

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
        team: bool = True,
        continue_: bool = False,
        resume: str | None = None,
        add_dirs: Iterable[str | os.PathLike[str]] = (),
        settings: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """Options are those of the command line; docs/library.md has them all.

        Raises: ConfigError, UsageError
        """
        if continue_ and resume is not None:
            raise UsageError("continue_ and resume exclude each other")
        options = Options(
            headless=True,
            model=model or (llm.model_name if isinstance(llm, LangChainModels) else "") or None,
            permission_mode=mode_of(permission_mode),
            allowed_tools=rules_of(allowed_tools),
            disallowed_tools=rules_of(disallowed_tools),
            max_turns=at_least_one(max_turns),
            max_budget_usd=above_zero(max_budget_usd),
            continue_last=continue_,
            resume=resume,
            append_system_prompt=append_system_prompt,
            offline=offline,
            trust=trust,
            add_dirs=tuple(map(Path, add_dirs)),
            no_team=not team,
        )
        embedding = Embedding(model_factory(llm), as_tools(tools), checked_hooks(hooks), settings)
        place = place_of(directory, trust, api_key, base_url)
        asker = Asker(ask) if ask is not None else None
        model_notes = llm.notes if isinstance(llm, LangChainModels) else ()
        self._running = open_running(options, place, asker, embedding)
        self._listeners = Listeners(self._running.events)
        self._closing = Closing(self._running, self._listeners, asker)
        self._finalizer = weakref.finalize(self, self._closing.abandon)
        self.notes: tuple[str, ...] = (*self._running.notes, *untrusted_notes(place), *model_notes)
        """What one should know about how this session was set up."""

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    # Working

    def submit(self, text: str) -> Generator[Event, None, None]:
        """Give the lead a line; what happens from now on, as it happens, up to the end of the lead's turn.

        The line is on its way when this returns. Closing the iterator (leaving the loop does) interrupts the turn.

        Raises: UsageError, for an empty text and once the session is closed
        """
        events: SimpleQueue[Event | None] = SimpleQueue()
        return self._events(self._begin(text, events.put), events)

    async def submit_async(self, text: str) -> AsyncGenerator[Event, None]:
        """The same for asyncio. The line is sent with the first step; cancelling the task interrupts the turn."""
        loop, events = asyncio.get_running_loop(), asyncio.Queue[Event | None]()

        def put(event: Event | None) -> None:
            with suppress(RuntimeError):  # the loop has ended, and nobody listens any more
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
        """Give the lead a task and wait until nobody has anything left to do, as `teamcli -p` does.

        Raises: UsageError, once the session is closed, and in a tool or hook of this session
        """
        self._check_nobody_waits_here()
        before = self._books()
        turn = self._begin(text, lambda event: None)
        try:
            ended = turn.ended.result()
        except CancelledError as e:
            raise UsageError("the session was closed before the task was begun") from e
        except BaseException:
            turn.abandon()
            raise
        self.wait()
        return self._result(before, self._running.lead.last or ended)

    async def run_async(self, text: str) -> Result:
        """The same for asyncio; cancelling the task interrupts the turn.

        Raises: UsageError, once the session is closed, and in a tool or hook of this session
        """
        self._check_nobody_waits_here()
        before, ended = self._books(), None
        async for event in self.submit_async(text):
            ended = event
        await self.wait_async()
        return self._result(before, self._running.lead.last or cast(TurnEnded, ended))

    def interrupt(self) -> bool:
        """End the lead's turn, from any thread; false when it was at rest. Teammates go on."""
        return self._running.interrupt()

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait until no agent works or has mail to act on, or the time is up; whether all rest.

        Raises: UsageError, in a tool or hook of this session
        """
        self._check_nobody_waits_here()
        is_quiet = self._running.team.wait_until_quiet(self._running.cancel, timeout_seconds)
        self._listeners.flush(LEAVING_SECONDS)
        return is_quiet

    async def wait_async(self, timeout_seconds: float | None = None) -> bool:
        """The same for asyncio."""
        self._check_nobody_waits_here()
        scope = self._running.cancel.child()
        try:
            is_quiet = await asyncio.to_thread(self._running.team.wait_until_quiet, scope, timeout_seconds)
            await asyncio.to_thread(self._listeners.flush, LEAVING_SECONDS)
            return is_quiet
        finally:
            scope.cancel("nobody waits for this")

    # The team

    def send(self, name: str, text: str) -> None:
        """A message of the user's to a teammate, or to a sub-agent by its id, which reads it at its next step.

        Raises: TeamError, naming those who can be written to; PromptBlocked, by a hook; UsageError, once the session is
        closed
        """
        running = self._in_use()
        if running.subagents is not None and running.subagents.owns(name):
            self.agents.send(name, text)
        else:
            running.say(name, text)

    @property
    def team(self) -> tuple[Member, ...]:
        """Who is in the team, and how each stands."""
        return self._running.team.roster.members()

    def spawn(
        self,
        name: str,
        role: str,
        prompt: str,
        *,
        model: str = "",
        tools: Iterable[str] | None = None,
        plan: bool = False,
    ) -> Member:
        """Start a teammate, or give an idle one its next task; it works while this returns.

        `tools` are the names of those that it may use, `plan` keeps it from writing until a plan of its is approved.

        Raises: UsageError; TeamError, for a name that nobody may have or a teammate that works; StateError
        """
        from teamcli.sdk.refusal import checked_input, refusals_raised
        from teamcli.tools.spawn_teammate import SPAWN_TEAMMATE

        running = self._in_use()
        if not running.has_team_tools:
            raise UsageError("this session has no team: open it without team=False")
        only = None if tools is None else [tools] if isinstance(tools, str) else list(tools)
        given = {"name": name, "role": role, "prompt": prompt, "model": model, "tools": only, "plan": plan}
        args = checked_input(SPAWN_TEAMMATE, given)
        with refusals_raised():
            chosen = None if only is None else args.tools
            running.team.spawn(args.name, args.role, args.prompt, args.model, chosen, args.plan, by_user=True)
        return running.team.roster.get(name)

    def stop(self, name: str) -> bool:
        """End what a teammate, the lead or a sub-agent is doing, as `/stop` does; false if it was idle.

        A teammate keeps its memory: `resume` or a message lets it continue. A sub-agent has ended then.

        Raises: TeamError
        """
        running = self._in_use()
        if running.subagents is not None and running.subagents.owns(name):
            return self.agents.cancel(name)
        return running.interrupt() if name.casefold() == LEAD else running.team.interrupt(name)

    def pause(self, name: str) -> Member:
        """End what a teammate is doing; nothing but `resume` or a message of yours wakes it.

        Raises: TeamError
        """
        return self._after(name, self._in_use().team.pause)

    def resume(self, name: str) -> Member:
        """Let a paused or interrupted teammate continue. It stays paused (`limit` says why) if its budget is used up.

        Raises: TeamError
        """
        return self._after(name, self._in_use().team.resume)

    def shutdown(self, name: str, reason: str = "") -> Member:
        """Ask a teammate to shut down, as `/shutdown` does. An idle one is shut down when this returns; a working one
        answers when it can, and is still `working` in what this returns. A repeat stops it at once.

        Raises: TeamError
        """
        return self._after(name, lambda name: self._in_use().team.request_shutdown(USER, name, reason))

    @property
    def plans(self) -> tuple[PlanRequest, ...]:
        """The plans that wait for `approve` or `reject`, oldest first; each has an `id`, a `teammate` and a `text`."""
        return self._running.team.roster.requests.standing(kind=Kind.PLAN)

    def approve(self, request_id: str, feedback: str = "") -> None:
        """Approve a plan: its teammate continues, and may run commands and change files.

        Raises: TeamError, if it was answered before, or is void
        """
        self._in_use().team.review_plan(USER, request_id, True, feedback)

    def reject(self, request_id: str, feedback: str = "") -> None:
        """Reject a plan, and say what should differ.

        Raises: TeamError, if it was answered before, or is void
        """
        self._in_use().team.review_plan(USER, request_id, False, feedback)

    def inbox(self, name: str = LEAD) -> tuple[Mail, ...]:
        """All messages to the lead or a teammate, oldest first, read or not. Looking consumes nothing.

        Raises: TeamError, StateError
        """
        from teamcli.commands.reports.inbox import inbox_of

        return tuple(inbox_of(self._in_use(), name))

    @property
    def agents(self) -> SubAgents:
        """The sub-agents."""
        from teamcli.sdk.subagents import SubAgents

        assert self._running.have_subagents is not None
        return SubAgents(self._running.have_subagents(), self._in_use)

    def subscribe(self, listener: Callable[[Any], object], *kinds: type[Event]) -> Callable[[], None]:
        """Call `listener` with every event, or only with those of these kinds; call what this returns to remove it.

        Listeners run in a thread of their own, one event after the other, and may use the session as they like. One
        that raises is removed. When `run`, `wait` or a loop over `submit` ends, they have heard what happened so far.
        """
        return self._listeners.add(listener, *kinds)

    # What it is and has used

    @property
    def id(self) -> str:
        """By which `resume` finds it again."""
        return self._running.id

    @property
    def directory(self) -> Path:
        return self._running.workspace.root

    @property
    def model(self) -> str:
        return self._running.model

    @property
    def usage(self) -> Usage:
        """What all agents have used so far."""
        return self._running.usage

    @property
    def cost_usd(self) -> float | None:
        """None where the price of a model is not known."""
        budget = self._running.budget
        return budget.spent_usd if budget.is_known else None

    def close(self) -> None:
        """End everything at once and in order, and wait for it. A repeat does nothing."""
        self._finalizer.detach()
        self._closing.close()

    # Inside

    def _in_use(self) -> Running:
        """Raises: UsageError, once it is closed."""
        if self._closing.is_closed:
            raise UsageError("the session is closed: open another")
        return self._running

    def _after(self, name: str, act: Callable[[str], object]) -> Member:
        """How a teammate stands after something was done to it."""
        act(name)
        return self._running.team.roster.get(name)

    def _check_nobody_waits_here(self) -> None:
        """Raises: UsageError, where an agent waits for the function that this runs in: both would wait for ever."""
        if is_awaited_within(self._running.cancel):
            raise UsageError("an agent of this session waits for this function: it cannot wait for them; use send()")

    def _begin(self, text: str, put: Callable[[Event | None], None]) -> Turn:
        if not text.strip():
            raise UsageError("the text is empty: say what is to be done")
        return Turn(self._in_use(), text, put)

    def _events(self, turn: Turn, events: SimpleQueue[Event | None]) -> Generator[Event, None, None]:
        try:  # the frame holds `self`, so that nothing is closed while somebody still listens
            while (event := events.get()) is not None:
                yield event
            self._listeners.flush(LEAVING_SECONDS)
        finally:
            if turn.abandon():
                turn.wait()

    def _books(self) -> _Books:
        running = self._running
        return _Books(running.usage, running.budget.spent_usd, len(running.denials))

    def _result(self, before: _Books, ended: TurnEnded) -> Result:
        after, running = self._books(), self._running
        return Result(
            ended.text,
            ended.outcome,
            ended.error,
            after.usage - before.usage,
            after.spent_usd - before.spent_usd if running.budget.is_known else None,
            tuple(running.denials[before.denials :]),
            tuple(running.team.waiting()),
        )
