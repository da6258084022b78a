"""`Session`: a lead and its team in the hands of another program.

It leaves that program alone: no signal handlers, no change of directory, environment, log or garbage collector. Any
number of sessions can be open at once, in different directories, and each can be used from any thread.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping
from concurrent.futures import CancelledError
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from teamcli.agent.approval import nobody_to_ask
from teamcli.agent.events import Event, Outcome, PermissionDenied, TurnEnded
from teamcli.agent.policy import Mode
from teamcli.app import Place, look_around, open_session, untrusted_notes
from teamcli.aside import is_awaited_within
from teamcli.embedding import Embedding
from teamcli.environment import ENDPOINT, KEY_VARIABLES
from teamcli.errors import ConfigError, UsageError
from teamcli.library.asker import Ask, Asker
from teamcli.library.turn import LEAVING_SECONDS, Turn
from teamcli.llm.own_model import model_factory
from teamcli.llm.types import LLM, Usage
from teamcli.options import Options
from teamcli.session import Session as Running
from teamcli.state import lock_holder
from teamcli.team.roster import Member

if TYPE_CHECKING:
    from teamcli.library.subagents import SubAgents
    from teamcli.tools.function_tool import FunctionTool
    from teamcli.tools.hook_functions import Hook

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
        tools: Iterable[Callable[..., Any] | FunctionTool] = (),
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
            model=model,
            permission_mode=_mode(permission_mode),
            allowed_tools=_rules(allowed_tools),
            disallowed_tools=_rules(disallowed_tools),
            max_turns=_at_least_one(max_turns),
            max_budget_usd=_above_zero(max_budget_usd),
            go_on=continue_,
            resume=resume,
            append_system_prompt=append_system_prompt,
            offline=offline,
            trust=trust,
            add_dirs=tuple(map(Path, add_dirs)),
            no_team=not team,
        )
        embedding = Embedding(model_factory(llm), _as_tools(tools), _checked_hooks(hooks), settings)
        place = _place(directory, trust, api_key, base_url)
        asker = Asker(ask) if ask is not None else None
        self._running = _open(options, place, asker, embedding)
        self._closing = _Closing(self._running, asker)
        self._finalizer = weakref.finalize(self, self._closing.abandon)
        self.notes: tuple[str, ...] = (*self._running.notes, *untrusted_notes(place))
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
        return self._running.team.wait_until_quiet(self._running.cancel, timeout_seconds)

    async def wait_async(self, timeout_seconds: float | None = None) -> bool:
        """The same for asyncio."""
        self._check_nobody_waits_here()
        scope = self._running.cancel.child()
        try:
            return await asyncio.to_thread(self._running.team.wait_until_quiet, scope, timeout_seconds)
        finally:
            scope.cancel("nobody waits any more")

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

    @property
    def agents(self) -> SubAgents:
        """The sub-agents."""
        from teamcli.library.subagents import SubAgents

        assert self._running.have_subagents is not None
        return SubAgents(self._running.have_subagents())

    def subscribe(self, listener: Callable[[Any], object], *kinds: type[Event]) -> Callable[[], None]:
        """Have every event told to `listener`, or only those of these kinds; call what this returns to end that.

        It is called in the agents' threads and must be quick. One that raises is told nothing any more.
        """
        events = self._running.events
        events.subscribe(listener, *kinds)
        return lambda: events.unsubscribe(listener)

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
        finally:
            if turn.abandon():
                turn.wait()

    def _books(self) -> _Books:
        running = self._running
        return _Books(running.usage, running.budget.spent_usd, len(running.denials))

    def _result(self, before: _Books, ended: TurnEnded) -> Result:
        after, running = self._books(), self._running
        used = {name: now - before.usage.to_dict()[name] for name, now in after.usage.to_dict().items()}
        return Result(
            ended.text,
            ended.outcome,
            ended.error,
            Usage(**used),
            after.spent_usd - before.spent_usd if running.budget.is_known else None,
            tuple(running.denials[before.denials :]),
            tuple(running.team.waiting()),
        )


class _Closing:
    """Ends a session once, whoever asks for it. Knows nothing of the `Session`, which may be garbage by then."""

    def __init__(self, running: Running, asker: Asker | None) -> None:
        self._running = running
        self._asker = asker
        self._lock = threading.Lock()
        self.is_closed = False

    def close(self) -> None:
        with self._lock:
            if self.is_closed:
                return
            self.is_closed = True
            self._running.close()
            if self._asker is not None:
                self._asker.close(LEAVING_SECONDS)

    def abandon(self) -> None:
        """Nobody has closed it. The collector may run in a thread that closing would wait for: so in one of its own."""
        thread = threading.Thread(target=self.close, name="closing", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the interpreter is about to end, and starts no more threads
            self.close()
        else:
            thread.join(LEAVING_SECONDS)


def _open(options: Options, place: Place, asker: Asker | None, embedding: Embedding) -> Running:
    running = open_session(options, place, asker or nobody_to_ask, embedding)
    try:
        if running.state.is_private and not options.no_team:
            raise ConfigError(_why_no_team(place))
        running.start(resume_all=options.go_on or bool(options.resume))
    except BaseException:
        running.close()
        raise
    return running


def _why_no_team(place: Place) -> str:
    if (holder := lock_holder(place.team.lock)) is not None:
        return f"another teamcli leads in {place.directory} (process {holder}): close it, or use team=False"
    return f"the team in {place.team.root} was not made here: look at it, then use trust=True, or team=False"


def _place(directory: str | os.PathLike[str], trust: bool, api_key: str, base_url: str) -> Place:
    root = Path(directory).expanduser().resolve()
    if not root.is_dir():
        raise ConfigError(f"{root} is not a directory")
    given = {KEY_VARIABLES[0]: api_key, KEY_VARIABLES[1]: ""} if api_key else {}
    place = look_around(root, given={**given, ENDPOINT: base_url} if base_url else given)
    return place.trust() if place.offers and trust else place


def _as_tools(functions: Iterable[Any]) -> tuple[FunctionTool, ...]:
    if not (functions := tuple(functions)):
        return ()
    from teamcli.tools.function_tool import as_tools  # late: most sessions do without it, and without pydantic

    return as_tools(functions)


def _checked_hooks(hooks: Iterable[Hook]) -> tuple[Hook, ...]:
    if not (hooks := tuple(hooks)):
        return ()
    from teamcli.tools.hook_functions import checked  # late as well

    return checked(hooks)


def _mode(mode: Mode | str | None) -> str | None:
    if mode is not None and mode not in list(Mode):
        raise ConfigError(f"permission_mode: {mode!r} is none of {', '.join(Mode)}")
    return mode


def _rules(rules: str | Iterable[str]) -> tuple[str, ...]:
    return (rules,) if isinstance(rules, str) else tuple(rules)


def _at_least_one(turns: int | None) -> int | None:
    if turns is not None and turns < 1:
        raise ConfigError(f"max_turns: must be from 1 up, not {turns}")
    return turns


def _above_zero(dollars: float | None) -> float | None:
    if dollars is not None and not 0 < dollars < float("inf"):
        raise ConfigError(f"max_budget_usd: must be an amount above 0, not {dollars}")
    return dollars
