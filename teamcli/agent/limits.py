"""What agents may use up: model calls, tokens, dollars and time; of one agent, of several together, of a whole run.

A call is let through only where every budget it counts for has room. Where others are under way at the same moment, it
must also fit beside the most that they and it could use, or it waits for them: so however many work at once, a budget
is never exceeded by more than one call, and a number of calls not at all.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from teamcli.cancel import CancelScope
from teamcli.config.settings import Allowance
from teamcli.errors import LimitReached
from teamcli.llm.types import Usage

MAX_TURNS, MAX_BUDGET = "max_turns", "max_budget"
TIME_IS_UP = "stopped because its time is used up"
ROOM = "room in a budget"
"""What an agent waits for while others use what is left."""


NO_ALLOWANCE = Allowance()


class Used(NamedTuple):
    """What was used, or what a call under way may use at most."""

    usd: float = 0.0
    """Of the calls whose price is known."""
    tokens: int = 0
    calls: int = 0
    seconds: float = 0.0

    def plus(self, other: Used) -> Used:
        usd, tokens, calls, seconds = other
        return Used(self.usd + usd, self.tokens + tokens, self.calls + calls, self.seconds + seconds)

    def minus(self, other: Used) -> Used:
        usd, tokens, calls, seconds = other
        return Used(self.usd - usd, self.tokens - tokens, self.calls - calls, self.seconds - seconds)

    def at_least(self, other: Used) -> Used:
        return Used._make(map(max, self, other))

    def to_dict(self) -> dict[str, Any]:
        return {**self._asdict(), "usd": round(self.usd, 6), "seconds": round(self.seconds, 3)}


class Call(NamedTuple):
    """A model call that is about to be made, and the most that it can use."""

    model: str = ""
    usd: float | None = 0.0
    """None where nobody knows its price."""
    tokens: int = 0

    @property
    def most(self) -> Used:
        return Used(self.usd or 0.0, self.tokens, 1)


class Budget:
    """What one agent, or several together, have used and may use. Those of a program share one lock."""

    def __init__(
        self,
        allowance: Allowance = NO_ALLOWANCE,
        name: str = "session",
        used: Used = Used(),  # noqa: B008 - it cannot be changed
        changed: threading.Condition | None = None,
        is_given: bool = False,
    ) -> None:
        """`is_given`: its dollars stand on the command line."""
        self.name = name
        self.allowance = allowance
        self.is_given = is_given
        self.is_known = True
        """False once a call was made whose price nobody knows."""
        self._changed = changed or threading.Condition()
        self._used = used
        self._reserved = Used()
        self._largest = Used()
        """The most that any one call has used so far, of each."""
        self._turns: dict[int, CancelScope] = {}
        """Those under way, by the meter that they run on."""
        self._ticking: set[int] = set()
        """The meters whose time counts at this moment."""
        self._since: float | None = None
        """Since when there has been one."""
        self._alarm: threading.Timer | None = None

    def beside(self, name: str, allowance: Allowance = NO_ALLOWANCE, used: Used | None = None) -> Budget:
        """Another budget of the same program."""
        return Budget(allowance, name, used or Used(), self._changed)

    @property
    def max_usd(self) -> float | None:
        return self.allowance.usd

    @property
    def spent_usd(self) -> float:
        return self._used.usd

    @property
    def used(self) -> Used:
        """So far, the work under way included."""
        with self._changed:
            return self._until_now()

    def allow(self, allowance: Allowance) -> None:
        """Set how much may be used in all; who waits for room looks again, and the clock goes by the new time."""
        with self._changed:
            self.allowance = allowance
            self.is_given = False
            self._set_alarm()
            self._changed.notify_all()

    def reached(self, by: str = "") -> LimitReached | None:
        """Why no further call may be made, as `by` is told; None while one may."""
        with self._changed:
            return self._reached(by)

    def _reached(self, by: str) -> LimitReached | None:
        if self.allowance == NO_ALLOWANCE:  # as most are, and each call asks several of them several times
            return None
        used = self._until_now()
        for kind, most in self.allowance._asdict().items():
            if most is not None and getattr(used, kind) >= most:
                limit = MAX_TURNS if kind == "calls" else MAX_BUDGET
                spent = "" if kind in ("calls", "seconds") else f" ({shown(kind, getattr(used, kind))} used)"
                text = f"{whose(self.name, by)} of {shown(kind, most)} is used up{spent}"
                return LimitReached(text, limit, self.is_given and kind == "usd")
        return None

    def _refusal(self, call: Call, by: str) -> LimitReached | None:
        if self.allowance.usd is not None and call.usd is None:
            text = f"{whose(self.name, by)} is in dollars, and no price is known for {call.model}"
            return LimitReached(f"{text}: give one under `prices` in the settings", MAX_BUDGET, self.is_given)
        return self._reached(by)

    def _has_room_beside_others(self, call: Call) -> bool:
        if not self._reserved.calls or self.allowance == NO_ALLOWANCE:
            return True
        wanted = self._used.plus(self._reserved).plus(self._most(call))
        return all(most is None or getattr(wanted, kind) <= most for kind, most in self._countable())

    def _countable(self) -> list[tuple[str, float | None]]:
        return [(kind, most) for kind, most in self.allowance._asdict().items() if kind != "seconds"]

    def _most(self, call: Call) -> Used:
        """What it may use: all that its request allows, or what another call did use that was beyond that."""
        return call.most.at_least(self._largest)._replace(calls=1, seconds=0.0)

    # The clock

    def _until_now(self) -> Used:
        running = 0.0 if self._since is None else time.monotonic() - self._since
        return self._used.plus(Used(seconds=running)) if running else self._used

    def _set_clock(self) -> None:
        """After somebody has begun, ended, or waits for the user: time counts once, however many work."""
        if self._ticking and self._since is None:
            self._since = time.monotonic()
        elif not self._ticking and self._since is not None:
            self._used, self._since = self._until_now(), None
        self._set_alarm()

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self._since is None or self.allowance.seconds is None:
            return
        remaining = max(0.0, self.allowance.seconds - self._until_now().seconds)
        self._alarm = threading.Timer(remaining, self._ring)
        self._alarm.daemon = True
        self._alarm.start()

    def _ring(self) -> None:
        """End the turns of all whose time is up."""
        with self._changed:
            if self.allowance.seconds is None or self._until_now().seconds < self.allowance.seconds:
                self._set_alarm()
                return
            turns = list(self._turns.values())
        for turn in turns:
            turn.cancel(TIME_IS_UP)


def whose(name: str, by: str = "") -> str:
    """A budget as `by` is told of it."""
    if name == by:
        return "Its budget"
    return {"session": "The session's budget", "team": "The team's budget"}.get(name, f"The budget of {name}")


def shown(kind: str, amount: float) -> str:
    """An amount in words: `$2.00`, `200,000 tokens`, `50 model calls`, `10 min`."""
    match kind:
        case "usd":
            return f"${amount:,.2f}" if round(amount, 2) == round(amount, 4) else f"${amount:,.4f}"
        case "seconds":
            return f"{amount:.3g} s" if amount < 120 else f"{amount / 60:.0f} min"
        case "calls":
            return f"{amount:,} model {'call' if amount == 1 else 'calls'}"
        case _:
            return f"{amount:,} {kind}"


OnWait = Callable[[str], None]


def ignore_wait(what: str) -> None:
    pass


@dataclass
class Meter:
    """What one agent has used in this run, and how far it may go. Counted only by the agent's own thread."""

    budget: Budget
    """The session's."""
    max_turns: int | None = None
    max_work_turns: int | None = None
    """For one piece of work; a restart does not reset the count."""
    turns: int = 0
    work_turns: int = 0
    tool_calls: int = 0
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = 0.0
    """None once a call was made whose price nobody knows."""
    context_tokens: int = 0
    """How full the model's context was at the last call."""
    narrower: tuple[Budget, ...] = ()
    """Those that its calls count for beside the session's: its own first, that of who started it, the team's."""
    on_wait: OnWait = ignore_wait
    """Called with what a model call waits for, and with "" when the wait is over."""
    _questions: int = 0
    """How many of the agent's questions wait for the user."""

    @property
    def budgets(self) -> tuple[Budget, ...]:
        return (*self.narrower, self.budget)

    @property
    def own(self) -> Budget:
        return self.budgets[0]

    def reached(self) -> LimitReached | None:
        """The limit because of which nothing can be done until the user raises it; None where there is none."""
        if self.max_turns is not None and self.turns >= self.max_turns:
            return LimitReached(f"The limit of {shown('calls', self.max_turns)} is reached", MAX_TURNS)
        return next((why for budget in self.budgets if (why := budget.reached(self.own.name))), None)

    def check(self) -> None:
        """Raises: LimitReached, before a model call that would be one too many."""
        if why := self.reached():
            raise why
        if self.max_work_turns is not None and self.work_turns >= self.max_work_turns:
            text = f"The limit of {shown('calls', self.max_work_turns)} for one piece of work is reached"
            raise LimitReached(text, MAX_TURNS, is_given=False, is_of_work=True)

    @contextmanager
    def call(self, call: Call, cancel: CancelScope) -> Iterator[None]:
        """Around each model call: waits while it might be one too many beside those under way.

        Raises: LimitReached, Cancelled
        """
        self.check()
        reserved = self._reserve(call, cancel, may_wait=False) or self._wait_for_room(call, cancel)
        try:
            yield
        finally:
            with self._changed:
                for budget, most in reserved:
                    budget._reserved = budget._reserved.minus(most) if budget._reserved.calls > 1 else Used()
                self._changed.notify_all()

    def _wait_for_room(self, call: Call, cancel: CancelScope) -> list[tuple[Budget, Used]]:
        """Raises: LimitReached, Cancelled."""
        self.on_wait(ROOM)  # without the lock: who is told may ask what is used
        try:
            return self._reserve(call, cancel, may_wait=True)
        finally:
            self.on_wait("")

    def _reserve(self, call: Call, cancel: CancelScope, may_wait: bool) -> list[tuple[Budget, Used]]:
        """Nothing where there is no room, and it may not wait.

        Raises: LimitReached, Cancelled
        """
        with cancel.on_cancel(self._look_again), self._changed:
            while True:
                cancel.check()
                if why := next((why for each in self.budgets if (why := each._refusal(call, self.own.name))), None):
                    raise why
                if all(budget._has_room_beside_others(call) for budget in self.budgets):
                    break
                if not may_wait:
                    return []
                self._changed.wait()
            reserved = [(budget, budget._most(call)) for budget in self.budgets]
            for budget, most in reserved:
                budget._reserved = budget._reserved.plus(most)
            return reserved

    @contextmanager
    def work(self, turn: CancelScope) -> Iterator[None]:
        """Around each turn: its time counts, and when that is used up the turn is cancelled."""
        with self._changed:
            for budget in self.budgets:
                budget._turns[id(self)] = turn
        self._tick(True)
        try:
            yield
        finally:
            with self._changed:
                for budget in self.budgets:
                    budget._turns.pop(id(self), None)
            self._tick(False)

    def wait_for_user(self, is_waiting: bool) -> None:
        """Stop the clock while a question of the agent's waits for its answer; from any thread."""
        with self._changed:
            self._questions += 1 if is_waiting else -1
            self._tick(not self._questions)

    def _tick(self, is_on: bool) -> None:
        with self._changed:
            for budget in self.budgets:
                if is_on and id(self) in budget._turns:
                    budget._ticking.add(id(self))
                else:
                    budget._ticking.discard(id(self))
                budget._set_clock()

    @property
    def _changed(self) -> threading.Condition:
        return self.budget._changed

    def _look_again(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def begin_work(self) -> None:
        self.work_turns = 0

    def book(self, usage: Usage, tool_calls: int, cost_usd: float | None) -> None:
        """What a call has used, before its place is given up."""
        self.turns += 1
        self.work_turns += 1
        self.tool_calls += tool_calls
        self.usage += usage
        self.cost_usd = None if self.cost_usd is None or cost_usd is None else self.cost_usd + cost_usd
        self.context_tokens = usage.context_tokens
        used = Used(cost_usd or 0.0, usage.context_tokens, 1)
        with self._changed:
            for budget in self.budgets:
                budget._used = budget._used.plus(used)
                budget._largest = budget._largest.at_least(used)
                budget.is_known = budget.is_known and cost_usd is not None
