"""`/budget`: show, set, raise and lift what agents, the team and the session may use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from teamcli.agent.budgets import SESSION, TEAM, used_from
from teamcli.agent.limits import Budget, shown
from teamcli.commands.base import ArgumentKind, Cell, Column, CommandResult, Group, Option, Table, command
from teamcli.config.settings import Allowance
from teamcli.errors import UsageError
from teamcli.llm.types import Usage
from teamcli.session.session import Session
from teamcli.team.message import LEAD, find_name
from teamcli.team.roster import Member

AMOUNTS = (
    Option("2.00", "dollars in total"),
    Option("+1.00", "dollars from now on"),
    Option("200k tokens", "in and out, cached or not"),
    Option("50 calls", "of the model"),
    Option("10 min", "of work"),
    Option("off", "no limit"),
)
ACCEPTED = "say for example 2.00 (dollars), 200k tokens, 50 calls, 10 min, +1.00 (more from now on) or off"
COLUMNS = (
    Column("FOR", "name", shrinks=True),
    Column("LIMIT", right=True),
    Column("LEFT", right=True),
    Column("USED", goes_below=True),
)
COUNTING = "A teammate counts in total, across restarts; the session, the team, the lead and sub-agents in this run."
SUBAGENTS = "What a sub-agent uses also counts for the agent that started it."
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
_KIND_NAMES = {"usd": "dollars", "calls": "model calls", "seconds": "time"}


class BudgetChange(NamedTuple):
    kinds: tuple[str, ...]
    """The fields of `Allowance` to set."""
    amount: float | None = None
    """None removes the limit."""
    is_more: bool = False
    """The amount is on top of what is used so far."""


@command("budget", usage="[NAME AMOUNT]", arguments=(ArgumentKind.BUDGET, ArgumentKind.AMOUNT), group=Group.REPORTS)
def budget(session: Session, arguments: str) -> CommandResult:
    """Show what agents may use, or limit NAME to AMOUNT.

    NAME is an agent, team (all teammates) or session (everyone). What is used so far counts, except with +AMOUNT.
    /budget alice 2.00           dollars
    /budget alice 200k tokens    in and out, cached or not
    /budget alice 50 calls       of the model
    /budget alice 10 min         of work; waiting for your answer does not count
    /budget alice +1.00          this much more from now on
    /budget alice off            no limit; also: off tokens
    An agent that reaches a limit is paused, and resumes once you raise it. A teammate's limit is kept; the others apply
    to this run. To keep those, set `budgets` in the settings.
    """
    name, _, words = arguments.partition(" ")
    budgets = _all(session)
    if not name:
        return _table(session, budgets)
    if (target := find_name(name.removeprefix("@"), budgets)) is None:
        raise UsageError(f"there is no budget for '{name.removeprefix('@')}'; there are: {', '.join(budgets)}")
    if not words.strip():
        return _table(session, {target: budgets[target]})
    return _set(session, target, budgets[target], _parse(words))


def _set(session: Session, target: str, now: Budget, change: BudgetChange) -> str:
    """Raises: UsageError."""
    kind, amount = change.kinds[0], change.amount
    if kind == "usd" and amount is not None:
        _check_prices(session, target)
    used: float = getattr(now.used, kind)
    if amount is not None and change.is_more:
        amount += used
    chosen = dict.fromkeys(change.kinds, amount)
    # Before the change: a member on another host may have resumed by the time it is stored.
    elsewhere = [
        each for each in session.team.roster.members() if each.name == target and _is_paused_elsewhere(session, each)
    ]
    # A teammate may be called `team`; that name still means the whole team.
    if target not in (SESSION, TEAM) and target in session.team.roster.names():
        member = session.team.roster.get(target)
        member = session.team.roster.update(member.name, budget={**member.budget, **chosen})
        now.allow(session.budgets.for_member(member.name, member.budget))
    else:
        now.allow(now.allowance._replace(**chosen))
    words = [_describe(target, change.kinds, now)]
    words += [f"{name} resumes." for name in session.team.resume_within_limits()]
    words += ["The lead resumes with your next line."] if session.lead.resume_within_limits() else []
    words += [f"Its host, {each.runs_on or each.host}, resumes {each.name} if that is enough." for each in elsewhere]
    if not elsewhere:  # a teammate may have reached two limits, of which this was one
        paused = [each for each in session.team.roster.members() if each.limit and each.name == target]
        words += [f"{each.name} stays paused: {each.limit}." for each in paused]
    return " ".join(words)


def _is_paused_elsewhere(session: Session, member: Member) -> bool:
    is_elsewhere = bool(member.host) and member.is_active and session.team.agents.teammate(member.name) is None
    return is_elsewhere and bool(member.limit)


def _describe(target: str, kinds: tuple[str, ...], now: Budget) -> str:
    kind = kinds[0]
    amount = getattr(now.allowance, kind)
    if amount is None:
        return f"{target}: no limit{'' if len(kinds) > 1 else f' on {_KIND_NAMES.get(kind, kind)}'}."
    used = getattr(now.used, kind)
    counted = "in this run" if now.name in (SESSION, TEAM, LEAD) else "in total"
    left = "that is used up already" if used >= amount else f"{shown(kind, amount - used)} left"
    return f"{target}: {shown(kind, amount)} {counted}; {shown(kind, used)} used, {left}."


def _parse(words: str) -> BudgetChange:
    """Raises: UsageError, listing what is accepted."""
    text = " ".join(words.casefold().split())
    if "off" in text.split():
        units = [word for word in text.split() if word != "off"]
        if len(units) > 1 or (units and units[0] not in _UNITS):
            raise UsageError(f"'{text}' is not a valid amount: {ACCEPTED}")
        return BudgetChange((_UNITS[units[0]][0],) if units else Allowance._fields)
    found = _AMOUNT.fullmatch(text)
    # `200k` alone can only mean tokens.
    unit = "tokens" if found and found["scale"] and not found["unit"] else found["unit"] if found else "?"
    if found is None or unit not in _UNITS or (found["sign"] and _UNITS[unit][0] != "usd"):
        raise UsageError(f"'{words}' is not a valid amount: {ACCEPTED}")
    kind, factor = _UNITS[unit]
    amount = float(re.sub("[,_]", "", found["number"])) * _SCALES[found["scale"]] * factor
    amount = int(amount) if kind in ("tokens", "calls") else amount
    if amount <= 0 or amount >= 1e12:
        raise UsageError(f"'{words}' is out of range: {ACCEPTED}")
    return BudgetChange((kind,), amount, bool(found["more"]))


def _check_prices(session: Session, target: str) -> None:
    """Raises: UsageError, if dollars could not be counted."""
    for agent in session.agents:
        is_meant = target == SESSION or (
            session.budgets.team in agent.meter.budgets if target == TEAM else agent.name == target
        )
        if is_meant and agent.meter.price(Usage(), agent.preamble.model) is None:
            raise UsageError(
                f"no price is known for {agent.preamble.model}, so dollars cannot be counted for {target}: set one"
                f" under `prices` in the settings, or limit tokens (/budget {target} 200k tokens)"
            )


def _all(session: Session) -> dict[str, Budget]:
    """Every budget, also of teammates that are shut down. A teammate called `session` does not hide the session's."""
    budgets = session.budgets
    of_members = {
        member.name: budgets.session.new(
            member.name, budgets.for_member(member.name, member.budget), used_from(member.used)
        )
        for member in session.team.roster.members()
    }
    lead = budgets.of(LEAD) or budgets.session
    everyone = {**of_members, **budgets.of_agents()}
    of_agents = {name: each for name, each in everyone.items() if name.casefold() != SESSION}
    return {SESSION: budgets.session, TEAM: budgets.team, LEAD: lead, **of_agents}


def _table(session: Session, budgets: Mapping[str, Budget]) -> Table:
    rows = tuple(row for name, each in budgets.items() for row in _rows(name, each))
    turns = session.lead.agent.meter.max_turns
    per_agent = () if turns is None else (f"--max-turns gives each agent {shown('calls', turns)} in this run.",)
    return Table("", COLUMNS, rows, (COUNTING, SUBAGENTS, *per_agent))


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
    """For a narrow table."""
    return shown(kind, amount).replace("model ", "")
