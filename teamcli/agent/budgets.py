"""The budgets of a program: which of them each agent's calls count for, and how much each allows."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from teamcli.agent.limits import Budget, Meter, OnWait, Used, ignore_wait
from teamcli.config.settings import Allowance, BudgetSettings

SESSION, TEAM = "session", "team"


class Budgets:
    """The session's, the team's, and one for each agent.

    A teammate's calls count for itself, the team and the session, the lead's for itself and the session. A sub-agent's
    count for itself and all that its parent's count for.
    """

    def __init__(self, plan: BudgetSettings | None = None, max_usd: float | None = None) -> None:
        """`max_usd` is what the command line gives the session."""
        self._plan = plan or BudgetSettings()
        session = self._plan.session if max_usd is None else self._plan.session._replace(usd=max_usd)
        self.session = Budget(session, SESSION, is_given=max_usd is not None)
        self.team = self.session.beside(TEAM, self._plan.team)
        self._meters: dict[str, Meter] = {}
        self._subagents: set[str] = set()
        self._waited_for: dict[str, str] = {}
        """Sub-agents whose parents wait for them, with those."""
        self._lock = threading.Lock()

    def lead_meter(self, name: str, max_turns: int | None, on_wait: OnWait = ignore_wait) -> Meter:
        own = self._own(name, self._plan.lead, Used())
        return self._keep(name, Meter(self.session, max_turns, narrower=(own,), on_wait=on_wait))

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
        """`chosen` is what the user has set for it by hand.

        Who is hired again goes on with what was used under that name.
        """
        own = self._own(name, self.for_member(name, chosen), used)
        meter = Meter(
            self.session,
            max_turns,
            max_work_turns,
            work_turns=work_turns,
            narrower=(own, self.team),
            on_wait=on_wait,
        )
        return self._keep(name, meter)

    def subagent_meter(
        self,
        name: str,
        parent: str,
        max_turns: int | None,
        max_work_turns: int,
        is_waited_for: bool = False,
        on_wait: OnWait = ignore_wait,
    ) -> Meter:
        """`is_waited_for`: its parent does nothing else meanwhile."""
        with self._lock:
            self._subagents.add(name)
            if is_waited_for:
                self._waited_for[name] = parent
            above = self._meters[parent].narrower if parent in self._meters else ()
        own = self._own(name, self._plan.subagent, Used())
        meter = Meter(self.session, max_turns, max_work_turns, narrower=(own, *above), on_wait=on_wait)
        return self._keep(name, meter)

    def close(self, name: str) -> None:
        """A sub-agent has ended, or a teammate is forgotten."""
        with self._lock:
            self._meters.pop(name, None)
            self._subagents.discard(name)
            self._waited_for.pop(name, None)

    def for_member(self, name: str, chosen: Mapping[str, Any]) -> Allowance:
        """What a teammate may use: as the user has chosen by hand, else as the settings say for it, else for all."""
        by_name = {key.casefold(): value for key, value in self._plan.agents.items()}
        named = by_name.get(name.casefold(), Allowance())
        return Allowance(**{**_given(self._plan.teammate), **_given(named), **chosen_from(chosen)})

    def member_is_bounded_in_usd(self, name: str, chosen: Mapping[str, Any]) -> bool:
        """Whether a call of that teammate must have a price."""
        allowances = (self.for_member(name, chosen), self.team.allowance, self.session.allowance)
        return any(allowance.usd is not None for allowance in allowances)

    def subagent_is_bounded_in_usd(self, parent: str) -> bool:
        above = self._meters[parent].narrower if parent in self._meters else ()
        allowances = (self._plan.subagent, self.session.allowance, *(budget.allowance for budget in above))
        return any(allowance.usd is not None for allowance in allowances)

    def of(self, name: str) -> Budget | None:
        """An agent's own."""
        meter = self._meters.get(name)
        return meter.own if meter else None

    def of_agents(self) -> dict[str, Budget]:
        """Those of the agents that are there, the lead first, sub-agents last."""
        with self._lock:
            names = sorted(self._meters, key=lambda name: name in self._subagents)
            return {name: self._meters[name].own for name in names}

    def counting_for(self, name: str) -> dict[str, Budget]:
        """The budgets of single agents, sub-agents excepted, that calls of this agent count for."""
        meter = self._meters.get(name)
        budgets = meter.narrower if meter else ()
        return {each.name: each for each in budgets if each is not self.team and each.name not in self._subagents}

    def wait_for_user(self, name: str, is_waiting: bool) -> None:
        """A question of the agent's waits for the user, or does no longer: its time stops, and that of its parents as
        far as they wait for it. Others that work for those count the time themselves.
        """
        with self._lock:
            waiting = [name]
            while above := self._waited_for.get(waiting[-1]):
                waiting.append(above)
            meters = [self._meters[each] for each in waiting if each in self._meters]
        for meter in meters:
            meter.wait_for_user(is_waiting)

    def _own(self, name: str, allowance: Allowance, used: Used) -> Budget:
        own = self.of(name)
        if own is None:
            return self.session.beside(name, allowance, used)
        own.allow(allowance)
        return own

    def _keep(self, name: str, meter: Meter) -> Meter:
        with self._lock:
            self._meters[name] = meter
        return meter


def _given(allowance: Allowance) -> dict[str, Any]:
    return {kind: most for kind, most in allowance._asdict().items() if most is not None}


def used_from(raw: Mapping[str, Any]) -> Used:
    """What a file says was used; anything that is no number counts for nothing."""
    return Used(**{kind: raw[kind] for kind in Used._fields if _is_number(raw.get(kind))})


def chosen_from(raw: Mapping[str, Any]) -> dict[str, Any]:
    """What a file says the user has chosen; None for what shall not be bounded."""
    found = {kind: raw[kind] for kind in Allowance._fields if kind in raw}
    return {kind: most for kind, most in found.items() if most is None or _is_number(most)}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
