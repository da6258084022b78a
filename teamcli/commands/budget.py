"""`/budget`: how much agents, the team and the session may use; shown, set, raised and lifted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from teamcli.agent.budgets import SESSION, TEAM, used_from
from teamcli.agent.limits import Budget, shown
from teamcli.agent.loop import Agent
from teamcli.commands.base import Cell, Column, Group, Kind, Shown, Table, command
from teamcli.config.settings import Allowance
from teamcli.errors import UnknownTeammate, UsageError
from teamcli.llm.types import Usage
from teamcli.session.session import LEAD, Session

AMOUNTS = (
    ("2.00", "dollars in all"),
    ("+1.00", "dollars from now on"),
    ("200k tokens", "in and out, cached or not"),
    ("50 calls", "of the model"),
    ("10 min", "of work"),
    ("off", "no bound"),
)
ACCEPTED = "say for example 2.00 (dollars), 200k tokens, 50 calls, 10 min, +1.00 (more from now on) or off"
COLUMNS = (
    Column("FOR", "name", shrinks=True),
    Column("LIMIT", right=True),
    Column("LEFT", right=True),
    Column("USED", goes_below=True),
)
COUNTING = "A teammate counts in all, restarts included; the session, the team, the lead and sub-agents in this run."
SUBAGENTS = "What a sub-agent uses counts for the one who started it, too."
_AMOUNT = re.compile(
    r"(?P<more>\+?) *(?P<sign>\$?) *(?P<number>\d[\d,_]*(\.\d+)?|\.\d+) *(?P<scale>k|m(?= *tok))? *(?P<unit>[a-z]*)"
)
_UNITS: Mapping[str, tuple[str, float]] = {
    **dict.fromkeys(("", "$", "usd", "dollar", "dollars"), ("usd", 1)),
    **dict.fromkeys(("tok", "token", "tokens"), ("tokens", 1)),
    **dict.fromkeys(("call", "calls", "turn", "turns"), ("calls", 1)),
    **dict.fromkeys(("s", "sec", "second", "seconds"), ("seconds", 1)),
    **dict.fromkeys(("m", "min", "minute", "minutes"), ("seconds", 60)),
    **dict.fromkeys(("h", "hour", "hours"), ("seconds", 3600)),
}
_SCALES = {None: 1, "k": 1_000, "m": 1_000_000}


class Change(NamedTuple):
    """What the user wants of a budget."""

    kinds: tuple[str, ...]
    amount: float | None = None
    """None for no bound."""
    is_more: bool = False
    """Beyond what is used by now."""


@command("budget", usage="[NAME AMOUNT]", arguments=(Kind.BUDGET, Kind.AMOUNT), group=Group.LOOK)
def budget(session: Session, arguments: str) -> Shown:
    """Show what agents may use, or bound NAME to AMOUNT.

    NAME is an agent, team (all teammates) or session (everybody). What is used by now counts, but for +AMOUNT.
    /budget alice 2.00           dollars
    /budget alice 200k tokens    in and out, cached or not
    /budget alice 50 calls       of the model
    /budget alice 10 min         of work; a question that waits for you does not count
    /budget alice +1.00          so much more from now on
    /budget alice off            no bound any more; also: off tokens
    Who reaches a bound is paused, and goes on once it is raised. A bound on a teammate is kept; others hold for this
    run, and for longer in the settings (`budgets`).
    """
    name, _, words = arguments.partition(" ")
    if not name:
        return _table(session, _all(session))
    target = _target(session, name)
    if not words.strip():
        return _table(session, {target: _budget_of(session, target)})
    return _set(session, target, _parse(words))


def _set(session: Session, target: str, change: Change) -> str:
    """Raises: UsageError."""
    if "usd" in change.kinds and change.amount is not None:
        _check_prices(session, target)
    now = _budget_of(session, target)
    most = _in_all(change, now)
    chosen = dict.fromkeys(change.kinds, most)
    if _is_member(session, target):
        member = session.team.roster.get(target)
        member = session.team.roster.update(member.name, budget={**member.budget, **chosen})
        now.allow(session.budgets.for_member(member.name, member.budget))
    else:
        now.allow(now.allowance._replace(**chosen))
    return " ".join([_as_set(target, change.kinds, now), *_who_goes_on(session), *_who_does_not(session, target)])


def _in_all(change: Change, now: Budget) -> float | None:
    if change.amount is None or not change.is_more:
        return change.amount
    used: float = getattr(now.used, change.kinds[0])
    return used + change.amount


def _as_set(target: str, kinds: tuple[str, ...], now: Budget) -> str:
    amount = getattr(now.allowance, kinds[0])
    if amount is None:
        what = "" if len(kinds) > 1 else f" {_name_of(kinds[0])}"
        return f"{target}: no bound on{what or ' what it uses'} any more."
    used = getattr(now.used, kinds[0])
    left = "that is used up already" if used >= amount else f"{shown(kinds[0], amount - used)} left"
    return f"{target}: {shown(kinds[0], amount)} {_counts(now)}; {shown(kinds[0], used)} used, {left}."


def _counts(now: Budget) -> str:
    return "in this run" if now.name in (SESSION, TEAM, LEAD) else "in all"


def _who_goes_on(session: Session) -> list[str]:
    """Those who were stopped at a limit and may go on, told to."""
    said = [f"{name} goes on." for name in session.team.look_at_limits()]
    return [*said, "The lead goes on with your next line."] if session.lead.look_at_limits() else said


def _who_does_not(session: Session, target: str) -> list[str]:
    """Where it is another limit that keeps it from going on."""
    members = session.team.roster.members()
    return [f"{each.name} stays paused: {each.limit}." for each in members if each.limit and each.name == target]


def _parse(words: str) -> Change:
    """Raises: UsageError, saying what is accepted."""
    text = " ".join(words.casefold().split())
    if "off" in text.split():
        return _lifted(text)
    found = _AMOUNT.fullmatch(text)
    unit = "tokens" if found and found["scale"] and not found["unit"] else found["unit"] if found else "?"
    if found is None or unit not in _UNITS or (found["sign"] and _UNITS[unit][0] != "usd"):
        raise UsageError(f"'{words}' is no amount: {ACCEPTED}")
    kind, factor = _UNITS[unit]
    amount = float(re.sub("[,_]", "", found["number"])) * _SCALES[found["scale"]] * factor
    amount = int(amount) if kind in ("tokens", "calls") else amount
    if amount <= 0 or amount >= 1e12:
        raise UsageError(f"'{words}' is not above 0 or too much: {ACCEPTED}")
    return Change((kind,), amount, bool(found["more"]))


def _lifted(text: str) -> Change:
    units = [word for word in text.split() if word != "off"]
    if len(units) > 1 or (units and units[0] not in _UNITS):
        raise UsageError(f"'{text}' is no amount: {ACCEPTED}")
    return Change((_UNITS[units[0]][0],) if units else Allowance._fields)


def _check_prices(session: Session, target: str) -> None:
    """Raises: UsageError, where dollars could not be counted."""
    for agent in _agents_of(session, target):
        model = agent.preamble.model
        if agent.price(Usage(), model) is None:
            raise UsageError(
                f"no price is known for {model}, so dollars cannot be counted for {target}: give one under `prices` in"
                f" the settings, or bound tokens (/budget {target} 200k tokens)"
            )


def _agents_of(session: Session, target: str) -> list[Agent]:
    agents = session.agents
    if target == SESSION:
        return agents
    if target == TEAM:
        return [agent for agent in agents if session.budgets.team in agent.meter.budgets]
    return [agent for agent in agents if agent.name == target]


def _target(session: Session, name: str) -> str:
    """The exact name.

    Raises: UsageError, listing those there are
    """
    wanted = name.removeprefix("@")
    known = _all(session)
    for each in known:
        if each.casefold() == wanted.casefold():
            return each
    raise UsageError(f"there is no budget for '{wanted}'; there are: {', '.join(known)}")


def _is_member(session: Session, target: str) -> bool:
    if target in (SESSION, TEAM):
        return False
    try:
        session.team.roster.get(target)
    except UnknownTeammate:
        return False
    return True


def _budget_of(session: Session, target: str) -> Budget:
    return _all(session)[target]


def _all(session: Session) -> dict[str, Budget]:
    """Those of everybody, also of teammates that are shut down; one called `session` does not hide the session's."""
    budgets = session.budgets
    resting = {
        member.name: budgets.session.new(
            member.name, budgets.for_member(member.name, member.budget), used_from(member.used)
        )
        for member in session.team.roster.members()
    }
    lead = budgets.of(LEAD) or budgets.session
    of_agents = {name: each for name, each in {**resting, **budgets.of_agents()}.items() if name.casefold() != SESSION}
    return {SESSION: budgets.session, TEAM: budgets.team, LEAD: lead, **of_agents}


