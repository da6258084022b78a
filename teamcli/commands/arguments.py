"""What can stand at a place among a command's arguments, at this moment; for completion."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from teamcli.agent.budgets import SESSION, TEAM
from teamcli.commands.base import Kind, Option
from teamcli.commands.budget import AMOUNTS
from teamcli.commands.catalog import all_commands
from teamcli.commands.session import mode_options, model_options, session_options
from teamcli.session.session import LEAD, Session
from teamcli.team.requests import Kind as RequestKind
from teamcli.text.escaping import one_line


def candidates(session: Session, kind: Kind) -> tuple[Option, ...]:
    """The values there are, each with a word on what it is; nothing for free text. Listing sessions reads a file."""
    return _LISTS[kind](session)


def _teammates(session: Session) -> tuple[Option, ...]:
    return tuple(Option(member.name, one_line(member.role, 40)) for member in session.team.roster.members())


def _agents(session: Session) -> tuple[Option, ...]:
    return (Option(LEAD, ""), *_teammates(session))


def _subagents(session: Session) -> tuple[Option, ...]:
    found = session.subagents.snapshots() if session.subagents else ()
    return tuple(Option(each.id, one_line(f"{each.name}, {each.state}", 60)) for each in found)


def running_subagents(session: Session) -> tuple[Option, ...]:
    found = session.subagents.snapshots() if session.subagents else ()
    return tuple(Option(each.id, one_line(each.name, 40)) for each in found if not each.state.is_final)


def _budgets(session: Session) -> tuple[Option, ...]:
    shared = (Option(SESSION, "all agents, in this run"), Option(TEAM, "all teammates, in this run"))
    return (*shared, *_agents(session))


def _commands(session: Session) -> tuple[Option, ...]:
    return tuple(Option(entry.name, entry.help) for entry in all_commands(session))


def _plans(session: Session) -> tuple[Option, ...]:
    plans = session.team.roster.requests.standing(kind=RequestKind.PLAN)
    return tuple(Option(plan.id, f"the plan of {plan.teammate}") for plan in plans)


_LISTS: Mapping[Kind, Callable[[Session], tuple[Option, ...]]] = {
    Kind.TEAMMATE: _teammates,
    Kind.AGENT: _agents,
    Kind.ANYBODY: lambda session: (*_agents(session), *running_subagents(session)),
    Kind.SUBAGENT: _subagents,
    Kind.MODEL: model_options,
    Kind.MODE: mode_options,
    Kind.SESSION: session_options,
    Kind.COMMAND: _commands,
    Kind.BUDGET: _budgets,
    Kind.AMOUNT: lambda session: tuple(Option(amount, label) for amount, label in AMOUNTS),
    Kind.PLAN: _plans,
    Kind.TEXT: lambda session: (),
}
