"""What agents may use up: model calls of one agent, dollars of the whole session."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from teamcli.errors import LimitReached
from teamcli.llm.types import Usage


class Budget:
    """The money of a session, shared by all its agents."""

    def __init__(self, max_usd: float | None = None) -> None:
        self.max_usd = max_usd
        self.spent_usd = 0.0
        self.is_known = True
        """False once a call was made whose price nobody knows."""
        self._lock = threading.Lock()

    def check(self) -> None:
        """Raises: LimitReached."""
        if self.max_usd is not None and self.spent_usd >= self.max_usd:
            raise LimitReached(
                f"The budget of ${self.max_usd:g} is used up (spent: ${self.spent_usd:.4f})", "max_budget"
            )

    def spend(self, cost_usd: float | None) -> None:
        with self._lock:
            if cost_usd is None:
                self.is_known = False
            else:
                self.spent_usd += cost_usd


@dataclass
class Meter:
    """What one agent has used, and how far it may go. Written only by the agent's own thread."""

    budget: Budget
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

    def check(self) -> None:
        """Raises: LimitReached, before a model call that would be one too many."""
        if self.max_turns is not None and self.turns >= self.max_turns:
            raise LimitReached(f"The limit of {self.max_turns} model calls is reached", "max_turns")
        if self.max_work_turns is not None and self.work_turns >= self.max_work_turns:
            text = f"The limit of {self.max_work_turns} model calls for one piece of work is reached"
            raise LimitReached(text, "max_turns", is_given=False)
        self.budget.check()

    def begin_work(self) -> None:
        self.work_turns = 0

    def book(self, usage: Usage, tool_calls: int, cost_usd: float | None) -> None:
        self.turns += 1
        self.work_turns += 1
        self.tool_calls += tool_calls
        self.usage += usage
        self.cost_usd = None if self.cost_usd is None or cost_usd is None else self.cost_usd + cost_usd
        self.context_tokens = usage.context_tokens
        self.budget.spend(cost_usd)
