"""What agents may use: model calls, tokens, dollars and time; for one agent, for several together, or for a whole run.

A call starts only if every budget that it counts toward has room. If other calls are running, it must also fit next to
the most that all of them could use; otherwise it waits. So however many agents work at once, a budget is exceeded by
at most one call, and a number of calls is never exceeded.
"""

from __future__ import annotations

import operator
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
"""What an agent waits for while running calls may use up the rest."""
NO_ALLOWANCE = Allowance()


class Used(NamedTuple):
    """What was used, or the most that a running call may use."""

    usd: float = 0.0
    """For the calls whose price is known."""
    tokens: int = 0
    calls: int = 0
    seconds: float = 0.0

    def plus(self, other: Used) -> Used:
        return Used._make(map(operator.add, self, other))

    def minus(self, other: Used) -> Used:
        return Used._make(map(operator.sub, self, other))

    def at_least(self, other: Used) -> Used:
        return Used._make(map(max, self, other))

    def to_dict(self) -> dict[str, Any]:
        return {**self._asdict(), "usd": round(self.usd, 6), "seconds": round(self.seconds, 3)}


class PlannedCall(NamedTuple):
    """A model call that is about to be made, and the most that it can use."""

    model: str = ""
    usd: float | None = 0.0
    """None if its price is unknown."""
    tokens: int = 0