def _table(session: Session, budgets: Mapping[str, Budget]) -> Table:
    rows = tuple(row for name, each in budgets.items() for row in _rows(name, each))
    return Table("", COLUMNS, rows, tuple(filter(None, (COUNTING, SUBAGENTS, _per_agent(session)))))


def _rows(name: str, each: Budget) -> list[tuple[str | Cell, ...]]:
    used = each.used
    rows: list[tuple[str | Cell, ...]] = []
    for kind, most in each.allowance._asdict().items():
        if most is not None:
            spent = getattr(used, kind)
            left = Cell("used up", "bad") if spent >= most else Cell(_short(kind, most - spent))
            rows.append((name, _short(kind, most), left, _short(kind, spent)))
    if rows:
        return rows
    money = shown("usd", used.usd) if each.is_known else "price unknown"
    spent = (money, _short("calls", used.calls), _short("tokens", used.tokens))
    return [(name, Cell("none", "dim"), "", Cell(", ".join(spent), "dim"))]


def _short(kind: str, amount: float) -> str:
    """As it stands in a narrow table."""
    return shown(kind, amount).replace("model ", "")


def _per_agent(session: Session) -> str:
    given = session.lead.agent.meter.max_turns
    return "" if given is None else f"--max-turns gives each agent {shown('calls', given)} in this run."


def _name_of(kind: str) -> str:
    return {"usd": "dollars", "calls": "model calls", "seconds": "time"}.get(kind, kind)
