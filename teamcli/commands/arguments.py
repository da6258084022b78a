"""The values that a command's argument can have right now, for completion."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from teamcli.agent.budgets import SESSION, TEAM
from teamcli.commands.base import ArgumentKind, Option
from teamcli.commands.budget import AMOUNTS
from teamcli.commands.catalog import all_commands
from teamcli.commands.jobs import ALL, job_options
from teamcli.commands.mcp import VERBS as MCP_VERBS
from teamcli.commands.mcp import server_options
from teamcli.commands.session import mode_options, model_options, session_options
from teamcli.commands.tasks import VERB_OPTIONS
from teamcli.session.session import Session
from teamcli.team.message import LEAD
from teamcli.team.requests import Kind as RequestKind
from teamcli.text.escaping import one_line

Options = tuple[Option, ...]


def candidates(session: Session, kind: ArgumentKind) -> Options:
    """The values, each with a short description; none for free text. Listing sessions reads a file."""
    return VALUES[kind](session)


def running_subagents(session: Session) -> Options:
    found = session.subagents.snapshots() if session.subagents else ()
    # One that has ended can neither be stopped nor read a message.
    return tuple(Option(each.id, one_line(each.name, 40)) for each in found if not each.state.is_final)


def _teammates(session: Session) -> Options:
    return tuple(Option(member.name, one_line(member.role, 40)) for member in session.team.roster.members())


def _agents(session: Session) -> Options:
    return (Option(LEAD, ""), *_teammates(session))


def _open_tasks(session: Session) -> Options:
    found = session.board.open().tasks() if session.board.exists else ()
    return tuple(Option(str(task.id), one_line(task.subject, 60)) for task in found if not task.status.is_over)


_SHARED_BUDGETS = (Option(SESSION, "all agents, in this run"), Option(TEAM, "all teammates, in this run"))
_JOB_VERBS = (Option("stop", "stop a job, or all"),)

VALUES: Mapping[ArgumentKind, Callable[[Session], Options]] = {
    ArgumentKind.TEAMMATE: _teammates,
    ArgumentKind.AGENT: _agents,
    ArgumentKind.ANY_AGENT: lambda session: (*_agents(session), *running_subagents(session)),
    ArgumentKind.SUBAGENT: lambda session: tuple(
        Option(each.id, one_line(f"{each.name}, {each.state}", 60))
        for each in (session.subagents.snapshots() if session.subagents else ())
    ),
    ArgumentKind.MODEL: model_options,
    ArgumentKind.MODE: mode_options,
    ArgumentKind.SESSION: session_options,
    ArgumentKind.COMMAND: lambda session: tuple(Option(each.name, each.help) for each in all_commands(session)),
    ArgumentKind.BUDGET: lambda session: (*_SHARED_BUDGETS, *_agents(session)),
    ArgumentKind.AMOUNT: lambda session: AMOUNTS,
    ArgumentKind.PLAN: lambda session: tuple(
        Option(plan.id, f"the plan of {plan.teammate}")
        for plan in session.team.roster.requests.all_open(kind=RequestKind.PLAN)
    ),
    ArgumentKind.TEAM_VERB: lambda session: (Option("save", "write the members to .team/team.toml"),),
    ArgumentKind.TASK_VERB: lambda session: (*VERB_OPTIONS, *_open_tasks(session)),
    ArgumentKind.TASK: _open_tasks,
    ArgumentKind.JOB_VERB: lambda session: (*_JOB_VERBS, *job_options(session)),
    ArgumentKind.JOB: lambda session: (*job_options(session), Option(ALL, "all that run")),
    ArgumentKind.MCP_VERB: lambda session: (*MCP_VERBS, *server_options(session)),
    ArgumentKind.MCP_SERVER: server_options,
    ArgumentKind.SWITCH: lambda session: (Option("on", ""), Option("off", "")),
    ArgumentKind.TEXT: lambda session: (),
}