class Budget:
    """What one agent, or several together, have used and may use.

    All budgets of a program share one lock, because a call must find room in all of its budgets at the same moment.
    """

    def __init__(
        self,
        allowance: Allowance = NO_ALLOWANCE,
        name: str = "session",
        used: Used = Used(),  # noqa: B008 - it cannot be changed
        changed: threading.Condition | None = None,
        is_given: bool = False,
    ) -> None:
        """`is_given`: its dollars come from the command line."""
        self.name = name
        self.allowance = allowance
        self.is_given = is_given
        self.is_known = True
        """False once a call was made whose price is unknown."""
        self.changed = changed or threading.Condition()
        """The shared lock, notified whenever there may be more room."""
        self._used = used
        self._reserved = Used()
        self._largest = Used()
        """The most that any single call has used so far, by kind."""
        self._turns: dict[int, CancelScope] = {}
        """The running turns, by the meter that they run on."""
        self._paused: set[int] = set()
        """The meters among them whose agent waits for the user."""
        self._clock_started: float | None = None
        self._alarm: threading.Timer | None = None

    def new(self, name: str, allowance: Allowance = NO_ALLOWANCE, used: Used = Used()) -> Budget:  # noqa: B008
        """Another budget of the same program."""
        return Budget(allowance, name, used, self.changed)

    @property
    def max_usd(self) -> float | None:
        return self.allowance.usd

    @property
    def spent_usd(self) -> float:
        return self._used.usd

    @property
    def used(self) -> Used:
        """So far, including the time of running turns."""
        with self.changed:
            if self._clock_started is None:
                return self._used
            return self._used.plus(Used(seconds=time.monotonic() - self._clock_started))

    def allow(self, allowance: Allowance) -> None:
        """Set how much may be used in total. Calls that wait for room check again."""
        with self.changed:
            self.allowance = allowance
            self.is_given = False
            self._set_alarm()
            self.changed.notify_all()

    def reached(self, by: str = "") -> LimitReached | None:
        """Why no further call may be made, worded for the agent `by`; None if one may."""
        if self.allowance == NO_ALLOWANCE:  # the usual case, and each call asks several budgets several times
            return None
        used = self.used
        for kind, most in self.allowance._asdict().items():
            if most is not None and getattr(used, kind) >= most:
                limit = MAX_TURNS if kind == "calls" else MAX_BUDGET
                spent = "" if kind in ("calls", "seconds") else f" ({shown(kind, getattr(used, kind))} used)"
                text = f"{whose(self.name, by)} of {shown(kind, most)} is used up{spent}"
                return LimitReached(text, limit, self.is_given and kind == "usd")
        return None

    def refusal(self, call: PlannedCall, by: str) -> LimitReached | None:
        """Why this call may not be made, now or later."""
        if self.allowance.usd is not None and call.usd is None:
            text = f"{whose(self.name, by)} is in dollars, and no price is known for {call.model}"
            return LimitReached(f"{text}: give one under `prices` in the settings", MAX_BUDGET, self.is_given)
        return self.reached(by)

    def has_room(self, call: PlannedCall) -> bool:
        """Whether the call fits next to the running ones. A call that runs alone always does."""
        if not self._reserved.calls or self.allowance == NO_ALLOWANCE:
            return True
        wanted = self._used.plus(self._reserved).plus(self._most(call))._asdict()
        bounds = self.allowance._asdict()
        return all(bounds[kind] is None or wanted[kind] <= bounds[kind] for kind in ("usd", "tokens", "calls"))

    def reserve(self, call: PlannedCall) -> Used:
        """Set aside the most that a call may use; the result is for `release`."""
        most = self._most(call)
        self._reserved = self._reserved.plus(most)
        return most

    def release(self, most: Used) -> None:
        # Sums of floats drift: with the last call, nothing is reserved.
        self._reserved = self._reserved.minus(most) if self._reserved.calls > 1 else Used()

    def book(self, used: Used, is_priced: bool) -> None:
        """Count what a call has used."""
        self._used = self._used.plus(used)
        self._largest = self._largest.at_least(used)
        self.is_known = self.is_known and is_priced

    def set_used(self, used: Used) -> None:
        """Count what all hosts together have used. Time is counted by each host for itself."""
        with self.changed:
            self._used = used._replace(seconds=self._used.seconds)
            self.changed.notify_all()

    def begin_turn(self, meter: int, turn: CancelScope) -> None:
        self._turns[meter] = turn
        self.run_clock(meter, True)

    def end_turn(self, meter: int) -> None:
        self._turns.pop(meter, None)
        self.run_clock(meter, True)

    def run_clock(self, meter: int, is_on: bool) -> None:
        """Count the time of this meter's turn, or stop counting. Time counts once, however many agents work."""
        if is_on:
            self._paused.discard(meter)
        else:
            self._paused.add(meter)
        # The clock runs while at least one turn is not waiting for the user.
        if not self._turns.keys() - self._paused:
            self._used, self._clock_started = self.used, None  # `used` includes the time since the clock started
        elif self._clock_started is None:
            self._clock_started = time.monotonic()
        self._set_alarm()

    def _most(self, call: PlannedCall) -> Used:
        """All that the request allows, or what an earlier call used beyond such an estimate."""
        most = Used(call.usd or 0.0, call.tokens, 1).at_least(self._largest)
        return most._replace(calls=1, seconds=0.0)

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self._clock_started is None or self.allowance.seconds is None:
            return
        self._alarm = threading.Timer(max(0.0, self.allowance.seconds - self.used.seconds), self._end_turns)
        self._alarm.daemon = True
        self._alarm.start()

    def _end_turns(self) -> None:
        with self.changed:
            # The user may have raised the limit just now.
            if self.allowance.seconds is None or self.used.seconds < self.allowance.seconds:
                self._set_alarm()
                return
            turns = list(self._turns.values())
        for turn in turns:  # without the lock: a cancel runs callbacks
            turn.cancel(TIME_IS_UP)


def whose(name: str, by: str = "") -> str:
    """A budget's name, worded for the agent `by`."""
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
"""Called with what a model call waits for, and with "" when the wait is over."""


def ignore_wait(what: str) -> None:
    pass


PriceOf = Callable[[Usage, str], float | None]
"""The cost of a call on a model; None if its price is unknown."""


def no_price(usage: Usage, model: str) -> None:
    pass


