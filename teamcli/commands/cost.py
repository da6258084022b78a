"""`/cost`: what this run has used, agent by agent."""

from __future__ import annotations

from collections.abc import Iterator

from teamcli.agent.limits import Budget, shown
from teamcli.agent.loop import Agent
from teamcli.commands.base import Cell, Column, Group, Table, command
from teamcli.commands.reports.team import dollars
from teamcli.llm.pricing import built_in_prices
from teamcli.llm.types import Usage
from teamcli.session.session import Session

COLUMNS = (
    Column("AGENT", "name"),
    Column("MODEL", "dim", shrinks=True, may_go=True),
    Column("CALLS", right=True, may_go=True),
    Column("TOKENS IN", right=True),
    Column("CACHED", "dim", right=True, may_go=True),
    Column("OUT", right=True),
    Column("COST", right=True),
    Column("LEFT", right=True, may_go=True),
)
ESTIMATED = "~ is an estimate from bytes: the endpoint does not count tokens, or a call was interrupted."


@command("cost", group=Group.REPORTS)
def cost(session: Session, arguments: str) -> Table:
    """Show what this run has used, agent by agent.

    CACHED tokens are part of TOKENS IN and cost a tenth. LEFT is what a budget (/budget) still allows. For a model
    without a known price only tokens are counted; set its price under `prices` in the settings.
    """
    agents = session.agents
    by_name: dict[str, list[Agent]] = {}
    for agent in agents:
        # A name that was shut down and hired again has several agents; they share a row.
        by_name.setdefault(agent.name, []).append(agent)
    rows = [_row(name, each) for name, each in by_name.items()]
    if len(rows) > 1:
        spent = session.budget.spent_usd if session.budget.is_known else None
        used = _used(agents, session.usage, spent, session.budget)
        rows.append((Cell("total", "dim"), "", *used))
    # Without any budget the LEFT column would be empty.
    is_bounded = any(isinstance(row[-1], Cell) and row[-1].text for row in rows)
    columns = COLUMNS if is_bounded else COLUMNS[:-1]
    return Table(session.cost_line(), columns, tuple(row[: len(columns)] for row in rows), tuple(_notes(session)))


def _row(name: str, agents: list[Agent]) -> tuple[str | Cell, ...]:
    costs = [agent.meter.cost_usd for agent in agents]
    spent = None if None in costs else sum(cost for cost in costs if cost)
    usage = sum((agent.meter.usage for agent in agents), Usage())
    return (name, agents[-1].preamble.model, *_used(agents, usage, spent, agents[-1].meter.own))


def _used(agents: list[Agent], usage: Usage, spent: float | None, budget: Budget) -> tuple[str | Cell, ...]:
    about = "~" if usage.is_estimated else ""
    bounds = [(kind, most) for kind, most in budget.allowance._asdict().items() if most]
    left = [f"{shown(kind, max(0, most - getattr(budget.used, kind)))} of {shown(kind, most)}" for kind, most in bounds]
    return (
        str(sum(agent.meter.turns for agent in agents)),
        f"{about}{usage.prompt_tokens:,}",
        f"{usage.cache_read_input_tokens:,}",
        f"{about}{usage.output_tokens:,}",
        Cell(dollars(spent), "warn" if spent is None else ""),
        Cell(", ".join(left), "bad" if budget.reached() else ""),
    )


def _notes(session: Session) -> Iterator[str]:
    used = [agent for agent in session.agents if agent.meter.turns]
    # A known price makes no tokens cost $0; None means that there is none.
    if unpriced := sorted({a.preamble.model for a in used if a.meter.price(Usage(), a.preamble.model) is None}):
        names = ", ".join(unpriced)
        yield f"No price is known for {names}, so only tokens count. Set one under `prices` in the settings."
    if session.usage.is_estimated:
        yield ESTIMATED
    yield f"The built-in prices are of {built_in_prices().date}."
