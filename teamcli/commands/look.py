"""Slash commands that show what has been done: costs, changed files, what was folded away."""

from __future__ import annotations

from collections.abc import Iterable

from teamcli.agent.limits import Budget, shown
from teamcli.agent.loop import Agent
from teamcli.cancel import CancelScope
from teamcli.commands.base import Cell, Column, Diff, Expand, Group, Job, Kind, Now, Table, Verbosity, command
from teamcli.commands.changed_files import changed_otherwise, describe_changes
from teamcli.commands.reports.team import dollars
from teamcli.errors import UsageError
from teamcli.llm.pricing import built_in_prices
from teamcli.llm.types import Usage
from teamcli.session.session import LEAD, Session
from teamcli.text.table import text_of

COST_COLUMNS = (
    Column("AGENT", "name"),
    Column("MODEL", "dim", shrinks=True, may_go=True),
    Column("CALLS", right=True, may_go=True),
    Column("TOKENS IN", right=True),
    Column("CACHED", "dim", right=True, may_go=True),
    Column("OUT", right=True),
    Column("COST", right=True),
    Column("LEFT", right=True, may_go=True),
)
SWITCH = {"": None, "on": True, "off": False}


@command("cost", group=Group.LOOK)
def cost(session: Session, arguments: str) -> Table:
    """Show what this run has used, agent by agent.

    CACHED tokens are among those that went in, and cost a tenth. LEFT is what a budget (/budget) still allows. A model
    whose price is not known has tokens only, and says so; give one under `prices` in the settings.
    """
    by_name: dict[str, list[Agent]] = {}
    for agent in session.agents:
        by_name.setdefault(agent.name, []).append(agent)
    rows = tuple(_cost_row(name, agents) for name, agents in by_name.items())
    unpriced = sorted(
        {a.preamble.model for a in session.agents if a.meter.turns and a.price(Usage(), a.preamble.model) is None}
    )
    unknown = (
        f"No price is known for {', '.join(unpriced)}, so only tokens count: `prices` in the settings can give one."
    )
    estimated = "~ is an estimate from bytes: the endpoint does not count tokens, or a call was interrupted."
    notes = (
        *((unknown,) if unpriced else ()),
        *((estimated,) if session.usage.is_estimated else ()),
        f"The built-in prices are of {built_in_prices().date}.",
    )
    return _without_empty_left(Table(session.cost_line(), COST_COLUMNS, (*rows, *_total(session, rows)), notes))


@command("diff", usage="[NAME]", arguments=(Kind.AGENT,), group=Group.LOOK)
def diff(session: Session, arguments: str) -> Job:
    """Show what agents changed in files, and who it was.

    With NAME, only files that NAME has changed. From what stood there before an agent of this run first changed a file,
    to what stands there now. What commands changed is not known: in a git repository, files that git sees as changed
    and no agent's file tool touched are named at the end.
    """
    name = _agent_name(session, arguments) if arguments else ""

    def compare(cancel: CancelScope) -> Now:
        changes = [change for change in session.changes.all() if not name or name in change.agents]
        text = describe_changes(changes, session.workspace)
        otherwise = (
            "" if name else changed_otherwise(session.changes.all(), session.workspace.root, session.host, cancel)
        )
        title = "Changed since teamcli was started here:" if text else _no_change(name)
        return Diff("\n\n".join(filter(None, (text, otherwise))), title) if text or otherwise else title

    return Job(compare, "")


@command("expand", usage="[N]", group=Group.LOOK)
def expand(session: Session, arguments: str) -> Expand:
    """Show more of what was folded; 1 is the newest.

    Up to 2,000 lines, 200 of a diff. Ctrl-O does the same for the newest.
    """
    if arguments and not (arguments.isdecimal() and int(arguments)):
        raise UsageError(f"N must be a whole number from 1 up, not '{arguments}': /expand [N]")
    return Expand(int(arguments or 1))


@command("verbose", usage="[on|off]", group=Group.LOOK)
def verbose(session: Session, arguments: str) -> Verbosity:
    """Show more from now on, or fold again."""
    if arguments not in SWITCH:
        raise UsageError(f"'{arguments}' is neither on nor off: /verbose [on|off]")
    return Verbosity(SWITCH[arguments])


def _cost_row(name: str, agents: list[Agent]) -> tuple[str | Cell, ...]:
    """Of an agent, and of those who had its name before it was hired again."""
    usage = sum((agent.meter.usage for agent in agents), Usage())
    costs = [agent.meter.cost_usd for agent in agents]
    spent = None if None in costs else sum(cost for cost in costs if cost)
    calls = sum(agent.meter.turns for agent in agents)
    return (name, agents[-1].preamble.model, str(calls), *_tokens(usage), _money(spent), _left(agents[-1].meter.own))


def _total(session: Session, rows: tuple[tuple[str | Cell, ...], ...]) -> Iterable[tuple[str | Cell, ...]]:
    if len(rows) > 1:
        calls = sum(agent.meter.turns for agent in session.agents)
        spent = session.budget.spent_usd if session.budget.is_known else None
        left = _left(session.budget)
        yield (Cell("total", "dim"), "", str(calls), *_tokens(session.usage), _money(spent), left)


def _without_empty_left(table: Table) -> Table:
    if any(text_of(row[-1]) for row in table.rows):
        return table
    return table._replace(columns=table.columns[:-1], rows=tuple(row[:-1] for row in table.rows))


def _left(budget: Budget) -> Cell:
    """What it still allows of each kind that is bounded."""
    used = budget.used
    bounds = [(kind, most, most - getattr(used, kind)) for kind, most in budget.allowance._asdict().items() if most]
    texts = [f"{shown(kind, max(0, left))} of {shown(kind, most)}" for kind, most, left in bounds]
    return Cell(", ".join(texts), "bad" if budget.reached() else "")


def _tokens(usage: Usage) -> tuple[str, str, str]:
    about = "~" if usage.is_estimated else ""
    return f"{about}{usage.prompt_tokens:,}", f"{usage.cache_read_input_tokens:,}", f"{about}{usage.output_tokens:,}"


def _money(spent: float | None) -> Cell:
    return Cell(dollars(spent), "warn" if spent is None else "")


def _agent_name(session: Session, name: str) -> str:
    wanted = name.removeprefix("@")
    known = dict.fromkeys((LEAD, *session.team.roster.names(), *(agent.name for agent in session.agents)))
    for each in known:
        if each.casefold() == wanted.casefold():
            return each
    raise UsageError(f"there is nobody called '{wanted}'; there are: {', '.join(known)}")


def _no_change(name: str) -> str:
    what = f"{name} has changed no file" if name else "No agent has changed a file"
    return f"{what} since teamcli was started."