@dataclass(eq=False)
class Meter:
    """What one agent has used in this run, and how far it may go. Counted only by the agent's own thread."""

    budget: Budget
    """The session's."""
    max_turns: int | None = None
    max_work_turns: int | None = None
    """For one piece of work; a restart does not reset the count."""
    narrower: tuple[Budget, ...] = ()
    """The budgets that its calls count toward besides the session's: its own first, then its parents', the team's."""
    on_wait: OnWait = ignore_wait
    work_turns: int = 0
    price: PriceOf = no_price
    turns: int = field(default=0, init=False)
    tool_calls: int = field(default=0, init=False)
    usage: Usage = field(default_factory=Usage, init=False)
    cost_usd: float | None = field(default=0.0, init=False)
    """None once a call was made whose price is unknown."""
    context_tokens: int = field(default=0, init=False)
    """How full the model's context was at the last call."""
    _questions: int = field(default=0, init=False)
    """How many of the agent's questions wait for the user."""

    @property
    def budgets(self) -> tuple[Budget, ...]:
        return (*self.narrower, self.budget)

    @property
    def own(self) -> Budget:
        return self.budgets[0]

    def reached(self) -> LimitReached | None:
        """The limit that stops this agent until the user raises it; None if there is none."""
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
    def call(self, call: PlannedCall, cancel: CancelScope) -> Iterator[None]:
        """Around each model call: waits while it might be one too many next to the running ones.

        Raises: LimitReached, Cancelled
        """
        self.check()
        reserved = self._reserve(call, cancel, may_wait=False)
        if not reserved:
            self.on_wait(ROOM)  # without the lock: the callback may ask what is used
            try:
                reserved = self._reserve(call, cancel, may_wait=True)
            finally:
                self.on_wait("")
        try:
            yield
        finally:
            with self._changed:
                for budget, most in reserved:
                    budget.release(most)
                self._changed.notify_all()

    def _reserve(self, call: PlannedCall, cancel: CancelScope, may_wait: bool) -> list[tuple[Budget, Used]]:
        """What was reserved in each budget; empty if there is no room and it may not wait.

        Raises: LimitReached, Cancelled
        """
        with cancel.notifying(self._changed), self._changed:
            while True:
                cancel.check()
                if why := next((why for each in self.budgets if (why := each.refusal(call, self.own.name))), None):
                    raise why
                if all(budget.has_room(call) for budget in self.budgets):
                    return [(budget, budget.reserve(call)) for budget in self.budgets]
                if not may_wait:
                    return []
                self._changed.wait()

    @contextmanager
    def work(self, turn: CancelScope) -> Iterator[None]:
        """Around each turn: its time counts, and when that is used up the turn is cancelled."""
        with self._changed:
            for budget in self.budgets:
                budget.begin_turn(id(self), turn)
        try:
            yield
        finally:
            with self._changed:
                for budget in self.budgets:
                    budget.end_turn(id(self))

    def wait_for_user(self, is_waiting: bool) -> None:
        """Stop the clock while a question of the agent's waits for its answer. Safe to call from any thread."""
        with self._changed:
            self._questions += 1 if is_waiting else -1
            for budget in self.budgets:
                budget.run_clock(id(self), not self._questions)

    @property
    def _changed(self) -> threading.Condition:
        return self.budget.changed

    def absorb(self, other: Meter) -> None:
        """Add what another agent has used. Budgets do not change: they have counted it."""
        self.turns += other.turns
        self.tool_calls += other.tool_calls
        self.usage += other.usage
        self._add_cost(other.cost_usd)

    def _add_cost(self, usd: float | None) -> None:
        self.cost_usd = None if self.cost_usd is None or usd is None else self.cost_usd + usd

    def begin_work(self) -> None:
        self.work_turns = 0

    def book(self, usage: Usage, tool_calls: int, cost_usd: float | None) -> None:
        """Count what a call has used. Called before its reservation is released."""
        self.turns += 1
        self.work_turns += 1
        self.tool_calls += tool_calls
        self.usage += usage
        self._add_cost(cost_usd)
        self.context_tokens = usage.context_tokens
        # One lock for all budgets: a call that checks for room must not see half of this.
        with self._changed:
            for budget in self.budgets:
                budget.book(Used(cost_usd or 0.0, usage.context_tokens, 1), is_priced=cost_usd is not None)
