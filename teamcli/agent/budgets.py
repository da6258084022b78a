"""The budgets of a program: which of them each agent's calls count toward, and how much each allows."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from teamcli.agent.limits import Budget, Meter, OnWait, PriceOf, Used, ignore_wait, no_price
from teamcli.config.settings import Allowance, BudgetSettings

SESSION, TEAM = "session", "team"


class Budgets:
    """The session's, the team's, and one for each agent.

    A teammate's calls count toward its own budget, the team's and the session's; the lead's toward its own and the
    session's. A sub-agent's count toward its own and every budget that its parent's count toward.
    """

    def __init__(
        self, plan: BudgetSettings | None = None, max_usd: float | None = None, price: PriceOf = no_price
    ) -> None:
        """`max_usd` is the session's limit from the command line."""
        self._price = price
        self._plan = plan or BudgetSettings()
        session = self._plan.session if max_usd is None else self._plan.session._replace(usd=max_usd)
        self.session = Budget(session, SESSION, is_given=max_usd is not None)
        self.team = self.session.new(TEAM, self._plan.team)
        self._meters: dict[str, Meter] = {}
        self._subagents: set[str] = set()
        self._waited_for: dict[str, str] = {}
        """The parent of each sub-agent whose parent waits for it."""
        self._lock = threading.Lock()

    def lead_meter(self, name: str, max_turns: int | None, on_wait: OnWait = ignore_wait) -> Meter:
        own = self._own(name, self._plan.lead, Used())
        return self._keep(name, Meter(self.session, max_turns, narrower=(own,), on_wait=on_wait, price=self._price))

    def member_meter(
        self,
        name: str,
        chosen: Mapping[str, Any],
        used: Used,
        max_turns: int | None,
        max_work_turns: int,
        work_turns: int = 0,
        on_wait: OnWait = ignore_wait,
    ) -> Meter:
        """`chosen` is what the user has set for it by hand. A teammate hired again continues with what was used."""
        narrower = (self._own(name, self.for_member(name, chosen), used), self.team)
        return self._keep(
            name, Meter(self.session, max_turns, max_work_turns, narrower, on_wait, work_turns, self._price)
        )

    def subagent_meter(
        self,
        name: str,
        parent: str,
        max_turns: int | None,
        max_work_turns: int,
        is_waited_for: bool = False,
        on_wait: OnWait = ignore_wait,
    ) -> Meter:
        """`is_waited_for`: its parent does nothing else until it ends."""
        with self._lock:
            self._subagents.add(name)
            if is_waited_for:
                self._waited_for[name] = parent
        narrower = (self._own(name, self._plan.subagent, Used()), *self._narrower(parent))
        return self._keep(name, Meter(self.session, max_turns, max_work_turns, narrower, on_wait, price=self._price))

    def close(self, name: str) -> None:
        """A sub-agent has ended, or a teammate was forgotten."""
        with self._lock:
            self._meters.pop(name, None)
            self._subagents.discard(name)
            self._waited_for.pop(name, None)

    def for_member(self, name: str, chosen: Mapping[str, Any]) -> Allowance:
        """What a teammate may use. The user's choice wins over its own setting, and that over the one for all."""
        by_name = {key.casefold(): value for key, value in self._plan.agents.items()}
        named = by_name.get(name.casefold(), Allowance())
        return Allowance(**{**_given(self._plan.teammate), **_given(named), **chosen_from(chosen)})

    def member_is_bounded_in_usd(self, name: str, chosen: Mapping[str, Any]) -> bool:
        """Whether a call of that teammate must have a price."""
        return self._is_in_usd(self.for_member(name, chosen), self.team)

    def subagent_is_bounded_in_usd(self, parent: str) -> bool:
        return self._is_in_usd(self._plan.subagent, *self._narrower(parent))

    def of(self, name: str) -> Budget | None:
        """The agent's own budget."""
        meter = self._meters.get(name)
        return meter.own if meter else None

    def of_agents(self) -> dict[str, Budget]:
        """The budgets of all agents, the lead's first, those of sub-agents last."""
        with self._lock:
            names = sorted(self._meters, key=lambda name: name in self._subagents)
            return {name: self._meters[name].own for name in names}

    def counting_for(self, name: str) -> dict[str, Budget]:
        """The budgets of single agents, except sub-agents, that this agent's calls count toward."""
        budgets = [each for each in self._narrower(name) if each is not self.team]
        return {each.name: each for each in budgets if each.name not in self._subagents}

    def wait_for_user(self, name: str, is_waiting: bool) -> None:
        """Stop or restart an agent's clock, and those of the parents that wait for it, while the user is asked.

        Other agents that work for those parents count the time themselves.
        """
        with self._lock:
            waiting = [name]
            while above := self._waited_for.get(waiting[-1]):
                waiting.append(above)
            meters = [self._meters[each] for each in waiting if each in self._meters]
        for meter in meters:
            meter.wait_for_user(is_waiting)

    def _narrower(self, name: str) -> tuple[Budget, ...]:
        meter = self._meters.get(name)
        return meter.narrower if meter else ()

    def _is_in_usd(self, allowance: Allowance, *budgets: Budget) -> bool:
        allowances = (allowance, self.session.allowance, *(budget.allowance for budget in budgets))
        return any(each.usd is not None for each in allowances)

    def _own(self, name: str, allowance: Allowance, used: Used) -> Budget:
        own = self.of(name)
        if own is None:
            return self.session.new(name, allowance, used)
        own.allow(allowance)
        return own

    def _keep(self, name: str, meter: Meter) -> Meter:
        with self._lock:
            self._meters[name] = meter
        return meter


def _given(allowance: Allowance) -> dict[str, Any]:
    return {kind: most for kind, most in allowance._asdict().items() if most is not None}


def used_from(raw: Mapping[str, Any]) -> Used:
    """What a file says was used. Anything that is not a number is ignored."""
    return Used(**{kind: raw[kind] for kind in Used._fields if _is_number(raw.get(kind))})


def chosen_from(raw: Mapping[str, Any]) -> dict[str, Any]:
    """What a file says the user has chosen; None means unlimited."""
    found = {kind: raw[kind] for kind in Allowance._fields if kind in raw}
    return {kind: most for kind, most in found.items() if most is None or _is_number(most)}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
