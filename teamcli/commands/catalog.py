"""All slash commands, and how a line that starts with `/` finds its command."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from teamcli.agent.events import Notice, Severity
from teamcli.commands import budget, context, cost, diff, display, hooks, jobs, mcp, merge, tasks, team, watch
from teamcli.commands import session as session_commands
from teamcli.commands.base import ArgumentKind, CommandResult, Group, SlashCommand, command
from teamcli.commands.elsewhere import INSTEAD
from teamcli.commands.help import help_table, help_text
from teamcli.commands.written import call
from teamcli.config.custom_commands import DESCRIPTION_LIMIT, CustomCommand
from teamcli.config.skills import Skill
from teamcli.errors import UsageError
from teamcli.session.session import Session
from teamcli.team.message import LEAD
from teamcli.text.escaping import one_line

MOST_SUGGESTED = 3


@command("help", usage="[COMMAND]", aliases=("?",), arguments=(ArgumentKind.COMMAND,))
def show_help(session: Session, arguments: str) -> CommandResult:
    """Show what can be typed here, or more about one command."""
    if arguments:
        return help_text(find_command(session, arguments.removeprefix("/")))
    found = session.catalog.custom_commands.find()
    session.catalog.custom_commands.new_problems()  # marks them as reported: the table shows them
    taken = {*_BUILT_IN, *(each.name for each in found.commands)}
    unused = [
        *(f"{each.source} is not used: /{each.name} is built in." for each in found.commands if each.name in _BUILT_IN),
        *(
            f"{each.shown} cannot be called: /{each.name} is another command."
            for each in session.catalog.skills
            if each.for_user and each.name in taken
        ),
    ]
    return help_table(all_commands(session), (*found.problems, *unused), session.catalog.roles)


COMMANDS: tuple[SlashCommand, ...] = (
    show_help,
    team.send,
    team.team,
    watch.watch,
    team.inbox,
    team.wait,
    team.stop,
    team.pause,
    team.resume,
    team.shutdown,
    team.forget,
    merge.merge,
    team.discard,
    team.approve,
    team.reject,
    tasks.tasks,
    jobs.jobs,
    session_commands.compact,
    session_commands.clear,
    session_commands.sessions,
    session_commands.model,
    session_commands.permissions,
    session_commands.leave,
    mcp.mcp,
    team.log,
    cost.cost,
    context.context,
    budget.budget,
    diff.diff,
    team.agents,
    hooks.hooks,
    display.expand,
    display.verbose,
)
"""The built-in commands, in the order of `/help` and the README. Add a new one here."""

_BUILT_IN = {name: each for each in COMMANDS for name in (each.name, *each.aliases)}


def all_commands(session: Session) -> tuple[SlashCommand, ...]:
    """The built-in commands, then the user's own, then skills. If names clash, the first wins."""
    found = session.catalog.custom_commands.find().commands
    own = [each for each in found if each.for_user and each.name not in _BUILT_IN]
    taken = {*_BUILT_IN, *(each.name for each in own)}
    skills = (each for each in session.catalog.skills if each.for_user and each.name not in taken)
    return (*COMMANDS, *map(_from_file, own), *map(_from_skill, skills), *mcp.prompt_commands(session))


def find_command(session: Session, name: str) -> SlashCommand:
    """Raises: UsageError, suggesting the nearest name."""
    if (built_in := _BUILT_IN.get(name)) is not None:  # without reading the files of custom commands
        return built_in
    if (prompt := mcp.find_prompt(session, name)) is not None:
        return prompt
    by_name = _BUILT_IN | {each.name: each for each in all_commands(session)}
    for problem in session.catalog.custom_commands.new_problems():
        session.events(Notice(LEAD, problem, Severity.WARNING))
    if name in by_name:
        return by_name[name]
    raise UsageError(f"unknown command /{name}: {INSTEAD.get(name.lower()) or _nearest(name, by_name)}")


def _nearest(name: str, names: Iterable[str]) -> str:
    begin = [f"/{each}" for each in names if name and each.startswith(name.lower())]
    near = begin or [f"/{each}" for each in difflib.get_close_matches(name, names, 1, 0.5)]
    return f"did you mean {' or '.join(near)}?" if 0 < len(near) <= MOST_SUGGESTED else "/help lists them"


def run_command(session: Session, line: str) -> CommandResult:
    """Run a line such as `/model claude-x`.

    Raises: Leave, TeamcliError
    """
    name, arguments = [*line.removeprefix("/").split(maxsplit=1), "", ""][:2]
    return find_command(session, name).run(session, arguments.strip())


def _from_file(custom: CustomCommand) -> SlashCommand:
    return SlashCommand(
        custom.name,
        custom.hint,
        custom.description,
        lambda session, arguments: call(session, custom.name, custom.invoke(arguments)),
        group=Group.CUSTOM,
        details=f"From {custom.source}; its text goes to the lead:\n\n{custom.text}",
    )


def _from_skill(skill: Skill) -> SlashCommand:
    return SlashCommand(
        skill.name,
        skill.hint or "[TEXT]",
        one_line(skill.description, DESCRIPTION_LIMIT),
        lambda session, arguments: call(session, skill.name, skill.invoke(arguments)),
        group=Group.SKILLS,
        details=f"A skill, from {skill.shown}; its text goes to the lead. Agents also read it when it fits their task.",
    )
